"""Distributions, root and isotonic regression against SciPy and scikit-learn."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize, special
from sklearn.isotonic import IsotonicRegression

from mlci.measures.distributions import (
    chi_squared_tail,
    digamma,
    nondecreasing,
    normal_quantile,
    normal_share,
    root,
    student_quantile,
    student_tail,
)

SHARES = (0.5, 0.6, 0.9, 0.95, 0.975, 0.995, 0.99999)
PLACES = (0.0, 1e-9, 0.1, 1.0, 2.0, 5.0, 20.0, 300.0)


def test_the_normal_distribution_equals_scipys():
    shares = (0.0, 1e-12, 0.3, *SHARES, 1.0)
    assert [normal_quantile(share) for share in shares] == pytest.approx(special.ndtri(shares), rel=1e-12)
    assert [normal_share(place) for place in (-9, 0, 0.1, 3)] == pytest.approx(special.ndtr([-9, 0, 0.1, 3]), rel=1e-12)


@pytest.mark.parametrize("degrees", [1, 2, 3, 10, 29.5, 99, 101, 50_000, 10**7])
def test_students_distribution_equals_scipys(degrees):
    for share in SHARES:
        assert student_quantile(degrees, share) == pytest.approx(special.stdtrit(degrees, share), rel=1e-9, abs=1e-12)
    for place in PLACES:
        assert student_tail(degrees, place) == pytest.approx(special.stdtr(degrees, -place), rel=1e-9, abs=1e-300)
    assert np.isnan(student_tail(degrees, float("nan")))


@pytest.mark.parametrize("degrees", [1, 2, 3, 8, 31, 200])
def test_the_chi_squared_tail_equals_scipys(degrees):
    for place in (*PLACES, 2000.0):
        assert chi_squared_tail(degrees, place) == pytest.approx(special.chdtrc(degrees, place), rel=1e-11, abs=1e-300)


def test_digamma_of_counts_equals_scipys():
    counts = np.arange(1, 100_000)
    assert digamma(counts) == pytest.approx(special.digamma(counts), rel=1e-13, abs=1e-13)


@pytest.mark.parametrize(
    ("function", "low", "high"),
    [
        (lambda x: np.tanh(x - 3), -100.0, 100.0),
        (lambda x: x**3 - 1, -1.0, 3.0),
        (lambda x: 1e-20 - np.exp(-x), 0.0, 300.0),
        (lambda x: x - 1, 1.0, 4.0),
        (lambda x: x - 4, 1.0, 4.0),
    ],
)
def test_a_root_equals_scipys_with_as_few_evaluations(function, low, high):
    looks = []
    found = root(lambda x: looks.append(x) or function(x), low, high)
    assert found == pytest.approx(optimize.brentq(function, low, high), abs=1e-11)
    assert len(looks) < 20


def test_a_function_without_a_root_between_the_ends_is_refused():
    with pytest.raises(ValueError, match="same sign"):
        root(lambda x: x * x + 1, -1.0, 1.0)


@given(
    st.lists(
        st.tuples(st.one_of(st.integers(0, 3).map(float), st.floats(-9, 9, width=16)), st.floats(0.125, 8, width=16)),
        min_size=1,
    )
)
def test_isotonic_regression_equals_scikit_learns(rows):
    values, weights = np.array(rows).T
    found = nondecreasing(values, weights)
    assert found == pytest.approx(
        IsotonicRegression().fit(range(len(rows)), values, weights).predict(range(len(rows))), abs=1e-9
    )
    assert (np.diff(found) >= 0).all()


@pytest.mark.parametrize("last", [-1e9, 0.0, 4000.5, 1e9])
def test_isotonic_regression_is_fast_when_the_last_value_is_low(last):
    """Pooling in rounds would take thousands of rounds, each of which joins one number."""
    values = np.append(np.arange(5000.0), last)
    found = nondecreasing(values, np.ones(5001))
    assert found == pytest.approx(optimize.isotonic_regression(values).x, rel=1e-12)
