"""Numeric outcomes: thresholds for the score's curves, scales, and checks."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlci.base.errors import InputError
from mlci.fitting._curves import alignment
from mlci.fitting._numbers import Numbers, Targets, Thresholds
from mlci.measures.numeric import numeric_distance_correlation


@given(st.integers(0, 10**6))
def test_thresholds_add_up_to_the_numbers_squared_distance_correlation(seed):
    rng = np.random.default_rng(seed)
    score = rng.normal(size=60)
    days = rng.integers(0, 12, 60).astype(float) ** 2
    found = Thresholds.of(days, None)
    value, _ = alignment(score, found.indicators - found.indicators.mean(axis=0), found.weights)
    distinct = len(np.unique(days))
    assert len(found.weights) == distinct - 1
    assert value == pytest.approx(numeric_distance_correlation(score, days) ** 2)


def test_whole_weights_equal_repeated_admissions():
    rng = np.random.default_rng(1)
    days, times = rng.integers(0, 5, 80).astype(float), rng.integers(1, 4, 80)
    days[3] = np.nan
    found, wanted = Thresholds.of(days, times.astype(float)), Thresholds.of(np.repeat(days, times), None)
    np.testing.assert_allclose(found.weights, wanted.weights)
    assert np.isnan(found.indicators[3]).all()


def test_a_numbers_unit_changes_nothing_but_its_scale():
    rng = np.random.default_rng(2)
    values = rng.normal(50, 20, 200)
    outcomes = (rng.random((200, 1)) < 0.3).astype(np.float32)
    plain, other = (
        Targets.of(outcomes, ("died",), Numbers.of({"cost": column}, {"cost": "gaussian"}), None)
        for column in (values, 1000 * values + 7)
    )
    np.testing.assert_allclose(plain.outcomes, other.outcomes, atol=1e-9)
    np.testing.assert_allclose(
        other.calibration_in_units(np.array([[0, 1], [0.1, 2]]))[1],
        [1000 * plain.scales[0].back(0.1, 2)[0] + 7, 1000 * plain.scales[0].back(0.1, 2)[1]],
    )
    assert plain.dichotomised(None)[:, 1].mean() == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("values", "kind", "message"),
    [
        (np.arange(5.0), "", "fewer than 10 numbers are known"),
        (np.ones(50), "", "all are the same"),
        (np.arange(50.0) - 9, "poisson", "some numbers are negative"),
        (np.arange(50.0), "gamma", "allowed are poisson, gaussian"),
    ],
)
def test_unusable_numbers_are_refused(values, kind, message):
    with pytest.raises(InputError, match=message):
        Numbers.of({"days": values}, {"days": kind})


def test_numbers_that_are_known_or_differ_outside_training_alone_are_refused():
    values, train = np.arange(50.0), np.arange(50) < 30
    for learned in (np.where(train, 0.0, values), np.where(train, np.nan, values)):
        with pytest.raises(InputError, match="fewer than 10 numbers are known for training admissions, or all"):
            Numbers.of({"days": learned}, {}, train)


def test_infinity_is_not_a_known_number():
    values = np.array([*range(50), np.inf, -np.inf, np.nan], dtype=float)
    found = Numbers.of({"days": values}, {})
    assert found.kinds == ("poisson",)
    np.testing.assert_array_equal(found.values[:, 0], [*range(50), np.nan, np.nan, np.nan])


def test_an_unnamed_kind_follows_from_the_values():
    columns = {"days": np.arange(50.0), "change": np.arange(50.0) - 9}
    assert Numbers.of(columns, {}).by_kind == {"days": "poisson", "change": "gaussian"}
