"""The range of a cutoff over resampled patients."""

import numpy as np
import pytest

from mlci.judging import theory
from mlci.judging.cutoffs import _cut, cutoff_range

NAMES = ["a", "b", "c"]


def draw(n: int, seed: int = 0):
    rng = np.random.default_rng(seed)
    score = np.round(rng.gamma(2, 1, n), 2)
    outcomes = (0.9 * score[:, None] + rng.logistic(size=(n, 3)) > [5, 4, 3]).astype(float)
    outcomes[rng.random((n, 3)) < 0.02] = np.nan
    return score, outcomes


@pytest.mark.parametrize("weights", [None, [0.2, 1.0, 2.0], [1.0, 0.0, 1.0]])
def test_without_resampling_the_statistic_is_the_cutoff(weights):
    score, outcomes = draw(800)
    alpha = np.ones(3) if weights is None else np.array(weights)
    statistic = _cut(score, outcomes[:, alpha > 0], alpha[alpha > 0])
    found = statistic(lambda rows: np.ones((2, len(rows))))[:, 0]
    assert found.tolist() == [theory.cutoff(score, outcomes, NAMES, weights=weights).score] * 2


def test_whole_weights_are_repeated_admissions():
    score, outcomes = draw(300)
    counts = np.random.default_rng(1).integers(0, 3, 300)
    found = _cut(score, outcomes, np.ones(3))(lambda rows: counts[None, rows].astype(float))[0, 0]
    expected = theory.cutoff(np.repeat(score, counts), np.repeat(outcomes, counts, axis=0), NAMES).score
    assert found == expected


def test_a_step_has_a_narrow_range_and_a_slope_a_wide_one():
    rng = np.random.default_rng(2)
    score = rng.normal(size=2000)
    step = (score > 1).astype(float)
    step[rng.random(2000) < 0.02] = 1
    slope = (rng.random(2000) < 1 / (1 + np.exp(-score))).astype(float)
    ranges = [cutoff_range(score, y, ["y"], patients=np.arange(2000), resamples=100) for y in (step, slope)]
    narrow, wide = ((found.high - found.low) for found in ranges)
    assert ranges[0].low <= 1.02
    assert ranges[0].high >= 1
    assert narrow < 0.1 < wide


def test_an_outcome_of_weight_0_has_no_part():
    """It is known only where `a` never happens, so that complete cases of all outcomes would leave out `a`."""
    score, outcomes = draw(600)
    outcomes = outcomes[~np.isnan(outcomes).any(axis=1)]
    score, n = score[: len(outcomes)], len(outcomes)
    masked = outcomes.copy()
    masked[outcomes[:, 0] == 1, 2] = np.nan
    options = {"patients": np.arange(n), "resamples": 20}
    found = cutoff_range(score, masked, NAMES, weights=[1.0, 0.5, 0.0], **options)
    assert found == cutoff_range(score, outcomes[:, :2], NAMES[:2], weights=[1.0, 0.5], **options)


def test_resamples_without_a_known_admission_are_left_out():
    """Only two of forty patients have known outcomes; every eighth resample holds neither."""
    score, outcomes, patients = np.arange(200.0), np.full((200, 1), np.nan), np.arange(200) // 5
    outcomes[:10, 0] = np.arange(10) > 4
    found = cutoff_range(score, outcomes, ["a"], patients=patients, resamples=60)
    assert (found.value, found.low, found.high) == (5, 5, 5)
