"""Sums of absolute differences of numbers, by sorting: the parts of distance correlations."""

import numpy as np


def standard(x: np.ndarray) -> np.ndarray:
    """Standardise values, so that no sum loses digits."""
    x = x / (np.abs(x).max() or 1.0)
    x = x - x.mean()
    return x / (x.std() or 1.0)


def distances(x: np.ndarray) -> np.ndarray:
    """Return Σ_j |x_i - x_j| for each i of sorted numbers."""
    n = len(x)
    return (2 * np.arange(1, n + 1) - n) * x + x.sum() - 2 * np.cumsum(x)


def centred(total: float, first: np.ndarray, second: np.ndarray) -> float:
    """Return the sum of products of two U-centred distance matrices (Székely and Rizzo 2014).

    `total` is the sum of products of the plain distances; `first` and `second` are the row sums of the two matrices.
    """
    n = len(first)
    return total - 2 / (n - 2) * (first @ second) + first.sum() * second.sum() / ((n - 1) * (n - 2))
