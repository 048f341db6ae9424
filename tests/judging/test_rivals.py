"""Rivals: age and sex, refitted flags, and AUROC with DeLong's intervals."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from scipy.stats import t as student
from sklearn.metrics import roc_auc_score

from mlci.judging import rivals
from mlci.judging.rivals import OWN, classic, compare, cross_refitted, curved, increments, refitted
from mlci.measures.design import as_design
from mlci.measures.discrimination import area, auroc
from toys import toy_cohort


@pytest.fixture(scope="module")
def cohort():
    """Return a cohort in which deaths depend on age only."""
    plain = toy_cohort(3000, names=("mortality",))
    rng = np.random.default_rng(0)
    age = rng.integers(18, 95, len(plain))
    died = rng.random(len(plain)) < 1 / (1 + np.exp(6 - age / 15))
    table = plain.table.drop_columns(["mortality"]).append_column("mortality", pa.array(died))
    return replace(plain, table=table.append_column("age", pa.array(age)).append_column("sex", pa.array(["F"] * 3000)))


def test_age_and_sex_beat_the_others_if_deaths_depend_on_age(cohort):
    train, test = cohort.split("train"), cohort.split("test")
    found = refitted(train, test, ["mortality"], index=lambda part: np.zeros(len(part)))
    assert list(found) == [
        "Age and sex",
        *("Elixhauser flags", "Elixhauser flags, age, sex", "Charlson flags", "Charlson flags, age, sex"),
        "MLCI, age, sex",
    ]
    table = compare(
        np.arange(len(test)) % 7.0,
        found | {"Charlson": {"mortality": classic(test)["Charlson"]}},
        {"mortality": test.labels()[:, 0]},
        patients=test.column("subject_id"),
    ).set_index("model")
    assert table.loc["Age and sex", "value"] > 0.7
    assert table.loc["Age and sex", "gap_high"] < 0  # the index is an arbitrary number
    assert table.loc["Charlson", "gap_low"] < 0 < table.loc["Charlson", "gap_high"]
    assert table.loc[OWN, "gap"] == 0


def test_cross_fitted_rivals_are_not_optimistic(cohort):
    """With random deaths, in-sample AUROCs are above 0.5 and cross-fitted AUROCs are not."""
    few = cohort.where(np.arange(len(cohort)) < 400)
    in_sample, cross_fitted = [], []
    for seed in range(5):
        died = np.random.default_rng(seed).random(400) < 0.15
        part = replace(few, table=few.table.drop_columns(["mortality"]).append_column("mortality", pa.array(died)))
        name = "Elixhauser flags, age, sex"
        in_sample.append(auroc(refitted(part, part, ["mortality"])[name]["mortality"], died))
        cross_fitted.append(auroc(cross_refitted(part, ["mortality"])[name]["mortality"], died))
    assert min(in_sample) > 0.55
    assert 0.44 < np.mean(cross_fitted) < 0.56
    by_age = cross_refitted(few, ["mortality"])["Age and sex"]["mortality"]
    assert auroc(by_age, few.labels()[:, 0]) > 0.65
    assert cross_refitted(few.where(np.arange(400) < 12), ["mortality"]) == {}


def test_cross_fitted_rivals_that_know_nothing_give_the_weighted_rate_to_all(cohort):
    """Where a fold has much of the weight of deaths, the others have little; that must not rank its admissions last."""
    few, rng = cohort.where(np.arange(len(cohort)) < 300), np.random.default_rng(0)
    died, weight = rng.random(300) < 0.3, rng.gamma(0.4, size=300)
    columns = {"codes": pa.array([["I10"]] * 300), "mortality": pa.array(died), "weight": pa.array(weight)}
    table = few.table.drop_columns(["codes", "mortality"])
    for name, column in columns.items():
        table = table.append_column(name, column)
    log_odds = cross_refitted(replace(few, table=table), ["mortality"], weights="weight")["Charlson flags"]["mortality"]
    rate = np.average(died, weights=weight)
    np.testing.assert_allclose(log_odds, np.log(rate / (1 - rate)), atol=1e-6)


def test_outcomes_that_no_training_admission_tells_are_left_out(cohort):
    """Nobody knows the outcome there, or nobody whose weight is above 0."""
    train, test, weight = cohort.split("train"), cohort.split("test"), np.tile([0.0, 1.0], 3000)
    for stayed in (np.full(len(train), None), np.where(weight[: len(train)] > 0, None, True)):
        table = train.table.append_column("stayed", pa.array(list(stayed), pa.bool_()))
        table = table.append_column("weight", pa.array(weight[: len(train)]))
        part = replace(train, table=table, outcomes={**train.outcomes, "stayed": ""})
        assert list(refitted(part, test, ["mortality", "stayed"], weights="weight")["Age and sex"]) == ["mortality"]
        assert list(curved(part, test, ["mortality", "stayed"], weights="weight")["Charlson"]) == ["mortality"]


def test_missing_columns_give_no_rival(cohort):
    def names(*missing: str) -> list[str]:
        parts = [
            replace(part, table=part.table.drop_columns(list(missing))) for part in map(cohort.split, ("train", "test"))
        ]
        return list(refitted(*parts, ["mortality"]))

    flags = ["Elixhauser flags", "Elixhauser flags, age", "Charlson flags", "Charlson flags, age"]
    assert names("sex") == ["Age", *flags]
    assert names("age", "sex") == ["Elixhauser flags", "Charlson flags"]
    few = cohort.split("train").where(np.arange(len(cohort.split("train"))) < 12)
    assert refitted(few, cohort.split("test"), ["mortality"]) == {}
    assert (
        refitted(cohort.split("train").where(np.zeros(len(cohort.split("train")), bool)), cohort, ["mortality"]) == {}
    )


def test_increments_are_what_the_index_adds_to_age_and_sex(cohort):
    """An index that knows the outcome adds everything; a constant index adds nothing."""
    train, test = cohort.split("train"), cohort.split("test")
    outcomes, patients = {"mortality": test.labels()[:, 0]}, test.column("subject_id")
    telling = refitted(train, test, ["mortality"], index=lambda part: part.labels()[:, 0] + 0.0, name="mine")
    telling = {"mine, own risks": telling["Age and sex"], **telling}
    found = increments(telling, outcomes, patients=patients, name="mine").set_index("base")
    assert list(found.index) == ["Age and sex", "Elixhauser flags, age, sex", "Charlson flags, age, sex"]
    assert found.loc["Age and sex", "gain_low"] > 0.1
    assert found.loc["Age and sex", "deviance_with"] > 0.9 > found.loc["Age and sex", "deviance"]
    nothing = refitted(train, test, ["mortality"], index=lambda part: np.zeros(len(part)))
    gains = increments(nothing, outcomes, patients=patients)
    assert gains["gain"].abs().max() < 0.02
    assert increments({"Elixhauser flags": nothing["Elixhauser flags"]}, outcomes, patients=patients).empty


def test_a_sample_of_training_admissions_gives_nearly_the_same_rival(cohort, monkeypatch):
    train, test = cohort.split("train"), cohort.split("test")
    whole = refitted(train, test, ["mortality"])["Age and sex"]["mortality"]
    monkeypatch.setattr(rivals, "LEARNED", 1500)
    assert np.corrcoef(whole, refitted(train, test, ["mortality"])["Age and sex"]["mortality"])[0, 1] > 0.98


@pytest.mark.parametrize("weight", [None, 1 + np.arange(2_000) % 3.0])
def test_rivals_equal_ridge_regression_of_scikit_learn(weight):
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    rng = np.random.default_rng(0)
    flags = np.column_stack([rng.random((2_000, 4)) < 0.2, rng.integers(20, 90, 2_000), np.ones(2_000)]).astype(float)
    labels = (rng.random((2_000, 2)) < 1 / (1 + np.exp(3 - flags[:, :2] - flags[:, 4:5] / 50))).astype(float)
    found, scale = rivals._logistic(flags, labels, flags[:100], weight), StandardScaler().fit(flags)
    for row, y in zip(found, labels.T):
        peer = LogisticRegression(C=1.0, solver="newton-cholesky", tol=1e-9).fit(scale.transform(flags), y, weight)
        np.testing.assert_allclose(row, peer.decision_function(scale.transform(flags[:100])), atol=1e-5)


def test_intervals_agree_with_resampling_and_grow_with_repeated_patients():
    rng = np.random.default_rng(3)
    n = 400
    y = (rng.random(n) < 0.2).astype(float)
    score, other = y + rng.normal(0, 1.2, n), 0.5 * y + rng.normal(0, 1, n)
    own = compare(score, {"other": {"y": other}}, {"y": y}, patients=np.arange(n)).set_index("model")
    drawn = []
    for _ in range(200):
        rows = rng.integers(n, size=n)
        drawn.append([roc_auc_score(y[rows], score[rows]), roc_auc_score(y[rows], other[rows])])
    drawn = np.array(drawn)
    error = (own.loc[OWN, "high"] - own.loc[OWN, "low"]) / 3.92
    assert error == pytest.approx(drawn[:, 0].std(), rel=0.15)
    gap = (own.loc["other", "gap_high"] - own.loc["other", "gap_low"]) / 3.92
    assert gap == pytest.approx((drawn[:, 0] - drawn[:, 1]).std(), rel=0.15)
    twice = compare(np.tile(score, 2), {}, {"y": np.tile(y, 2)}, patients=np.tile(np.arange(n), 2)).set_index("model")
    assert twice.loc[OWN, "high"] - twice.loc[OWN, "low"] == pytest.approx(3.92 * error, rel=0.03)


def test_few_clusters_have_as_few_degrees_of_freedom_as_survey_programs_give_them():
    """Twelve hospitals of a hundred admissions: a gap of any number of deaths has 11 degrees of freedom."""
    rng = np.random.default_rng(4)
    hospital = np.repeat(np.arange(12), 100)
    y = (rng.random(1200) < 0.3).astype(float)
    own, other = y + rng.normal(0, 1.2, 1200) + rng.normal(size=12)[hospital], y + rng.normal(0, 1.5, 1200)
    row = compare(own, {"other": {"y": other}}, {"y": y}, patients=hospital).set_index("model").loc["other"]
    moved = area(own, y)[1] - area(other, y)[1]
    error = np.sqrt(np.sum(np.bincount(hospital, moved) ** 2) * 12 / 11)
    assert row["gap_high"] - row["gap"] == pytest.approx(student.ppf(0.975, 11) * error)


def test_one_class_gives_no_row_and_perfect_separation_a_wide_interval():
    score = np.array([1.0, 2.0, 3.0, 4.0])
    found = compare(score, {}, {"all": np.ones(4), "sorted": np.array([0, 0, 1, 1.0])}, patients=np.arange(4))
    assert found["outcome"].tolist() == ["sorted"]
    assert found["value"].tolist() == [1]
    assert 0 < found["low"][0] < 0.9 < found["high"][0] == 1
    assert np.isnan(found["gap_low"][0])


def test_areas_are_computed_once_and_each_score_is_sorted_once(monkeypatch):
    rng = np.random.default_rng(5)
    score, died = rng.poisson(3, 300).astype(float), (rng.random((300, 2)) < 0.3).astype(float)
    died[::7, 1] = np.nan
    outcomes, sorts, argsort = dict(zip("ab", died.T)), [], np.argsort
    monkeypatch.setattr(np, "argsort", lambda *args, **options: sorts.append(args) or argsort(*args, **options))
    areas = rivals.Areas(outcomes, as_design(np.arange(300)))
    found = {name: areas.of(score, name) for name in outcomes}
    assert all(areas.of(score, name) is found[name] for name in outcomes)
    assert len(sorts) == 1
    for name, (value, influence) in found.items():
        assert value == auroc(score, outcomes[name])
        np.testing.assert_array_equal(influence, area(score, outcomes[name])[1])
