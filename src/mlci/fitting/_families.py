"""Families of outcomes, as in generalised linear models: binary, counts, and measured numbers.

A family has a link, and turns linear predictors and outcomes into losses with their first and second derivatives. A
loss is half the deviance, so 0 is a perfect fit. Counts (days, cost, readmissions) are Poisson with a log link and a
dispersion, by which the loss is divided so that one outcome with large counts does not dominate. Measured numbers are
Gaussian and standardised before they come here. Needs NumPy and SciPy.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

Kind = Literal["logistic", "poisson", "gaussian"]
KINDS: tuple[Kind, ...] = ("logistic", "poisson", "gaussian")
HIGHEST = 30.0  # cap of a log mean; only a diverging Newton step exceeds it


@dataclass(frozen=True)
class Family:
    """The family of an outcome; its loss is divided by `dispersion`."""

    kind: Kind = "logistic"
    dispersion: float = 1.0

    def mean(self, predictor: np.ndarray) -> np.ndarray:
        """Return the expected outcome: the inverse link of the linear predictor."""
        if self.kind == "logistic":
            try:
                from scipy.special import expit
            except ModuleNotFoundError:  # scoring, and training networks, do without SciPy
                return 0.5 + 0.5 * np.tanh(predictor / 2)
            return expit(predictor)
        return np.exp(np.minimum(predictor, HIGHEST)) if self.kind == "poisson" else predictor

    def loss(self, predictor: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Return half the deviance of each admission, divided by the dispersion."""
        if self.kind == "logistic":
            return np.logaddexp(0, predictor) - y * predictor
        if self.kind == "poisson":
            from scipy.special import xlogy

            return (self.mean(predictor) - y * predictor + xlogy(y, y) - y) / self.dispersion
        return (y - predictor) ** 2 / 2 / self.dispersion

    def slope(self, mean: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Return the derivative of the loss by the linear predictor."""
        return (mean - y) / self.dispersion

    def curvature(self, mean: np.ndarray) -> np.ndarray:
        """Return the second derivative of the loss by the linear predictor."""
        if self.kind == "logistic":
            return mean * (1 - mean)
        return (mean if self.kind == "poisson" else np.ones_like(mean)) / self.dispersion

    def link(self, mean: np.ndarray) -> np.ndarray:
        """Return the linear predictor of a mean."""
        if self.kind == "logistic":
            return np.log(mean / (1 - mean))
        return np.log(mean) if self.kind == "poisson" else mean


LOGISTIC = Family()


def parts(
    families: Sequence[Family], predictors: np.ndarray, outcomes: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return loss, slope and curvature (admissions x regressions x outcomes), each outcome by its family."""
    found = np.empty((3, *predictors.shape))
    for place, family in enumerate(families):
        predictor, y = predictors[..., place], outcomes[..., place]
        expected = family.mean(predictor)
        found[0, ..., place] = family.loss(predictor, y)
        found[1, ..., place] = family.slope(expected, y)
        found[2, ..., place] = family.curvature(expected)
    return found[0], found[1], found[2]
