"""Round weights of tokens to whole multiples of a step, so that their sums are exact in any order.

A sum then depends on neither the order of the codes nor the other admissions of the batch. Two outcomes can be summed
as one complex number, which costs hardly more than one outcome. Needs only NumPy.
"""

import numpy as np

from mlci.tokens import PAD

BITS = 52  # a 64-bit float holds integers of this many bits exactly


def in_steps(weights: np.ndarray, longest: int) -> tuple[np.ndarray, float]:
    """Return weights in whole multiples of a step, and the step; sums of up to `longest` rows are exact. Padding is 0.

    >>> whole, step = in_steps(np.array([[9.0], [0.5], [-0.25]]), 4)
    >>> (whole * step).ravel().tolist()
    [0.0, 0.5, -0.25]
    """
    weights = weights.astype(np.float64)
    weights[PAD] = 0
    largest = float(np.abs(weights).max(initial=0)) * longest
    step = 2.0 ** (np.ceil(np.log2(max(largest, 1e-9))) - BITS)
    return np.rint(weights / step), step


def in_pairs(columns: np.ndarray) -> np.ndarray:
    """Return the columns two by two as complex numbers, one row per pair; a last odd column is paired with 0.

    >>> in_pairs(np.array([[1.0, 2.0, 3.0]])).ravel().tolist()
    [(1+2j), (3+0j)]
    """
    rows, many = columns.shape
    wide = np.zeros((rows, many + many % 2))
    wide[:, :many] = columns
    return np.ascontiguousarray(wide.view(np.complex128).T)
