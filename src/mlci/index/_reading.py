"""What a scorer makes of admissions: the score, and the log-odds of each outcome where the index has its own."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Reading:
    """One row per admission, in order."""

    score: np.ndarray
    log_odds: np.ndarray | None = None  # (admissions, outcomes)
    people: np.ndarray | None = None  # what age and sex add to log-odds of risks (admissions, outcomes); NaN: not known
