"""The registry of metrics: for each its names, unit, direction, function, resampler and interval.

Of a `Pair` (a score and an outcome), `Metric.value` computes the figure, `Metric.resampler` its values on resampled
patients, and `Metric.interval` an interval from both. To add a metric, write its function in a module of this
subpackage and add one entry here. `mlci evaluate` then computes and prints it; `benchmarked` and `reported` put it into
the tables of the benchmark and of the report.
"""

from collections.abc import Sequence
from functools import partial

import numpy as np

from mlci.measures import discrimination, independence, intervals, resample
from mlci.measures._arrays import midranks
from mlci.measures._proportion import wilson
from mlci.measures.alignment import distance_correlation, nhsic
from mlci.measures.distributions import normal_quantile
from mlci.measures.intervals import Interval, Reach
from mlci.measures.metric import Metric as Metric
from mlci.measures.metric import Pair as Pair
from mlci.measures.metric import Resampler as Resampler
from mlci.measures.weighted import effective, effective_of_mean, mean


def _mean(contributions: np.ndarray) -> float:
    return max(0.0, float(contributions.mean())) if len(contributions) else 0.0


def _is_unweighted(pair: Pair) -> bool:
    """Return whether all admissions have the same weight, which figures without a weighted definition need."""
    return pair.weight is None


def _has_risk(pair: Pair) -> bool:
    return pair.risk is not None


def _plain(pair: Pair, value: float, drawn: np.ndarray, reach: Reach, **bounds: float) -> Interval:
    return intervals.plain(value, drawn, reach, **bounds)


_floored = partial(_plain, floor=0.0)
_share = partial(_plain, ceiling=1.0)  # of what perfect risks explain


def _area(pair: Pair, value: float, drawn: np.ndarray, reach: Reach, *, of: str = "scores") -> Interval:
    return intervals.area(value, pair.areas(of)[1], pair.y, pair.design, level=reach.level)


def _on_log_odds(pair: Pair, value: float, drawn: np.ndarray, reach: Reach) -> Interval:
    return intervals.on_log_odds(value, drawn, reach)


def _dependence(pair: Pair, value: float, drawn: np.ndarray, reach: Reach, *, ranks: bool = False) -> Interval:
    """Return the interval around the U-statistic of the squared distance correlation; `drawn` are biased figures.

    With weights there is no U-statistic: the square less the bias estimated from the resamples takes its place.
    """
    known, errors = ~np.isnan(pair.y), intervals.far(pair.design, pair.y, reach.level)
    if pair.weight is not None:
        unbiased = 2 * value**2 - float(np.mean(drawn[np.isfinite(drawn)] ** 2)) if np.isfinite(drawn).any() else np.nan
        return intervals.dependence(value, unbiased, drawn**2, reach, n=effective(pair.weight[known]), errors=errors)
    scores = pair.scores[known]
    unbiased = independence.squared(midranks(scores) if ranks else scores, pair.y[known])
    return intervals.dependence(value, unbiased, drawn**2, reach, n=pair.n, errors=errors)


def _corrected(pair: Pair, value: float, drawn: np.ndarray, reach: Reach) -> Interval:
    """Return the interval of the plain distance correlation, which estimates the same quantity."""
    plain = _dependence(pair, float(distance_correlation(pair.scores, pair.y)), drawn, reach)
    return Interval(value, plain.low, plain.high)


def _alignment(pair: Pair, value: float, drawn: np.ndarray, reach: Reach) -> Interval:
    """Return the interval around nHSIC less the bias estimated from its resamples."""
    if not np.isfinite(drawn).any():
        return Interval(value, np.nan, np.nan)
    found = intervals.plain(2 * value - float(np.nanmean(drawn)), drawn, reach, floor=0.0)
    return Interval(value, found.low, found.high)


def _observed_expected(pair: Pair, value: float, drawn: np.ndarray, reach: Reach) -> Interval:
    """Return Wilson's interval of the rate over the mean risk, for the effective number of admissions."""
    known = ~np.isnan(pair.y)
    if pair.risk is None or not known.any():
        return Interval(value, np.nan, np.nan)
    risks, y, weight = pair.risk[known], pair.y[known], None if pair.weight is None else pair.weight[known]
    n, residuals = float(len(y)), y - (value if value > 0 else 1.0) * risks
    if weight is not None:
        n = effective_of_mean(residuals, weight)
    effective_n = n / _widened(pair, residuals, reach)
    low, high = wilson(mean(y, weight) * effective_n, effective_n, level=reach.level)
    expected = mean(risks, weight)
    return Interval(value, float(low / expected), float(high / expected))


def _intercept(pair: Pair, value: float, drawn: np.ndarray, reach: Reach) -> Interval:
    known = ~np.isnan(pair.y)
    if pair.risk is None or not np.isfinite(value):
        return Interval(value, np.nan, np.nan)
    if pair.weight is not None:  # the score test is for unweighted admissions
        return _plain(pair, value, drawn, reach)
    log_odds, y = discrimination.logit(pair.risk[known]), pair.y[known]
    design_effect = _widened(pair, y - discrimination.expit(log_odds + value), reach)
    return intervals.shift(value, log_odds, y.sum(), design_effect=design_effect, level=reach.level)


def _calibration_error(pair: Pair, value: float, drawn: np.ndarray, reach: Reach) -> Interval:
    """Return the interval of the calibration error; correlated residuals of a patient widen it by the design effect."""
    known = ~np.isnan(pair.y)
    if pair.risk is None or not known.any():
        return Interval(value, np.nan, np.nan)
    risks, y = pair.risk[known], pair.y[known]
    weight = None if pair.weight is None else pair.weight[known]
    gaps, variances, shares = discrimination.calibration_gaps(risks, y, weight=weight)
    level = pair.calibration.intercept
    residuals = y - (discrimination.expit(discrimination.logit(risks) + level) if np.isfinite(level) else risks)
    return intervals.mean_square(value, gaps, variances * _design_effect(pair, residuals), shares, reach)


def _widened(pair: Pair, residuals: np.ndarray, reach: Reach) -> float:
    """Return the design effect, larger where clusters are so few that normal quantiles are too small."""
    wider = intervals.far(pair.design, pair.y, reach.level) / normal_quantile((1 + reach.level) / 2)
    return _design_effect(pair, residuals) * wider**2


def _design_effect(pair: Pair, residuals: np.ndarray) -> float:
    """Return the design effect: variance of the sum of residuals by patient over that by admission, at least 1.

    The residuals must be those of risks of the right level: a common excess would look like correlation.
    """
    known = ~np.isnan(pair.y)
    moved = np.zeros(len(known))
    moved[known] = residuals if pair.weight is None else pair.weight[known] * residuals
    return max(1.0, pair.design.variance(moved) / max(float(moved @ moved), 1e-300))


def _ranking(*pairs: Pair, figures: Sequence[str] = resample.RANKING) -> resample.Statistic:
    first = pairs[0]
    outcomes = np.column_stack([pair.y for pair in pairs])
    return resample.ranking(first.scores, outcomes, sigma=first.sigma, kernel=first.kernel, figures=figures)


def _calibrated(pair: Pair, figures: Sequence[str] = resample.CALIBRATION) -> resample.Statistic:
    return resample.calibration(np.asarray(pair.risk), pair.y, weight=pair.weight, figures=figures)


def _contributed(*pairs: Pair, by: str) -> resample.Statistic:
    values = np.full((len(pairs[0].y), len(pairs)), np.nan)
    for place, pair in enumerate(pairs):
        values[~np.isnan(pair.y), place] = getattr(pair, by)
    return resample.mean(values)


_RANKING = Resampler(resample.RANKING, _ranking, together=True)
_CALIBRATION = Resampler(resample.CALIBRATION, _calibrated)
_CURVE = "risks, of a score those of a curve over it that validation admissions gave"
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
            applies=_is_unweighted,
        ),
        Metric(
            "independence",
            "p-value of independence (distance correlation)",
            "p of independence",
            lambda pair: independence.independence(pair.scores, pair.y, patients=pair.design.cluster),
            None,
            better="smaller",
            depends="order and spacing",
            applies=_is_unweighted,
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
            applies=_is_unweighted,
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
            lambda pair: pair.areas("scores")[0],
            _RANKING,
            _area,
            by_influence=True,
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
            lambda pair: pair.areas("risk")[0],
            Resampler(("risk_auroc",), lambda pair: resample.area(np.asarray(pair.risk), pair.y)),
            partial(_area, of="risk"),
            by_influence=True,
            applies=_has_risk,
        ),
        _BY_RISK(
            "deviance",
            "Deviance explained",
            "deviance explained",
            lambda pair: pair.calibration.deviance,
            interval=_share,
            depends=_CURVE,
            benchmarked=True,
        ),
        _BY_RISK(
            "nagelkerke",
            "Nagelkerke's R²",
            "Nagelkerke's R²",
            lambda pair: pair.calibration.nagelkerke,
            interval=_share,
            depends=_CURVE,
            benchmarked=True,
        ),
        _BY_RISK(
            "brier_skill",
            "Brier skill",
            "Brier skill",
            lambda pair: pair.calibration.brier_skill,
            interval=_share,
            depends=_CURVE,
            benchmarked=True,
        ),
        Metric(
            "observed_expected",
            "Observed / expected events",
            "observed / expected",
            lambda pair: discrimination.observed_expected(pair.risk, pair.y, weight=pair.weight),
            _CALIBRATION,
            _observed_expected,
            better="1",
            applies=_has_risk,
        ),
        _BY_RISK(
            "brier",
            "Brier score",
            "Brier",
            lambda pair: pair.calibration.brier,
            interval=partial(_plain, floor=0.0, ceiling=1.0),
            better="smaller",
        ),
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
    ['dcorr', 'mi', 'auroc', 'rank_dcorr', 'deviance', 'nagelkerke', 'brier_skill']
    """
    return {name: metric for name, metric in METRICS.items() if metric.benchmarked}


def reported() -> dict[str, Metric]:
    """Return the metrics of the report, by name; those of order alone come first.

    >>> [*reported()]
    ['auroc', 'rank_dcorr', 'dcorr', 'mi']
    """
    chosen = (metric for metric in METRICS.values() if metric.reported)
    return {metric.name: metric for metric in sorted(chosen, key=lambda metric: metric.depends != "order alone")}
