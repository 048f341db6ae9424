"""Expected risks: a group does not influence its own expected count, and the Newton step agrees with a refit."""

import numpy as np
import pytest

import mlci
from mlci.judging import _crossfit
from mlci.judging._crossfit import LogisticModel, cross_fit, design


def hospitals(sizes, seed=0):
    """Return score, age, outcome and the first row of each group."""
    rng = np.random.default_rng(seed)
    n = sum(sizes)
    score, age = rng.gamma(2, 1, n), rng.uniform(20, 90, n)
    risk = 1 / (1 + np.exp(4 - 0.7 * score - 0.02 * (age - 50)))
    return score, age, (rng.random(n) < risk).astype(float), np.cumsum([0, *sizes[:-1]])


@pytest.mark.parametrize("sizes", [[300] * 12, [150] * 24])  # beyond LARGE, and below it
def test_a_groups_own_events_do_not_change_its_expected_count(sizes):
    score, _, y, starts = hospitals(sizes)
    size = sizes[0]
    model = design(score)
    other = y.copy()
    other[:size] = 1 - y[:size]  # outcomes of the first group are reversed
    before, after = (cross_fit(model, labels, np.ones(len(y)), starts).risk for labels in (y, other))
    assert after[:size] == pytest.approx(before[:size], rel=1e-2)
    assert after[:size].sum() == pytest.approx(before[:size].sum(), rel=2e-3)
    assert after[size:].mean() > 1.2 * before[size:].mean()  # expected risks of the other groups do change


def test_a_newton_step_agrees_with_a_refit(monkeypatch):
    score, age, y, starts = hospitals([80, 120, 100] * 10)
    model = design(score, [("age", age)])
    step = cross_fit(model, y, np.ones(len(y)), starts)
    monkeypatch.setattr(_crossfit, "LARGE", 0.0)
    fit = cross_fit(model, y, np.ones(len(y)), starts)
    expected = [np.add.reduceat(found.risk, starts) for found in (step, fit)]
    assert expected[0] == pytest.approx(expected[1], rel=2e-3)


@pytest.mark.slow
def test_risks_equal_a_statsmodels_fit_to_the_other_groups():
    import statsmodels.api as sm

    score, age, y, starts = hospitals([400, 900, 500])
    weight = np.random.default_rng(1).uniform(0.5, 2, len(y))
    columns = design(score, [("age", age)]).columns[:, [0, 1, 2, 3, 8]]
    columns = columns[:, columns.std(axis=0) + (np.arange(columns.shape[1]) == 0) > 0]
    found = cross_fit(LogisticModel(columns, 1e-9 * np.eye(columns.shape[1])), y, weight, starts).risk
    rest = slice(400, None)
    fit = sm.GLM(y[rest], columns[rest], family=sm.families.Binomial(), freq_weights=weight[rest]).fit(tol=1e-12)
    assert found[:400] == pytest.approx(fit.predict(columns[:400]), rel=1e-5)


def test_the_model_follows_a_nonlinear_score(monkeypatch):
    rng = np.random.default_rng(2)
    score = rng.uniform(-3, 3, 20_000)
    risk = 0.05 + 0.4 / (1 + np.exp(-3 * score))  # with a ceiling, which a linear logistic model cannot follow
    y = (rng.random(len(score)) < risk).astype(float)
    starts, weight = np.array([0, 7000, 15000]), np.ones(len(y))
    bent = cross_fit(design(score), y, weight, starts).risk
    monkeypatch.setattr(_crossfit, "LEVELS", ())
    straight = cross_fit(design(score), y, weight, starts).risk
    assert np.abs(bent - risk).mean() < 0.02 < np.abs(straight - risk).mean() / 2


def test_a_constant_score_gives_the_rate_of_the_other_groups():
    _, _, y, starts = hospitals([500, 500, 500])
    risk = cross_fit(design(np.full(1500, 3.0)), y, np.ones(1500), starts).risk
    assert risk[:500] == pytest.approx(y[500:].mean(), abs=1e-4)


def test_categories_and_missing_values_are_coded_and_invalid_columns_refused():
    model = design(np.arange(6.0), [("sex", np.array(["F", "M", None, "F", "M", "F"], dtype=object))])
    assert len(np.unique(model.columns[:, -2:], axis=0)) == 3  # unknown is neither
    model = design(np.arange(6.0), [("age", np.array([50, 60, np.nan, 70, 80, 90]))])
    assert np.isfinite(model.columns).all()
    with pytest.raises(mlci.InputError, match="column age: is empty"):
        design(np.arange(3.0), [("age", np.full(3, np.nan))])
    with pytest.raises(mlci.InputError, match="column name: has 60 different values"):
        design(np.arange(60.0), [("name", np.array([f"p{i}" for i in range(60)], dtype=object))])
    with pytest.raises(mlci.InputError, match="none of the admissions have the outcome"):
        cross_fit(design(np.arange(6.0)), np.zeros(6), np.ones(6), np.array([0, 3]))
