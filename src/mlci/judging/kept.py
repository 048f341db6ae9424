"""Fitted risk curves and cutoffs, as a model file stores them.

They turn scores into risks, intervals and flags. `mlci.judging.smooth`, `curves` and `theory` fit them; they are in a
module of their own so that scoring, which must start fast, needs only NumPy.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from mlci.base.pieces import Pieces

FLOOR = 12.0  # log-odds are clipped to this absolute value
EDGE = 1e-9  # risks are clipped to this distance from 0 and 1 before their log-odds are taken
Z = 1.959964  # of a 95% band


@dataclass(frozen=True)
class Isotonic:
    """An isotonic regression of the risk, as knots: linear between them, constant beyond the ends."""

    score: np.ndarray
    risk: np.ndarray

    def __call__(self, score) -> np.ndarray:
        """Return the risk at new scores."""
        return self._pieces(score)

    @cached_property
    def _pieces(self) -> Pieces:
        return Pieces(self.score, self.risk)

    def moved(self, shift: float, slope: float) -> "Isotonic":
        """Return the curve with its log-odds recalibrated at every knot: `shift + slope * log-odds`.

        >>> Isotonic(np.array([0.0, 1.0]), np.array([0.0, 0.5])).moved(1.0, 1.0).risk.round(2)
        array([0.  , 0.73])
        """
        return Isotonic(self.score, expit(shift + slope * log_odds(self.risk)))

    def to_dict(self) -> dict[str, list[float]]:
        """Return the curve in the form of a model file.

        >>> Isotonic(np.array([0.0]), np.array([0.2])).to_dict()
        {'score': [0.0], 'risk': [0.2]}
        """
        return {"score": self.score.tolist(), "risk": self.risk.tolist()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Sequence[float]]) -> "Isotonic":
        """Return the curve from the `data` of a model file.

        >>> Isotonic.from_dict({"score": [0.0], "risk": [0.2]}).risk
        array([0.2])
        """
        return cls(np.asarray(data["score"], dtype=float), np.asarray(data["risk"], dtype=float))


@dataclass(frozen=True)
class Smooth:
    """Log-odds of an outcome at knots of the score, each with its standard error, extrapolated linearly."""

    score: np.ndarray
    logit: np.ndarray
    error: np.ndarray

    def __call__(self, score) -> np.ndarray:
        """Return the risk at new scores."""
        return _risk(_through(score, self.score, self.logit))

    def around(self, risk, score) -> tuple[np.ndarray, np.ndarray]:
        """Return the 95% interval around risks, with the curve's standard errors.

        Args:
            risk: the curve's own risks, or more detailed ones.
            score: at which to read the standard errors.

        >>> curve = Smooth(np.array([0.0, 1.0]), np.array([-2.0, 0.0]), np.array([0.1, 0.1]))
        >>> [float(bound.round(2)) for bound in curve.around(0.5, 1.0)]
        [0.45, 0.55]
        """
        logit, error = log_odds(risk), np.interp(score, self.score, self.error)
        return _risk(logit - Z * error), _risk(logit + Z * error)

    def moved(self, shift: float, slope: float, errors: np.ndarray) -> "Smooth":
        """Return the curve with its log-odds recalibrated: `shift + slope * log-odds`.

        Args:
            shift: of the log-odds.
            slope: of the log-odds.
            errors: standard errors of the recalibration at each knot.

        >>> curve = Smooth(np.array([0.0, 1.0]), np.array([-2.0, 0.0]), np.array([0.1, 0.1]))
        >>> curve.moved(1.0, 0.5, np.zeros(2)).logit
        array([0., 1.])
        """
        return Smooth(self.score, shift + slope * self.logit, np.hypot(slope * self.error, errors))

    def to_dict(self) -> dict[str, list[float]]:
        """Return the curve in the form of a model file.

        >>> curve = Smooth(np.array([0.0, 1.0]), np.array([-2.0, 0.0]), np.array([0.1, 0.1]))
        >>> curve.to_dict()["logit"]
        [-2.0, 0.0]
        """
        return {name: getattr(self, name).tolist() for name in ("score", "logit", "error")}

    @classmethod
    def from_dict(cls, data: Mapping[str, Sequence[float]]) -> "Smooth":
        """Return the curve from the `data` of a model file.

        >>> Smooth.from_dict({"score": [0.0, 1.0], "logit": [-2.0, 0.0], "error": [0.1, 0.1]}).error
        array([0.1, 0.1])
        """
        return cls(*(np.asarray(data[name], dtype=float) for name in ("score", "logit", "error")))


def curve_from(data: Mapping[str, Sequence[float]]) -> Smooth | Isotonic:
    """Return a curve from the `data` of a model file: smooth, or isotonic in a file of version 0.1.

    >>> float(curve_from({"score": [0.0, 1.0], "risk": [0.1, 0.3]})(0.5))
    0.2
    """
    return Smooth.from_dict(data) if "logit" in data else Isotonic.from_dict(data)


@dataclass(frozen=True)
class Rate:
    """Events among admissions with the 95% Wilson interval; with survey weights, also the weighted rate."""

    positives: int
    n: int
    low: float
    high: float
    weighted: float | None = None

    @property
    def rate(self) -> float:
        if self.weighted is not None:
            return self.weighted
        return self.positives / self.n if self.n else float("nan")


@dataclass(frozen=True)
class Contrast:
    """The rates of one outcome on both sides of a cutoff, among the admissions where it is known."""

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
    held_out: float | None = None  # the certificate on admissions that had no part in choosing the cutoff
    left_out: Mapping[str, str] = field(default_factory=dict)  # outcome -> why it had no part in the choice
    weighted: float | None = None  # the weighted share at or above it, with survey weights

    @property
    def share(self) -> float:
        return self.tail / self.n if self.weighted is None else self.weighted

    def flag(self, score) -> np.ndarray:
        """Return whether each `score` is high severity.

        >>> rate = Rate(1, 2, 0.1, 0.9)
        >>> cutoff = Cutoff(0.5, 0.8, 2, 4, (Contrast("died", rate, rate),))
        >>> cutoff.flag([0.4, 0.5]).tolist()
        [False, True]
        """
        return np.asarray(score, dtype=float) >= self.score

    def to_dict(self) -> dict:
        """Return the cutoff in the form of a model file.

        >>> rate = Rate(1, 2, 0.1, 0.9)
        >>> cutoff = Cutoff(0.5, 0.8, 2, 4, (Contrast("died", rate, rate),))
        >>> cutoff.to_dict()["certificate"]
        0.8
        """
        found = asdict(self)
        rates = (contrast[side] for contrast in found["contrasts"] for side in ("above", "below"))
        for part in (found, *rates):  # without survey weights the file has no entry for them
            if part["weighted"] is None:
                del part["weighted"]
        return found

    @classmethod
    def from_dict(cls, data: Mapping) -> "Cutoff":
        """Return the cutoff from the `data` of a model file.

        >>> rate = Rate(1, 2, 0.1, 0.9)
        >>> cutoff = Cutoff(0.5, 0.8, 2, 4, (Contrast("died", rate, rate),))
        >>> Cutoff.from_dict(cutoff.to_dict()) == cutoff
        True
        """
        contrasts = tuple(
            Contrast(contrast["outcome"], Rate(**contrast["above"]), Rate(**contrast["below"]))
            for contrast in data["contrasts"]
        )
        fields: dict[str, Any] = {**data, "contrasts": contrasts}
        return cls(**fields)


def _through(x, knots: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Interpolate linearly through the knots, and extrapolate with the end slopes."""
    low, high = np.diff(values)[[0, -1]] / np.diff(knots)[[0, -1]]
    beyond = np.minimum(np.asarray(x) - knots[0], 0) * low + np.maximum(np.asarray(x) - knots[-1], 0) * high
    return np.interp(x, knots, values) + beyond


def _risk(logit: np.ndarray) -> np.ndarray:
    return expit(np.clip(logit, -FLOOR, FLOOR))


def expit(logit: np.ndarray) -> np.ndarray:
    """Return the logistic function of log-odds (`logit`), which is the risk.

    >>> expit(np.array([0.0]))
    array([0.5])
    """
    return 1 / (1 + np.exp(-logit))


def log_odds(risk: np.ndarray) -> np.ndarray:
    """Return the log-odds of a `risk`; a risk of 0 or 1 is taken as `EDGE` away from it.

    >>> log_odds(np.array([0.5]))
    array([0.])
    """
    risk = np.clip(risk, EDGE, 1 - EDGE)
    return np.log(risk) - np.log1p(-risk)
