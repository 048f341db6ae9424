"""Two treatments compared: a confounded effect disappears after adjustment for the right index."""

import numpy as np
import pandas as pd
import pytest

import mlci
from mlci.judging.balance import LEAST, balance


def ward(*, n: int = 4_000, seed: int = 0, effect: float = 0.0, patients: int = 1) -> mlci.Cohort:
    """Return a cohort with a drug that sicker patients get more often, with `effect` on the log-odds of death."""
    rng = np.random.default_rng(seed)
    severity, age = rng.normal(0, 1, n), rng.uniform(20, 90, n)
    drug = rng.random(n) < 1 / (1 + np.exp(0.5 - 0.9 * severity - 0.01 * (age - 55)))
    died = rng.random(n) < 1 / (1 + np.exp(2.2 - severity - 0.01 * (age - 55) - effect * drug))
    frame = pd.DataFrame({"visit_id": np.arange(n), "subject_id": np.arange(n) // patients, "died": died * 1})
    frame = frame.assign(codes=[["I50.9"]] * n, drug=drug, severity=severity, age=age, sex=rng.choice(["F", "M"], n))
    frame["noise"], frame["weight"] = rng.normal(size=n), rng.uniform(1, 3, n)
    keep = ["drug", "severity", "noise", "weight"]
    return mlci.Cohort.from_frame(frame, icd_version=10, outcomes={"mortality": "died"}, keep=keep)


@pytest.fixture(scope="module")
def cohort() -> mlci.Cohort:
    return ward()


def scores(cohort: mlci.Cohort) -> dict[str, np.ndarray]:
    return {name: cohort.column(name) for name in ("severity", "noise")}


@pytest.fixture(scope="module")
def found(cohort):
    return balance(cohort, scores(cohort), treatment="drug", outcome="mortality")


def test_confounding_is_removed_by_adjustment(found):
    odds = found.effects[found.effects["measure"] == "odds"].set_index(["model", "method"])
    assert odds.loc[("unadjusted", "none"), "low"] > 1.5
    assert odds.loc[("noise", "weighting"), "low"] > 1.5  # an index of noise adjusts for nothing
    for method in ("weighting", "regression"):
        assert odds.loc[("severity", method), "low"] < 1 < odds.loc[("severity", method), "high"]


def test_a_true_effect_is_found():
    cohort = ward(n=12_000, effect=0.7)
    found = balance(cohort, cohort.column("severity"), treatment="drug", outcome="mortality")
    [row] = found.effects[(found.effects["method"] == "regression")].itertuples()
    assert row.low < np.exp(0.7) < row.high
    assert row.low > 1.3


def test_weights_balance_the_covariates_of_the_propensity(found):
    table = found.differences.set_index("covariate")
    assert table.loc["severity", "before"] > 0.5
    assert abs(table.loc["severity", "severity"]) < 0.05
    assert table.loc["severity", "noise"] > 0.5  # weights by `noise` do not balance severity
    assert np.abs(table.loc[["age", "sex: M"], "severity"]).max() < 0.05
    assert list(table.index) == ["severity", "noise", "age", "sex: M"]


@pytest.mark.parametrize("unit", [1e300, 1e-300])
def test_the_unit_of_a_score_has_no_effect(found, cohort, unit):
    same = balance(cohort, {"severity": cohort.column("severity") * unit}, treatment="drug", outcome="mortality")
    expected = found.effects[found.effects["model"] == "severity"]
    np.testing.assert_allclose(same.effects.set_index("model").loc["severity", "value"], expected["value"], rtol=1e-6)
    before = found.differences.set_index("covariate")["before"]
    assert same.differences.set_index("covariate").loc["severity", "before"] == pytest.approx(before["severity"])


def test_differences_and_effects_follow_their_definitions(found, cohort):
    drug, severity = cohort.column("drug").astype(bool), cohort.column("severity")
    pooled = np.sqrt((severity[drug].var() + severity[~drug].var()) / 2)
    expected = (severity[drug].mean() - severity[~drug].mean()) / pooled
    assert found.differences["before"][0] == pytest.approx(expected)
    died = cohort.labels("mortality")[:, 0]
    plain = found.effects[found.effects["model"] == "unadjusted"].set_index("measure")
    a, b = died[drug].mean(), died[~drug].mean()
    assert plain.loc["difference", "value"] == pytest.approx(a - b)
    assert plain.loc["ratio", "value"] == pytest.approx(a / b)
    # Wald's interval of two proportions.
    error = np.sqrt(a * (1 - a) / drug.sum() + b * (1 - b) / (~drug).sum())
    assert plain.loc["difference", "high"] == pytest.approx(a - b + 1.959964 * error)
    assert found.arms["events"].sum() == died.sum()
    assert found.treated == "True"


def test_copies_of_a_patient_do_not_narrow_the_interval(cohort):
    twice = pd.concat([cohort.to_pandas()] * 2)
    twice["admission_id"] = np.arange(len(twice))
    frame = twice.drop(columns=["split"]).rename(columns={"mortality": "died"})
    keep = ["drug", "severity", "noise"]
    options = {"outcomes": {"mortality": "died"}, "subject": "subject_id", "icd_version": "icd_version", "keep": keep}
    doubled = mlci.Cohort.from_frame(frame, **options)
    once = balance(cohort, cohort.column("severity"), treatment="drug", outcome="mortality").effects
    copied = balance(doubled, doubled.column("severity"), treatment="drug", outcome="mortality").effects
    assert (copied["high"] - copied["low"]).to_numpy() == pytest.approx((once["high"] - once["low"]), rel=0.02)


def test_equal_weights_have_no_effect_and_other_weights_do(cohort):
    options = {"treatment": "drug", "outcome": "mortality"}
    plain = balance(cohort, cohort.column("severity"), **options)
    weighted = balance(cohort, cohort.column("severity"), weights="weight", **options)
    assert not np.allclose(plain.effects["value"], weighted.effects["value"])
    table = cohort.table.drop_columns(["weight"]).append_column("weight", [np.full(len(cohort), 3.0)])
    equal = balance(mlci.Cohort(table, "", cohort.outcomes), cohort.column("severity"), weights="weight", **options)
    pd.testing.assert_frame_equal(plain.effects, equal.effects)


@pytest.mark.slow
def test_regression_agrees_with_statsmodels_clustered_by_patient():
    import statsmodels.api as sm

    from mlci.judging import balance as module
    from mlci.judging._crossfit import LogisticModel

    cohort = ward(n=2_000, patients=2, effect=0.4)
    arms = module._arms(cohort, "drug", "mortality", None)
    columns = np.column_stack([np.ones(len(cohort)), cohort.column("severity"), cohort.column("age") / 20])
    found = module._regressed(arms, LogisticModel(columns, 1e-9 * np.eye(3)))
    fit = sm.Logit(arms.outcome, np.column_stack([columns, arms.treated])).fit(
        disp=0, cov_type="cluster", cov_kwds={"groups": arms.patient, "use_correction": False}
    )
    low, high = fit.conf_int()[-1]
    assert found == pytest.approx(np.exp([fit.params[-1], low, high]), rel=1e-4)


@pytest.mark.slow
def test_weighted_intervals_agree_with_refitted_resamples():
    cohort = ward(n=1_500, effect=0.3)
    drawn, rng = [], np.random.default_rng(1)
    options = {"treatment": "drug", "outcome": "mortality"}
    whole = balance(cohort, cohort.column("severity"), **options).effects.set_index(["method", "measure"])
    for _ in range(200):
        rows = rng.integers(0, len(cohort), len(cohort))
        part = mlci.Cohort(cohort.table.take(rows), "", cohort.outcomes)
        table = part.table.set_column(0, "admission_id", [np.arange(len(rows))])
        table = table.set_column(table.column_names.index("subject_id"), "subject_id", [np.arange(len(rows))])
        part = mlci.Cohort(table, "", cohort.outcomes)
        found = balance(part, part.column("severity"), **options).effects.set_index(["method", "measure"])
        drawn.append(found.loc[("weighting", "difference"), "value"])
    row = whole.loc[("weighting", "difference")]
    assert (row["high"] - row["low"]) / (2 * 1.96) == pytest.approx(np.std(drawn), rel=0.15)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"treatment": "age"}, "column age: has 4,000 different values; a treatment has two"),
        ({"treatment": "pill"}, "no column pill"),
        ({"outcome": "sepsis"}, "has no outcome 'sepsis'"),
        ({"weights": "noise"}, "column noise, row .*: is empty or negative"),
        ({"adjust": ["drug"]}, "column drug: is the treatment; it cannot be adjusted for as well"),
    ],
)
def test_bad_input_is_reported(cohort, options, message):
    with pytest.raises(mlci.InputError, match=message):
        balance(cohort, cohort.column("severity"), **{"treatment": "drug", "outcome": "mortality", **options})


def test_the_default_adjustment_leaves_out_the_treatment():
    """Women and men compared: adjusting for sex as well would weight every admission by 1."""
    cohort = mlci.build_cohort("synthetic", 600, seed=1)
    found = balance(cohort, cohort.column("age"), treatment="sex", outcome="long_stay")
    assert found.adjusted_by == ("age",)
    assert "sex: M" not in set(found.differences["covariate"])


def test_too_few_admissions_are_refused():
    cohort = ward(n=60)
    with pytest.raises(mlci.InputError, match=f"fewer than {LEAST} admissions with or without mortality"):
        balance(cohort, cohort.column("severity"), treatment="drug", outcome="mortality")


def test_notebook_display(found):
    assert "risk difference" in repr(found)
    assert "<table>" in found._repr_html_()


def test_the_separation_of_the_propensity_counts_weights(cohort):
    """The propensity rises with the score, which is its only part, so that both have the same AUROC."""
    from sklearn.metrics import roc_auc_score

    drug, severe = cohort.column("drug").astype(int), (cohort.column("severity") > 0).astype(float)
    options = {"treatment": "drug", "outcome": "mortality", "adjust": []}
    found = balance(cohort, {"severe": severe}, weights="weight", **options)
    wanted = roc_auc_score(drug, severe, sample_weight=cohort.column("weight"))
    assert found.models["auroc"][0] == pytest.approx(wanted, rel=1e-9)
    assert abs(wanted - roc_auc_score(drug, severe)) > 1e-4
