"""Risk curves: the risk of an outcome as a function of a score, by quantile bins and by isotonic regression.

Turn scores and outcomes (NaN = unknown; each outcome uses its own known admissions) into small frozen curves. They can
be applied with NumPy only.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlci.base.errors import InputError
from mlci.judging._known import known_outcomes
from mlci.judging.kept import Isotonic
from mlci.measures._proportion import wilson
from mlci.measures.design import Design, as_design
from mlci.measures.distributions import nondecreasing
from mlci.measures.weighted import quantile

GRID = 200  # evenly spaced score quantiles at which the change of a fitted risk is read
BINS, FEWEST = 60, 10  # quantile bins of a plotted curve, and the least number of admissions in each
INCREASING, WEAKLY_INCREASING = 0.05, 0.01


@dataclass(frozen=True)
class Rates:
    """Observed event rates of groups of admissions with neighbouring scores, with 95% Wilson intervals.

    With survey weights, scores and rates are weighted; `n` and `positives` remain plain counts.
    """

    score: np.ndarray  # mean score of the group
    risk: np.ndarray
    low: np.ndarray
    high: np.ndarray
    n: np.ndarray
    positives: np.ndarray
    weight: np.ndarray | None = None  # summed survey weights of the group, if any

    @property
    def mass(self) -> np.ndarray:
        """The weight of each group, or its number of admissions."""
        return self.n if self.weight is None else self.weight


def binned(
    score, outcome, *, bins: int = BINS, levels: Sequence[float] | np.ndarray | None = None, patients: Any = None
) -> Rates:
    """Return the event rate in each quantile bin of the score.

    Args:
        score: one number per admission.
        outcome: 0, 1, or NaN if unknown.
        bins: their number. Equal edges are merged and empty bins dropped, so tied scores and small cohorts give fewer.
        levels: quantile levels between 0 and 1 for the edges, in place of `bins`.
        patients: the patient of each admission, or a `Design` with weights; None for independent admissions.

    >>> rates = binned([1, 2, 3, 4], [0, 0, 1, 1], bins=2)
    >>> rates.risk.tolist(), rates.n.tolist()
    ([0.0, 1.0], [2, 2])
    """
    design = None if patients is None else as_design(patients).take(~np.isnan(np.asarray(outcome, dtype=float)))
    score, outcome = known_outcomes(score, outcome)
    if bins < 1:
        raise InputError(f"bins: {bins} is not allowed; it must be 1 or more.")
    weight = None if design is None else design.weight
    edges = np.unique(quantile(score, np.linspace(0, 1, bins + 1) if levels is None else [0, *levels, 1], weight))
    group = np.searchsorted(edges[1:-1], score, side="right")  # right-open, the last bin closed
    if design is not None:
        return _designed(score, outcome, group, design)
    n = np.bincount(group)
    kept = n > 0
    positives = np.bincount(group, weights=outcome)[kept]
    return _rates(np.bincount(group, weights=score)[kept], positives, n[kept])


def _designed(score: np.ndarray, outcome: np.ndarray, group: np.ndarray, design: Design) -> Rates:
    """Return rates of groups of weighted or clustered admissions, with intervals for the effective sample size."""
    weight, total, rate, middle = _levels(score, outcome, group, design)
    kept, moved = total > 0, weight * (outcome - rate[group])
    together, apart = _between(moved, group, design), np.bincount(group, moved**2)
    with np.errstate(invalid="ignore", divide="ignore"):  # effective sample sizes, as `effective_of_mean` has them
        worth = total**2 / np.bincount(group, weight**2)
        if design.weight is not None:
            of_mean = total * np.bincount(group, weight * (outcome - rate[group]) ** 2) / apart
            worth = np.where(apart > 0, of_mean, worth)
    worth = (worth / np.maximum(1, np.divide(together, apart, out=np.ones_like(apart), where=apart > 0)))[kept]
    low, high = wilson(rate[kept] * worth, worth)
    counts = np.bincount(group)[kept], np.bincount(group, outcome)[kept]
    return Rates(middle[kept], rate[kept], low, high, *counts, None if design.weight is None else total[kept])


def _levels(
    score: np.ndarray, y: np.ndarray, group: np.ndarray, design: Design
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return each admission's weight, and each group's sum of weights and weighted means of y and the score."""
    weight = np.ones(len(y)) if design.weight is None else design.weight
    total = np.bincount(group, weight)
    with np.errstate(invalid="ignore", divide="ignore"):
        return weight, total, np.bincount(group, weight * y) / total, np.bincount(group, weight * score) / total


def _between(moved: np.ndarray, group: np.ndarray, design: Design) -> np.ndarray:
    """Return the sum of squared cluster totals of `moved` for each group."""
    cell = np.unique(group * np.int64(design.clusters) + design.cluster, return_inverse=True)
    return np.bincount(cell[0] // design.clusters, np.bincount(cell[1], moved) ** 2, minlength=group.max() + 1)


@dataclass(frozen=True)
class CalibrationCurve:
    """Smoothed observed risk as a function of the predicted risk."""

    predicted: np.ndarray
    observed: np.ndarray


def calibration_curve(
    predicted, outcome, *, width: float = 0.75, share: float = 0.05, points: int = 60, patients: Any = None
) -> CalibrationCurve:
    """Return the smoothed calibration curve by local linear regression with tricube weights (LOESS).

    Admissions are aggregated into at most 400 groups of neighbours. The bandwidth at each point is the larger of two:
    `width` in log-odds, and the distance that covers `share` of the admissions on either side. So both the many low
    risks and the few high ones are smoothed appropriately.

    Args:
        predicted: a probability per admission.
        outcome: 0, 1, or NaN if unknown.
        width: least bandwidth in log-odds.
        share: of the admissions.
        points: most points of the curve.
        patients: as in `binned`; only weights matter here.

    >>> curve = calibration_curve([0.1, 0.2, 0.3, 0.4], [0, 0, 1, 1])
    >>> bool(curve.observed[0] < curve.observed[-1])
    True
    """
    from mlci.measures.discrimination import logit

    groups = binned(predicted, outcome, bins=400, patients=patients)
    x, y, n = groups.score, groups.risk, groups.mass.astype(float)
    chosen = np.unique(np.linspace(0, len(x) - 1, points).round().astype(int))
    at, odds, centre = x[chosen], logit(x), (np.cumsum(n) - n / 2) / n.sum()
    near = np.interp(centre[chosen, None] + [[-share, share]], centre, odds)
    reach = np.maximum(width, np.abs(near - odds[chosen, None]).max(axis=1, keepdims=True))
    weight = n * np.clip(1 - np.abs((odds - odds[chosen, None]) / reach) ** 3, 0, None) ** 3
    total = weight.sum(axis=1)
    mean_x, mean_y = weight @ x / total, weight @ y / total
    apart = x - mean_x[:, None]
    spread = (weight * apart**2).sum(axis=1)
    slope = np.divide((weight * apart) @ y, spread, out=np.zeros_like(spread), where=spread > 0)
    return CalibrationCurve(at, np.clip(mean_y + slope * (at - mean_x), 0, 1))


def isotonic(score, outcome, *, weight: np.ndarray | None = None) -> Isotonic:
    """Return the isotonic regression of the outcome on the score: the nondecreasing least-squares fit.

    Args:
        score: one number per admission.
        outcome: 0, 1, or NaN if unknown.
        weight: of each admission.

    >>> curve = isotonic([1, 2, 3, 4], [0, 1, 0, 1])
    >>> curve([1, 2.5, 4]).tolist()
    [0.0, 0.5, 1.0]
    """
    if weight is not None:
        weight = weight[~np.isnan(np.asarray(outcome, dtype=float))]
    return _nondecreasing(*known_outcomes(score, outcome), weight)


def _nondecreasing(score: np.ndarray, y: np.ndarray, weight: np.ndarray | None) -> Isotonic:
    """Return the isotonic regression of y on the score, as knots; tied scores share their mean."""
    values, place = np.unique(score, return_inverse=True)
    mass = np.bincount(place, weight)
    counted = mass > 0
    values, mass = values[counted], mass[counted]
    means = np.bincount(place, y if weight is None else weight * y)[counted] / mass
    fit = nondecreasing(means, mass)
    rises = np.diff(fit) > 0
    knots = np.append(True, rises) | np.append(rises, True)
    return Isotonic(values[knots], fit[knots])


def delta(curve: Isotonic, score, weight: np.ndarray | None = None) -> float:
    """Return the change of a fitted risk between the 5% and the 95% quantile of the scores.

    The curve is read at 200 evenly spaced quantiles of the scores; the result is the difference of the values at the
    indices 189 and 9 of this grid.

    Args:
        curve: the fitted risk.
        score: one number per admission.
        weight: of each admission.

    >>> delta(isotonic([1, 2, 3, 4], [0, 0, 1, 1]), [1, 2, 3, 4])
    1.0
    """
    grid = curve(quantile(np.asarray(score, dtype=float), np.linspace(0, 1, GRID), weight))
    return float(grid[int(0.95 * (GRID - 1))] - grid[int(0.05 * (GRID - 1))])


def verdict(change: float) -> str:
    """Return whether a risk rises with the score, by its `change`: at least 5 percentage points, at least 1, or less.

    >>> verdict(0.2), verdict(0.02), verdict(0.0)
    ('increasing', 'weakly increasing', 'flat')
    """
    if change >= INCREASING:
        return "increasing"
    return "weakly increasing" if change >= WEAKLY_INCREASING else "flat"


@dataclass(frozen=True)
class Trend:
    """The change of one outcome's risk along the score, for one or several scores (seeds) of the same admissions.

    For a numeric outcome the change is that of its mean, and `level` is its overall mean, relative to which the change
    is classified.
    """

    outcome: str
    deltas: tuple[float, ...]
    n: int
    positives: int
    level: float | None = None

    @property
    def mean(self) -> float:
        return float(np.mean(self.deltas))

    @property
    def sd(self) -> float:
        """Sample standard deviation over seeds; NaN for one seed."""
        return float(np.std(self.deltas, ddof=1)) if len(self.deltas) > 1 else float("nan")

    @property
    def verdict(self) -> str:
        return verdict(self.mean if self.level is None else self.mean / self.level)

    @property
    def points(self) -> str:
        """The change in percentage points (for a numeric outcome in its own unit), with its SD over seeds."""
        if self.level is not None:
            return f"{self.mean:.3g}{f' ± {self.sd:.2g}' if len(self.deltas) > 1 else ''}"
        spread = f" ± {100 * self.sd:.1f}" if len(self.deltas) > 1 else ""
        return f"{100 * self.mean:.1f}{spread} points"


def trends(scores: Sequence, outcomes, names: Sequence[str], *, patients: Any = None) -> tuple[Trend, ...]:
    """Return the trend of each outcome's risk along the score.

    Args:
        scores: one array of scores per seed.
        outcomes: n x T, NaN if unknown.
        names: of the outcomes; one that is unknown everywhere is left out.
        patients: as in `binned`.

    >>> [trend] = trends([[1, 2, 3, 4]], [0, 0, 1, 1], ["mortality"])
    >>> trend.mean, trend.verdict
    (1.0, 'increasing')
    """
    return tuple(curve.trend for curve in risk_curves(scores, outcomes, names, patients=patients))


@dataclass(frozen=True)
class RiskCurve:
    """The risk curve of one outcome over one score: rates in bins, the isotonic fit, and the trend over seeds."""

    rates: Rates
    fit: Isotonic
    grid: np.ndarray  # evenly spaced quantiles of the score at which the fit is read
    trend: Trend


def risk_curves(
    scores: Sequence, outcomes, names: Sequence[str], *, bins: int = BINS, patients: Any = None
) -> tuple[RiskCurve, ...]:
    """Return the curves of the first score as in the paper, with each outcome's trend over all scores.

    Args:
        scores: one array of scores per seed.
        outcomes: n x T, NaN if unknown.
        names: of the outcomes; one that is unknown everywhere is left out.
        bins: number of quantile bins; fewer if they would hold less than 10 admissions each.
        patients: as in `binned`.

    >>> [curve] = risk_curves([range(40)], [0] * 20 + [1] * 20, ["mortality"])
    >>> curve.rates.n.tolist(), curve.trend.verdict
    ([10, 10, 10, 10], 'increasing')
    """
    outcomes = np.asarray(outcomes, dtype=float).reshape(len(outcomes), -1)
    result = []
    for name, outcome in zip(names, outcomes.T, strict=True):
        known = ~np.isnan(outcome)
        design = None if patients is None else as_design(patients).take(known)
        if not known.any() or (design is not None and design.is_empty):
            continue
        outcome, seeds = outcome[known], [np.asarray(score, dtype=float)[known] for score in scores]
        weight = None if design is None else design.weight
        fits = [isotonic(score, outcome, weight=weight) for score in seeds]
        changes = tuple(delta(fit, score, weight) for fit, score in zip(fits, seeds))
        trend = Trend(name, changes, len(outcome), int(outcome.sum()))
        rates = binned(seeds[0], outcome, bins=min(bins, max(len(outcome) // FEWEST, 1)), patients=design)
        result.append(RiskCurve(rates, fits[0], quantile(seeds[0], np.linspace(0, 1, GRID), weight), trend))
    return tuple(result)


def mean_curves(
    scores: Sequence, columns: Mapping[str, np.ndarray], *, bins: int = BINS, patients: Any = None
) -> tuple[RiskCurve, ...]:
    """Return the curves of numeric outcomes: their mean in bins of the first score, and its isotonic regression.

    Args:
        scores: one array of scores per seed.
        columns: name → number of each admission, NaN if unknown; one that is unknown everywhere is left out.
        bins: number of quantile bins; fewer if they would hold less than 10 admissions each.
        patients: as in `binned`; by default independent admissions.

    >>> [curve] = mean_curves([np.arange(40.0)], {"days": np.arange(40.0)})
    >>> curve.rates.risk.tolist(), curve.trend.verdict
    ([4.5, 14.5, 24.5, 34.5], 'increasing')
    """
    result = []
    for name, values in columns.items():
        known = np.isfinite(values)
        design = as_design(np.arange(len(values)) if patients is None else patients).take(known)
        if design.is_empty:
            continue
        y, seeds = values[known], [np.asarray(score, dtype=float)[known] for score in scores]
        lines = [_nondecreasing(score, y, design.weight) for score in seeds]
        rises = tuple(delta(line, score, design.weight) for line, score in zip(lines, seeds))
        trend = Trend(name, rises, len(y), int((y > 0).sum()), float(np.average(y, weights=design.weight)))
        levels = np.linspace(0, 1, min(bins, max(len(y) // FEWEST, 1)) + 1)
        edges = np.unique(quantile(seeds[0], levels, design.weight))
        rates = _means(seeds[0], y, np.searchsorted(edges[1:-1], seeds[0], side="right"), design)
        result.append(RiskCurve(rates, lines[0], quantile(seeds[0], np.linspace(0, 1, GRID), design.weight), trend))
    return tuple(result)


def _means(score: np.ndarray, y: np.ndarray, group: np.ndarray, design: Design) -> Rates:
    """Return means of a numeric outcome in groups, with 95% intervals by standard errors clustered by patient."""
    weight, total, level, middle = _levels(score, y, group, design)
    kept, n = total > 0, np.bincount(group)
    variance = _between(weight * (y - level[group]) / total[group], group, design)
    half = 1.959964 * np.sqrt(variance * n / np.maximum(n - 1, 1))[kept]
    mass = None if design.weight is None else total[kept]
    positives = np.bincount(group, y > 0)[kept]
    return Rates(middle[kept], level[kept], level[kept] - half, level[kept] + half, n[kept], positives, mass)


def _rates(score_sum: np.ndarray, positives: np.ndarray, n: np.ndarray) -> Rates:
    low, high = wilson(positives, n)
    return Rates(score_sum / n, positives / n, low, high, n, positives)
