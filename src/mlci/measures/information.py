"""Mutual information of a score and a binary outcome, in nats.

`mutual_information` is Ross's nearest-neighbour estimator, as scikit-learn's `mutual_info_classif` computes it and the
paper uses it (z-scored score, k = min(5, n − 1), noise of seed 12345). A score has one dimension, so sorting replaces
the search trees: the k nearest neighbours of a point in its class are among the k before and the k after it. The
plug-in estimator is for scores with few distinct values, such as Charlson's.
"""

from typing import Any, Literal

import numpy as np

from mlci.base.errors import InputError
from mlci.measures._arrays import as_outcomes, as_scores, moderate
from mlci.measures.distributions import digamma

Estimator = Literal["neighbours", "plug-in"]


def mutual_information(
    score: Any,
    y: Any,
    *,
    estimator: Estimator = "neighbours",
    neighbours: int = 5,
    seed: int = 12345,
    dtype: type = np.float64,
):
    """Return the mutual information of a score and an outcome in nats, at least 0.

    Args:
        score: one number per admission.
        y: the outcome (0, 1, null where not known), or an n x T matrix of outcomes.
        estimator: "neighbours" (Ross's, as the paper uses it) or "plug-in" (for scores with few distinct values).
        neighbours: the number of nearest neighbours of the first one.
        seed: seed of the noise that breaks ties.
        dtype: `np.float32` z-scores in single precision, as the authors' programs do; about the fourth digit changes.

    Returns:
        A float, or an array with one value per outcome of a matrix. Each outcome is judged on the admissions where it
        is known; fewer than three of them, a single class or a constant score give 0.

    >>> round(mutual_information([0, 0, 1, 1, 2, 2], [0, 0, 0, 1, 1, 1], estimator="plug-in"), 3)
    0.462
    """
    scores = as_scores(score)
    outcomes = as_outcomes(y, len(scores))
    options = {"estimator": estimator, "neighbours": neighbours, "seed": seed, "dtype": dtype}
    values = np.zeros(outcomes.shape[1])
    for column, labels in enumerate(outcomes.T):
        valid = ~np.isnan(labels)
        if valid.any():
            values[column] = max(0.0, np.mean(contributions(scores[valid], labels[valid], **options)))
    return values if np.ndim(y) == 2 else float(values[0])


def contributions(
    scores: np.ndarray,
    y: np.ndarray,
    *,
    estimator: Estimator = "neighbours",
    neighbours: int = 5,
    seed: int = 12345,
    dtype: type = np.float64,
    weight: np.ndarray | None = None,
) -> np.ndarray:
    """Return one number per admission whose mean is the estimate of mutual information (before the floor at 0).

    The numbers estimate log p(s, y) / (p(s) p(y)), which is the influence function of mutual information up to a
    constant. So means of them over resampled patients have the estimator's own variance. (To resample the neighbour
    search itself would fail, since repeated points are their own nearest neighbours.)

    Args:
        scores: one number per admission.
        y: the outcome, 0 or 1, known everywhere.
        estimator, neighbours, seed, dtype: as in `mutual_information`.
        weight: sampling weight of each admission, if they differ; for the plug-in estimator alone.

    >>> import numpy as np
    >>> contributions(np.array([0.0, 0.0, 1.0]), np.array([0, 0, 1]), estimator="plug-in").round(3)
    array([0.405, 0.405, 1.099])
    """
    if estimator not in ("neighbours", "plug-in"):
        raise InputError(f"estimator: '{estimator}' is not known; allowed are neighbours, plug-in.")
    if not isinstance(neighbours, int | np.integer) or neighbours < 1:
        raise InputError(f"neighbours: {neighbours} is not a number of neighbours; allowed are whole numbers from 1.")
    if len(y) < 3 or np.ptp(y) == 0 or (scores == scores[0]).all():
        return np.zeros(len(y))
    return _plug_in(scores, y, weight) if estimator == "plug-in" else _ross(scores, y, neighbours, seed, dtype)


def _plug_in(scores: np.ndarray, y: np.ndarray, weight: np.ndarray | None) -> np.ndarray:
    """Return log p(s, y) / (p(s) p(y)) of each admission, with frequencies for probabilities."""
    values, which = np.unique(scores, return_inverse=True)
    cells = np.bincount(which * 2 + (y == 1), weight, minlength=2 * len(values)).reshape(-1, 2)
    cell, total = cells[which, (y == 1).astype(int)], len(y) if weight is None else weight.sum()
    with np.errstate(divide="ignore", invalid="ignore"):  # of a cell without weight
        ratio = cell * total / (cells.sum(axis=1)[which] * cells.sum(axis=0)[(y == 1).astype(int)])
    return np.log(ratio, out=np.zeros(len(y)), where=ratio > 0)


def _ross(scores: np.ndarray, y: np.ndarray, neighbours: int, seed: int, dtype: type) -> np.ndarray:
    """Return ψ(n) + ψ(k) − ψ(size of the class) − ψ(points within the k-th neighbour's distance) of each admission."""
    x = _jittered(scores, seed, dtype)
    order = np.argsort(x)
    x, classes = x[order], y[order]
    radius, k, size = np.empty_like(x), np.empty_like(x), np.empty_like(x)
    for label in (0, 1):
        rows = classes == label
        members = x[rows]
        size[rows] = len(members)
        k[rows] = min(neighbours, len(y) - 1, len(members) - 1)
        if len(members) > 1:
            radius[rows] = _neighbour_distance(members, int(k[rows][0]))
    alone = size == 1  # the only member of its class has no neighbour there and is left out
    x, radius, k, size = (array[~alone] for array in (x, radius, k, size))
    local = digamma(len(x)) + digamma(k) - digamma(size) - digamma(_within(x, np.nextafter(radius, 0)))
    result = np.full(len(y), local.mean())
    result[order[~alone]] = local
    return result


def _jittered(scores: np.ndarray, seed: int, dtype: type) -> np.ndarray:
    """Return z-scores as in the paper, scaled and with noise against ties as in scikit-learn, bit for bit."""
    largest = np.abs(scores).max()
    scores = scores / largest if largest <= 1e-30 else moderate(scores, 96 if dtype is np.float64 else 48)
    scores = scores.astype(dtype)
    z = ((scores - scores.mean()) / (scores.std() + dtype(1e-8))).astype(np.float64)[:, None]
    spread = np.nanstd(z, axis=0)
    z /= np.where(spread < 10 * np.finfo(np.float64).eps, 1.0, spread)
    z += 1e-10 * np.maximum(1, np.mean(np.abs(z), axis=0)) * np.random.RandomState(seed).standard_normal((len(z), 1))
    return z[:, 0]


def _neighbour_distance(x: np.ndarray, k: int) -> np.ndarray:
    """Return the distance of each sorted point to its k-th nearest other point."""
    if k >= len(x) // 2:  # scikit-learn then computes distances by matrix product, which rounds differently
        import sklearn.metrics  # noqa: F401  (first: threads that enter a circle of imports at two places block)
        from sklearn.neighbors import NearestNeighbors

        return NearestNeighbors(n_neighbors=k).fit(x[:, None]).kneighbors()[0][:, -1]
    padded = np.concatenate([np.full(k, -np.inf), x, np.full(k, np.inf)])
    best = np.full(len(x), np.inf)
    for left in range(k + 1):  # the k nearest are `left` points before and k − left after
        below = x - padded[k - left : k - left + len(x)]
        above = padded[2 * k - left : 2 * k - left + len(x)] - x
        np.minimum(best, np.maximum(below, above), out=best)
    return best


def _within(x: np.ndarray, radius: np.ndarray) -> np.ndarray:
    """Return how many sorted points lie within each one's radius, itself included."""
    n = len(x)
    first = np.searchsorted(x, x - radius, side="left")
    last = np.searchsorted(x, x + radius, side="right") - 1
    while True:  # the sums above are rounded, so correct by the distances themselves
        out = (x - x[first] > radius).astype(int) - ((first > 0) & (x - x[first - 1] <= radius))
        beyond = x[np.minimum(last + 1, n - 1)] - x
        far = ((last < n - 1) & (beyond <= radius)).astype(int) - (x[last] - x > radius)
        if not (out.any() or far.any()):
            return last - first + 1
        first, last = first + out, last + far
