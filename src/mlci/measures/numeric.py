"""Dependence of two numeric variables (days, cost, readmissions) in O(n log n), without an n x n matrix.

The one hard term of the distance correlation is Σ |x − x'| |y − y'| over all pairs. For each admission it needs sums
over the admissions with smaller x and smaller y (`_products`). These are found by processing the ranks of y bit by bit,
from the highest, with one cumulative sum per bit (`_below`). Ties need no special care, since they contribute 0.
"""

from typing import Any

import numpy as np
from scipy.special import chdtrc

from mlci.base.errors import InputError
from mlci.measures._arrays import as_scores, unit_of
from mlci.measures._distances import centred, distances, standard
from mlci.measures.alignment import unit_bandwidth
from mlci.measures.design import numbered
from mlci.measures.independence import permuted

MOST = 3_000  # admissions for nHSIC, which needs all pairs
LEVELS = 16  # of a number in permutations of patients
PERMUTED = 50_000  # admissions in permutations of patients
# The four quadrants around a point (x, y): the sign of their pairs (concordant or not), and the signs of x and y.
QUADRANTS = ((1, 1, 1), (1, -1, -1), (-1, 1, -1), (-1, -1, 1))


def numeric_distance_correlation(x: Any, y: Any) -> float:
    """Return the distance correlation (biased, exponent 1) of two numeric variables.

    Args:
        x: one number per admission.
        y: one number per admission.

    >>> round(numeric_distance_correlation([1, 2, 3, 4], [1, 4, 9, 16]), 3)
    0.988
    """
    totals = _totals(x, y)
    if totals is None:
        return 0.0
    cross, own, other = (_mean_centred(*terms) for terms in totals)
    return float(np.sqrt(np.clip(cross / np.sqrt(own * other), 0, 1))) if own > 0 and other > 0 else 0.0


def numeric_independence(x: Any, y: Any, *, patients: Any = None) -> tuple[float, float]:
    """Return the U-statistic of the squared distance correlation, and the p-value of independence.

    Args:
        x: one number per admission.
        y: one number per admission.
        patients: the patient of each admission. Where some have several, the p-value is that of permutations of whole
            patients (`independence.permuted`), with y rounded down to at most 16 of its quantiles, and on every k-th
            patient of more than 50,000 admissions; NaN as there. Otherwise it is the chi-squared bound.

    >>> unbiased, p = numeric_independence(range(40), [value % 7 for value in range(40)])
    >>> p > 0.05
    True
    """
    totals = _totals(x, y)
    if totals is None or len(totals[0][1]) < 4:
        return 0.0, 1.0
    cross, own, other = (centred(*terms) for terms in totals)
    unbiased = float(cross / np.sqrt(own * other)) if own > 0 and other > 0 else 0.0
    patient = np.arange(len(totals[0][1])) if patients is None else numbered(patients)
    if len(np.unique(patient)) < len(patient):
        rows = patient % -(-len(patient) // PERMUTED) == 0
        return unbiased, permuted(as_scores(x, "x")[rows], _steps(as_scores(y, "y")[rows]), patient[rows])
    return unbiased, float(chdtrc(1, max(len(patient) * unbiased + 1, 0.0)))


def _steps(y: np.ndarray) -> np.ndarray:
    """Return the steps of y, admissions x levels, whose squared distances add up to the distances of y."""
    levels = np.unique(y)
    if len(levels) > LEVELS:
        levels = np.unique(np.quantile(y, np.linspace(0, 1, LEVELS), method="lower"))
    return (y[:, None] >= levels[1:]) * np.sqrt(np.diff(levels / unit_of(levels)))


def spearman(x: np.ndarray, y: np.ndarray, *, weight: np.ndarray | None = None) -> tuple[float, np.ndarray]:
    """Return Spearman's rank correlation (of weighted mid-ranks), and each admission's influence on it.

    Args:
        x: one number per admission.
        y: one number per admission.
        weight: sampling weight of each admission, if they differ.

    >>> rho, influence = spearman(np.array([1.0, 2.0, 3.0, 4.0]), np.array([1.0, 3.0, 2.0, 4.0]))
    >>> round(rho, 3), bool(abs(influence.sum()) < 1e-12)
    (0.8, True)
    """
    mass = np.ones(len(x)) if weight is None else weight
    if any(np.min(values[mass > 0]) == np.max(values[mass > 0]) for values in (x, y)):
        return np.nan, np.zeros(len(x))
    a, b = (_mid_ranks(values, mass) for values in (x, y))
    own, other = (np.sqrt(np.average(ranks**2, weights=mass)) for ranks in (a, b))
    a, b = a / own, b / other
    rho = float(np.clip(np.average(a * b, weights=mass), -1, 1))
    moved = a * b - rho * (a * a + b * b) / 2
    # An admission also moves the ranks of those above it, in x and in y.
    moved -= _up_to(x, mass * (b - rho * a)) / own + _up_to(y, mass * (a - rho * b)) / other
    return rho, mass * moved / mass.sum()


def _mid_ranks(values: np.ndarray, mass: np.ndarray) -> np.ndarray:
    """Return the weighted mid-rank of each value (the weight below it, plus half of its ties), centred."""
    ranks = _up_to(values, mass)
    return ranks - np.average(ranks, weights=mass)


def _up_to(values: np.ndarray, sums: np.ndarray) -> np.ndarray:
    """Return for each value the sum of `sums` over smaller values, plus half of that over its ties."""
    _, which = np.unique(values, return_inverse=True)
    total = np.bincount(which, sums)
    return (np.cumsum(total) - total / 2)[which]


def concordance(x: np.ndarray, y: np.ndarray, *, weight: np.ndarray | None = None) -> tuple[float, np.ndarray]:
    """Return the concordance index, and each admission's influence on it.

    It is the share of pairs of admissions with different numbers that the score orders like the numbers; ties of the
    score count half. For a binary outcome it is AUROC.

    Args:
        x: the score of each admission.
        y: the number of each admission.
        weight: sampling weight of each admission, if they differ.

    >>> round(concordance(np.array([1.0, 2.0, 3.0, 4.0]), np.array([0.0, 5.0, 2.0, 9.0]))[0], 3)
    0.833
    """
    mass = np.ones(len(x)) if weight is None else weight
    signed = sum(sign * _lower_left(first * x, second * y, mass) for sign, first, second in QUADRANTS)
    _, which = np.unique(y, return_inverse=True)
    pairs = mass.sum() - np.bincount(which, mass)[which]
    total = float(mass @ pairs)
    if not total > 0:
        return np.nan, np.zeros(len(x))
    value = float(mass @ signed) / total
    return (1 + value) / 2, mass * (signed - value * pairs) / total


def _lower_left(x: np.ndarray, y: np.ndarray, mass: np.ndarray) -> np.ndarray:
    """Return for each admission the weight of those that are strictly below it in both x and y."""
    order = np.lexsort((-y, x))  # of equal x the larger y first, so that none of them is counted as below
    rank = np.empty(len(y), dtype=np.int64)
    rank[np.lexsort((-np.arange(len(y)), y[order]))] = np.arange(len(y))  # of equal y the later has the lower rank
    found = np.empty(len(y))
    found[order] = _below(mass[order][None], rank)[0]
    return found


def numeric_nhsic(x: Any, y: Any, *, most: int = MOST) -> float:
    """Return nHSIC with Gaussian kernels of both variables, each with its reference bandwidth.

    Args:
        x: one number per admission.
        y: one number per admission.
        most: it is computed on every k-th admission if there are more than this, since it needs all pairs.

    >>> round(numeric_nhsic(range(50), range(50)), 6)
    1.0
    """
    x, y = as_scores(x, "x"), as_scores(y, "y")
    every = -(-len(x) // most)
    grams = []
    for values in (x[::every], y[::every]):
        if np.ptp(values) == 0:
            return 0.0
        gram = np.exp(-(((values[:, None] - values) / unit_bandwidth(values)) ** 2) / 2)
        gram -= gram.mean(axis=0)
        grams.append(gram - gram.mean(axis=1, keepdims=True))
    first, second = grams
    return float(np.vdot(first, second) / np.sqrt(np.vdot(first, first) * np.vdot(second, second)))


def _totals(x: Any, y: Any) -> tuple[tuple[float, np.ndarray, np.ndarray], ...] | None:
    """Return, for x with y, x with x and y with y, the sum of products of distances and the two row sums."""
    x, y = as_scores(x, "x"), as_scores(y, "y")
    if len(x) != len(y):
        raise InputError(f"y: has {len(y)} numbers and x has {len(x)}; they must be equal.")
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        return None
    order = np.argsort(x, kind="stable")
    x, y = standard(x[order] - x[order[0]]), standard(y[order] - y.min())
    place = np.argsort(y, kind="stable")
    rows, others = distances(x), np.empty_like(y)
    others[place] = distances(y[place])
    n = len(x)
    squares = [2 * n * (values @ values) - 2 * values.sum() ** 2 for values in (x, y)]
    return (_products(x, y), rows, others), (squares[0], rows, rows), (squares[1], others, others)


def _mean_centred(total: float, first: np.ndarray, second: np.ndarray) -> float:
    """Return the sum of products of two doubly centred distance matrices; arguments as in `centred`."""
    n = len(first)
    return total - 2 / n * (first @ second) + first.sum() * second.sum() / n**2


def _products(x: np.ndarray, y: np.ndarray) -> float:
    """Return Σ |x − x'| |y − y'| over all ordered pairs; x is sorted."""
    terms = np.stack([np.ones_like(x), x, y, x * y])
    before = np.cumsum(terms, axis=1) - terms
    below = _below(terms, np.argsort(np.argsort(y, kind="stable")))
    # Over pairs with x' ≤ x, |x − x'| |y − y'| is (x − x')(y − y') if y' < y, else its negative.
    rising, every = (sums[0] * x * y - sums[1] * y - sums[2] * x + sums[3] for sums in (below, before))
    return float(2 * (2 * rising.sum() - every.sum()))


def _below(terms: np.ndarray, rank: np.ndarray) -> np.ndarray:
    """Return for each column the sums over columns before it whose rank is lower."""
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
