"""The high-severity cutoff that follows from the shared direction, and the outcomes' rates on both sides of it."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from mlci.judging.theory._outcomes import matrix, singular, weighted
from mlci.judging.theory._scan import scan
from mlci.measures._proportion import wilson


@dataclass(frozen=True)
class Rate:
    """Events among admissions, with the 95% Wilson interval."""

    positives: int
    n: int
    low: float
    high: float

    @property
    def rate(self) -> float:
        return self.positives / self.n if self.n else float("nan")


@dataclass(frozen=True)
class Contrast:
    """One outcome on both sides of a cutoff, among the admissions where it is known."""

    outcome: str
    above: Rate
    below: Rate


@dataclass(frozen=True)
class Cutoff:
    """High severity is a score of at least `score`: the cut most aligned with the direction that all outcomes share."""

    score: float
    certificate: float  # rho*^2 of the shared direction v
    tail: int
    n: int
    contrasts: tuple[Contrast, ...]

    @property
    def share(self) -> float:
        return self.tail / self.n

    def flag(self, score) -> np.ndarray:
        return np.asarray(score, dtype=float) >= self.score

    def to_dict(self) -> dict:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping) -> "Cutoff":
        contrasts = tuple(
            Contrast(contrast["outcome"], Rate(**contrast["above"]), Rate(**contrast["below"]))
            for contrast in data["contrasts"]
        )
        fields: dict[str, Any] = {**data, "contrasts": contrasts}
        return cls(**fields)


def cutoff(score, outcomes, names: Sequence[str], *, weights=None) -> Cutoff:
    """Choose the high-severity cutoff: the cut most aligned with the direction that all outcomes share.

    Fit it on admissions that will not be used to judge it.

    Args:
        score: one number per admission.
        outcomes: n x T, NaN where not known.
        names: of the outcomes.
        weights: of the outcomes, by default equal.

    >>> chosen = cutoff([1, 2, 3, 4], [0, 0, 1, 1], ["mortality"])
    >>> chosen.score, chosen.share
    (3.0, 0.5)
    """
    known_score, known, weight, _ = weighted(score, outcomes, names, weights)
    alpha = np.array(list(weight.values()))
    profiles = known - known.mean(axis=0)
    _, u = singular(known, alpha)
    v = profiles @ (np.sqrt(alpha / (profiles**2).sum(axis=0)) * u)
    best = scan(known_score, v).best(0)
    score = np.asarray(score, dtype=float)
    tail = int((score >= best.score).sum())
    return Cutoff(best.score, best.rho2, tail, len(score), contrasts(score, outcomes, names, best.score))


def contrasts(score, outcomes, names: Sequence[str], threshold: float) -> tuple[Contrast, ...]:
    """Return each outcome's rate at or above a threshold of the score, and below it.

    >>> [contrast] = contrasts([1, 2, 3, 4], [0, 0, 0, 1], ["mortality"], 3)
    >>> contrast.above.rate, contrast.below.rate
    (0.5, 0.0)
    """
    above = np.asarray(score, dtype=float) >= threshold
    outcomes = matrix(outcomes)

    def rate(values: np.ndarray) -> Rate:
        known = values[~np.isnan(values)]
        low, high = wilson(known.sum(), len(known))
        return Rate(int(known.sum()), len(known), float(low), float(high))

    return tuple(
        Contrast(name, rate(column[above]), rate(column[~above]))
        for name, column in zip(names, outcomes.T, strict=True)
    )
