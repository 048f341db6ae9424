"""Distance correlation of two numeric variables (days, cost, readmissions) in O(n log n), without an n x n matrix.

Two arrays of numbers come in, the distance correlation and its U-statistic go out. The one hard term, the sum over all
pairs of |x − x'| |y − y'|, needs for each admission the sums over those before it in x that lie below it in y. Taken in
the order of x and parted by the binary digits of the rank in y, from the highest down, these are running sums: one pass
for each digit. Ties need no care, since they add nothing.
"""

from typing import Any

import numpy as np
from scipy.stats import chi2, rankdata

from mlci.base.errors import InputError
from mlci.measures._arrays import as_scores
from mlci.measures.independence import _centred, _distances, _standard


def numeric_distance_correlation(x: Any, y: Any) -> float:
    """Return the distance correlation (biased, exponent 1) of two numeric variables.

    Args:
        x: one number per admission.
        y: another.

    >>> round(numeric_distance_correlation([1, 2, 3, 4], [1, 4, 9, 16]), 3)
    0.988
    """
    totals = _totals(x, y)
    if totals is None:
        return 0.0
    cross, own, other = (_mean_centred(*terms) for terms in totals)
    return float(np.sqrt(np.clip(cross / np.sqrt(own * other), 0, 1))) if own > 0 and other > 0 else 0.0


def numeric_independence(x: Any, y: Any) -> tuple[float, float]:
    """Return the U-statistic of the squared distance correlation, and the p-value of independence (chi-square bound).

    Args:
        x: one number per admission.
        y: another.

    >>> unbiased, p = numeric_independence(range(40), [value % 7 for value in range(40)])
    >>> p > 0.05
    True
    """
    totals = _totals(x, y)
    if totals is None or len(totals[0][1]) < 4:
        return 0.0, 1.0
    cross, own, other = (_centred(*terms) for terms in totals)
    unbiased = float(cross / np.sqrt(own * other)) if own > 0 and other > 0 else 0.0
    return unbiased, float(chi2.sf(len(totals[0][1]) * unbiased + 1, 1))


def _totals(x: Any, y: Any) -> tuple[tuple[float, np.ndarray, np.ndarray], ...] | None:
    """Sum of products of distances with the sums of rows, for x with y, x with itself and y with itself."""
    x, y = as_scores(x, "x"), as_scores(y, "y")
    if len(x) != len(y):
        raise InputError(f"y: has {len(y)} numbers and x has {len(x)}; they must be equal.")
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        return None
    order = np.argsort(x, kind="stable")
    x, y = _standard(x[order] - x[order[0]]), _standard(y[order] - y.min())
    place = np.argsort(y, kind="stable")
    rows, others = _distances(x), np.empty_like(y)
    others[place] = _distances(y[place])
    n = len(x)
    squares = [2 * n * (values @ values) - 2 * values.sum() ** 2 for values in (x, y)]
    return (_products(x, y), rows, others), (squares[0], rows, rows), (squares[1], others, others)


def _mean_centred(total: float, first: np.ndarray, second: np.ndarray) -> float:
    n = len(first)
    return total - 2 / n * (first @ second) + first.sum() * second.sum() / n**2


def _products(x: np.ndarray, y: np.ndarray) -> float:
    """Sum over all ordered pairs of |x − x'| |y − y'|; x is sorted."""
    terms = np.stack([np.ones_like(x), x, y, x * y])
    before = np.cumsum(terms, axis=1) - terms
    below = _below(terms, rankdata(y, method="ordinal").astype(np.int64) - 1)
    # Of pairs with the smaller x behind: those that rise in y count as they are, all others with the sign turned.
    rising, every = (sums[0] * x * y - sums[1] * y - sums[2] * x + sums[3] for sums in (below, before))
    return float(2 * (2 * rising.sum() - every.sum()))


def _below(terms: np.ndarray, rank: np.ndarray) -> np.ndarray:
    """For each column the sums over columns before it whose rank is lower."""
    n = len(rank)
    found = np.zeros_like(terms)
    order = np.arange(n)  # within a group of equal higher digits, as they came
    for digit in range(max(int(n - 1).bit_length(), 1) - 1, -1, -1):
        ranks = rank[order]
        group, high = ranks >> (digit + 1), (ranks >> digit) & 1 == 1
        low = np.cumsum(np.where(high, 0.0, terms[:, order]), axis=1)
        starts = np.searchsorted(group, group[high])  # groups lie in their order
        before = np.where(starts > 0, low[:, np.maximum(starts - 1, 0)], 0.0)
        found[:, order[high]] += low[:, high] - before
        order = order[np.argsort(ranks >> digit, kind="stable")]
    return found
