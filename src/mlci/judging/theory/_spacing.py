"""The best monotone spacing of a given order, computed exactly in linear time."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from mlci.base.errors import InputError
from mlci.judging.theory._outcomes import as_weights, matrix, singular
from mlci.judging.theory._scan import scan
from mlci.measures.distributions import nondecreasing


@dataclass(frozen=True)
class Spacing:
    """The best monotone spacing of a given order: a step function of the score, from 0 to 1.

    `certificate` is the share of the bound that it reaches with the energy kernel, whose alignment is the squared
    distance correlation. No nondecreasing score in this order reaches more. `threshold` is the share that the best
    single cut reaches.
    """

    cuts: np.ndarray  # a score of at least cuts[k] has at least levels[k]
    levels: np.ndarray
    value: float  # the weighted sum of squared distance correlations
    bound: float
    threshold: float

    @property
    def certificate(self) -> float:
        return self.value / self.bound

    def apply(self, score) -> np.ndarray:
        """Return the respaced values of new scores."""
        return np.concatenate([[0.0], self.levels])[np.searchsorted(self.cuts, score, side="right")]

    def to_dict(self) -> dict:
        return asdict(self) | {"cuts": self.cuts.tolist(), "levels": self.levels.tolist()}

    @classmethod
    def from_dict(cls, data: Mapping) -> "Spacing":
        arrays = {name: np.asarray(data[name], dtype=float) for name in ("cuts", "levels")}
        fields: dict[str, Any] = {**data, **arrays}
        return cls(**fields)


def best_spacing(score, outcomes, weights=None, *, cuts: int | None = 400) -> Spacing:
    """Return the nondecreasing score in the order of `score` that is best aligned with the outcomes.

    Args:
        score: one number per admission.
        outcomes: n x T; admissions with a missing outcome are left out.
        weights: of the outcomes, by default equal.
        cuts: approximate number of quantiles that may have a step, denser in the upper tail. A limit prevents
            overfitting to single admissions; None allows a step at every distinct score.

    >>> best_spacing([1, 2, 3, 4], [0, 0, 1, 1]).apply([1, 2, 3, 4]).round(6).tolist()
    [0.0, 0.0, 1.0, 1.0]
    """
    score, outcomes = np.asarray(score, dtype=float), matrix(outcomes)
    weights = as_weights(weights, outcomes.shape[1])
    outcomes, weights = outcomes[:, weights > 0], weights[weights > 0]
    rows = np.isfinite(score) & ~np.isnan(outcomes).any(axis=1)
    score, outcomes = score[rows], outcomes[rows]
    if not len(score) or (np.ptp(outcomes, axis=0) == 0).any():
        raise InputError("a spacing needs outcomes with both classes among the admissions where all are known.")
    found = scan(score, outcomes)
    chosen = slice(None)
    if cuts is not None:
        share = (1 - np.arange(1, cuts + 1) / (cuts + 1)) ** 2  # of admissions beyond, so denser at the top
        chosen = np.unique(np.searchsorted(found.split, found.n * (1 - share)).clip(0, len(found.split) - 1))
    gain = (found.rho[chosen] ** 2) @ weights
    value, steps = mixture(found.split[chosen], found.n, gain)
    used = steps > 0
    levels = np.cumsum(steps[used])
    bound = float(np.sqrt((singular(outcomes, weights)[0] ** 4).sum()))
    return Spacing(found.score[chosen][used], levels / levels[-1], value, bound, float(gain.max()) / bound)


def mixture(split: np.ndarray, n: int, gain: np.ndarray) -> tuple[float, np.ndarray]:
    """Return the best nonnegative mixture of thresholds: its value, and the height of the step at each cut.

    `gain` is each threshold's own value, b_k / ||g_k||^2. A mixture a has the value b'a / sqrt(a'Qa) with
    Q_kl = (g_k' g_l)^2, and its maximiser solves min a'Qa / 2 - b'a over a >= 0. Let t_k be the share of admissions
    below cut k. For k before l, Q_kl = n^2 t_k^2 (1 - t_l)^2, which up to scaling is the covariance of Brownian motion
    at the times tau = (t / (1 - t))^2. So Qa is, up to the same scaling, the least concave nondecreasing majorant of b
    over tau, whose slopes are an antitonic regression. This is exact for every cut and takes linear time.

    >>> mixture(np.array([2]), 4, np.array([1.0]))[0]
    1.0
    """
    t, rest = split / n, (n - split) / n
    height = gain * n * t / rest  # b_k / (1 - t_k)^2
    gap = np.diff((t / rest) ** 2, prepend=0.0)
    slope = -nondecreasing(-np.diff(height, prepend=0.0) / gap, gap).clip(max=0)
    return float(np.sqrt(slope**2 @ gap) / n), -np.diff(slope, append=0.0) / rest**2
