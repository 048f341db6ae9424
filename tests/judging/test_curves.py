import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import binomtest
from sklearn.isotonic import IsotonicRegression

from mlci.base.errors import InputError
from mlci.judging import curves
from mlci.judging.curves import binned, isotonic, mean_curves
from mlci.judging.theory import rate_of
from mlci.measures._proportion import wilson
from mlci.measures.design import Design


def draw(n: int = 3_000, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    score = rng.normal(size=n)
    outcome = (rng.random(n) < 1 / (1 + np.exp(2 - 1.5 * score))).astype(float)
    outcome[rng.random(n) < 0.1] = np.nan
    return score, outcome


@given(st.integers(0, 400), st.integers(1, 400))
def test_wilson_intervals_equal_scipy(positives, n):
    positives = min(positives, n)
    low, high = wilson(positives, n)
    expected = binomtest(positives, n).proportion_ci(method="wilson")
    assert (low, high) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_isotonic_curves_equal_scikit_learn_and_survive_json():
    score, outcome = draw()
    known = ~np.isnan(outcome)
    grid = np.linspace(-6, 6, 1_001)
    peer = IsotonicRegression(out_of_bounds="clip").fit(score[known], outcome[known])
    curve = curves.isotonic(score, outcome)
    np.testing.assert_allclose(curve(grid), peer.predict(grid), atol=1e-12)
    tied, weight = score[known].round(1), np.arange(known.sum()) % 3.0
    peer = IsotonicRegression(out_of_bounds="clip").fit(tied, outcome[known], sample_weight=weight)
    ties = curves.isotonic(tied, outcome[known], weight=weight)
    np.testing.assert_allclose(ties(grid), peer.predict(grid), atol=1e-12)
    again = curves.Isotonic.from_dict(json.loads(json.dumps(curve.to_dict())))
    np.testing.assert_array_equal(again(grid), curve(grid))
    assert len(curve.score) < 200  # knots, not admissions


@given(arrays(float, st.integers(1, 200), elements=st.integers(0, 9)), st.integers(1, 70), st.randoms())
def test_bins_hold_each_admission_once_even_with_ties(score, bins, random):
    outcome = np.array([float(random.random() < 0.3) for _ in score])
    rates = curves.binned(score, outcome, bins=bins)
    assert rates.n.sum() == len(score)
    assert rates.positives.sum() == outcome.sum()
    assert len(rates.n) <= min(bins, len(score))
    assert (np.diff(rates.score) > 0).all()
    assert (rates.low <= rates.risk).all()
    assert (rates.risk <= rates.high).all()


def test_bins_agree_with_pandas():
    import pandas as pd

    score, outcome = draw()
    frame = pd.DataFrame({"score": score, "outcome": outcome}).dropna()
    peer = frame.groupby(pd.qcut(frame["score"], 60), observed=True).mean()
    rates = curves.binned(score, outcome)
    # qcut closes bins on the right, the paper on the left: an admission exactly on an edge may change sides
    np.testing.assert_allclose(rates.score, peer["score"], atol=0.02)
    np.testing.assert_allclose(rates.risk, peer["outcome"], atol=0.03)


def test_delta_is_the_rise_between_two_points_of_the_grid():
    score = np.linspace(0, 1, 2_001)
    straight = curves.Isotonic(np.array([0.0, 1.0]), np.array([0.0, 1.0]))
    assert curves.delta(straight, score) == pytest.approx(180 / 199)
    assert [curves.verdict(x) for x in (0.05, 0.049, 0.01, 0.009)] == [
        *("increasing", "weakly increasing", "weakly increasing", "flat")
    ]


def test_trends_over_seeds():
    score, outcome = draw()
    never, unknown = np.zeros(len(score)), np.full(len(score), np.nan)
    outcomes = np.column_stack([outcome, never, unknown])
    scores = [score, score + np.random.default_rng(2).normal(0, 0.5, len(score))]
    increasing, flat = curves.trends(scores, outcomes, ["a", "b", "c"])  # no outcome of c is known
    assert increasing.sd == pytest.approx(np.std(increasing.deltas, ddof=1))
    assert increasing.deltas[0] == curves.delta(curves.isotonic(score, outcome), score[~np.isnan(outcome)])
    assert (increasing.verdict, flat.verdict, flat.mean) == ("increasing", "flat", 0)
    assert np.isnan(curves.trends([score], outcomes, ["a", "b", "c"])[0].sd)


def test_constant_scores_give_one_bin_and_the_prevalence():
    outcome = np.array([0.0, 1, 1, np.nan])
    assert curves.binned(np.ones(4), outcome).n.tolist() == [3]
    assert curves.isotonic(np.ones(4), outcome)(5.0) == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    ("score", "outcome", "options", "message"),
    [
        ([1, 2], [np.nan, np.nan], {}, "there are none"),
        ([1, 2, 3], [0, 1], {}, r"shapes \(3,\) and \(2,\)"),
        ([1, np.nan], [0, 1], {}, "finite"),
        ([1, 2], [0, 1], {"bins": 0}, "bins: 0"),
    ],
)
def test_invalid_curves_are_refused(score, outcome, options, message):
    with pytest.raises(InputError, match=message):
        curves.binned(score, outcome, **options)


def test_calibration_curve_follows_the_true_risk():
    rng = np.random.default_rng(0)
    risk = rng.beta(1, 8, 20_000)
    true = np.clip(1.5 * risk, 0, 1)
    found = curves.calibration_curve(risk, (rng.random(20_000) < true).astype(float))
    inside = found.predicted < 0.5
    np.testing.assert_allclose(found.observed[inside], 1.5 * found.predicted[inside], atol=0.03)
    assert np.all((found.observed >= 0) & (found.observed <= 1))
    constant = curves.calibration_curve(np.full(10, 0.2), np.array([0, 1] * 5, dtype=float))
    assert constant.observed.tolist() == [0.5]


def test_levels_set_the_edges_of_bins():
    rates = curves.binned(np.arange(100.0), np.zeros(100), levels=[0.5, 0.9])
    assert rates.n.tolist() == [50, 40, 10]


def test_weighted_curves_are_those_of_repeated_admissions():
    """This holds for isotonic curves, and rates of bins are weighted."""
    rng = np.random.default_rng(4)
    score, times = rng.normal(size=400), rng.integers(1, 4, 400)
    outcome = (rng.random(400) < 1 / (1 + np.exp(1 - score))).astype(float)
    outcome[::11] = np.nan
    rows = np.repeat(np.arange(400), times)
    design = Design.of(np.arange(400), weights=times)
    fit, expected = isotonic(score, outcome, weight=design.weight), isotonic(score[rows], outcome[rows])
    assert fit(score) == pytest.approx(expected(score))
    found = binned(score, outcome, bins=10, patients=design)
    known = ~np.isnan(outcome)
    assert np.average(found.risk, weights=found.mass) == pytest.approx(np.average(outcome[known], weights=times[known]))
    assert found.n.sum() == known.sum()
    assert (found.low < found.risk + 1e-9).all()
    assert (found.high > found.risk - 1e-9).all()


def test_bins_of_clustered_admissions_have_wider_intervals():
    rng = np.random.default_rng(4)
    ward = np.arange(400) // 8
    outcome = (rng.random(50) < 0.4).astype(float)[ward]  # all admissions of a ward have one outcome
    score = rng.normal(size=400)
    alone, together = (binned(score, outcome, bins=1, patients=clusters) for clusters in (np.arange(400), ward))
    assert together.high - together.low > 2 * (alone.high - alone.low)
    plain = binned(score, outcome, bins=1)
    assert (alone.low, alone.high) == (pytest.approx(plain.low), pytest.approx(plain.high))


def test_numeric_curves_equal_scikit_learn_and_have_valid_intervals():
    rng = np.random.default_rng(6)
    score, times = rng.normal(size=600), rng.integers(1, 4, 600)
    days = rng.poisson(np.exp(1 + score / 2)).astype(float)
    days[::13] = np.nan
    known = ~np.isnan(days)
    [curve] = mean_curves([score], {"days": days, "none": np.full(600, np.nan)}, bins=12)
    fit = IsotonicRegression(out_of_bounds="clip").fit(score[known], days[known])
    assert curve.fit(score) == pytest.approx(fit.predict(score))
    assert np.average(curve.rates.risk, weights=curve.rates.n) == pytest.approx(days[known].mean())
    truth = np.exp(1 + curve.rates.score / 2)
    assert ((curve.rates.low < truth) & (truth < curve.rates.high)).mean() > 0.7
    assert curve.trend.verdict == "increasing"
    assert curve.trend.points == f"{curve.trend.mean:.3g}"
    rows = np.repeat(np.arange(600), times)
    [weighted] = mean_curves([score], {"days": days}, patients=Design.of(np.arange(600), weights=times))
    [repeated] = mean_curves([score[rows]], {"days": days[rows]}, patients=rows)
    assert weighted.fit(score) == pytest.approx(repeated.fit(score))
    alone = mean_curves([score[rows]], {"days": days[rows]})[0].rates
    assert (repeated.rates.high - repeated.rates.low).mean() > 1.2 * (alone.high - alone.low).mean()


@pytest.mark.parametrize("weight_of_events", [4.0, 0.25])
def test_intervals_of_weighted_rates_allow_for_weights_that_depend_on_the_outcome(weight_of_events):
    rng = np.random.default_rng(0)
    y = (rng.random(3000) < 0.2).astype(float)
    weight = np.where(y == 1, weight_of_events, 1.0)
    rate = np.average(y, weights=weight)
    error = np.sqrt(np.sum((weight * (y - rate)) ** 2)) / weight.sum()
    rates = binned(np.zeros(3000), y, bins=1, patients=Design.of(np.arange(3000), weights=weight))
    found = rate_of(y, weight)
    for low, high in ((rates.low[0], rates.high[0]), (found.low, found.high)):
        assert (high - low) / 2 == pytest.approx(1.96 * error, rel=0.02)
        assert low < rate < high
