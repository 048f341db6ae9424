"""Ratios of observed to expected events: intervals, funnel limits, overdispersion, shrinkage.

The groups may be hospitals; the functions take arrays of counts. A group's interval is exact for Poisson counts
(mid-P). Funnel limits say how far from 1 a group lies by chance alone. Where groups differ more than chance allows
(overdispersion; Spiegelhalter, Stat Med 2005;24:1185, and 2012;175:1 of J R Stat Soc A), the limits are widened by a
factor on the variance (phi) or a variance between groups (tau2). Both are estimated from z-scores whose extremes were
winsorised, so that outliers do not hide themselves. With sampling weights, a count is the unweighted count of the same
precision, and need not be whole.
"""

from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.special import gammaincc, gammainccinv, gammaincinv, gammaln

from mlci.base.errors import InputError
from mlci.measures._arrays import midranks

TRIM = 0.1  # share of z-scores at each end that is winsorised (or trimmed, for shmi)
MAX_WEIGHT = 1e6  # largest weight of a prior, in expected events; groups then do not differ
METHODS = ("additive", "multiplicative", "shmi", "none")


@dataclass(frozen=True)
class Dispersion:
    """How much more groups differ than chance allows, and the method by which the funnel allows for it.

    `phi` is the mean squared z-score, NaN of fewer than three groups. `tau2` is the variance between groups on the
    method's scale: the square root of the ratio, or for `shmi` its logarithm.
    """

    method: str
    phi: float
    tau2: float

    @property
    def found(self) -> bool:
        """Whether groups differ by more than chance, and the method allows for it."""
        return self.tau2 > 0 if self.method in ("additive", "shmi") else self.phi > 1 and self.method != "none"


def interval(observed: Any, expected: Any, *, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
    """Return the mid-P interval of each ratio; the expected counts are taken as known.

    Args:
        observed: counts of Poisson events.
        expected: expected counts.
        level: the confidence level.

    >>> low, high = interval([0, 12], [4.0, 10.0])
    >>> low.round(2).tolist(), high.round(2).tolist()
    ([0.0, 0.65], [0.75, 2.04])
    """
    observed, expected = np.asarray(observed, dtype=float), np.asarray(expected, dtype=float)
    tail = (1 - level) / 2
    low, high = np.zeros_like(observed), gammainccinv(observed + 1, tail)
    edge = gammaincinv(np.maximum(observed, 1e-300), tail)
    bounds = [(edge * (observed > 0), high, 1 - tail), (low, high.copy(), tail)]  # the exact interval contains both
    found = []
    for below, above, wanted in bounds:
        for _ in range(60):
            middle = (below + above) / 2
            rises = _mid(observed, middle) > wanted  # this probability falls as the mean grows
            below, above = np.where(rises, middle, below), np.where(rises, above, middle)
        found.append((below + above) / 2 / expected)
    return np.where(observed > 0, found[0], 0.0), found[1]


def _mid(observed: np.ndarray, mean: np.ndarray) -> np.ndarray:
    """Return the mid-P lower tail: P(fewer than observed) + P(as many) / 2."""
    fewer = np.where(observed > 0, gammaincc(np.maximum(observed, 1e-300), mean), 0.0)
    return (fewer + gammaincc(observed + 1, mean)) / 2


def dispersion(observed: Any, expected: Any, *, method: str = "additive") -> Dispersion:
    """Estimate how much more groups differ than chance allows.

    Args:
        observed: counts of events.
        expected: expected counts, all above 0.
        method: `additive` and `multiplicative` take z-scores of square roots and winsorise the outer tenth at each end;
            `shmi` takes logarithms and drops the outer tenths, as the Summary Hospital-level Mortality Indicator does;
            `none` estimates as `additive` does, but its limits do not allow for it.

    Returns:
        The overdispersion, and the method by which limits allow for it.

    >>> found = dispersion([5, 30, 12, 40, 21], [12.0, 20.0, 15.0, 25.0, 20.0])
    >>> round(found.phi, 2), round(found.tau2, 3)
    (2.75, 0.034)
    """
    if method not in METHODS:
        raise InputError(f"overdispersion {method!r}: allowed are {', '.join(METHODS)}.")
    observed, expected = np.asarray(observed, dtype=float), np.asarray(expected, dtype=float)
    if len(observed) < 3:  # too few to estimate it
        return Dispersion(method, np.nan, 0.0)
    z, error = _z(observed, expected, method)
    if method == "shmi":
        place = np.floor(midranks(z) / TRIM / (len(z) + 1))
        kept = (place > 0) & (place < 1 / TRIM - 1)
        z, error = z[kept], error[kept]
    else:
        z = np.clip(z, *np.quantile(z, [TRIM, 1 - TRIM]))
    phi, precision = float(np.mean(z**2)), 1 / error**2
    spare = precision.sum() - np.sum(precision**2) / precision.sum() if len(z) > 1 else 0.0
    tau2 = (len(z) * phi - (len(z) - 1)) / spare if spare > 0 else 0.0
    return Dispersion(method, phi, max(0.0, float(tau2)))


def _z(observed: np.ndarray, expected: np.ndarray, method: str) -> tuple[np.ndarray, np.ndarray]:
    """Return each ratio's distance from 1 in standard errors, on the method's scale, and the standard errors."""
    error = 1 / np.sqrt(expected)
    if method == "shmi":
        return np.log(np.maximum(observed, 0.5) / expected) / error, error  # 0 events count as 0.5
    return (np.sqrt(observed / expected) - 1) / (error / 2), error / 2


def standing(observed: Any, expected: Any, spread: Dispersion) -> np.ndarray:
    """Return each group's distance from 1 in standard errors that include the overdispersion.

    Args:
        observed: counts of events.
        expected: expected counts, all above 0.
        spread: the overdispersion to allow for.

    >>> standing([36, 16], [25.0, 16.0], Dispersion("none", 1.0, 0.0)).round(2).tolist()
    [2.0, 0.0]
    """
    z, error = _z(np.asarray(observed, dtype=float), np.asarray(expected, dtype=float), spread.method)
    return z * error / _error(error, spread)


def _error(error: np.ndarray, spread: Dispersion) -> np.ndarray:
    """Return the standard error with the overdispersion."""
    if not spread.found:
        return error
    return error * np.sqrt(spread.phi) if spread.method == "multiplicative" else np.sqrt(error**2 + spread.tau2)


def funnel(expected: Any, spread: Dispersion, *, level: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the limits between which the ratio of a group lies if it is like the others.

    Args:
        expected: expected counts, all above 0.
        spread: from `dispersion`; without overdispersion, or with the method `none`, limits are the exact interval of a
            Poisson mean around the expected count, as in FunnelPlotR. Of few events, more counts are below than above.
        level: the share of groups between the limits, about.

    >>> low, high = funnel([25.0], Dispersion("additive", 1.0, 0.0), level=0.95)
    >>> low.round(3).tolist(), high.round(3).tolist()
    ([0.647], [1.476])
    >>> low, high = funnel([25.0], Dispersion("additive", 2.0, 0.01), level=0.95)
    >>> low.round(3).tolist(), high.round(3).tolist()
    ([0.522], [1.631])
    """
    expected = np.asarray(expected, dtype=float)
    tail = (1 - level) / 2
    if not spread.found:
        return gammaincinv(expected, tail) / expected, gammainccinv(expected + 1, tail) / expected
    reach = NormalDist().inv_cdf(1 - tail)
    if spread.method == "shmi":
        half = reach * _error(1 / np.sqrt(expected), spread)
        return np.exp(-half), np.exp(half)
    half = reach * _error(1 / np.sqrt(4 * expected), spread)
    return np.maximum(1 - half, 0) ** 2, (1 + half) ** 2


@dataclass(frozen=True)
class GammaPrior:
    """The distribution of the groups' true ratios: gamma with this `mean`, and a `weight` in expected events."""

    mean: float
    weight: float

    @property
    def sd(self) -> float:
        return float(np.sqrt(self.mean / self.weight))


def prior(observed: Any, expected: Any) -> GammaPrior:
    """Return the distribution of true ratios, by maximum likelihood of a negative binomial model of the counts.

    Args:
        observed: counts of events.
        expected: expected counts, all above 0.

    >>> found = prior([5, 30, 12, 40, 21], [12.0, 20.0, 15.0, 25.0, 20.0])
    >>> round(found.mean, 2), round(found.sd, 2)
    (1.11, 0.37)
    """
    observed, expected = np.asarray(observed, dtype=float), np.asarray(expected, dtype=float)
    whole = max(float(observed.sum()), 0.5) / float(expected.sum())

    def loss(logs: np.ndarray) -> float:
        weight = np.exp(logs[1])
        shape = np.exp(logs[0]) * weight
        terms = gammaln(observed + shape) - gammaln(shape) + shape * np.log(weight / (weight + expected))
        return -float(np.sum(terms - observed * np.log(weight + expected)))

    starts = [np.array([np.log(whole), np.log(weight)]) for weight in (3.0, 30.0, 300.0)]
    bounds = [(np.log(whole) - 3, np.log(whole) + 3), (np.log(0.1), np.log(MAX_WEIGHT))]
    fits = [minimize(loss, start, method="L-BFGS-B", bounds=bounds) for start in starts]
    mean, weight = np.exp(min(fits, key=lambda fit: fit.fun).x)
    return GammaPrior(float(mean), float(weight))


def shrunk(
    observed: Any, expected: Any, known: GammaPrior, *, level: float = 0.95
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return each group's posterior mean ratio, shrunk towards the prior mean, with its credible interval.

    Args:
        observed: counts of events.
        expected: expected counts.
        known: from `prior`.
        level: the posterior probability of the interval.

    >>> ratio, low, high = shrunk([0, 30], [2.0, 20.0], GammaPrior(1.0, 10.0))
    >>> ratio.round(2).tolist(), low.round(2).tolist(), high.round(2).tolist()
    ([0.83, 1.33], [0.4, 0.95], [1.42, 1.78])
    """
    shape = np.asarray(observed, dtype=float) + known.mean * known.weight
    rate = np.asarray(expected, dtype=float) + known.weight
    tail = (1 - level) / 2
    return shape / rate, gammaincinv(shape, tail) / rate, gammainccinv(shape, tail) / rate
