"""The registry of metrics: for each its names, unit, direction, function, resampler and interval.

A `Pair` (one score beside one outcome) comes in; `Metric.value` gives a number, `Metric.resampler` its spread, and
`Metric.interval` makes an interval of both. To add a metric, write its function in a file of this room and one entry
here: `mlci evaluate` computes and prints it at once, and `benchmarked` and `reported` put it into the benchmark's
tables and the report.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Literal

import numpy as np
from scipy.special import expit
from scipy.stats import rankdata

from mlci.measures import discrimination, independence, information, intervals, resample
from mlci.measures._proportion import wilson
from mlci.measures.alignment import Kernel, distance_correlation, nhsic
from mlci.measures.intervals import Interval, Reach

FEW = 100  # a whole-numbered score with at most so many distinct values has a plug-in estimate of MI


@dataclass(frozen=True)
class Pair:
    """One score beside one outcome (0, 1, NaN where not known), and the outcome's predicted risk where one is given.

    `sigma` and `kernel` are those of nHSIC; `patients` tells whose admission each one is (each its own by default).
    What several metrics need is computed once.
    """

    scores: np.ndarray
    y: np.ndarray
    risk: np.ndarray | None = None
    sigma: float | None = None
    kernel: Kernel = "rbf"
    patients: Any = None

    @cached_property
    def events(self) -> int:
        """Patients with the rarer kind of the outcome: what the outcome's figures rest on."""
        return min(len(np.unique(self.patient[self.y == kind])) for kind in (0, 1))

    @cached_property
    def patient(self) -> np.ndarray:
        """Whose admission each one is, as a number."""
        return np.arange(len(self.y)) if self.patients is None else resample.numbered(self.patients)

    @cached_property
    def n(self) -> int:
        """Admissions whose outcome is known."""
        return int((~np.isnan(self.y)).sum())

    @cached_property
    def by_neighbours(self) -> np.ndarray:
        """The contributions of the admissions to mutual information, by nearest neighbours."""
        return self._contributions("neighbours")

    @cached_property
    def by_counting(self) -> np.ndarray:
        """The contributions of the admissions to mutual information, by counting."""
        return self._contributions("plug-in")

    @cached_property
    def calibration(self) -> discrimination.Calibration:
        """How true the risk is."""
        return discrimination.calibration(self.risk, self.y)

    @cached_property
    def has_few_values(self) -> bool:
        """Whether the score is a count of points, so that counting estimates its mutual information."""
        return not np.mod(self.scores, 1).any() and len(np.unique(self.scores)) <= FEW

    def _contributions(self, estimator: information.Estimator) -> np.ndarray:
        known = ~np.isnan(self.y)
        return information.contributions(self.scores[known], self.y[known], estimator=estimator)


@dataclass(frozen=True)
class Resampler:
    """A way to resample several metrics at once: `make` gives a statistic with a column for each of `metrics`.

    With `together` it takes several outcomes of one score, whose columns then stand side by side.
    """

    metrics: tuple[str, ...]
    make: Callable[..., resample.Statistic]
    together: bool = False


@dataclass(frozen=True)
class Metric:
    """One figure of a score for an outcome.

    Attributes:
        name: its key in tables and files.
        label: its heading on pages and figures.
        short: its heading in narrow tables.
        value: the figure itself.
        resampler: its spread over resampled patients; None where it has none.
        interval: from the pair, the figure, its resamples and the reach; None where it has none.
        drawn: the figure whose resamples it shares, where it has none of its own.
        unit: "nats", or nothing for a pure number.
        better: the direction, larger or smaller, or the value that is right.
        depends: what of the score it depends on, in words.
        applies: whether a pair has this figure.
        benchmarked: whether it is a table of `mlci benchmark`.
        reported: whether it is a table of the report.
    """

    name: str
    label: str
    short: str
    value: Callable[[Pair], float]
    resampler: Resampler | None
    interval: Callable[[Pair, float, np.ndarray, Reach], Interval] | None = None
    drawn: str = ""
    unit: str = ""
    better: Literal["larger", "smaller", "1", "0"] = "larger"
    depends: str = ""
    applies: Callable[[Pair], bool] = lambda pair: True
    benchmarked: bool = False
    reported: bool = False

    @property
    def heading(self) -> str:
        """The label with the unit."""
        return f"{self.label} ({self.unit})" if self.unit else self.label


def _mean(contributions: np.ndarray) -> float:
    return max(0.0, float(contributions.mean())) if len(contributions) else 0.0


def _has_risk(pair: Pair) -> bool:
    return pair.risk is not None


def _plain(pair: Pair, value: float, drawn: np.ndarray, reach: Reach) -> Interval:
    return intervals.plain(value, drawn, reach)


def _floored(pair: Pair, value: float, drawn: np.ndarray, reach: Reach) -> Interval:
    return intervals.plain(value, drawn, reach, floor=0.0)


def _area(pair: Pair, value: float, drawn: np.ndarray, reach: Reach, *, of: str = "scores") -> Interval:
    influence = discrimination.auroc_influence(np.asarray(getattr(pair, of)), pair.y)
    return intervals.area(value, influence, pair.y, pair.patient, level=reach.level)


def _on_log_odds(pair: Pair, value: float, drawn: np.ndarray, reach: Reach) -> Interval:
    return intervals.on_log_odds(value, drawn, reach)


def _dependence(pair: Pair, value: float, drawn: np.ndarray, reach: Reach, *, ranks: bool = False) -> Interval:
    """Around the U-statistic of the squared distance correlation; `drawn` is that of the biased one."""
    scores = rankdata(pair.scores) if ranks else pair.scores
    unbiased = independence.squared(scores, pair.y)
    return intervals.dependence(value, unbiased, drawn**2, reach, n=pair.n)


def _corrected(pair: Pair, value: float, drawn: np.ndarray, reach: Reach) -> Interval:
    """The interval of the plain one: what the two estimate is the same."""
    plain = _dependence(pair, float(distance_correlation(pair.scores, pair.y)), drawn, reach)
    return Interval(value, plain.low, plain.high)


def _alignment(pair: Pair, value: float, drawn: np.ndarray, reach: Reach) -> Interval:
    """Around nHSIC less the bias that its resamples show."""
    if not np.isfinite(drawn).any():
        return Interval(value, np.nan, np.nan)
    found = intervals.plain(2 * value - float(np.nanmean(drawn)), drawn, reach, floor=0.0)
    return Interval(value, found.low, found.high)


def _observed_expected(pair: Pair, value: float, drawn: np.ndarray, reach: Reach) -> Interval:
    """Wilson's interval of the rate, for as many admissions as those of patients who are alike are worth."""
    known = ~np.isnan(pair.y)
    if pair.risk is None or not known.any():
        return Interval(value, np.nan, np.nan)
    risks, y = pair.risk[known], pair.y[known]
    alike = _together(pair, y - risks)
    low, high = wilson(y.sum() / alike, len(y) / alike, level=reach.level)
    return Interval(value, float(low / risks.mean()), float(high / risks.mean()))


def _intercept(pair: Pair, value: float, drawn: np.ndarray, reach: Reach) -> Interval:
    known = ~np.isnan(pair.y)
    if pair.risk is None or not np.isfinite(value):
        return Interval(value, np.nan, np.nan)
    log_odds, y = discrimination.logit(pair.risk[known]), pair.y[known]
    alike = _together(pair, y - expit(log_odds + value))
    return intervals.shift(value, log_odds, y.sum(), alike=alike, level=reach.level)


def _calibration_error(pair: Pair, value: float, drawn: np.ndarray, reach: Reach) -> Interval:
    """Chance gaps are as much wider as the residuals of a patient's admissions go together."""
    known = ~np.isnan(pair.y)
    if pair.risk is None or not known.any():
        return Interval(value, np.nan, np.nan)
    risks, y = pair.risk[known], pair.y[known]
    gaps, variances, shares = discrimination.calibration_gaps(risks, y)
    return intervals.mean_square(value, gaps, variances * _together(pair, y - risks), shares, reach)


def _together(pair: Pair, residuals: np.ndarray) -> float:
    """Design effect: variance of the sum of residuals by patient over that by admission, at least 1."""
    by_patient = np.bincount(pair.patient[~np.isnan(pair.y)], residuals)
    return max(1.0, float(by_patient @ by_patient / max(residuals @ residuals, 1e-300)))


def _ranking(*pairs: Pair) -> resample.Statistic:
    first = pairs[0]
    outcomes = np.column_stack([pair.y for pair in pairs])
    return resample.ranking(first.scores, outcomes, sigma=first.sigma, kernel=first.kernel)


def _contributed(*pairs: Pair, by: str) -> resample.Statistic:
    values = np.full((len(pairs[0].y), len(pairs)), np.nan)
    for place, pair in enumerate(pairs):
        values[~np.isnan(pair.y), place] = getattr(pair, by)
    return resample.mean(values)


_RANKING = Resampler(resample.RANKING, _ranking, together=True)
_CALIBRATION = Resampler(resample.CALIBRATION, lambda pair: resample.calibration(np.asarray(pair.risk), pair.y))
_BY_RISK = partial(Metric, resampler=_CALIBRATION, interval=_plain, applies=_has_risk)

METRICS = {
    metric.name: metric
    for metric in (
        Metric(
            "dcorr",
            "Distance correlation",
            "dCorr",
            lambda pair: float(distance_correlation(pair.scores, pair.y)),
            _RANKING,
            _dependence,
            depends="order and spacing",
            benchmarked=True,
            reported=True,
        ),
        Metric(
            "dcorr_corrected",
            "Distance correlation, without its bias",
            "dCorr, corrected",
            lambda pair: independence.corrected_distance_correlation(pair.scores, pair.y),
            _RANKING,
            _corrected,
            drawn="dcorr",
            depends="order and spacing",
        ),
        Metric(
            "independence",
            "p-value of independence (distance correlation)",
            "p of independence",
            lambda pair: independence.independence(pair.scores, pair.y, patients=pair.patients),
            None,
            better="smaller",
            depends="order and spacing",
        ),
        Metric(
            "mi",
            "Mutual information",
            "MI (nats)",
            lambda pair: _mean(pair.by_neighbours),
            Resampler(("mi",), partial(_contributed, by="by_neighbours"), together=True),
            _floored,
            unit="nats",
            depends="mostly order",
            benchmarked=True,
            reported=True,
        ),
        Metric(
            "nhsic",
            "nHSIC",
            "nHSIC",
            lambda pair: float(nhsic(pair.scores, pair.y, sigma=pair.sigma, kernel=pair.kernel)),
            _RANKING,
            _alignment,
            depends="order and spacing",
        ),
        Metric(
            "auroc",
            "AUROC",
            "AUROC",
            lambda pair: discrimination.auroc(pair.scores, pair.y),
            _RANKING,
            _area,
            depends="order alone",
            benchmarked=True,
            reported=True,
        ),
        Metric(
            "average_precision",
            "Average precision",
            "average precision",
            lambda pair: discrimination.average_precision(pair.scores, pair.y),
            _RANKING,
            _on_log_odds,
            depends="order alone",
        ),
        Metric(
            "rank_dcorr",
            "Distance correlation of ranks",
            "dCorr of ranks",
            lambda pair: discrimination.rank_distance_correlation(pair.scores, pair.y),
            _RANKING,
            partial(_dependence, ranks=True),
            depends="order alone",
            benchmarked=True,
            reported=True,
        ),
        Metric(
            "mi_plugin",
            "Mutual information, plug-in",
            "MI, plug-in",
            lambda pair: _mean(pair.by_counting),
            Resampler(("mi_plugin",), partial(_contributed, by="by_counting"), together=True),
            _floored,
            unit="nats",
            depends="mostly order",
            applies=lambda pair: pair.has_few_values,
        ),
        Metric(
            "risk_auroc",
            "AUROC of the risk",
            "AUROC of the risk",
            lambda pair: discrimination.auroc(pair.risk, pair.y),
            Resampler(("risk_auroc",), lambda pair: resample.area(np.asarray(pair.risk), pair.y)),
            partial(_area, of="risk"),
            applies=_has_risk,
        ),
        _BY_RISK(
            "deviance",
            "Deviance explained",
            "deviance explained",
            lambda pair: pair.calibration.deviance,
            depends="risks, of a score those of a curve over it that validation admissions gave",
            benchmarked=True,
        ),
        _BY_RISK("nagelkerke", "Nagelkerke's R²", "Nagelkerke's R²", lambda pair: pair.calibration.nagelkerke),
        _BY_RISK("brier_skill", "Brier skill", "Brier skill", lambda pair: pair.calibration.brier_skill),
        Metric(
            "observed_expected",
            "Observed / expected events",
            "observed / expected",
            lambda pair: pair.calibration.observed_expected,
            _CALIBRATION,
            _observed_expected,
            better="1",
            applies=_has_risk,
        ),
        _BY_RISK("brier", "Brier score", "Brier", lambda pair: pair.calibration.brier, better="smaller"),
        _BY_RISK("slope", "Calibration slope", "calibration slope", lambda pair: pair.calibration.slope, better="1"),
        _BY_RISK(
            "intercept",
            "Calibration intercept",
            "calibration intercept",
            lambda pair: pair.calibration.intercept,
            interval=_intercept,
            better="0",
        ),
        Metric(
            "calibration_error",
            "Calibration error",
            "calibration error",
            lambda pair: pair.calibration.error,
            None,
            _calibration_error,
            better="smaller",
            applies=_has_risk,
        ),
    )
}


def benchmarked() -> dict[str, Metric]:
    """Return the metrics of the benchmark's tables, by name.

    >>> [*benchmarked()]
    ['dcorr', 'mi', 'auroc', 'rank_dcorr', 'deviance']
    """
    return {name: metric for name, metric in METRICS.items() if metric.benchmarked}


def reported() -> dict[str, Metric]:
    """Return the metrics of the report, by name; those of order alone come first.

    >>> [*reported()]
    ['auroc', 'rank_dcorr', 'dcorr', 'mi']
    """
    chosen = (metric for metric in METRICS.values() if metric.reported)
    return {metric.name: metric for metric in sorted(chosen, key=lambda metric: metric.depends != "order alone")}
