"""Curves whose sum is the score, and their objective against its slow definition."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import check_grad

from mlci.fitting._curves import Curves, alignment, fit_curves
from mlci.measures.alignment import nhsic


def hospital(n: int = 600, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    log_odds = rng.normal(size=(n, 2)) @ [[1.5, 0.5], [0, 1]] - [3, 1]
    return log_odds, (rng.random((n, 2)) < 1 / (1 + np.exp(-log_odds))).astype(float)


def test_the_objective_is_the_sum_of_squared_distance_correlations():
    log_odds, outcomes = hospital()
    score, weights = log_odds.sum(axis=1), np.array([0.7, 1.3])
    value, _ = alignment(score, outcomes - outcomes.mean(axis=0), weights)
    np.testing.assert_allclose(value, nhsic(score, outcomes, kernel="energy") @ weights, rtol=1e-10)


@given(st.integers(0, 10**6))
def test_the_gradient_equals_finite_differences(seed):
    log_odds, outcomes = hospital(40, seed)
    profiles, weights = outcomes - outcomes.mean(axis=0), np.array([0.7, 1.3])
    error = check_grad(
        lambda s: alignment(s, profiles, weights)[0],
        lambda s: alignment(s, profiles, weights)[1],
        log_odds.sum(axis=1),
        epsilon=1e-7,
    )
    assert error < 1e-5


def test_curves_rise_and_align_better_than_straight_lines():
    log_odds, outcomes = hospital(3000)
    weights = np.array([1.5, 0.5])
    curves = fit_curves(log_odds, outcomes, weights, points=8)
    score = curves(log_odds)
    assert (np.diff(curves.heights) >= 0).all()
    assert (np.diff(curves.knots) > 0).all()
    np.testing.assert_allclose([score.mean(), score.std()], [0, 1], atol=1e-9)
    straight = nhsic(log_odds @ weights, outcomes, kernel="energy") @ weights
    assert nhsic(score, outcomes, kernel="energy") @ weights > straight + 0.01


def test_with_a_straight_share_curves_increase_everywhere():
    log_odds, outcomes = hospital()
    curves = fit_curves(log_odds, outcomes, np.ones(2), points=8, straight=0.1)
    assert (np.diff(curves.heights) > 0).all()
    score, plain = (
        fit_curves(log_odds, outcomes, np.ones(2), points=8, straight=1.0)(log_odds),
        log_odds / log_odds.std(axis=0),
    )
    np.testing.assert_allclose([curves(log_odds).std(), np.corrcoef(score, plain.sum(axis=1))[0, 1]], 1, rtol=1e-9)


def test_a_curve_interpolates_its_points_and_extrapolates_linearly():
    curves = Curves(np.array([[0.0, 1.0, 3.0]]), np.array([[5.0, 6.0, 10.0]]))
    found = curves(np.array([[-1.0], [0.0], [0.5], [1.0], [2.0], [3.0], [5.0]]))
    np.testing.assert_allclose(found, [4, 5, 5.5, 6, 8, 10, 14])


def test_knots_are_distinct_with_ties():
    log_odds = np.repeat([[-2.0, -1.0], [0.0, 1.0]], [90, 10], axis=0)
    outcomes = (np.arange(100)[:, None] % [3, 4] == 0).astype(float)
    curves = fit_curves(log_odds, outcomes, np.ones(2), points=12)
    assert (np.diff(curves.knots) > 0).all()
    assert np.isfinite(curves.heights).all()


@given(st.integers(0, 10**6))
def test_an_admission_of_mass_two_counts_as_two(seed):
    rng = np.random.default_rng(seed)
    log_odds, outcomes = hospital(40, seed)
    times, score, weights = rng.integers(1, 4, 40), log_odds.sum(axis=1), np.array([0.7, 1.3])
    rows = np.repeat(np.arange(40), times)
    profiles = outcomes - outcomes[rows].mean(axis=0)
    value, gradient = alignment(score, profiles, weights, mass=times.astype(float))
    np.testing.assert_allclose(value, alignment(score[rows], profiles[rows], weights)[0], rtol=1e-10)
    error = check_grad(
        lambda s: alignment(s, profiles, weights, mass=times.astype(float))[0],
        lambda s: alignment(s, profiles, weights, mass=times.astype(float))[1],
        score,
        epsilon=1e-7,
    )
    assert error < 1e-5
    assert abs(gradient.sum()) < 1e-8  # a shift changes nothing


def test_weighted_curves_equal_those_of_repeated_admissions():
    log_odds, outcomes = hospital(800)
    times = np.random.default_rng(2).integers(0, 4, 800)
    rows = np.repeat(np.arange(800), times)
    found = fit_curves(log_odds, outcomes, np.ones(2), points=6, mass=times.astype(float))
    again = fit_curves(log_odds[rows], outcomes[rows], np.ones(2), points=6)
    assert np.corrcoef(found(log_odds), again(log_odds))[0, 1] > 0.99  # last knots leave 25 rows beyond them
    score = found(log_odds)
    np.testing.assert_allclose(np.average(score, weights=times), 0, atol=1e-9)
    np.testing.assert_allclose(np.average(score**2, weights=times), 1, atol=1e-9)
