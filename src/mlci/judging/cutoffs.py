"""The sampling variability of a cutoff: a bootstrap interval over patients.

A cutoff is the location of a maximum, so it may vary widely although the maximum itself hardly changes. The interval
shows how widely.
"""

import numpy as np

from mlci.judging import theory
from mlci.measures import resample
from mlci.measures.design import as_design
from mlci.measures.intervals import Interval, Reach, percentile

CELLS = 1000  # candidate cuts; with more distinct scores, neighbours share one


def cutoff_range(
    score, outcomes, names, *, weights=None, patients, resamples: int = 200, level: float = 0.95, seed: int = 0
) -> Interval:
    """Return the cutoff that `theory.cutoff` chooses, with its bootstrap percentile interval over patients.

    Args:
        score: one number per admission.
        outcomes: n x T, NaN if unknown.
        names: of the outcomes.
        weights: of the outcomes, by default equal.
        patients: the patient of each admission, or a `Design`.
        resamples, level, seed: as in `mlci.measures.resample`.

    >>> import numpy as np
    >>> score = np.arange(40.0)
    >>> found = cutoff_range(score, score >= 30, ["mortality"], patients=score, resamples=20)
    >>> found.value, found.low <= 30 <= found.high
    (30.0, True)
    """
    score, outcomes = np.asarray(score, dtype=float), np.asarray(outcomes, dtype=float).reshape(len(score), -1)
    chosen = theory.cutoff(score, outcomes, names, weights=weights, mass=as_design(patients).weight)
    alpha = dict(zip(names, np.ones(len(names)) if weights is None else weights, strict=True))
    used = [name for name in names if name not in chosen.left_out]
    columns = outcomes[:, [list(names).index(name) for name in used]]
    statistic = _cut(score, columns, np.array([alpha[name] for name in used]))
    (drawn,) = resample.bootstrap([statistic], patients, resamples=resamples, seed=seed)
    return percentile(chosen.score, drawn[:, 0], Reach(len(score), level))


def _cut(score: np.ndarray, outcomes: np.ndarray, alpha: np.ndarray) -> resample.Statistic:
    """Return a statistic that computes, for resampled weights, the cutoff most aligned with the shared direction."""
    rows = np.flatnonzero(~np.isnan(outcomes).any(axis=1))
    rows = rows[np.argsort(score[rows], kind="stable")]
    score, outcomes = score[rows], outcomes[rows]
    starts = np.searchsorted(score, np.unique(np.quantile(score, np.linspace(0, 1, CELLS), method="lower")))
    pairs = (outcomes[:, :, None] * outcomes[:, None, :]).reshape(len(outcomes), -1)

    def statistic(weights: resample.Weights) -> np.ndarray:
        weight = weights(rows)
        many = np.add.reduceat(weight, starts, axis=1)
        cases = np.stack([np.add.reduceat(weight * column, starts, axis=1) for column in outcomes.T], axis=2)
        n = np.maximum(weight.sum(axis=1), 1e-300)  # a resample may hold none of the admissions
        rate = cases.sum(axis=1) / n[:, None]
        shape = (len(weight), len(alpha), len(alpha))
        covariance = (weight @ pairs).reshape(shape) / n[:, None, None] - rate[:, :, None] * rate[:, None, :]
        variance = np.einsum("ijj->ij", covariance)
        unit = np.sqrt(np.divide(alpha, variance, out=np.zeros_like(variance), where=variance > 1e-12))
        _, vectors = np.linalg.eigh(covariance * unit[:, :, None] * unit[:, None, :])
        direction = unit * vectors[:, :, -1]
        beyond = np.cumsum(np.einsum("icj,ij->ic", cases - many[:, :, None] * rate[:, None, :], direction), axis=1)
        below = np.cumsum(many, axis=1)
        length = below * (n[:, None] - below)
        gain = np.divide(beyond**2, length, out=np.zeros_like(beyond), where=length > 1e-9)[:, :-1]
        best = score[starts[1:]][np.argmax(gain, axis=1)] if len(starts) > 1 else np.full(len(weight), np.nan)
        return np.where(gain.max(axis=1, initial=0) > 0, best, np.nan)[:, None]

    return statistic
