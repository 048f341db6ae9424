"""Confidence intervals from resampled figures that hold their level with few events too.

Percentiles of resamples give intervals that are too short where events are few, and that miss the truth where a figure
is biased. So only the spread of the resamples is used here:

- AUROC, calibration error and calibration intercept: score-test intervals, that is, the values that the figure does not
  contradict, given the variance that they themselves imply.
- Distance correlation: symmetric around the root of an unbiased square.
- Average precision: symmetric in log-odds.
- The rest: Student's t, with as many degrees of freedom as there are patients with the rarer class of the outcome, less
  one.

`benchmarks/intervals.py` measures the coverage of each.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from mlci.measures.design import Design, as_design
from mlci.measures.discrimination import FAR, expit
from mlci.measures.distributions import normal_quantile, root, student_quantile, student_tail
from mlci.measures.weighted import effective

EDGE = 1e-9  # distance from the area at which the search starts, to avoid the trivial root of a perfect area
MANY = 100  # degrees of freedom from which the normal distribution replaces Student's t
SMOOTHED = 20  # number of events at which DeLong's variance and Hanley and McNeil's formula have equal weight


@dataclass(frozen=True)
class Interval:
    """A figure with its confidence interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Difference(Interval):
    """A paired difference with its interval and the two-sided p-value of no difference."""

    p: float


@dataclass(frozen=True)
class Reach:
    """What an interval's width depends on: `events`, patients with the rarer class of the outcome, and the `level`."""

    events: int
    level: float = 0.95

    @property
    def quantile(self) -> float:
        """Student's quantile: the number of standard errors to either side.

        >>> round(Reach(20).quantile, 3)
        2.093
        """
        return student_quantile(max(self.events - 1, 1), (1 + self.level) / 2)

    @property
    def inflation(self) -> float:
        """The factor n / (n − 1) by which a resampled variance is too small.

        >>> Reach(21).inflation
        1.05
        """
        return self.events / max(self.events - 1, 1)


def percentile(value: float, resampled: np.ndarray, reach: Reach) -> Interval:
    """Return a figure with percentiles of its resamples, for figures without a better interval.

    Args:
        value: the figure.
        resampled: the figure on each resample.
        reach: events and level.

    >>> found = percentile(0.5, np.linspace(0, 1, 101), Reach(50, level=0.9))
    >>> round(found.low, 3), round(found.high, 3)
    (0.05, 0.95)
    """
    known = _finite(resampled)
    if not len(known):
        return Interval(float(value), np.nan, np.nan)
    low, high = np.quantile(known, [(1 - reach.level) / 2, (1 + reach.level) / 2])
    return Interval(float(value), float(low), float(high))


def plain(
    value: float, resampled: np.ndarray, reach: Reach, *, floor: float = -np.inf, ceiling: float = np.inf
) -> Interval:
    """Return a figure with an interval of Student's t.

    Args:
        value: the figure.
        resampled: the figure on each resample; resamples in which it is undefined are left out.
        reach: events and level.
        floor: the least possible value of the figure.
        ceiling: its greatest possible value.

    >>> found = plain(1.0, np.array([0.9, 1.0, 1.1] * 50), Reach(100))
    >>> round(found.low, 2), round(found.high, 2)
    (0.84, 1.16)
    """
    half = reach.quantile * _spread(resampled)
    low, high = np.clip([value - half, value + half], floor, ceiling)
    return Interval(float(value), float(low), float(high))


def area(value: float, influence: np.ndarray, y: np.ndarray, patients: Any, *, level: float = 0.95) -> Interval:
    """Return AUROC with a score-test interval: the areas from which it lies within their own standard errors.

    How the variance changes with the area follows Hanley and McNeil (Newcombe 2006, method 5). Its size is DeLong's,
    shrunk towards Hanley and McNeil's where events are few, since DeLong's is too small whenever the area found is too
    large.

    Args:
        value: AUROC.
        influence: of each admission, from `discrimination.auroc_influence`.
        y: the outcome: 0, 1, or NaN where not known.
        patients: the patient of each admission, or a `Design`; with weights, the classes have their effective sizes.
        level: the confidence level.

    >>> y = np.repeat([0, 1], [40, 10])
    >>> found = area(0.9, np.where(y == 1, 0.02, 0.01) * (-1) ** np.arange(50), y, np.arange(50))
    >>> round(found.low, 2), round(found.high, 2)
    (0.68, 0.97)
    """
    design = as_design(patients)
    cases, controls = (
        int(rows.sum()) if design.weight is None else effective(design.weight[rows]) for rows in (y == 1, y == 0)
    )
    if not cases or not controls:
        return Interval(float(value), np.nan, np.nan)
    rarer, delong = min(cases, controls), influence @ influence

    def variance(place: float) -> float:
        n = (cases + controls) / 2 - 1
        shape = 1 + n * (1 - place) / (2 - place) + n * place / (1 + place)
        return place * (1 - place) * shape / (cases * controls)

    factor = 1.0
    if delong > 0 and rarer > 1:
        own = delong * rarer / (rarer - 1) / variance(value)
        factor = float(max(1.0, design.variance(influence) / delong) * own ** (rarer / (rarer + SMOOTHED)))
    reach = far(design, y, level) ** 2 * factor

    def beyond(place: float) -> float:
        return (value - place) ** 2 - reach * variance(place)

    low = root(beyond, 0.0, value * (1 - EDGE)) if value > 0 else 0.0
    high = root(beyond, 1 - (1 - value) * (1 - EDGE), 1.0) if value < 1 else 1.0
    return Interval(float(value), float(low), float(high))


def far(design: Design, y: np.ndarray, level: float) -> float:
    """Return how many standard errors an interval reaches: a normal quantile, or Student's where clusters are few.

    Args:
        design: the sampling design of the admissions.
        y: the outcome; clusters where it is not known do not count.
        level: the confidence level.

    >>> y = np.array([0, 1, 0, 1, 1, 0])
    >>> [round(far(as_design(patients), y, 0.95), 2) for patients in (range(6), [0, 0, 1, 1, 2, 2])]
    [1.96, 4.3]
    """
    share = (1 + level) / 2
    if design.clusters < len(design):
        known = design.take(~np.isnan(y))
        if known.clusters < len(known) and known.degrees < MANY:
            return student_quantile(known.degrees, share)
    return normal_quantile(share)


def on_log_odds(value: float, resampled: np.ndarray, reach: Reach) -> Interval:
    """Return a figure between 0 and 1 with an interval that is symmetric in log-odds, so that it stays within [0, 1].

    Args:
        value: the figure.
        resampled: the figure on each resample.
        reach: events and level.

    >>> found = on_log_odds(0.9, np.array([0.85, 0.9, 0.95] * 50), Reach(100))
    >>> round(found.low, 2), round(found.high, 2)
    (0.78, 0.96)
    """
    half = reach.quantile * _spread(resampled) * np.sqrt(reach.inflation)
    if not 0 < value < 1 or not half > 0:  # a figure of 0 or 1, or no spread: no interval
        return Interval(float(value), np.nan, np.nan)
    middle, step = np.log(value / (1 - value)), half / (value * (1 - value))
    return Interval(float(value), float(expit(middle - step)), float(expit(middle + step)))


def dependence(
    value: float, unbiased: float, resampled: np.ndarray, reach: Reach, *, n: float, errors: float | None = None
) -> Interval:
    """Return a figure of dependence with an interval around the root of its unbiased square, which may reach 0.

    With two classes and little dependence, the bias-corrected square of n admissions is distributed like (Z² − 1) / n,
    where Z is normal with SD 1. So 1/n is added before the root is taken, and the root has the same standard error
    wherever it lies, 0 included.

    Args:
        value: the plain figure, whose square is biased.
        unbiased: the U-statistic of its square; may be negative.
        resampled: the biased square on each resample.
        reach: events and level.
        n: the number of admissions.
        errors: how many standard errors the interval reaches, from `far`; by default a normal quantile.

    >>> found = dependence(0.05, -0.0004, np.random.default_rng(0).chisquare(1, 500) / 400, Reach(200), n=400)
    >>> found.low, found.high < 0.2
    (0.0, True)
    """
    spread = _spread(resampled) ** 2 * reach.inflation
    if not spread > 0 or not value > 0:
        return Interval(float(value), np.nan, np.nan)
    square = max(unbiased + 1 / n, 0.0)
    # Resamples of Z are normal around Z, so their square has the variance 2 + 4 Z²; this makes the error 1 / √n for
    # every Z.
    error = np.sqrt((spread + 2 / n**2) / (4 * (square + 1 / n)))
    half = (normal_quantile((1 + reach.level) / 2) if errors is None else errors) * error
    return Interval(float(value), float(max(np.sqrt(square) - half, 0.0)), float(min(np.sqrt(square) + half, 1.0)))


def shift(
    value: float, log_odds: np.ndarray, events: float, *, design_effect: float = 1.0, level: float = 0.95
) -> Interval:
    """Return a calibration intercept (a shift of log-odds) with its score-test interval.

    The interval holds the shifts under which the observed number of events is not surprising, given the variance that
    each shift implies, as in Wilson's interval of a rate.

    Args:
        value: the shift at which the expected number of events is the observed one.
        log_odds: of each admission.
        events: the observed number of events.
        design_effect: the factor by which the variance exceeds that of independent admissions.
        level: the confidence level.

    >>> found = shift(0.0, np.zeros(100), 50)
    >>> round(found.low, 2), round(found.high, 2)
    (-0.39, 0.39)
    """
    if not np.isfinite(value):
        return Interval(float(value), np.nan, np.nan)
    reach = normal_quantile((1 + level) / 2) * np.sqrt(design_effect)

    def beyond(place: float, side: int) -> float:
        risks = expit(log_odds + place)
        return side * (events - risks.sum()) - reach * np.sqrt(risks @ (1 - risks))

    low, high = (root(partial(beyond, side=side), value, value - side * FAR) for side in (1, -1))
    return Interval(float(value), float(low), float(high))


def mean_square(value: float, gaps: np.ndarray, variances: np.ndarray, shares: np.ndarray, reach: Reach) -> Interval:
    """Return the root of a mean squared gap, corrected for noise, with an interval that may reach 0.

    Args:
        value: the root as it is shown.
        gaps: observed less predicted in each group.
        variances: of each gap by chance alone.
        shares: each group's share of all admissions.
        reach: events and level.

    >>> gaps = np.array([0.01, -0.02, 0.01])
    >>> mean_square(0.0, gaps, np.full(3, 0.0004), np.full(3, 1 / 3), Reach(100)).low
    0.0
    """
    unbiased, total = float(shares @ (gaps**2 - variances)), float(shares @ gaps**2)
    none = float(2 * shares**2 @ variances**2)
    weights = gaps**2 / total if total > 0 else np.ones(len(gaps))
    growth = float(4 * (shares**2 * variances) @ weights)
    low, high = _wilson(unbiased, none, growth, reach.quantile)
    return Interval(float(value), float(np.sqrt(low)), float(np.sqrt(min(high, 1.0))))


def difference(value: float, first: np.ndarray, second: np.ndarray, reach: Reach) -> Difference:
    """Return the paired difference of two figures that were resampled together, with its interval and p-value.

    Args:
        value: the difference of the figures, first minus second.
        first: the first figure on each resample.
        second: the second figure on each resample.
        reach: events and level.

    Returns:
        The difference, its interval of Student's t from the resampled differences, and the p-value of the t-test.

    >>> rng = np.random.default_rng(0)
    >>> found = difference(0.1, 0.8 + 0.02 * rng.normal(size=400), np.full(400, 0.7), Reach(50))
    >>> found.low > 0, found.p < 0.001
    (True, True)
    """
    with np.errstate(invalid="ignore"):  # of resamples in which both diverge
        apart = first - second
    error = _spread(apart) * np.sqrt(reach.inflation)
    half = reach.quantile * error
    if error > 0:
        p = 2 * student_tail(max(reach.events - 1, 1), abs(value) / error)
    else:  # the same in every resample
        p = 1.0 if error == 0 and value == 0 else np.nan
    return Difference(float(value), float(value - half), float(value + half), float(p))


def _wilson(estimate: float, none: float, growth: float, quantile: float) -> tuple[float, float]:
    """Return the values θ ≥ 0 with (estimate − θ)² ≤ quantile² (none + growth θ)."""
    middle = estimate + quantile**2 * growth / 2
    half = np.sqrt(max(middle**2 - estimate**2 + quantile**2 * none, 0.0))
    return max(middle - half, 0.0), max(middle + half, 0.0)


def _finite(resampled: np.ndarray) -> np.ndarray:
    """Return the finite values: a slope may diverge in a resample with few cases."""
    return resampled[np.isfinite(resampled)]


def _spread(resampled: np.ndarray) -> float:
    """Return the standard deviation over resamples; NaN with fewer than two."""
    known = _finite(resampled)
    return float(known.std()) if len(known) > 1 else np.nan
