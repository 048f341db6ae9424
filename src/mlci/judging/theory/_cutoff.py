"""The high-severity cutoff from the shared direction of the outcomes, and the outcomes' rates on both sides of it."""

from collections.abc import Sequence

import numpy as np

from mlci.judging.kept import Contrast, Cutoff, Rate
from mlci.judging.theory._outcomes import matrix, singular, weighted
from mlci.judging.theory._scan import scan
from mlci.measures._proportion import wilson
from mlci.measures.weighted import effective_of_mean, mean


def cutoff(score, outcomes, names: Sequence[str], *, weights=None, mass: np.ndarray | None = None) -> Cutoff:
    """Choose the high-severity cutoff: the cut most aligned with the direction that all outcomes share.

    Choose and evaluate the cutoff on different admissions.

    Args:
        score: one number per admission.
        outcomes: n x T, NaN if unknown.
        names: of the outcomes.
        weights: of the outcomes, by default equal.
        mass: survey weights of the admissions, if any.

    Returns:
        The cutoff, with its certificate.

    >>> chosen = cutoff([1, 2, 3, 4], [0, 0, 1, 1], ["mortality"])
    >>> chosen.score, chosen.share
    (3.0, 0.5)
    """
    known, v, left_out, counted = _shared(score, outcomes, names, weights, mass)
    best = scan(known, v, mass=counted).best(0)
    score = np.asarray(score, dtype=float)
    beyond = score >= best.score
    found = contrasts(score, outcomes, names, best.score, mass=mass)
    share = None if mass is None else float(mass[beyond].sum() / mass.sum())
    return Cutoff(best.score, best.rho2, int(beyond.sum()), len(score), found, left_out=left_out, weighted=share)


def certify(
    score, outcomes, names: Sequence[str], threshold: float, *, weights=None, mass: np.ndarray | None = None
) -> float:
    """Return the certificate of a given cut on given admissions: rho^2 with the direction that their outcomes share.

    Args:
        score: one number per admission.
        outcomes: n x T, NaN if unknown.
        names: of the outcomes.
        threshold: the lowest score beyond the cut.
        weights: of the outcomes, by default equal.
        mass: survey weights of the admissions, if any.

    Returns:
        The share of the bound that a two-level score with this cut reaches; NaN if all admissions are on one side.

    >>> certify([1, 2, 3, 4], [0, 0, 1, 1], ["mortality"], 3), round(certify([1, 2, 3, 4], [0, 0, 1, 1], ["m"], 4), 3)
    (1.0, 0.333)
    """
    known, v, _, counted = _shared(score, outcomes, names, weights, mass)
    step = (known >= threshold) - mean((known >= threshold).astype(float), counted)
    heavy = step if counted is None else counted * step
    length = (heavy @ step) * (v @ v if counted is None else counted @ v**2)
    return float((v @ heavy) ** 2 / length) if length > 0 else float("nan")


def _shared(
    score, outcomes, names: Sequence[str], weights, mass: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, dict[str, str], np.ndarray | None]:
    """Return the scores where all outcomes are known, their shared direction, the outcomes left out, and the mass."""
    if mass is not None:  # admissions of weight 0 count as unknown
        score = np.where(mass > 0, np.asarray(score, dtype=float), np.nan)
    known_score, known, weight, left_out = weighted(score, outcomes, names, weights)
    if mass is not None:
        used = matrix(outcomes)[:, [name in weight for name in names]]
        mass = mass[np.isfinite(np.asarray(score, dtype=float)) & ~np.isnan(used).any(axis=1)]
    alpha = np.array(list(weight.values()))
    profiles = known - mean(known, mass)
    _, u = singular(known, alpha, mass)
    squares = (profiles**2).sum(axis=0) if mass is None else mass @ profiles**2
    return known_score, profiles @ (np.sqrt(alpha / squares) * u), left_out, mass


def rate_of(events: np.ndarray, mass: np.ndarray | None = None) -> Rate:
    """Return the rate of events with its Wilson interval.

    Args:
        events: 0 or 1 of each admission.
        mass: survey weights of the admissions, if any; the interval then uses the effective sample size.

    >>> rate_of(np.array([0, 1, 1]), np.array([2.0, 1.0, 1.0])).rate
    0.5
    """
    positives, n = int(events.sum()), len(events)
    if mass is None or not mass.any():
        low, high = wilson(positives, n)
        return Rate(positives, n, float(low), float(high))
    share = float(np.average(events, weights=mass))
    worth = effective_of_mean(events - share, mass)
    low, high = wilson(share * worth, worth)
    return Rate(positives, n, float(low), float(high), share)


def contrasts(
    score, outcomes, names: Sequence[str], threshold: float, *, mass: np.ndarray | None = None
) -> tuple[Contrast, ...]:
    """Return each outcome's rate at or above a threshold of the score, and below it.

    Args:
        score: one number per admission.
        outcomes: n x T, NaN if unknown.
        names: of the outcomes.
        threshold: of the score.
        mass: survey weights of the admissions, if any.

    >>> [contrast] = contrasts([1, 2, 3, 4], [0, 0, 0, 1], ["mortality"], 3)
    >>> contrast.above.rate, contrast.below.rate
    (0.5, 0.0)
    """
    above = np.asarray(score, dtype=float) >= threshold
    outcomes = matrix(outcomes)

    def rate(values: np.ndarray, side: np.ndarray) -> Rate:
        rows = side & ~np.isnan(values)
        return rate_of(values[rows], None if mass is None else mass[rows])

    return tuple(
        Contrast(name, rate(column, above), rate(column, ~above))
        for name, column in zip(names, outcomes.T, strict=True)
    )
