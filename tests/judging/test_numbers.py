import numpy as np
import pytest
from scipy.stats import spearmanr

from mlci.base.errors import InputError
from mlci.cohort import build_cohort
from mlci.judging.numbers import judge_numbers, numeric_column


def test_figures_are_those_of_known_numbers_and_spearman_covers():
    rng = np.random.default_rng(0)
    held = 0
    for _ in range(60):
        patient = np.repeat(np.arange(80), 2)
        shared = rng.normal(size=80)[patient]
        x, y = shared + 0.1 * rng.normal(size=160), rng.normal(size=80)[patient]
        [row] = judge_numbers({"a": x}, {"days": y}, patients=patient).itertuples()
        held += row.low <= 0 <= row.high
    assert held >= 52  # of 60; as if each admission stood for itself it would be about 50
    y[:5] = np.nan
    [row] = judge_numbers({"a": x}, {"days": y, "none": np.full(160, np.nan)}, patients=patient).itertuples()
    assert row.n == 155
    assert row.spearman == pytest.approx(spearmanr(x[5:], y[5:])[0])
    assert row.mi >= 0


def test_a_column_that_is_no_number_is_named():
    with pytest.raises(InputError, match=r"has no numeric column sex; it has .*age"):
        numeric_column(build_cohort("synthetic", 100), "sex")
