"""A model file discloses no single admission: quantiles are means of ten, small counts are suppressed."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlci.cli.fit import _summary
from mlci.fitting._data import Split
from mlci.index import _aggregates
from mlci.index._aggregates import (
    LEAST,
    as_shipped,
    event_counts,
    quantiles,
    tokens_of_one_patient,
    without_small_cells,
)
from mlci.index.estimator import MLCI
from mlci.judging.kept import Contrast, Cutoff, Rate
from mlci.tokens import Tokens


@given(st.integers(2, 3000), st.integers(0, 9))
def test_quantiles_increase_and_average_ten_admissions_each(n, seed):
    scores = np.random.default_rng(seed).normal(size=n)
    found = quantiles(scores)
    assert (np.diff(found) >= 0).all()
    assert 2 <= len(found) <= max(2, min(1001, n // LEAST))
    if n >= 2 * LEAST:
        assert not np.isin(found, scores).any()  # no admission's own score


def test_no_member_of_a_small_cohort_is_recovered():
    scores = np.random.default_rng(0).normal(size=400)
    near = np.abs(quantiles(scores)[:, None] - scores).min(axis=0) < 1e-9
    assert near.sum() == 0


def test_percentiles_are_unchanged_in_a_large_cohort():
    scores = np.random.default_rng(0).normal(size=100_000)
    found = np.interp(scores, quantiles(scores), np.linspace(0, 100, len(quantiles(scores))))
    exact = scores.argsort().argsort() / len(scores) * 100
    assert np.abs(found - exact).max() < 0.1


def test_small_counts_are_suppressed():
    outcomes = np.zeros((50, 4))
    outcomes[:20, 0], outcomes[:9, 1], outcomes[:41, 2], outcomes[9:, 3] = 1, 1, 1, np.nan
    assert event_counts(["a", "b", "c", "d"], outcomes) == {"a": 20}
    large, small = Rate(12, 30, 0.2, 0.6), Rate(3, 30, 0.0, 0.3)
    chosen = Cutoff(0.5, 0.9, 4, 100, (Contrast("a", large, large), Contrast("b", large, small)))
    shown = without_small_cells(chosen)
    assert (shown.tail, [contrast.outcome for contrast in shown.contrasts]) == (0, ["a"])
    assert without_small_cells(Cutoff(0.5, 0.9, 97, 100, ())).tail == 100
    assert without_small_cells(Cutoff(0.5, 0.9, 40, 100, ())).tail == 40


@given(st.integers(1, 60), st.integers(0, 9), st.sampled_from([3, 1000]))
def test_tokens_of_one_patient_are_counted(n, seed, at_once):
    rng = np.random.default_rng(seed)
    subjects, lists = rng.integers(0, 1 + n // 2, n), [rng.integers(1, 30, rng.integers(0, 7)) for _ in range(n)]
    subjects_of = [set() for _ in range(30)]
    for subject, tokens in zip(subjects.tolist(), lists):
        for token in tokens:
            subjects_of[token].add(subject)
    offsets = np.concatenate([[0], np.cumsum([len(tokens) for tokens in lists])])
    train = Split(Tokens(np.concatenate(lists), offsets), np.zeros((n, 1)), ("died",), 30, subjects)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_aggregates, "AT_ONCE", at_once)
        assert tokens_of_one_patient(train) == sum(len(patients) == 1 for patients in subjects_of[2:])


def test_a_fit_reports_tokens_of_one_patient():
    codes = [["I50.9"], ["E11.9"]] * 40 + [["Q87.1"]] * 12 + [["N17.9"]] * 12
    subjects = [*range(80), *([80] * 12), *range(81, 93)]
    outcomes = {"mortality": [1, 0] * 52}
    split = ["train"] * 80 + ["train"] * 24
    split[:20] = ["valid"] * 20
    index = MLCI().fit(codes, outcomes, subjects=subjects, split=split, icd_version=10)
    assert index.model_.card["tokens_of_one_patient"] == 2  # Q87 and Q871
    assert "(2 from a single patient; `min_admissions` leaves rare tokens out)" in _summary(index.model_)


def test_percentiles_of_tied_scores_are_those_of_the_final_index():
    """Cross-fitted scores with a smaller spread, and a third of all scores tied, as with a flat piece of a curve."""
    rng = np.random.default_rng(0)
    flat = lambda latent: np.where(np.abs(latent) < 0.4, 0.0, np.expm1(latent))  # noqa: E731
    train, valid, others = (rng.normal(size=n) for n in (900, 125, 20_000))
    cross_fitted = np.stack([flat(0.8 * valid + rng.normal(0, 0.2, 125)) for _ in range(5)])
    final = as_shipped(flat(0.8 * train + rng.normal(0, 0.2, 900)), flat(valid), cross_fitted)
    not_below_tie = (others > -0.4).mean()
    for level, expected in ((10, 0.9), (25, 0.75), (50, not_below_tie), (75, 0.25), (90, 0.1), (95, 0.05)):
        kept = quantiles(final)
        reached = np.mean(np.interp(flat(others), kept, np.linspace(0, 100, len(kept))) >= level)
        assert abs(reached - expected) < 0.05, level
