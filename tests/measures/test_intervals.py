"""Intervals hold their level: known answers here, many draws in `benchmarks/intervals.py`."""

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import numpy as np
import pytest
from scipy.special import expit, logit
from scipy.stats import rankdata
from scipy.stats import t as student

from mlci.measures import discrimination, intervals
from mlci.measures._proportion import wilson
from mlci.measures.design import Design
from mlci.measures.intervals import (
    Reach,
    area,
    dependence,
    difference,
    mean_square,
    on_log_odds,
    percentile,
    plain,
    shift,
)
from mlci.measures.registry import METRICS, Pair


def areas(seed, cases, controls, apart):
    rng = np.random.default_rng(seed)
    y = np.repeat([0.0, 1.0], [controls, cases])
    score = rng.normal(size=len(y)) + apart * y
    area = (rankdata(score)[y == 1].mean() - (cases + 1) / 2) / controls
    return area, discrimination.auroc_influence(score, y), y


def test_the_auroc_interval_holds_its_level_with_twenty_events():
    truth = 0.9214  # P(normal + 2 > normal)
    held, by_delong = 0, 0
    for seed in range(300):
        value, influence, y = areas(seed, 20, 200, 2.0)
        found = area(value, influence, y, np.arange(len(y)))
        held += found.low <= truth <= found.high
        by_delong += abs(value - truth) <= 1.96 * np.sqrt(influence @ influence)
    assert held / 300 >= 0.93 > by_delong / 300


@pytest.mark.slow
@pytest.mark.parametrize(("slope", "alike"), [(2.0, 0.0), (0.5, 1.0)], ids=["strong", "weak, several admissions"])
def test_every_interval_holds_its_level_with_twenty_events(slope, alike):
    """A small version of the simulation: 100 hospitals instead of 500."""
    spec = spec_from_file_location("coverage_simulation", Path(__file__).parents[2] / "benchmarks" / "intervals.py")
    simulation = sys.modules["coverage_simulation"] = module_from_spec(spec)
    spec.loader.exec_module(simulation)
    simulation.MANY = 300_000
    found = simulation.coverage(simulation.Hospital(20, slope, alike), replicates=100, resamples=60).set_index("figure")
    asked = ["auroc", "dcorr", "slope", "intercept", "calibration_error", "auroc, difference", "dcorr, difference"]
    assert (found.loc[asked, "covered"] >= 0.87).all(), found
    assert found.loc[asked, "covered"].mean() > 0.93 > found.loc[asked, "by_percentiles"].mean()


def test_a_perfect_order_has_an_interval_and_copies_of_patients_widen_it():
    y = np.repeat([0.0, 1.0], [50, 5])
    found = area(1.0, np.zeros(55), y, np.arange(55))
    assert 0.5 < found.low < 0.95
    assert found.high == 1
    value, influence, y = areas(0, 30, 100, 1.0)
    single = area(value, influence, y, np.arange(130))
    twice = area(value, np.tile(influence, 2) / 2, np.tile(y, 2), np.tile(np.arange(130), 2))
    assert twice.low == pytest.approx(single.low, abs=0.02)
    assert np.isnan(area(np.nan, influence, np.zeros(130), np.arange(130)).low)


def test_dependence_reaches_0_for_noise_and_not_for_a_strong_score():
    rng = np.random.default_rng(0)
    noise = dependence(0.06, -0.001, rng.chisquare(1, 300) / 300, Reach(100), n=300)
    assert noise.low == 0
    assert 0 < noise.high < 0.3
    strong = dependence(0.6, 0.355, 0.36 + 0.03 * rng.normal(size=300), Reach(100), n=300)
    assert 0.5 < strong.low < np.sqrt(0.355) < strong.high < 0.7
    assert np.isnan(dependence(0.0, 0.0, np.full(3, np.nan), Reach(3), n=3).low)


@pytest.mark.parametrize("strength", [0.0, 1.0, 2.0, 4.0, 8.0])
def test_the_dependence_interval_holds_its_level_at_any_strength(strength):
    """Where the square is that of a normal variable, the interval equals that of its mean."""
    rng, n, above, below = np.random.default_rng(3), 1000, 0, 0
    around = rng.normal(size=400)
    for _ in range(400):
        z = strength + rng.normal()
        found = dependence(abs(z) / np.sqrt(n), (z**2 - 1) / n, (z + around) ** 2 / n, Reach(500), n=n)
        below += strength / np.sqrt(n) < found.low
        above += strength / np.sqrt(n) > found.high
    assert 0.93 <= 1 - (above + below) / 400 <= 0.99
    assert max(above, below) / 400 <= 0.045


def test_an_intercept_over_one_risk_for_all_has_wilsons_interval():
    events, n = 20, 1000
    found = shift(float(logit(events / n)) - 0.5, np.full(n, 0.5), events)
    assert [found.low, found.high] == pytest.approx(logit(np.array(wilson(events, n))) - 0.5, abs=1e-9)
    wider = shift(found.value, np.full(n, 0.5), events, design_effect=4.0)
    assert wider.high - wider.low == pytest.approx(2 * (found.high - found.low), rel=0.1)
    assert np.isnan(shift(np.nan, np.zeros(9), 0).low)


def test_the_intercept_interval_is_neither_too_short_nor_too_long():
    """Student's t with 19 degrees of freedom covered it in 97 % of hospitals, since its variance is nearly known."""
    rng, held = np.random.default_rng(5), []
    for _ in range(250):
        risk = expit(rng.normal(-4.6, 1.2, 1000))
        y = (rng.random(1000) < risk).astype(float)
        metric, pair = METRICS["intercept"], Pair(risk, y, risk)
        found = metric.interval(pair, metric.value(pair), np.full(1, np.nan), Reach(pair.events))
        held.append(found.low <= 0 <= found.high)
    assert 0.93 <= np.mean(held) <= 0.97


def test_a_calibration_error_of_chance_reaches_0_and_a_real_one_does_not():
    shares, variances = np.full(10, 0.1), np.full(10, 0.0004)
    chance = np.array([1, -1] * 5) * 0.02
    assert mean_square(0.0, chance, variances, shares, Reach(100)).low == 0
    real = mean_square(0.1, chance * 5, variances, shares, Reach(100))
    assert 0.05 < real.low < np.sqrt(0.01 - 0.0004) < real.high < 0.15


def test_fewer_events_give_wider_intervals():
    drawn = np.linspace(-1, 1, 200)
    few, many = (plain(0.0, drawn, Reach(events)) for events in (5, 500))
    assert few.high > many.high == pytest.approx(1.96 * drawn.std(), rel=0.01)
    assert plain(0.1, drawn, Reach(50), floor=0.0).low == 0
    assert plain(0.9, drawn, Reach(50), ceiling=1.0).high == 1
    assert 0 < on_log_odds(0.99, 0.99 + drawn / 100, Reach(50)).low < on_log_odds(0.9, drawn, Reach(50)).high < 1
    assert np.isnan(percentile(1.0, np.full(5, np.nan), Reach(5)).low)
    assert np.isnan(on_log_odds(1.0, np.ones(9), Reach(5)).low)


def test_difference_and_its_p_value():
    rng = np.random.default_rng(0)
    same = difference(0.0, rng.normal(size=999), rng.normal(size=999), Reach(100))
    assert same.p == 1
    assert same.low < 0 < same.high
    draws = rng.normal(size=400)
    edge = difference(Reach(30).quantile * draws.std() * np.sqrt(30 / 29), draws, np.zeros(400), Reach(30))
    assert edge.low == pytest.approx(0, abs=1e-12)  # an interval that ends at 0 has a p-value of 0.05
    assert edge.p == pytest.approx(0.05)
    assert difference(0.0, np.ones(9), np.ones(9), Reach(9)).p == 1
    diverged = np.append(draws, np.inf)
    assert difference(0.1, diverged, diverged / 2, Reach(9)) == difference(0.1, draws, draws / 2, Reach(9))
    assert np.isnan(difference(0.0, np.full(2, np.nan), np.ones(2), Reach(9)).low)
    assert intervals.Difference(0, 0, 0, 1) == difference(0.0, np.ones(9), np.ones(9), Reach(9))


@pytest.mark.parametrize("excess", [0.25, 1.0, 4.0])
@pytest.mark.parametrize("name", ["observed_expected", "calibration_error"])
def test_risks_that_are_all_too_high_are_no_correlation_within_clusters(name, excess):
    """Outcomes of 60 hospitals with 50 independent admissions each: clusters hardly widen the interval."""
    rng = np.random.default_rng(0)
    risk = rng.beta(1, 12, 3000)
    y = (rng.random(3000) < risk).astype(float)
    metric, widths = METRICS[name], []
    for patients in (np.arange(3000), np.arange(3000) // 50):
        pair = Pair(risk, y, np.clip(excess * risk, 0, 0.95), patients=patients)
        found = metric.interval(pair, metric.of(pair), np.full(1, np.nan), Reach(pair.events))
        widths.append(found.high - found.low)
    assert 1 <= widths[1] / widths[0] < 1.25


def test_few_clusters_widen_the_intervals_of_level_by_students_quantile():
    """Eight hospitals: bounds are as many standard errors away as Student's t with 7 degrees of freedom says."""
    rng = np.random.default_rng(1)
    hospital = np.repeat(np.arange(8), 60)
    log_odds = rng.normal(-2, 1, 480)
    y = (rng.random(480) < expit(log_odds + rng.normal(0.3, 0.6, 8)[hospital])).astype(float)
    risk, far = expit(log_odds), student.ppf(0.975, 7)
    pair = Pair(log_odds, y, risk, patients=hospital)
    ratio, shift = (METRICS[name] for name in ("observed_expected", "intercept"))
    found = ratio.interval(pair, ratio.of(pair), np.empty(0), Reach(pair.events))
    residuals = y - found.value * risk
    effect = np.sum(np.bincount(hospital, residuals) ** 2) / np.sum(residuals**2)
    for bound in (found.low, found.high):
        rate = bound * risk.mean()
        assert (y.mean() - rate) ** 2 == pytest.approx(far**2 * effect * rate * (1 - rate) / 480)
    found = shift.interval(pair, shift.of(pair), np.empty(0), Reach(pair.events))
    residuals = y - expit(log_odds + found.value)
    effect = np.sum(np.bincount(hospital, residuals) ** 2) / np.sum(residuals**2)
    for bound in (found.low, found.high):
        moved = expit(log_odds + bound)
        assert (y.sum() - moved.sum()) ** 2 == pytest.approx(far**2 * effect * np.sum(moved * (1 - moved)), rel=1e-6)


@pytest.mark.parametrize("name", ["dcorr", "dcorr_corrected", "rank_dcorr"])
def test_few_clusters_widen_the_interval_of_dependence_by_students_quantile(name):
    rng = np.random.default_rng(3)
    score = rng.normal(size=400)
    y = (rng.random(400) < expit(score)).astype(float)
    drawn, halves = 0.4 + 0.05 * rng.normal(size=200), []
    for patients in (np.arange(400), np.arange(400) // 50):
        pair = Pair(score, y, patients=patients)
        found = METRICS[name].interval(pair, METRICS[name].of(pair), drawn, Reach(9))
        halves.append((found.high - found.low) / 2)
    assert halves[1] / halves[0] == pytest.approx(student.ppf(0.975, 7) / 1.959964)


@pytest.mark.parametrize("excess", [0.1, 1.0, 8.0])
def test_the_interval_of_weighted_observed_over_expected_does_not_depend_on_the_level_of_the_risks(excess):
    """Events stand for four admissions each, others for one: the interval of the rate is that of any level."""
    rng = np.random.default_rng(4)
    y = (rng.random(2000) < 0.05).astype(float)
    design = Design.of(np.arange(2000), weights=np.where(y == 1, 4.0, 1.0))
    pairs = (Pair(y, y, np.full(2000, 0.1 * level), patients=design) for level in (1.0, excess))
    metric = METRICS["observed_expected"]
    plain, other = (metric.interval(pair, metric.of(pair), np.empty(0), Reach(100)) for pair in pairs)
    assert (other.low * excess, other.high * excess) == pytest.approx((plain.low, plain.high))


@pytest.mark.parametrize("name", ["auroc", "risk_auroc", "observed_expected", "intercept", "calibration_error"])
def test_hospitals_that_know_no_outcome_have_no_part_in_an_interval(name):
    rng = np.random.default_rng(2)
    hospital = np.repeat(np.arange(150), 10)
    log_odds = rng.normal(-1, 1, 1500)
    y = np.where(hospital < 6, rng.random(1500) < expit(log_odds), np.nan)
    metric, found = METRICS[name], []
    for rows in (hospital < 150, hospital < 6):
        pair = Pair(log_odds[rows], y[rows], expit(log_odds[rows]), patients=hospital[rows])
        found.append(metric.interval(pair, metric.of(pair), np.empty(0), Reach(pair.events)))
    assert (found[0].low, found[0].high) == pytest.approx((found[1].low, found[1].high))
