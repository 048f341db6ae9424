"""Distance correlation without its bias, and the test whether a score tells anything of an outcome.

The plain distance correlation of two independent variables is never 0 in a sample: its square lies about 1/n above what
it estimates. The U-statistic of Székely and Rizzo (2014) is free of that bias. Its null distribution is bounded by a
chi-square one (Shen, Panda and Vogelstein 2022), which costs nothing; where admissions of a patient belong together,
the outcomes of whole patients are permuted instead. All of it in one sort.
"""

from typing import Any

import numpy as np

from mlci.measures._arrays import as_outcomes, as_scores
from mlci.measures._distances import centred, distances, standard
from mlci.measures.design import numbered
from mlci.measures.distributions import chi_squared_tail

PERMUTATIONS = 199


def corrected_distance_correlation(score: Any, y: Any) -> float:
    """Return the distance correlation of a score with a binary outcome, without its bias.

    Args:
        score: one number per admission.
        y: the outcome: 0, 1, or null where not known.

    Returns:
        The root of the squared one's U-statistic; 0 where that is negative, as for half of all scores of pure noise.

    >>> round(corrected_distance_correlation([1, 2, 3, 4, 5, 6], [0, 0, 0, 1, 1, 1]), 3)
    0.919
    """
    return float(np.sqrt(max(squared(score, y), 0.0)))


def squared(score: Any, y: Any) -> float:
    """Return the U-statistic of the squared distance correlation, which may be negative; 0 below four admissions.

    Args:
        score: one number per admission.
        y: its outcome, 0 or 1.

    >>> squared([1, 2, 3, 4], [0, 1, 1, 0]) < 0
    True
    """
    scores, labels = _known(score, y)
    n, cases = len(labels), float(labels.sum())
    if n < 4 or not 0 < cases < n or np.ptp(scores) == 0:
        return 0.0
    order = np.argsort(scores)
    x, beyond = standard(scores[order]), labels[order] == 1
    rows = distances(x)
    others = np.where(beyond, n - cases, cases)
    within = distances(x[beyond]).sum()
    products = 2 * (rows[beyond].sum() - within)
    squares = 2 * n * (x @ x) - 2 * x.sum() ** 2
    cross, own, other = (
        centred(total, first, second)
        for total, first, second in (
            (products, rows, others),
            (squares, rows, rows),
            (2 * cases * (n - cases), others, others),
        )
    )
    return float(cross / np.sqrt(own * other)) if own > 0 and other > 0 else 0.0


def independence(score: Any, y: Any, *, patients: Any = None, permutations: int = PERMUTATIONS, seed: int = 0) -> float:
    """Return the p-value of the test that score and outcome are independent.

    Args:
        score: one number per admission.
        y: the outcome: 0, 1, or null where not known.
        patients: whose admission each one is. Where some have several, the outcomes of whole patients with equally many
            admissions change places, and the p-value is the share of permutations with a distance correlation as large.
        permutations: how many. 0 takes the chi-square bound, which is also taken where each patient has one admission.
        seed: of the permutations.

    Returns:
        A number between 0 and 1; NaN where only one class is known.

    >>> independence(range(40), [0] * 20 + [1] * 20) < 1e-6
    True
    """
    scores, labels = _known(score, y)
    if not 0 < labels.sum() < len(labels):
        return np.nan
    if patients is not None:
        known = ~np.isnan(as_outcomes(y, len(np.asarray(y)))[:, 0])
        _, patient, sizes = np.unique(numbered(patients)[known], return_inverse=True, return_counts=True)
        if permutations and sizes.max() > 1:
            return _permuted(scores, labels, patient, sizes, permutations, seed)
    # n times the U-statistic is at most as large, for p up to 0.05, as a chi-square less its mean.
    return chi_squared_tail(1, max(len(labels) * squared(scores, labels) + 1, 0.0))


def _permuted(scores, labels, patient, sizes, permutations: int, seed: int) -> float:
    """Return the +1 rule over permutations of whole patients, among those with equally many admissions."""
    rng = np.random.default_rng(seed)
    together = np.lexsort((patient, sizes[patient]))  # admissions of a patient, and patients of one size, side by side
    kinds, counts = np.unique(sizes, return_counts=True)
    order = np.argsort(scores, kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    gaps = np.diff(standard(scores[order]))
    above = labels - labels.mean()
    groups = [  # where the admissions of these patients stand along the score, and their outcomes, a row per patient
        (place[rows], above[rows].reshape(-1, size))
        for rows, size in zip(np.split(together, np.cumsum(kinds * counts)[:-1]), kinds)
    ]

    def form(along: np.ndarray) -> float:
        reached = np.cumsum(along)[:-1]
        return float(gaps @ (reached * reached))

    own, beyond, along = form(above[order]), 1, np.empty_like(above)
    for _ in range(permutations):
        for where, outcomes in groups:
            along[where] = rng.permutation(outcomes).ravel()
        beyond += form(along) >= own * (1 - 1e-12)
    return beyond / (1 + permutations)


def _known(score: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
    scores = as_scores(score)
    labels = as_outcomes(y, len(scores))[:, 0]
    known = ~np.isnan(labels)
    return scores[known], labels[known]
