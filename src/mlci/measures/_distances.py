"""Sums of distances between numbers on a line, from their order alone: what distance correlations are made of."""

import numpy as np


def standard(x: np.ndarray) -> np.ndarray:
    """Centre and scale values, so that no sum loses its digits."""
    x = x / (np.abs(x).max() or 1.0)
    x = x - x.mean()
    return x / (x.std() or 1.0)


def distances(x: np.ndarray) -> np.ndarray:
    """Sum of distances of each sorted number to all others."""
    n = len(x)
    return (2 * np.arange(1, n + 1) - n) * x + x.sum() - 2 * np.cumsum(x)


def centred(total: float, first: np.ndarray, second: np.ndarray) -> float:
    """Return the U-centred sum of products of distances, from the sum of the plain ones and the sums of rows."""
    n = len(first)
    return total - 2 / (n - 2) * (first @ second) + first.sum() * second.sum() / ((n - 1) * (n - 2))
