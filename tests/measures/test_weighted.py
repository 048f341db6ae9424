"""Weighted figures equal those of scikit-learn and statsmodels, and those of repeated rows."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, brier_score_loss, log_loss, roc_auc_score

from mlci.measures import weighted
from mlci.measures.design import Design
from mlci.measures.discrimination import auroc_influence
from mlci.measures.intervals import Reach
from mlci.measures.registry import METRICS, Pair
from mlci.measures.resample import bootstrap

RNG = np.random.default_rng(8)
N = 300
SCORES = RNG.normal(size=N).round(1)
RISK = 1 / (1 + np.exp(1 - SCORES - 0.1 * RNG.normal(size=N)))
Y = (RNG.random(N) < RISK).astype(float)
Y[::23] = np.nan
WEIGHTS = RNG.gamma(2, size=N)
KNOWN = ~np.isnan(Y)
WHOLE = [name for name in METRICS if name not in ("dcorr_corrected", "independence", "mi", "calibration_error")]


def weighted_pair(weights, scores=SCORES, y=Y, risk=RISK, **options):
    return Pair(scores, y, risk, 0.7, patients=Design.of(np.arange(len(y)), weights=weights, **options))


def test_figures_equal_scikit_learns_and_statsmodels():
    import statsmodels.api as sm

    pair = weighted_pair(WEIGHTS)
    y, risk, weight = Y[KNOWN], RISK[KNOWN], WEIGHTS[KNOWN]
    known = {"sample_weight": weight}
    rate = np.average(y, weights=weight)
    bare = log_loss(y, np.full(len(y), rate), **known)
    wanted = {
        "auroc": roc_auc_score(y, SCORES[KNOWN], **known),
        "average_precision": average_precision_score(y, SCORES[KNOWN], **known),
        "brier": brier_score_loss(y, risk, **known),
        "deviance": 1 - log_loss(y, risk, **known) / bare,
        "brier_skill": 1 - brier_score_loss(y, risk, **known) / (rate * (1 - rate)),
        "observed_expected": weight @ y / (weight @ risk),
    }
    odds = np.log(risk / (1 - risk))
    line = sm.GLM(y, sm.add_constant(odds), family=sm.families.Binomial(), freq_weights=weight).fit()
    shift = sm.GLM(y, np.ones_like(y), family=sm.families.Binomial(), freq_weights=weight, offset=odds).fit()
    wanted |= {"slope": line.params[1], "intercept": shift.params[0]}
    assert {name: METRICS[name].of(pair) for name in wanted} == pytest.approx(wanted)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_whole_weights_equal_repeated_rows(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(12, 50))
    scores = rng.integers(0, 6, n).astype(float)
    y = (rng.random(n) < 0.4).astype(float)
    y[:2] = 0, 1
    y[2:4] = np.nan, 0
    risk, times = rng.uniform(0.05, 0.95, n), rng.integers(0, 4, n)
    times[:2] = 1
    pair = weighted_pair(times, scores, y, risk)
    rows = np.repeat(np.arange(n), times)
    repeated = Pair(scores[rows], y[rows], risk[rows], 0.7)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name in WHOLE:
            metric = METRICS[name]
            assert metric.of(pair) == pytest.approx(metric.value(repeated), rel=1e-6, abs=1e-9, nan_ok=True), name


def test_equal_weights_change_nothing():
    equal, plain = weighted_pair(np.full(N, 7.0)), Pair(SCORES, Y, RISK, 0.7)
    for name in [*WHOLE, "calibration_error"]:
        metric = METRICS[name]
        assert metric.applies(equal) == metric.applies(plain)
        value = metric.value(plain)
        # U-statistics and score tests have no weighted form here; groups of equal weight differ a little.
        exact = name not in ("dcorr", "rank_dcorr", "calibration_error", "intercept")
        assert metric.of(equal) == pytest.approx(value, rel=1e-6 if exact else 0.05), name
        drawn = np.empty(0)
        if metric.resampler is not None:
            [figures] = bootstrap([metric.resampler.make(plain)], np.arange(N), resamples=100, threads=1)
            drawn = figures[:, metric.resampler.metrics.index(name)]
        if metric.interval is not None:
            found, wanted = (metric.interval(pair, value, drawn, Reach(pair.events)) for pair in (equal, plain))
            assert (found.low, found.high) == pytest.approx((wanted.low, wanted.high), rel=1e-6 if exact else 0.05)


def test_metrics_without_a_weighted_definition_are_left_out():
    pair = weighted_pair(WEIGHTS)
    left = {name for name, metric in METRICS.items() if not metric.applies(pair)}
    assert left == {"dcorr_corrected", "independence", "mi", "mi_plugin"}  # the last for scores that are no points
    assert METRICS["mi_plugin"].applies(weighted_pair(WEIGHTS, scores=SCORES.round()))


def test_influence_is_the_change_of_the_weighted_area():
    """Numerical derivative: more weight for one admission moves the area by its influence over its weight."""
    y = np.nan_to_num(Y)
    influence = auroc_influence(SCORES, y, weight=WEIGHTS)
    for row in (0, 7, 130):
        more = WEIGHTS.copy()
        more[row] += 1e-6
        change = roc_auc_score(y, SCORES, sample_weight=more) - roc_auc_score(y, SCORES, sample_weight=WEIGHTS)
        assert influence[row] / WEIGHTS[row] == pytest.approx(change / 1e-6, rel=1e-3, abs=1e-7)


def test_weights_and_clusters_widen_intervals():
    def widths(pair):
        figures = [
            (metric := METRICS[name]).interval(pair, metric.of(pair), np.empty(0), Reach(pair.events))
            for name in ("auroc", "observed_expected")
        ]
        return np.array([figure.high - figure.low for figure in figures])

    plain = widths(weighted_pair(np.ones(N)))
    assert (widths(weighted_pair(np.where(np.arange(N) % 2, 10.0, 0.5))) > 1.2 * plain).all()
    alike = Design.of(SCORES + 100 * np.nan_to_num(Y), weights=np.ones(N))  # admissions of a cluster are the same
    assert (widths(Pair(SCORES, Y, RISK, patients=alike)) > 1.5 * plain).all()


def test_weighted_quantiles_equal_numpys_inverted_cdf():
    levels = np.linspace(0, 1, 21)
    wanted = np.quantile(SCORES, levels, method="inverted_cdf", weights=WEIGHTS) if hasattr(np, "vecdot") else None
    times = RNG.integers(0, 4, N)
    repeated = np.quantile(np.repeat(SCORES, times), levels, method="inverted_cdf")
    assert weighted.quantile(SCORES, levels, times.astype(float)).tolist() == repeated.tolist()
    if wanted is not None:  # NumPy 2
        assert weighted.quantile(SCORES, levels, WEIGHTS).tolist() == wanted.tolist()
