"""The high-severity cutoff that follows from the shared direction, and the outcomes' rates on both sides of it."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
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
    held_out: float | None = None  # the certificate of such a cut on admissions that had no part in choosing it
    left_out: Mapping[str, str] = field(default_factory=dict)  # outcome -> why it could not take part in the choice

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
    known, v, left_out = _shared(score, outcomes, names, weights)
    best = scan(known, v).best(0)
    score = np.asarray(score, dtype=float)
    tail = int((score >= best.score).sum())
    found = contrasts(score, outcomes, names, best.score)
    return Cutoff(best.score, best.rho2, tail, len(score), found, left_out=left_out)


def certify(score, outcomes, names: Sequence[str], threshold: float, *, weights=None) -> float:
    """Return the certificate of a given cut on given admissions: rho^2 with the direction that their outcomes share.

    Args:
        score: one number per admission.
        outcomes: n x T, NaN where not known.
        names: of the outcomes.
        threshold: the lowest score beyond the cut.
        weights: of the outcomes, by default equal.

    Returns:
        The share of the bound that a two-level score with this cut reaches here; NaN where it sets nobody apart.

    >>> certify([1, 2, 3, 4], [0, 0, 1, 1], ["mortality"], 3), round(certify([1, 2, 3, 4], [0, 0, 1, 1], ["m"], 4), 3)
    (1.0, 0.333)
    """
    known, v, _ = _shared(score, outcomes, names, weights)
    step = (known >= threshold) - np.mean(known >= threshold)
    length = (step @ step) * (v @ v)
    return float((v @ step) ** 2 / length) if length > 0 else float("nan")


def _shared(score, outcomes, names: Sequence[str], weights) -> tuple[np.ndarray, np.ndarray, dict[str, str]]:
    """The scores of the admissions where all outcomes are known, the direction they share, and what was left out."""
    known_score, known, weight, left_out = weighted(score, outcomes, names, weights)
    alpha = np.array(list(weight.values()))
    profiles = known - known.mean(axis=0)
    _, u = singular(known, alpha)
    return known_score, profiles @ (np.sqrt(alpha / (profiles**2).sum(axis=0)) * u), left_out


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
