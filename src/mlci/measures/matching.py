"""Bring the scores of one rule to the distribution of another: as many reach every level.

Scores of two rules for the same admissions come in, and scores of the first rule for others; out come those others as
the second rule would spread them. Moving quantiles rather than mean and standard deviation serves skewed scores, and
scores that many admissions share; comparing the rules on the same admissions leaves out what these differ in from all.
"""

import numpy as np

from mlci.measures.weighted import quantile

LEVELS = np.linspace(0.05, 0.95, 19)
UNSURE = 10  # admissions with both scores that outweigh the belief that the rules spread alike


def matched(
    scores: np.ndarray,
    first: np.ndarray,
    second: np.ndarray,
    *,
    weight: np.ndarray | None = None,
    other: np.ndarray | None = None,
) -> np.ndarray:
    """Move scores as the quantiles of `first` must move to become those of `second`, in the same order.

    Args:
        scores: of a rule.
        first: of that rule too, best for the admissions of `second`.
        second: of another rule.
        weight, other: how much the scores of `first` and `second` count, where they count unequally.

    Returns:
        A score for each of `scores`: shifted as the nearest levels are, the less the fewer `second` holds.

    >>> matched(np.arange(5.0), np.arange(1000.0), np.arange(1000.0) + 2).round(1).tolist()
    [2.0, 3.0, 4.0, 5.0, 6.0]
    """
    sure = len(second) / (len(second) + UNSURE)
    found, wanted = quantile(first, LEVELS, weight), quantile(second, LEVELS, other)
    places, group = np.unique(found, return_inverse=True)
    shifts = sure * np.bincount(group, weights=wanted - found) / np.bincount(group)
    moved = scores + np.interp(scores, places, shifts)
    order = np.argsort(scores, kind="stable")
    moved[order] = np.maximum.accumulate(moved[order])
    return moved
