"""What a scorer makes of admissions: the score, and the log-odds of each outcome where the index has its own."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Reading:
    """One row per admission, in order."""

    score: np.ndarray
    log_odds: np.ndarray | None = None  # (admissions, outcomes)
    people: np.ndarray | None = None  # what age and sex add to log-odds of risks (admissions, outcomes); NaN: not known


def in_blocks(work: Callable[[int], None], many: int, size: int) -> None:
    """Do the work of each block of so many admissions, given where it starts, on all cores where there are several.

    >>> in_blocks(print, 4, 5)
    0
    """
    starts = range(0, many, size)
    if len(starts) < 2:
        list(map(work, starts))
        return
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(work, starts))
