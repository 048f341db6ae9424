"""Shift and slope of log-odds, against a general solver."""

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit

from mlci.fitting._calibrate import PRIOR_EVENTS, calibrate, line_errors


def test_few_events_change_the_calibration_little():
    rng = np.random.default_rng(0)
    x = rng.normal(size=4000)
    y = (rng.random(4000) < expit(2 * x - 1)).astype(float)
    assert np.abs(calibrate(x, y) - [-1, 2]).max() < 0.2
    firm = [calibrate(x[:200] / 5, y[:200], unit=unit)[1] for unit in (1.0, float(x.std() / 5))]
    assert 1 < firm[0] < firm[1]  # with the SD as unit, a steep slope is shrunk less
    few = calibrate(x[:12], y[:12])
    assert np.abs(few - [0, 1]).max() < 0.5
    np.testing.assert_allclose(calibrate(np.full(5, -2.0), np.array([0, 0, 0, 0, np.nan]))[1], 1, atol=0.3)


def test_calibration_converges_where_full_newton_steps_oscillate():
    """With a few admissions far out in the tail, full steps alternate between two points."""
    rng = np.random.default_rng(46)
    spread, width, growth = rng.uniform(0.8, 1.8), rng.uniform(0.1, 0.5), rng.uniform(0.5, 1.6)
    x = -3.9 + width * np.exp(spread * rng.normal(size=800))
    y = (rng.random(800) < expit(-4.3 + growth * np.log1p((x + 3.9) * 3))).astype(float)
    centre = np.average(x, weights=expit(x) * (1 - expit(x)))

    def loss(values: np.ndarray) -> float:
        sums = x + values[0] + values[1] * (x - centre)
        return float((np.logaddexp(0, sums) - y * sums).sum() + PRIOR_EVENTS / 2 * values @ values)

    shift, stretch = minimize(loss, np.zeros(2)).x
    np.testing.assert_allclose(calibrate(x, y), [shift - stretch * centre, 1 + stretch], atol=1e-3)


def test_a_line_that_may_not_fall_is_level_at_the_rate():
    """The constrained optimum, not the shift of the falling line: at a slope of 0 that gives a wrong mean risk."""
    rng = np.random.default_rng(0)
    x = rng.normal(-3, 1, 5000)
    y = (rng.random(5000) < expit(-3 - 0.4 * (x + 3))).astype(float)
    y[:50] = np.nan
    centre = np.average(x[50:], weights=expit(x[50:]) * expit(-x[50:]))

    def loss(level: np.ndarray) -> float:
        return float((np.logaddexp(0, level) - y[50:] * level).sum() + PRIOR_EVENTS / 2 * (level[0] - centre) ** 2)

    assert calibrate(x, y)[1] < 0
    np.testing.assert_allclose(calibrate(x, y, rising=True), [minimize(loss, [centre]).x[0], 0], atol=1e-5)
    np.testing.assert_array_equal(calibrate(-x, y, rising=True), calibrate(-x, y))  # one that rises stays as it is


def test_errors_of_a_line_equal_those_of_statsmodels_where_events_outweigh_the_prior():
    import statsmodels.api as sm

    rng = np.random.default_rng(7)
    log_odds, at = rng.normal(-1, 1.5, 60_000), np.array([-4.0, -1.0, 3.0])
    outcome = (rng.random(60_000) < expit(0.4 + 0.7 * log_odds)).astype(float)
    outcome[:5000] = np.nan
    line = calibrate(log_odds, outcome)
    known = ~np.isnan(outcome)
    fit = sm.Logit(outcome[known], sm.add_constant(log_odds[known])).fit(disp=False)
    points = sm.add_constant(at)
    expected = np.sqrt(np.einsum("ij,jk,ik->i", points, fit.cov_params(), points))
    np.testing.assert_allclose(line_errors(log_odds, outcome, line, at), expected, rtol=0.01)
    level = line_errors(log_odds, outcome, np.array([line[0], 0.0]), at)
    assert (level == level[0]).all()
    assert 0 < level[0] < 0.02
