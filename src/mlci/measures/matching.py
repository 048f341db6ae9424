"""Match the distribution of scores of one rule to that of another (quantile matching).

Both rules score the same admissions; the differences of their quantiles then shift other scores of the first rule.
Quantiles serve better than mean and standard deviation for skewed scores and for scores with ties, and comparing the
rules on the same admissions removes differences between admissions.
"""

import numpy as np

from mlci.measures.weighted import quantile

LEVELS = np.linspace(0.05, 0.95, 19)  # of the quantiles
UNSURE = 10  # number of admissions at which the shift is half of the difference of quantiles


def matched(
    scores: np.ndarray,
    first: np.ndarray,
    second: np.ndarray,
    *,
    weight: np.ndarray | None = None,
    other: np.ndarray | None = None,
) -> np.ndarray:
    """Shift scores as the quantiles of `first` must be shifted to become those of `second`; their order is kept.

    Args:
        scores: scores of the first rule.
        first: scores of the first rule, best of the same admissions as `second`.
        second: scores of the second rule.
        weight, other: sampling weights of `first` and `second`, if they differ.

    Returns:
        The shifted scores. Shifts are interpolated between the levels, and smaller the fewer scores `second` has.

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
