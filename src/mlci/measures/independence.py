"""Bias-corrected distance correlation, and the test whether a score and an outcome are independent.

The plain distance correlation of independent variables is never 0 in a sample: its square is about 1/n too large. The
U-statistic of Székely and Rizzo (2014) is unbiased. Its null distribution is bounded by a chi-squared distribution
(Shen, Panda and Vogelstein 2022), which costs nothing. Where patients have several admissions, the outcomes of whole
patients are permuted instead. All of this needs one sort.
"""

from math import lgamma, log
from typing import Any

import numpy as np

from mlci.measures._arrays import as_outcomes, as_scores
from mlci.measures._distances import centred, distances, standard
from mlci.measures.design import numbered
from mlci.measures.distributions import chi_squared_tail

PERMUTATIONS = 199  # by default
FEWEST = 20  # different permutations: of fewer, no p-value is below 5%


def corrected_distance_correlation(score: Any, y: Any) -> float:
    """Return the bias-corrected distance correlation of a score with a binary outcome.

    Args:
        score: one number per admission.
        y: the outcome: 0, 1, or null where not known.

    Returns:
        The root of the U-statistic of the squared distance correlation; 0 where that is negative, as for half of all
        scores of pure noise.

    >>> round(corrected_distance_correlation([1, 2, 3, 4, 5, 6], [0, 0, 0, 1, 1, 1]), 3)
    0.919
    """
    return float(np.sqrt(max(squared(score, y), 0.0)))


def squared(score: Any, y: Any) -> float:
    """Return the U-statistic of the squared distance correlation, which may be negative.

    It is 0 below four admissions, and where all but one have the same score or the same outcome: both are then 0 / 0.

    Args:
        score: one number per admission.
        y: the outcome, 0 or 1.

    >>> squared([1, 2, 3, 4], [0, 1, 1, 0]) < 0
    True
    """
    scores, labels = _known(score, y)
    n, cases = len(labels), float(labels.sum())
    if not 1 < cases < n - 1:
        return 0.0
    order = np.argsort(scores)
    x, is_case = standard(scores[order]), labels[order] == 1
    if x[0] == x[-2] or x[1] == x[-1]:
        return 0.0
    rows = distances(x)
    others = np.where(is_case, n - cases, cases)  # row sums of |y − y'|
    within = distances(x[is_case]).sum()
    products = 2 * (rows[is_case].sum() - within)  # Σ |x − x'| |y − y'|
    squares = 2 * n * (x @ x) - 2 * x.sum() ** 2  # Σ |x − x'|²
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
        patients: the patient of each admission. Where some have several, the outcomes of whole patients with equally
            many admissions are permuted, and the p-value is the share of permutations with a distance correlation as
            large.
        permutations: the number of permutations. With 0, and where each patient has one admission, the chi-squared
            bound is used.
        seed: seed of the permutations.

    Returns:
        A number between 0 and 1; NaN where only one class is known, or where `permuted` gives NaN.

    >>> independence(range(40), [0] * 20 + [1] * 20) < 1e-6
    True
    """
    scores, labels = _known(score, y)
    if not 0 < labels.sum() < len(labels):
        return np.nan
    if patients is not None:
        patient = numbered(patients)[~np.isnan(as_outcomes(y, len(np.asarray(y)))[:, 0])]
        if permutations and len(np.unique(patient)) < len(patient):
            return permuted(scores, labels[:, None], patient, permutations=permutations, seed=seed)
    # For p up to 0.05, n times the U-statistic is stochastically bounded by a chi-squared variable less its mean.
    return chi_squared_tail(1, max(len(labels) * squared(scores, labels) + 1, 0.0))


def permuted(
    scores: np.ndarray, labels: np.ndarray, patient: np.ndarray, *, permutations: int = PERMUTATIONS, seed: int = 0
) -> float:
    """Return the p-value (with the +1 rule) of permutations of whole patients with equally many admissions.

    It is NaN where permutations can show little: fewer than 20 are possible, or most admissions are of patients whose
    number of admissions no other patient has, as that of hospitals.

    Args:
        scores: one number per admission.
        labels: admissions x outcomes; their distance covariances with the score are added.
        patient: the patient of each admission.
        permutations: the number of permutations.
        seed: seed of the permutations.

    >>> patient = np.arange(40) // 2
    >>> permuted(np.arange(40.0), patient[:, None] > 9, patient) < 0.05
    True
    """
    rng, labels = np.random.default_rng(seed), labels - labels.mean(axis=0)
    _, patient, sizes = np.unique(patient, return_inverse=True, return_counts=True)
    together = np.lexsort((patient, sizes[patient]))  # sort by size of the patient, then by patient
    kinds, counts = np.unique(sizes, return_counts=True)
    alone = counts == 1
    if 2 * kinds[alone].sum() > len(scores) or sum(lgamma(count + 1) for count in counts.tolist()) < log(FEWEST):
        return float("nan")
    order = np.argsort(scores, kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    gaps = np.diff(standard(scores[order]))
    groups = [  # for each size: places of the admissions along the score, and their outcomes with one row per patient
        (place[rows], labels[rows].reshape(len(rows) // size, size * labels.shape[1]))
        for rows, size in zip(np.split(together, np.cumsum(kinds * counts)[:-1]), kinds)
    ]

    def form(along: np.ndarray) -> float:  # the sum over outcomes of lᵀKl of the energy kernel, up to a factor
        reached = np.cumsum(along, axis=0)[:-1]
        return float((gaps @ (reached * reached)).sum())

    observed, as_large, along = form(labels[order]), 1, np.empty_like(labels)
    for _ in range(permutations):
        for where, outcomes in groups:
            along[where] = rng.permutation(outcomes).reshape(len(where), -1)
        as_large += form(along) >= observed * (1 - 1e-12)
    return as_large / (1 + permutations)


def _known(score: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
    scores = as_scores(score)
    labels = as_outcomes(y, len(scores))[:, 0]
    known = ~np.isnan(labels)
    return scores[known], labels[known]
