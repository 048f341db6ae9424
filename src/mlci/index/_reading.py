"""What a scorer computes for admissions: the score and, if the index has them, the log-odds of each outcome."""

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
    people: np.ndarray | None = None  # what age and sex add to log-odds (admissions, outcomes); NaN if unknown


def in_blocks(work: Callable[[int], None], many: int, size: int) -> None:
    """Call `work` with the start of each block of `size` admissions, on all cores if there are several blocks.

    >>> in_blocks(print, 4, 5)
    0
    """
    starts = range(0, many, size)
    if len(starts) < 2:
        list(map(work, starts))
        return
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(work, starts))
