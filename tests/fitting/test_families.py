"""Counts and measured numbers as outcomes of the regressions, against scikit-learn and finite differences."""

import numpy as np
import pytest
from sklearn.linear_model import PoissonRegressor, Ridge

from mlci.fitting._families import KINDS, LOGISTIC, Family
from mlci.fitting._presence import Presence
from mlci.fitting._ridge import Prior, Regressions
from mlci.tokens import Tokens

COLUMNS, N = 12, 300
RNG = np.random.default_rng(0)
OFFSETS = np.concatenate([[0], np.cumsum(RNG.poisson(2, N))])
IDS = RNG.integers(1, COLUMNS, OFFSETS[-1]).astype(np.int32)
PRESENCE = Presence.of(Tokens(IDS, OFFSETS), COLUMNS)
DENSE = np.zeros((N, COLUMNS))
DENSE[np.repeat(np.arange(N), np.diff(OFFSETS)), IDS] = 1
ETA = DENSE @ RNG.normal(0, 0.4, COLUMNS) + 1
DAYS, COST = RNG.poisson(np.exp(ETA)).astype(float), ETA + RNG.normal(size=N)
WEIGHT = RNG.gamma(2, size=N)


def solved(y, family, weight=None):
    """One regression of one outcome, with a variance of 0.2."""
    folds, parents = np.ones(N, int), np.zeros(COLUMNS, np.int32)
    found = Regressions(PRESENCE, y[:, None], folds, parents, np.ones(COLUMNS), 1, weight=weight, families=(family,))
    return found.solve(Prior(0.0, 0.2), found.start(), tolerance=1e-13)[:, 0, 0]


@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["plain", "weighted"])
def test_counts_equal_scikit_learns_poisson_regression(weight):
    total = N if weight is None else weight.sum()
    for dispersion in (1.0, 2.5):
        found = solved(DAYS, Family("poisson", dispersion), weight)
        other = PoissonRegressor(alpha=dispersion / 0.2 / total, tol=1e-9, max_iter=5000)
        other.fit(DENSE[:, 1:], DAYS, sample_weight=weight)
        np.testing.assert_allclose(found, [other.intercept_, *other.coef_], atol=2e-4)


@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["plain", "weighted"])
def test_measured_numbers_equal_scikit_learns_ridge(weight):
    found = solved(COST, Family("gaussian"), weight)
    other = Ridge(alpha=1 / 0.2).fit(DENSE[:, 1:], COST, sample_weight=weight)
    np.testing.assert_allclose(found, [other.intercept_, *other.coef_], atol=1e-4)


def test_several_families_are_solved_together():
    outcomes = np.column_stack([(COST > 1).astype(float), DAYS, COST])
    outcomes[::7, 1] = np.nan
    kinds = (LOGISTIC, Family("poisson", 2.0), Family("gaussian"))
    whole = Regressions(
        PRESENCE, outcomes, np.ones(N, int), np.zeros(COLUMNS, np.int32), np.ones(COLUMNS), 1, families=kinds
    )
    found = whole.solve(Prior(0.0, 0.2), whole.start(), tolerance=1e-13)[:, 0]
    np.testing.assert_allclose(found[:, 0], solved(outcomes[:, 0], LOGISTIC), atol=1e-4)
    np.testing.assert_allclose(found[:, 2], solved(COST, kinds[2]), atol=1e-4)
    np.testing.assert_allclose(found[:, 1], solved(outcomes[:, 1], kinds[1]), atol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_slope_and_curvature_equal_finite_differences(kind):
    family, at, y, step = Family(kind, 1.0 if kind == "logistic" else 1.7), np.linspace(-2, 2, 9), np.ones(9), 1e-5
    slope = (family.loss(at + step, y) - family.loss(at - step, y)) / (2 * step)
    np.testing.assert_allclose(family.slope(family.mean(at), y), slope, atol=1e-6)
    bend = (family.slope(family.mean(at + step), y) - family.slope(family.mean(at - step), y)) / (2 * step)
    np.testing.assert_allclose(family.curvature(family.mean(at)), bend, atol=1e-6)
    np.testing.assert_allclose(family.link(family.mean(at)), at, atol=1e-12)
    assert (
        family.loss(at, family.mean(at)) < 1 if kind == "logistic" else np.abs(family.loss(at, family.mean(at))) < 1e-12
    ).all()
