import numpy as np
import pytest
from scipy.special import expit

from mlci.fitting._blend import CandidateTable, LinearMap, blend, recalibrated, recalibrated_jointly

RNG = np.random.default_rng(0)
TRUTH = RNG.normal(-1.0, 1.5, 4000)
OUTCOME = (RNG.random(4000) < expit(TRUTH)).astype(float)[:, None]


def seen(log_odds: np.ndarray) -> CandidateTable:
    return CandidateTable(np.ones((3, log_odds.shape[1])), np.zeros(log_odds.shape[1]), log_odds)


def deviance(log_odds: np.ndarray, outcomes: np.ndarray) -> float:
    known = ~np.isnan(outcomes)
    return float((np.logaddexp(0, log_odds) - outcomes * log_odds)[known].mean())


def test_shares_minimise_the_deviance():
    noisy = [seen((TRUTH + RNG.normal(0, spread, 4000))[:, None]) for spread in (0.5, 1.0)]
    mixed, shares = blend(noisy, OUTCOME)
    grid = np.linspace(0, 1, 201)
    losses = [deviance(share * noisy[0].out_of_fold + (1 - share) * noisy[1].out_of_fold, OUTCOME) for share in grid]
    assert shares[0] == pytest.approx(grid[int(np.argmin(losses))], abs=0.02)
    assert shares.sum() == pytest.approx(1)
    assert deviance(mixed.out_of_fold, OUTCOME) < min(deviance(table.out_of_fold, OUTCOME) for table in noisy)


def test_a_mixture_of_tables_is_a_table_and_unknown_outcomes_do_not_count():
    tokens, weights = RNG.integers(0, 2, (50, 6)), RNG.normal(size=(2, 6, 1))
    outcomes = RNG.integers(0, 2, (50, 1)).astype(float)
    outcomes[::5] = np.nan
    tables = [CandidateTable(own, np.ones(1), tokens @ own + 1) for own in weights]
    mixed, shares = blend(tables, outcomes)
    np.testing.assert_allclose(tokens @ mixed.weights + mixed.intercepts, mixed.out_of_fold)
    wild = [CandidateTable(t.weights, t.intercepts, np.where(np.isnan(outcomes), 99.0, t.out_of_fold)) for t in tables]
    np.testing.assert_array_equal(blend(wild, outcomes)[1], shares)


def test_slopes_stretch_log_odds_that_vary_too_little_and_are_never_negative():
    lines = recalibrated(np.column_stack([TRUTH / 4, -TRUTH]), np.column_stack([OUTCOME, OUTCOME]))
    assert lines.matrix[0, 0] == pytest.approx(4, rel=0.15)
    assert lines.matrix[1, 1] == 0
    assert lines.matrix[0, 1] == 0
    assert expit(lines.shift[1]) == pytest.approx(OUTCOME.mean(), abs=0.01)  # all have the rate as risk


def test_a_rare_outcome_borrows_from_a_frequent_one():
    rare = (RNG.random(4000) < expit(TRUTH - 4)).astype(float)
    pure_noise = RNG.normal(-5, 1, 4000)
    outcomes = np.column_stack([rare, OUTCOME])
    log_odds = np.column_stack([pure_noise, TRUTH])
    found = recalibrated_jointly(log_odds, outcomes)
    assert found.matrix[0, 1] > 0.7
    assert found.matrix[1, 1] == pytest.approx(1, abs=0.1)
    assert (found.matrix >= 0).all()
    alone = recalibrated(log_odds, outcomes)
    assert deviance(found(log_odds)[:, :1], outcomes[:, :1]) < deviance(alone(log_odds)[:, :1], outcomes[:, :1])


def test_out_of_fold_log_odds_are_mapped_by_the_other_folds():
    folds = np.arange(4000) % 3
    table = CandidateTable(np.ones((2, 1)), np.ones(1), (TRUTH / 2)[:, None])
    through = table.cross_fitted(recalibrated, OUTCOME, folds)
    for fold in range(3):
        lines = recalibrated(table.out_of_fold[folds != fold], OUTCOME[folds != fold])
        np.testing.assert_array_equal(through.out_of_fold[folds == fold], lines(table.out_of_fold[folds == fold]))
    whole = recalibrated(table.out_of_fold, OUTCOME)
    np.testing.assert_allclose(through.weights, table.weights * whole.matrix[0, 0])
    np.testing.assert_allclose(through.intercepts, whole.shift + whole.matrix[0, 0])


def test_a_linear_map_has_one_row_per_outcome():
    lines = LinearMap(np.array([1.0, 0.0]), np.array([[1.0, 2.0], [0.0, 1.0]]))
    assert lines(np.array([[3.0, 4.0]])).tolist() == [[12.0, 4.0]]
