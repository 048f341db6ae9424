"""Adapting a table to hospitals like those it was made from, to very different ones, and in between."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit

from mlci.fitting._data import Split
from mlci.fitting.move import OWN, RECALIBRATED, SHIPPED, Moved, move
from mlci.measures.discrimination import auroc
from mlci.tokens import Tokens

TOKENS = 60
TABLE = np.random.default_rng(7).normal(0, 0.8, (TOKENS, 2)) * (np.arange(TOKENS) > 1)[:, None]  # two are special
INTERCEPTS = np.array([-2.0, -1.0])


def hospital(n: int, weights: np.ndarray, *, intercepts: np.ndarray = INTERCEPTS, seed: int = 0) -> Split:
    """Return admissions of five tokens, two per patient, with outcomes by these weights."""
    rng = np.random.default_rng(seed)
    ids = np.stack([np.sort(rng.choice(np.arange(2, TOKENS), 5, replace=False)) for _ in range(n)])
    risks = expit(weights[ids].sum(axis=1) + intercepts)
    outcomes = (rng.random(risks.shape) < risks).astype(np.float32)
    tokens = Tokens(ids.ravel().astype(np.int32), np.arange(0, 5 * n + 1, 5))
    return Split(tokens, outcomes, ("death", "stay"), TOKENS, np.arange(n) // 2)


def moved_to(split: Split, **options) -> Moved:
    options = {"sources": (0, 1), "least": 10, "seed": 1, "folds": 3, **options}
    return move(split, TABLE, INTERCEPTS, parents=np.zeros(TOKENS, np.int32), **options)


def log_odds(weights: np.ndarray, intercepts: np.ndarray, split: Split) -> np.ndarray:
    return weights[split.tokens.ids.reshape(-1, 5)].sum(axis=1) + intercepts


def area(log_odds: np.ndarray, split: Split) -> float:
    return float(np.mean([auroc(x, y) for x, y in zip(log_odds.T, split.outcomes.T)]))


HERE = hospital(800, TABLE)
ELSEWHERE = hospital(800, -TABLE[::-1], seed=1)


@pytest.fixture(scope="module")
def stayed() -> Moved:
    return moved_to(HERE)


@pytest.fixture(scope="module")
def left() -> Moved:
    return moved_to(ELSEWHERE)


def test_a_hospital_like_those_of_the_table_keeps_it(stayed):
    assert stayed.own < 0.3
    new = hospital(3000, TABLE, seed=5)
    before, after = log_odds(TABLE, INTERCEPTS, new), log_odds(stayed.weights, stayed.intercepts, new)
    assert area(after, new) > area(before, new) - 0.01
    assert np.corrcoef(before[:, 0], after[:, 0])[0, 1] > 0.97


def test_a_very_different_hospital_gets_a_new_table(left):
    assert left.shares[SHIPPED] + left.shares[RECALIBRATED] < 0.2
    assert not left.stayed
    new = hospital(3000, -TABLE[::-1], seed=6)
    after = log_odds(left.weights, left.intercepts, new)
    assert area(after, new) > area(log_odds(TABLE, INTERCEPTS, new), new) + 0.1
    for column, outcome in zip(after.T, new.outcomes.T):
        assert expit(column).mean() == pytest.approx(outcome.mean(), abs=0.03)


def test_the_mixture_is_no_worse_than_any_of_its_tables(stayed, left):
    for split, moved in ((HERE, stayed), (ELSEWHERE, left)):
        assert sum(moved.shares.values()) == pytest.approx(1)
        rate = split.outcomes.mean(axis=0)
        null = -(rate * np.log(rate) + (1 - rate) * np.log(1 - rate)).sum()
        loss = (np.logaddexp(0, moved.out_of_fold) - split.outcomes * moved.out_of_fold).mean(axis=0).sum()
        assert loss / null <= min(moved.unexplained.values()) + 1e-4


def test_out_of_fold_log_odds_are_of_tables_that_have_not_seen_the_admission():
    coins = replace(HERE, outcomes=np.random.default_rng(3).integers(0, 2, HERE.outcomes.shape).astype(np.float32))
    moved = moved_to(coins)
    assert abs(area(moved.out_of_fold, coins) - 0.5) < 0.05  # random outcomes cannot be predicted


def test_a_token_of_few_admissions_does_not_change_by_itself():
    split = hospital(600, -TABLE[::-1], seed=2)
    often = np.bincount(split.tokens.ids, minlength=TOKENS)
    least = int(np.sort(often[2:])[30])
    moved = moved_to(split, least=least)
    kept = moved.weights[often < least] / np.where(TABLE[often < least] == 0, np.nan, TABLE[often < least])
    assert np.nanstd(kept, axis=0).max() < 1e-9  # all by the same factor
    assert np.nanstd((moved.weights / np.where(TABLE == 0, np.nan, TABLE))[often >= least], axis=0).min() > 0.01


def test_a_new_outcome_starts_from_the_outcome_that_predicts_it_best():
    split = hospital(600, TABLE[:, [1]], intercepts=INTERCEPTS[[1]], seed=4)
    moved = moved_to(replace(split, names=("new",)), sources=(None,))
    assert moved.sources == (1,)
    assert moved.shares[SHIPPED] > moved.shares[OWN]


def test_unknown_outcomes_are_left_out_and_results_are_reproducible():
    outcomes = HERE.outcomes.copy()
    outcomes[::7, 0] = np.nan
    first, second = (moved_to(replace(HERE, outcomes=outcomes)) for _ in range(2))
    assert np.isfinite(first.weights).all()
    np.testing.assert_array_equal(first.weights, second.weights)
    np.testing.assert_array_equal(first.out_of_fold, second.out_of_fold)
