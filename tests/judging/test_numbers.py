from datetime import timedelta
from decimal import Decimal

import numpy as np
import polars as pl
import pytest
from scipy.stats import spearmanr

from mlci.base.errors import InputError
from mlci.cohort import Cohort, build_cohort
from mlci.judging.numbers import judge_numbers, numeric_column
from mlci.measures.design import Design


def test_missing_numbers_are_left_out_and_intervals_of_spearman_cover():
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(60):
        patient = np.repeat(np.arange(80), 2)
        shared = rng.normal(size=80)[patient]
        x, y = shared + 0.1 * rng.normal(size=160), rng.normal(size=80)[patient]
        [row] = judge_numbers({"a": x}, {"days": y}, patients=patient).itertuples()
        covered += row.spearman_low <= 0 <= row.spearman_high
    assert covered >= 52  # of 60; about 50 if admissions of a patient were taken as independent
    y[:5] = np.nan
    [row] = judge_numbers({"a": x}, {"days": y, "none": np.full(160, np.nan)}, patients=patient).itertuples()
    assert row.n == 155
    assert row.spearman == pytest.approx(spearmanr(x[5:], y[5:])[0])
    assert row.mi >= 0


def test_expected_numbers_of_0_and_constant_numbers_have_no_ratio_and_no_variance():
    x, days = np.arange(20.0), np.arange(20.0) % 3
    options = {"patients": range(20), "expected": {"a": {"none": np.zeros(20), "same": np.ones(20)}}}
    none, same = judge_numbers({"a": x}, {"none": days, "same": np.ones(20)}, **options).itertuples()
    assert np.isnan(none.observed_expected)
    assert same.observed_expected == 1
    assert np.isnan(same.r2)


def test_numbers_that_a_sheet_kept_as_text_are_read(tmp_path):
    rows = ["visit,dx,died,days", "1,I10,0,3.5", "2,I10,1,", "3,I10,0,12"]
    (tmp_path / "visits.csv").write_text("\n".join(rows))
    cohort = build_cohort("file", tmp_path / "visits.csv", icd_version=10, keep=["days"])
    assert numeric_column(cohort, "days").tolist() == pytest.approx([3.5, np.nan, 12], nan_ok=True)
    (tmp_path / "visits.csv").write_text("\n".join([*rows, '4,I10,0,"3,5"']))
    cohort = build_cohort("file", tmp_path / "visits.csv", icd_version=10, keep=["days"])
    with pytest.raises(InputError, match="column days, row 4: text of 3 characters is not a number"):
        numeric_column(cohort, "days")


def test_numbers_of_every_type_are_read_and_durations_are_not():
    frame = pl.DataFrame({"visit": [1, 2], "dx": ["I10", "I10"], "died": [0, 1], "text": ["3.5", None]})
    exact = frame.with_columns(pl.Series("cost", [Decimal("3.5"), None]), pl.Series("stay", [timedelta(days=9), None]))
    cohort = Cohort.from_frame(exact, icd_version=10, keep=["text", "cost", "stay"])
    for name in ("text", "cost"):
        assert numeric_column(cohort, name).tolist() == pytest.approx([3.5, np.nan], nan_ok=True)
    with pytest.raises(InputError, match=r"has no numeric column stay; it has .*cost\."):
        numeric_column(cohort, "stay")


def test_a_column_that_is_not_numeric_is_named():
    with pytest.raises(InputError, match=r"has no numeric column sex; it has .*age.*; sex holds text\."):
        numeric_column(build_cohort("synthetic", 100), "sex")


def test_weighted_figures_equal_those_of_repeated_admissions():
    rng = np.random.default_rng(3)
    n = 120
    x, times = rng.normal(size=n).round(1), rng.integers(1, 4, n)
    days = rng.poisson(np.exp(1 + x / 2)).astype(float)
    days[::17] = np.nan
    expected = np.exp(1 + x / 2)
    rows = np.repeat(np.arange(n), times)
    options = {"expected": {"a": {"days": expected}}}
    [found] = judge_numbers(
        {"a": x}, {"days": days}, patients=Design.of(np.arange(n), weights=times), **options
    ).itertuples()
    repeated = {"expected": {"a": {"days": expected[rows]}}}
    [other] = judge_numbers({"a": x[rows]}, {"days": days[rows]}, patients=rows, **repeated).itertuples()
    for name in ("spearman", "c_index", "observed_expected", "r2", "spearman_low", "c_index_high"):
        assert getattr(found, name) == pytest.approx(getattr(other, name)), name
    assert np.isnan([found.dcorr, found.nhsic, found.mi, found.independence]).all()
    known = ~np.isnan(days)
    assert found.observed_expected == pytest.approx(times[known] @ days[known] / (times[known] @ expected[known]))
    assert found.observed_expected_low < found.observed_expected < found.observed_expected_high


def test_intervals_of_observed_over_expected_cover():
    """Days of patients with two admissions and a gamma frailty: unclustered intervals would be too short."""
    rng = np.random.default_rng(4)
    covered = 0
    for _ in range(200):
        patient = np.repeat(np.arange(100), 2)
        mean = np.exp(rng.normal(1, 0.3, 200))
        days = rng.poisson(mean * rng.gamma(2, 0.5, 100)[patient]).astype(float)
        drawn = Design.of(patient, weights=np.ones(200))  # with weights, slow figures are not computed
        [row] = judge_numbers({"a": mean}, {"days": days}, patients=drawn, expected={"a": {"days": mean}}).itertuples()
        covered += row.observed_expected_low <= 1 <= row.observed_expected_high
    assert 180 <= covered <= 198  # of 200
