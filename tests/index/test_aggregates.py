"""A model file gives back no single admission: quantiles are means of ten, small counts are not told."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from mlci.index._aggregates import LEAST, counted, quantiles, without_small_cells
from mlci.judging.theory import Contrast, Cutoff, Rate


@given(st.integers(2, 3000), st.integers(0, 9))
def test_quantiles_rise_and_stand_for_ten_admissions_each(n, seed):
    scores = np.random.default_rng(seed).normal(size=n)
    found = quantiles(scores)
    assert (np.diff(found) >= 0).all()
    assert 2 <= len(found) <= max(2, min(1001, n // LEAST))
    if n >= 2 * LEAST:
        assert not np.isin(found, scores).any()  # nobody's score


def test_no_member_of_a_small_cohort_is_recovered():
    scores = np.random.default_rng(0).normal(size=400)
    near = np.abs(quantiles(scores)[:, None] - scores).min(axis=0) < 1e-9
    assert near.sum() == 0


def test_percentiles_stay_what_they_were_in_a_large_cohort():
    scores = np.random.default_rng(0).normal(size=100_000)
    found = np.interp(scores, quantiles(scores), np.linspace(0, 100, len(quantiles(scores))))
    exact = scores.argsort().argsort() / len(scores) * 100
    assert np.abs(found - exact).max() < 0.1


def test_small_counts_are_not_told():
    outcomes = np.zeros((50, 4))
    outcomes[:20, 0], outcomes[:9, 1], outcomes[:41, 2], outcomes[9:, 3] = 1, 1, 1, np.nan
    assert counted(["a", "b", "c", "d"], outcomes) == {"a": 20}
    large, small = Rate(12, 30, 0.2, 0.6), Rate(3, 30, 0.0, 0.3)
    chosen = Cutoff(0.5, 0.9, 4, 100, (Contrast("a", large, large), Contrast("b", large, small)))
    told = without_small_cells(chosen)
    assert (told.tail, [one.outcome for one in told.contrasts]) == (0, ["a"])
    assert without_small_cells(Cutoff(0.5, 0.9, 97, 100, ())).tail == 100
    assert without_small_cells(Cutoff(0.5, 0.9, 40, 100, ())).tail == 40
