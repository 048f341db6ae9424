"""What kind of outcome a regression learns: one that happens or not, one that is counted, one that is measured.

In come linear predictors and outcomes; out come losses, means and curvatures. A loss is half the deviance, so that 0 is
a perfect fit. Counts (days, cost, readmissions) have a log link and a dispersion, by which their loss is divided, so
that one heavy outcome does not drown the others. Measured numbers are standardised before they come here. Needs NumPy
and SciPy.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

Kind = Literal["logistic", "poisson", "gaussian"]
KINDS: tuple[Kind, ...] = ("logistic", "poisson", "gaussian")
HIGHEST = 30.0  # of a log mean: beyond, a step of Newton's method went astray


@dataclass(frozen=True)
class Family:
    """A kind of outcome, and by how much its loss is divided."""

    kind: Kind = "logistic"
    dispersion: float = 1.0

    def mean(self, predictor: np.ndarray) -> np.ndarray:
        """Return the outcome's expected value."""
        if self.kind == "logistic":
            try:
                from scipy.special import expit
            except ModuleNotFoundError:  # who scores needs no SciPy, nor who trains networks
                return 0.5 + 0.5 * np.tanh(predictor / 2)
            return expit(predictor)
        return np.exp(np.minimum(predictor, HIGHEST)) if self.kind == "poisson" else predictor

    def loss(self, predictor: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Return half the deviance of each admission."""
        if self.kind == "logistic":
            return np.logaddexp(0, predictor) - y * predictor
        if self.kind == "poisson":
            from scipy.special import xlogy

            return (self.mean(predictor) - y * predictor + xlogy(y, y) - y) / self.dispersion
        return (y - predictor) ** 2 / 2 / self.dispersion

    def slope(self, mean: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Return the loss's derivative by the predictor."""
        return (mean - y) / self.dispersion

    def curvature(self, mean: np.ndarray) -> np.ndarray:
        """Return the loss's second derivative by the predictor."""
        if self.kind == "logistic":
            return mean * (1 - mean)
        return (mean if self.kind == "poisson" else np.ones_like(mean)) / self.dispersion

    def link(self, mean: np.ndarray) -> np.ndarray:
        """Return the predictor that gives a mean."""
        if self.kind == "logistic":
            return np.log(mean / (1 - mean))
        return np.log(mean) if self.kind == "poisson" else mean


LOGISTIC = Family()


def parts(
    families: Sequence[Family], predictors: np.ndarray, outcomes: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return loss, slope and curvature of admissions x regressions x outcomes, each outcome by its family."""
    found = np.empty((3, *predictors.shape))
    for place, family in enumerate(families):
        predictor, y = predictors[..., place], outcomes[..., place]
        expected = family.mean(predictor)
        found[0, ..., place] = family.loss(predictor, y)
        found[1, ..., place] = family.slope(expected, y)
        found[2, ..., place] = family.curvature(expected)
    return found[0], found[1], found[2]
