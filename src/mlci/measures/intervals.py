"""From resampled figures to 95% intervals that cover, also with few events.

A figure and its value in each resample come in; an interval goes out. Percentiles of resamples are too short where
events are few, and lie beside the truth where a figure is biased. So the resamples lend their spread alone: the
interval holds the values from which the figure lies no further than their own standard errors allow (AUROC,
calibration error and intercept), is symmetric around a root without bias (distance correlation) or in log-odds (average
precision), or plain with Student's t for as many degrees of freedom as there are patients with the rarer outcome, less
one (the rest). `benchmarks/intervals.py` shows how often each holds the truth.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from mlci.measures.design import as_design
from mlci.measures.discrimination import expit
from mlci.measures.distributions import normal_quantile, root, student_quantile, student_tail
from mlci.measures.weighted import effective

EDGE = 1e-9  # the search starts beside the area itself, where a perfect one has a root of no interest
FAR = 100.0  # log-odds: at such a distance every admission has the outcome, or none has
MANY = 100  # clusters less strata from which Student's t is hardly told from the normal distribution
SMOOTHED = 20  # events that outweigh Hanley and McNeil's formula for AUROC's variance


@dataclass(frozen=True)
class Interval:
    """A figure with its interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Difference(Interval):
    """A paired difference with the two-sided p-value of no difference."""

    p: float


@dataclass(frozen=True)
class Reach:
    """How far an interval reaches: `events`, patients with the rarer kind of the outcome, and the `level` it holds."""

    events: int
    level: float = 0.95

    @property
    def quantile(self) -> float:
        """Student's quantile: standard errors to either side.

        >>> round(Reach(20).quantile, 3)
        2.093
        """
        return student_quantile(max(self.events - 1, 1), (1 + self.level) / 2)

    @property
    def inflation(self) -> float:
        """What a resampled variance falls short by, as every variance with divisor n does: n / (n − 1).

        >>> Reach(21).inflation
        1.05
        """
        return self.events / max(self.events - 1, 1)


def percentile(value: float, resampled: np.ndarray, reach: Reach) -> Interval:
    """Return a figure with the percentiles of its resamples, for figures whose distribution has no better handle.

    Args:
        value: the figure.
        resampled: the same on each resample.
        reach: the level of the interval, and what it rests on.

    >>> found = percentile(0.5, np.linspace(0, 1, 101), Reach(50, level=0.9))
    >>> round(found.low, 3), round(found.high, 3)
    (0.05, 0.95)
    """
    known = _finite(resampled)
    if not len(known):
        return Interval(float(value), np.nan, np.nan)
    low, high = np.quantile(known, [(1 - reach.level) / 2, (1 + reach.level) / 2])
    return Interval(float(value), float(low), float(high))


def plain(value: float, resampled: np.ndarray, reach: Reach, *, floor: float = -np.inf) -> Interval:
    """Return a figure with t standard errors to either side.

    Args:
        value: the figure itself.
        resampled: the same figure of each resample; those in which it is undefined are left out.
        reach: events and level.
        floor: the least that the figure can be.

    >>> found = plain(1.0, np.array([0.9, 1.0, 1.1] * 50), Reach(100))
    >>> round(found.low, 2), round(found.high, 2)
    (0.84, 1.16)
    """
    half = reach.quantile * _spread(resampled)
    return Interval(float(value), float(max(value - half, floor)), float(max(value + half, floor)))


def area(value: float, influence: np.ndarray, y: np.ndarray, patients: Any, *, level: float = 0.95) -> Interval:
    """Return AUROC with the interval of those areas from which it lies within their own standard errors.

    How the variance changes with the area follows Hanley and McNeil (Newcombe 2006, method 5); its size is DeLong's,
    drawn towards theirs where events are few, since DeLong's is too small whenever the area found is too large.

    Args:
        value: AUROC.
        influence: of each admission, by `discrimination.auroc_influence`.
        y: the outcome: 0, 1, or NaN where not known.
        patients: whose admission each one is, or a `Design`; the classes of a weighted one count as many admissions as
            their weights are worth.
        level: the share of such intervals that hold the true area.

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
        many = (cases + controls) / 2 - 1
        shape = 1 + many * (1 - place) / (2 - place) + many * place / (1 + place)
        return place * (1 - place) * shape / (cases * controls)

    factor = 1.0
    if delong > 0 and rarer > 1:
        own = delong * rarer / (rarer - 1) / variance(value)
        factor = float(max(1.0, design.variance(influence) / delong) * own ** (rarer / (rarer + SMOOTHED)))
    few = design.clusters < len(design) and design.degrees < MANY
    far = student_quantile(design.degrees, (1 + level) / 2) if few else normal_quantile((1 + level) / 2)
    reach = far**2 * factor

    def beyond(place: float) -> float:
        return (value - place) ** 2 - reach * variance(place)

    low = root(beyond, 0.0, value * (1 - EDGE)) if value > 0 else 0.0
    high = root(beyond, 1 - (1 - value) * (1 - EDGE), 1.0) if value < 1 else 1.0
    return Interval(float(value), float(low), float(high))


def on_log_odds(value: float, resampled: np.ndarray, reach: Reach) -> Interval:
    """Return a figure between 0 and 1 with an interval that is symmetric in its log-odds, and so never leaves [0, 1].

    Args:
        value: the figure.
        resampled: the same on each resample.
        reach: the level of the interval, and what it rests on.

    >>> found = on_log_odds(0.9, np.array([0.85, 0.9, 0.95] * 50), Reach(100))
    >>> round(found.low, 2), round(found.high, 2)
    (0.78, 0.96)
    """
    half = reach.quantile * _spread(resampled) * np.sqrt(reach.inflation)
    if not 0 < value < 1 or not half > 0:  # all or nothing in order: no spread to tell an interval by
        return Interval(float(value), np.nan, np.nan)
    middle, step = np.log(value / (1 - value)), half / (value * (1 - value))
    return Interval(float(value), float(expit(middle - step)), float(expit(middle + step)))


def dependence(value: float, unbiased: float, resampled: np.ndarray, reach: Reach, *, n: float) -> Interval:
    """Return a figure of dependence with an interval around the root of its unbiased square, which may reach 0.

    The square of n admissions, its bias taken off, behaves as Z² − 1 in units of 1/n, Z normal with deviation 1, where
    an outcome has two classes and there is little dependence. So 1/n is added before the root is taken, and the root
    has the same standard error wherever it lies, 0 included.

    Args:
        value: the plain figure, whose square is biased.
        unbiased: the U-statistic of its square; may be negative.
        resampled: the biased square of each resample.
        reach: events and level.
        n: admissions.

    >>> found = dependence(0.05, -0.0004, np.random.default_rng(0).chisquare(1, 500) / 400, Reach(200), n=400)
    >>> found.low, found.high < 0.2
    (0.0, True)
    """
    spread = _spread(resampled) ** 2 * reach.inflation
    if not spread > 0 or not value > 0:
        return Interval(float(value), np.nan, np.nan)
    square = max(unbiased + 1 / n, 0.0)
    # Resamples of Z lie around Z, so that their square has the variance 2 + 4 Z²: the error is then 1 / √n for every Z.
    error = np.sqrt((spread + 2 / n**2) / (4 * (square + 1 / n)))
    half = normal_quantile((1 + reach.level) / 2) * error
    return Interval(float(value), float(max(np.sqrt(square) - half, 0.0)), float(min(np.sqrt(square) + half, 1.0)))


def shift(value: float, log_odds: np.ndarray, events: float, *, alike: float = 1.0, level: float = 0.95) -> Interval:
    """Return a shift of log-odds with those shifts that expect no other number of events than chance allows.

    What chance allows is by the variance that a shift itself implies, as in Wilson's interval of a rate: the score
    test turned round.

    Args:
        value: the shift at which as many events are expected as were seen.
        log_odds: of each admission.
        events: how many were seen.
        alike: how many times the variance is as large as that of admissions that have nothing to do with each other.
        level: the share of such intervals that hold the true shift.

    >>> found = shift(0.0, np.zeros(100), 50)
    >>> round(found.low, 2), round(found.high, 2)
    (-0.39, 0.39)
    """
    if not np.isfinite(value):
        return Interval(float(value), np.nan, np.nan)
    reach = normal_quantile((1 + level) / 2) * np.sqrt(alike)

    def beyond(place: float, side: int) -> float:
        risks = expit(log_odds + place)
        return side * (events - risks.sum()) - reach * np.sqrt(risks @ (1 - risks))

    low, high = (root(partial(beyond, side=side), value, value - side * FAR) for side in (1, -1))
    return Interval(float(value), float(low), float(high))


def mean_square(value: float, gaps: np.ndarray, variances: np.ndarray, shares: np.ndarray, reach: Reach) -> Interval:
    """Return the root of a mean squared gap, of which noise has been taken off, with an interval that may reach 0.

    Args:
        value: the root as it is shown.
        gaps: observed less predicted in each group.
        variances: of each gap by chance alone.
        shares: of each group in all.
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
        value: the difference of the figures themselves, first minus second.
        first: the first figure of each resample.
        second: the second figure of each resample.
        reach: events and level.

    Returns:
        The difference, t standard errors of the resampled differences to either side, and the p-value of Student's t.

    >>> rng = np.random.default_rng(0)
    >>> found = difference(0.1, 0.8 + 0.02 * rng.normal(size=400), np.full(400, 0.7), Reach(50))
    >>> found.low > 0, found.p < 0.001
    (True, True)
    """
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
    return resampled[np.isfinite(resampled)]  # a slope may run away where a resample has no case


def _spread(resampled: np.ndarray) -> float:
    """Return the standard deviation over resamples; NaN where there are none."""
    known = _finite(resampled)
    return float(known.std()) if len(known) > 1 else np.nan
