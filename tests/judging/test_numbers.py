import numpy as np
import pytest
from scipy.stats import spearmanr

from mlci.base.errors import InputError
from mlci.cohort import build_cohort
from mlci.judging.numbers import judge_numbers, numeric_column
from mlci.measures.design import Design


def test_figures_are_those_of_known_numbers_and_spearman_covers():
    rng = np.random.default_rng(0)
    held = 0
    for _ in range(60):
        patient = np.repeat(np.arange(80), 2)
        shared = rng.normal(size=80)[patient]
        x, y = shared + 0.1 * rng.normal(size=160), rng.normal(size=80)[patient]
        [row] = judge_numbers({"a": x}, {"days": y}, patients=patient).itertuples()
        held += row.spearman_low <= 0 <= row.spearman_high
    assert held >= 52  # of 60; as if each admission stood for itself it would be about 50
    y[:5] = np.nan
    [row] = judge_numbers({"a": x}, {"days": y, "none": np.full(160, np.nan)}, patients=patient).itertuples()
    assert row.n == 155
    assert row.spearman == pytest.approx(spearmanr(x[5:], y[5:])[0])
    assert row.mi >= 0


def test_a_column_that_is_no_number_is_named():
    with pytest.raises(InputError, match=r"has no numeric column sex; it has .*age"):
        numeric_column(build_cohort("synthetic", 100), "sex")


def test_weighted_figures_are_those_of_repeated_admissions_and_others_are_not_given():
    rng = np.random.default_rng(3)
    n = 120
    x, times = rng.normal(size=n).round(1), rng.integers(1, 4, n)
    days = rng.poisson(np.exp(1 + x / 2)).astype(float)
    days[::17] = np.nan
    wanted = np.exp(1 + x / 2)
    rows = np.repeat(np.arange(n), times)
    options = {"expected": {"a": {"days": wanted}}}
    [found] = judge_numbers(
        {"a": x}, {"days": days}, patients=Design.of(np.arange(n), weights=times), **options
    ).itertuples()
    again = {"expected": {"a": {"days": wanted[rows]}}}
    [other] = judge_numbers({"a": x[rows]}, {"days": days[rows]}, patients=rows, **again).itertuples()
    for name in ("spearman", "c_index", "observed_expected", "r2", "spearman_low", "c_index_high"):
        assert getattr(found, name) == pytest.approx(getattr(other, name)), name
    assert np.isnan([found.dcorr, found.nhsic, found.mi, found.independence]).all()
    known = ~np.isnan(days)
    assert found.observed_expected == pytest.approx(times[known] @ days[known] / (times[known] @ wanted[known]))
    assert found.observed_expected_low < found.observed_expected < found.observed_expected_high


def test_observed_over_expected_covers():
    """Days of patients with two admissions and a gamma frailty: unclustered intervals would be too short."""
    rng = np.random.default_rng(4)
    held = 0
    for _ in range(200):
        patient = np.repeat(np.arange(100), 2)
        mean = np.exp(rng.normal(1, 0.3, 200))
        days = rng.poisson(mean * rng.gamma(2, 0.5, 100)[patient]).astype(float)
        drawn = Design.of(patient, weights=np.ones(200))  # with weights what takes long is not given
        [row] = judge_numbers({"a": mean}, {"days": days}, patients=drawn, expected={"a": {"days": mean}}).itertuples()
        held += row.observed_expected_low <= 1 <= row.observed_expected_high
    assert 180 <= held <= 198  # of 200
