"""Penalised regressions of several outcomes, against scikit-learn and properties of shrinkage."""

import threading
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

from conftest import PATIENCE
from mlci.fitting._presence import Presence
from mlci.fitting._ridge import Prior, Regressions
from mlci.tokens import Tokens

COLUMNS = 20


def hospital(n: int = 400, seed: int = 0) -> tuple[Presence, np.ndarray, np.ndarray]:
    """Return tokens (some twice), two related outcomes (some unknown), and the tokens as a dense matrix."""
    rng = np.random.default_rng(seed)
    offsets = np.concatenate([[0], np.cumsum(rng.poisson(3, n))])
    ids = rng.integers(1, COLUMNS, offsets[-1]).astype(np.int32)
    presence = Presence.of(Tokens(ids, offsets), COLUMNS)
    dense = np.zeros((n, COLUMNS))
    dense[np.repeat(np.arange(n), np.diff(offsets)), ids] = 1
    logits = dense @ rng.normal(size=(COLUMNS, 2)) @ [[1, 0.7], [0, 0.7]] - [1.5, 0.5]
    outcomes = (rng.random((n, 2)) < expit(logits)).astype(float)
    outcomes[rng.random((n, 2)) < 0.1] = np.nan
    return presence, outcomes, dense


PRESENCE, OUTCOMES, DENSE = hospital()
PARENTS = np.array([0, 0, 0] + [2, 3] * 8 + [4])  # wrong parents may slow the solver but not change its result


def alone(outcomes: np.ndarray, prior: Prior) -> np.ndarray:
    """Solve one regression on all admissions."""
    several = Regressions(PRESENCE, outcomes, np.ones(len(outcomes), int), PARENTS, np.ones(COLUMNS), 1)
    return several.solve(prior, several.start(), tolerance=1e-13)[:, 0]


def test_separate_outcomes_equal_scikit_learn():
    found = alone(OUTCOMES, Prior(0.0, 0.3))
    for column in range(2):
        known = ~np.isnan(OUTCOMES[:, column])
        other = LogisticRegression(C=0.3, tol=1e-10, max_iter=1000).fit(DENSE[known, 1:], OUTCOMES[known, column])
        np.testing.assert_allclose(found[1:, column], other.coef_[0], atol=2e-5)
        np.testing.assert_allclose(found[0, column], other.intercept_[0], atol=2e-5)


def test_a_common_and_a_specific_part_are_one_ridge_penalty():
    prior, known = Prior(0.2, 0.05), ~np.isnan(OUTCOMES)

    def loss(flat: np.ndarray) -> float:
        intercepts, parts = flat[:2], flat[2:].reshape(3, COLUMNS - 1)
        log_odds = DENSE[:, 1:] @ (parts[0] + parts[1:]).T + intercepts
        deviance = (np.logaddexp(0, log_odds) - np.nan_to_num(OUTCOMES) * log_odds)[known].sum()
        return deviance + (parts[0] ** 2).sum() / 2 / prior.common + (parts[1:] ** 2).sum() / 2 / prior.own

    other = minimize(loss, np.zeros(2 + 3 * (COLUMNS - 1)), method="L-BFGS-B", options={"maxfun": 10**6}).x
    parts = other[2:].reshape(3, -1)
    np.testing.assert_allclose(alone(OUTCOMES, prior)[1:], (parts[0] + parts[1:]).T, atol=2e-3)


def test_weights_can_be_shrunk_to_a_free_mean():
    """As if the number of these tokens were a further column that is hardly penalised."""
    alike, known = np.arange(5, COLUMNS), ~np.isnan(OUTCOMES[:, 0])
    several = Regressions(
        PRESENCE, OUTCOMES[:, :1], np.ones(len(OUTCOMES), int), PARENTS, np.ones(COLUMNS), 1, shrunk_to_mean=alike
    )
    found = several.solve(Prior(0.0, 0.05), several.start(), tolerance=1e-13)[:, 0, 0]
    more = np.column_stack([DENSE[known, 1:], 100 * DENSE[known][:, alike].sum(axis=1)])
    other = LogisticRegression(C=0.05, tol=1e-12, max_iter=10_000).fit(more, OUTCOMES[known, 0]).coef_[0]
    other[alike - 1] += 100 * other[-1]
    np.testing.assert_allclose(found[1:], other[:-1], atol=1e-3)


def test_a_missing_outcome_is_left_out():
    prior = Prior(0.0, 0.3)
    fewer = OUTCOMES.copy()
    fewer[::2, 1] = np.nan
    np.testing.assert_allclose(alone(fewer, prior)[:, 0], alone(OUTCOMES, prior)[:, 0], atol=1e-5)


def test_each_regression_leaves_out_its_fold():
    prior, folds = Prior(0.1, 0.1), np.arange(len(OUTCOMES)) % 3
    several = Regressions(PRESENCE, OUTCOMES, folds, PARENTS, np.ones(COLUMNS), 4)
    found = several.solve(prior, several.start(), tolerance=1e-13)
    masked = OUTCOMES.copy()
    masked[folds == 1] = np.nan
    np.testing.assert_allclose(found[:, 1], alone(masked, prior), atol=1e-4)
    np.testing.assert_allclose(found[:, 3], alone(OUTCOMES, prior), atol=1e-4)
    log_odds = several.log_odds(found)
    np.testing.assert_allclose(log_odds[4], DENSE[4] @ found[:, 1] + found[0, 1], atol=1e-12)


@pytest.mark.parametrize("deaths", [0, 3])
def test_a_rare_code_borrows_from_its_category(deaths):
    """Category 1 has ten frequent codes, with a mortality of one half, and one code that occurs three times."""
    lists = [[1, 10 + code] for code in range(10) for _ in range(40)] + [[1, 3]] * 3 + [[4]] * 1000
    died = [1.0, 0.0] * 200 + [1.0] * deaths + [0.0] * (3 - deaths) + [1.0] * 20 + [0.0] * 980
    tokens = Tokens(np.concatenate(lists).astype(np.int32), np.cumsum([0, *map(len, lists)]))
    parents = np.isin(np.arange(20), [3, *range(10, 20)]).astype(int)
    several = Regressions(
        Presence.of(tokens, 20), np.array(died)[:, None], np.ones(len(died), int), parents, np.ones(20), 1
    )
    weights = several.solve(Prior(0.0, 0.3), several.start(), tolerance=1e-12)[:, 0, 0]
    category, common, rare = weights[1], weights[1] + weights[10], weights[1] + weights[3]
    raw = np.log((deaths + 0.5) / (3.5 - deaths)) - weights[0]  # the estimate from three admissions alone
    assert category > 1.5  # its codes borrow from it
    assert abs(rare - common) < 0.35 * abs(raw - common)
    assert (rare > category) == (deaths == 3)


def test_with_an_offset_the_difference_is_penalised():
    """With another table as offset, a small prior variance keeps it and a large one overrides it."""
    other = np.random.default_rng(5).normal(size=(COLUMNS, 2))
    other[0] = 0
    several = Regressions(PRESENCE, OUTCOMES, np.ones(len(OUTCOMES), int), PARENTS, np.ones(COLUMNS), 1)
    beside = replace(several, offset=PRESENCE.times(other))
    firm, loose, scratch = (
        each.solve(Prior(0.0, spread), each.start(), tolerance=1e-13)[:, 0]
        for each, spread in ((beside, 1e-9), (beside, 1e3), (several, 1e3))
    )
    assert np.abs(firm[1:]).max() < 1e-5
    np.testing.assert_allclose(loose[1:] + other[1:], scratch[1:], atol=0.05)


def test_weighted_regressions_equal_scikit_learns_and_repeated_admissions():
    rng, prior = np.random.default_rng(1), Prior(0.0, 0.3)
    times = rng.integers(0, 4, len(OUTCOMES))
    folds = np.arange(len(OUTCOMES)) % 2

    def several(rows, weight=None):
        regressions = Regressions(
            PRESENCE.take(rows), OUTCOMES[rows], folds[rows], PARENTS, np.ones(COLUMNS), 3, weight=weight
        )
        return regressions.solve(prior, regressions.start(), tolerance=1e-13)

    found = several(np.arange(len(OUTCOMES)), times.astype(float))
    np.testing.assert_allclose(found, several(np.repeat(np.arange(len(OUTCOMES)), times)), atol=1e-4)
    weight = rng.gamma(2, size=len(OUTCOMES))
    found = several(np.arange(len(OUTCOMES)), weight)[:, -1]
    for column in range(2):
        known = ~np.isnan(OUTCOMES[:, column])
        other = LogisticRegression(C=0.3, tol=1e-10, max_iter=1000)
        other.fit(DENSE[known, 1:], OUTCOMES[known, column], sample_weight=weight[known])
        np.testing.assert_allclose(found[1:, column], other.coef_[0], atol=2e-5)
        np.testing.assert_allclose(found[0, column], other.intercept_[0], atol=2e-5)


def test_an_interrupt_does_not_wait_for_the_solver(monkeypatch):
    """The groups of regressions are solved in parallel; with many admissions each takes a minute."""
    started, release = threading.Event(), threading.Event()

    def solve(regressions, prior, start, tolerance, on_step, group):
        if 0 in group:
            assert started.wait(PATIENCE)
            raise KeyboardInterrupt
        started.set()
        release.wait(PATIENCE)

    monkeypatch.setattr(Regressions, "_solve", solve)
    several = Regressions(PRESENCE, OUTCOMES, np.arange(len(OUTCOMES)) % 2, PARENTS, np.ones(COLUMNS), 2)
    timer = threading.Timer(PATIENCE / 5, release.set)  # ends the test if the interrupt does wait
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        several.solve(Prior(0.1, 0.1), several.start(), tolerance=1e-6)
    assert not release.is_set()
    release.set()
    timer.cancel()
