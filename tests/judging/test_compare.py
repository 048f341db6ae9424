"""Hospitals compared: planted outliers are found, small hospitals are not ranked, ranks allow for recalibration."""

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score

import mlci
from mlci.judging import compare as module
from mlci.judging._crossfit import cross_fit, design
from mlci.judging.compare import HIDDEN, TOO_FEW, compare
from toys import HOSPITAL_SIZES, six_hospitals


@pytest.fixture(scope="module")
def cohort() -> mlci.Cohort:
    return six_hospitals(effect=0.7)


@pytest.fixture(scope="module")
def found(cohort):
    scores = {"severity": cohort.column("severity"), "age": cohort.column("age")}
    return compare(cohort, scores, by="hospital", outcome="mortality", overdispersion="none", resamples=100)


def test_only_the_planted_outlier_is_found(found):
    table = found.of("severity").set_index("group")
    assert table["verdict"].to_dict() == {
        **dict.fromkeys("ACEF", "as expected"),
        "B": "high",
        "D": TOO_FEW,
    }
    assert table.loc["B", "ratio"] > 1.3
    # Age does not measure severity: C, whose patients are sicker, is flagged by mistake.
    assert found.of("age").set_index("group").loc["C", "verdict"] == "high"
    assert found.changes.to_dict("records")[0]["other_verdict"] >= 1


def test_counts_ratios_and_rates_follow_their_definitions(found, cohort):
    table = found.of("severity").set_index("group")
    died, name = cohort.labels("mortality")[:, 0], cohort.column("hospital")
    assert table["n"].to_dict() == HOSPITAL_SIZES
    for group, row in table.iterrows():
        assert row["observed"] == row["events"] == died[name == group].sum()
        assert row["ratio"] == pytest.approx(row["observed"] / row["expected"])
        assert row["adjusted"] == pytest.approx(row["ratio"] * died.mean())
        assert row["low"] < row["ratio"] < row["high"]
    assert found.events == died.sum()
    assert found.rate == pytest.approx(died.mean())
    alike = six_hospitals()
    table = compare(alike, alike.column("severity"), by="hospital", outcome="mortality", resamples=0).table
    assert table["expected"].sum() == pytest.approx(table["observed"].sum(), rel=0.02)


def test_fewer_than_ten_expected_events_are_shown_and_never_ranked(found):
    table = found.of("severity").set_index("group")
    assert table.loc["D", "expected"] < 10
    assert not table.loc["D", "ranked"]
    assert np.isnan(table.loc["D", ["rank", "rank_low", "rank_high"]].astype(float)).all()
    assert table.index[-1] == "D"
    assert sorted(table["rank"].dropna()) == [1, 2, 3, 4, 5]


def test_suppression_hides_everything_that_reveals_a_small_count(cohort):
    """As in the report, a group needs ten admissions with the outcome and ten without."""
    names = cohort.column("hospital").astype(object)
    names[names == "D"] = np.where(np.arange((names == "D").sum()) < 7, "G", "D")
    part = _with(cohort, "hospital", names)
    found = compare(part, part.column("severity"), by="hospital", outcome="mortality", resamples=20)
    shown = found.suppressed().table.set_index("group")
    assert found.table.set_index("group").loc[["D", "G"], "events"].max() < 10
    for group in "DG":
        figures = shown.loc[group, ["events", "observed", "expected", "ratio", "high", "rate", "shrunk", "z", "rank"]]
        assert figures.isna().all()
        assert shown.loc[group, "verdict"] == HIDDEN
    assert np.isnan(shown.loc["G", "n"])
    assert shown.loc["D", "n"] == 53
    # D and G have fewer than ten deaths together, which the total would reveal: a third group is hidden too.
    assert (shown["verdict"] == HIDDEN).sum() == 3
    assert sorted(shown["rank"].dropna()) == [1, 2, 3, 4]
    assert ((shown["rank_low"] <= shown["rank"]) & (shown["rank"] <= shown["rank_high"]))[shown["ranked"]].all()
    assert shown["rank_high"].max() <= 4
    assert HIDDEN in repr(found.suppressed())
    # The total would reveal a single hidden count: another group is hidden too.
    alone = compare(cohort, cohort.column("severity"), by="hospital", outcome="mortality", resamples=0).suppressed()
    assert (alone.table["verdict"] == HIDDEN).sum() == 2


def test_hidden_groups_have_no_place_in_the_ranks_of_the_others():
    rng, n = np.random.default_rng(0), 2400
    ward, severity = rng.integers(0, 6, n), rng.normal(size=n)
    odds = np.where(ward == 0, -6, np.where(ward == 1, -5, -2.5)) + severity  # of wards 0 and 1 few die
    visits = pd.DataFrame({"visit_id": range(n), "codes": [["I50.9"]] * n, "ward": ward, "severity": severity})
    visits["died"] = rng.random(n) < 1 / (1 + np.exp(-odds))
    part = mlci.Cohort.from_frame(visits, icd_version=10, keep=["ward", "severity"])
    found = compare(part, severity, by="ward", outcome="mortality", resamples=50)
    whole, shown = (each.table.set_index("group").astype({"rank": float}) for each in (found, found.suppressed()))
    assert whole.loc[["0", "1"], "rank"].tolist() == [1, 2]
    seen = shown[shown["ranked"]]
    assert sorted(seen["rank"]) == [1, 2, 3]
    assert ((seen["rank_low"] <= seen["rank"]) & (seen["rank"] <= seen["rank_high"])).all()
    assert seen["rank_high"].max() <= 3
    assert found.suppressed().suppressed().table.equals(found.suppressed().table)
    # Nor have they a part in the counts of groups and verdicts.
    [summary] = found.suppressed().models.to_dict("records")
    assert summary["ranked"] == len(seen)
    assert summary["low"] == (seen["verdict"] == "low").sum() < found.models.loc[0, "low"]
    both = compare(part, {"a": severity, "b": -severity}, by="ward", outcome="mortality", resamples=0)
    assert both.suppressed().changes["groups"].tolist() == [len(seen)]


def test_an_adjusted_rate_is_at_most_1():
    rng, n = np.random.default_rng(0), 600
    ward, severity = rng.integers(0, 3, n), rng.normal(size=n)
    visits = pd.DataFrame({"visit_id": range(n), "codes": [["I50.9"]] * n, "ward": ward, "severity": severity})
    visits["died"] = (ward == 0) | (rng.random(n) < 0.5)
    part = mlci.Cohort.from_frame(visits, icd_version=10, keep=["ward", "severity"])
    table = compare(part, severity, by="ward", outcome="mortality", resamples=0).table.set_index("group")
    assert table.loc["0", ["adjusted", "adjusted_high"]].tolist() == [1, 1]
    assert table.loc["0", "ratio"] > 1.9


def test_ranks_and_their_intervals(found):
    table = found.of("severity").set_index("group").drop("D")
    assert table.loc["B", ["rank", "rank_low", "rank_high"]].tolist() == [5, 5, 5]
    assert (table["rank_low"] <= table["rank"]).all()
    assert (table["rank"] <= table["rank_high"]).all()
    assert (table["rank_high"] - table["rank_low"]).drop("B").min() >= 1  # no other rank is certain


def test_a_resample_by_influence_agrees_with_a_refit():
    """Compare ratios computed from influences with models refitted to each resample."""
    cohort = six_hospitals(patients=3)
    ground = module._prepare(cohort, "hospital", "mortality", None)
    model = design(cohort.column("severity")[ground.rows])
    fit = cross_fit(model, ground.outcome, ground.weight, ground.starts)
    saved = {}

    def bootstrap(statistics, patients, *, resamples):
        rng, n = np.random.default_rng(5), 1 + max(patients)
        saved["counts"] = np.array([np.bincount(rng.integers(0, n, n), minlength=n) for _ in range(resamples)])
        return [statistics[0](lambda rows: saved["counts"][:, patients[rows]].astype(float))]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module.resample, "bootstrap", bootstrap)
        ratios = module._resampled(ground, {"": fit}, 3)[""]

    def expected_without_refit(weight: np.ndarray) -> np.ndarray:
        return ground.sums(weight * fit.risk)

    for counts, found in zip(saved["counts"], ratios):
        weight = counts[np.unique(ground.patient, return_inverse=True)[1]].astype(float)
        refit = cross_fit(model, ground.outcome, weight, ground.starts)
        observed, expected = (ground.sums(weight * values) for values in (ground.outcome, refit.risk))
        assert found == pytest.approx(observed / expected, rel=0.03)
        # Far closer than with the original model.
        by_influence, original = (
            np.abs(np.log(guess * expected / observed)) for guess in (found, observed / expected_without_refit(weight))
        )
        assert by_influence.mean() < original.mean() / 3


def test_clustering_hardly_changes_intervals_of_independent_admissions():
    """If the outcomes of a patient's admissions are independent, four admissions count as much as four patients."""
    widths = []
    for patients in (1, 4):
        cohort = six_hospitals(patients=patients)
        table = compare(cohort, cohort.column("severity"), by="hospital", outcome="mortality", resamples=300).table
        widths.append((table["resampled_high"] - table["resampled_low"]).to_numpy())
    assert widths[1] == pytest.approx(widths[0], rel=0.4)


def test_copies_of_admissions_do_not_narrow_intervals(cohort):
    """Patients are resampled with all their admissions; independent copies would narrow intervals to 71 %."""
    table = cohort.table.take([*range(len(cohort))] * 2).drop_columns("admission_id")
    table = table.append_column("admission_id", [np.arange(len(table))])
    widths = []
    for data in (cohort, mlci.Cohort(table, cohort.source, cohort.outcomes)):
        found = compare(data, data.column("severity"), by="hospital", outcome="mortality", resamples=300).table
        widths.append((found["resampled_high"] - found["resampled_low"]).to_numpy())
    assert widths[1] == pytest.approx(widths[0], rel=0.2)


def test_equal_weights_have_no_effect_and_other_weights_do(cohort):
    severity = cohort.column("severity")
    options = {"by": "hospital", "outcome": "mortality", "resamples": 0}
    plain = compare(cohort, severity, **options)
    equal = compare(_with(cohort, "weight", np.full(len(cohort), 7.0)), severity, weights="weight", **options)
    pd.testing.assert_frame_equal(plain.table, equal.table)
    weighted = compare(cohort, severity, weights="weight", **options).table.set_index("group")
    died, name, weight = cohort.labels("mortality")[:, 0], cohort.column("hospital"), cohort.column("weight")
    for group, row in weighted.iterrows():
        assert row["rate"] == pytest.approx(np.average(died[name == group], weights=weight[name == group]))
    unweighted = plain.table.set_index("group")["effective"]
    assert (weighted["effective"] < 0.97 * unweighted).all()  # unequal weights cost precision
    sicker = np.where(severity > np.median(severity), 10.0, 1.0)
    [row] = compare(_with(cohort, "weight", sicker), severity, weights="weight", **options).models.to_dict("records")
    assert row["auroc"] == pytest.approx(roc_auc_score(died, severity, sample_weight=sicker), abs=0.01)
    assert row["auroc"] < roc_auc_score(died, severity) - 0.02


@pytest.mark.parametrize("unit", [1e300, 1e-300])
def test_the_unit_of_a_score_has_no_effect(cohort, found, unit):
    same = compare(cohort, cohort.column("severity") * unit, by="hospital", outcome="mortality", resamples=0)
    expected = found.of(found.models["model"].iloc[0])["expected"]
    np.testing.assert_allclose(same.of("score")["expected"], expected, rtol=1e-6)


def _with(cohort: mlci.Cohort, name: str, values) -> mlci.Cohort:
    import pyarrow as pa

    table = cohort.table.set_column(cohort.table.column_names.index(name), name, pa.array(values))
    return mlci.Cohort(table, cohort.source, cohort.outcomes)


def test_the_model_can_adjust_for_a_column(cohort):
    score = np.zeros(len(cohort))
    adjusted = compare(cohort, score, by="hospital", outcome="mortality", adjust=["severity"], resamples=0)
    without = compare(cohort, score, by="hospital", outcome="mortality", resamples=0)
    assert adjusted.models["auroc"][0] > 0.7 > without.models["auroc"][0]


def test_unknown_values_are_left_out_and_counted(cohort):
    names = cohort.column("hospital").astype(object)
    names[:50] = None
    part = _with(cohort, "hospital", names)
    found = compare(part, part.column("severity"), by="hospital", outcome="mortality", resamples=0)
    assert found.left_out == 50
    assert found.table["n"].sum() == len(cohort) - 50


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"by": "ward"}, "has no column ward"),
        ({"by": "icd_version"}, "column icd_version: has 1 groups with a known mortality; allowed are 2 to 5,000"),
        ({"outcome": "sepsis"}, "has no outcome 'sepsis'; it has mortality"),
        ({"overdispersion": "large"}, "overdispersion 'large': allowed are additive"),
        ({"weights": "hospital"}, "column hospital: is not numeric"),
        ({"weights": "severity"}, "column severity, row .*: is empty or negative"),
        ({"adjust": ["height"]}, "has no column height"),
        ({"adjust": "height"}, "has no column height"),
        ({"adjust": ["hospital"]}, "column hospital: defines the groups; it cannot be adjusted for as well"),
    ],
)
def test_bad_input_is_reported(cohort, options, message):
    with pytest.raises(mlci.InputError, match=message):
        compare(cohort, cohort.column("severity"), **{"by": "hospital", "outcome": "mortality", **options})


def test_weights_that_are_all_zero_are_refused(cohort):
    part = _with(cohort, "weight", np.zeros(len(cohort)))
    with pytest.raises(mlci.InputError, match="has 0 groups with a known mortality and a weight above 0"):
        compare(part, part.column("severity"), by="hospital", outcome="mortality", weights="weight")


def test_a_group_without_a_reference_is_refused(cohort):
    """Nearly all deaths are in one hospital, so the others have too few to model its risks."""
    died, name = cohort.labels("mortality")[:, 0].astype(bool), cohort.column("hospital")
    kept = np.isin(name, ["A", "D"]) & ((name == "A") | (np.cumsum(died & (name == "D")) <= 3))
    part = cohort.where(kept)
    with pytest.raises(mlci.InputError, match="fewer than 10 admissions with or without mortality are left"):
        compare(part, part.column("severity"), by="hospital", outcome="mortality")


def test_a_score_of_another_length_is_refused(cohort):
    with pytest.raises(mlci.InputError, match="score: has 3 admissions, but the cohort has 4060"):
        compare(cohort, [1.0, 2.0, 3.0], by="hospital", outcome="mortality")
    with pytest.raises(mlci.InputError, match="scores: there are none; at least one is needed"):
        compare(cohort, {}, by="hospital", outcome="mortality")


def test_notebook_display(found):
    assert "O/E" in repr(found)
    assert found._repr_html_().count("<tr>") == 1 + 2 * len(HOSPITAL_SIZES)


@pytest.mark.slow
def test_planted_outliers_are_found_and_a_better_index_flags_fewer_others():
    """Of forty synthetic hospitals, four are worse, four are better, and four record more codes than others."""
    cohort = mlci.build_cohort("synthetic", 60_000, seed=2, hospitals=40)
    scores = {"Charlson": mlci.charlson(cohort).iloc[:, -1].to_numpy(float), "severity": cohort.column("true_severity")}
    truth = dict(zip(cohort.column("hospital"), cohort.column("true_quality")))
    found = compare(cohort, scores, by="hospital", outcome="icu_transfer", overdispersion="none", resamples=0)
    true_verdicts = {
        name: {1: "high", -1: "low", 0: "as expected"}[int(np.sign(effect))] for name, effect in truth.items()
    }
    verdicts = {model: dict(zip(part["group"], part["verdict"])) for model, part in found.table.groupby("model")}
    planted = [name for name, effect in truth.items() if effect]
    alike = [name for name, effect in truth.items() if not effect]
    assert sum(verdicts["severity"][name] == true_verdicts[name] for name in planted) >= 7
    flagged = {model: sum(by_name[name] != "as expected" for name in alike) for model, by_name in verdicts.items()}
    assert flagged["severity"] <= 2 < flagged["Charlson"] / 3
    coding = dict(zip(cohort.column("hospital"), cohort.column("true_coding")))
    many = set(found.coding.loc[found.coding["verdict"] == "many", "group"])
    assert many == {name for name, habit in coding.items() if habit == 1.4}


def test_few_groups_have_no_overdispersion(cohort):
    found = compare(cohort, cohort.column("severity"), by="hospital", outcome="mortality", resamples=0)
    assert found.overdispersion == "none"


def test_limits_hold_for_common_outcomes_too():
    """For identical hospitals the mean squared z-score is 1; plain Poisson counts would give 0.45."""
    rng = np.random.default_rng(2)
    n, names = 40_000, np.repeat([f"H{number:02}" for number in range(80)], 500)
    score = rng.normal(0, 1.5, n)
    died = rng.random(n) < 1 / (1 + np.exp(0.7 - score))
    frame = pd.DataFrame({"visit_id": np.arange(n), "died": died * 1, "codes": [["I50.9"]] * n, "hospital": names})
    cohort = mlci.Cohort.from_frame(frame, icd_version=10, outcomes={"mortality": "died"}, keep=["hospital"])
    found = compare(cohort, score, by="hospital", outcome="mortality", resamples=0)
    assert np.mean(found.table["z"] ** 2) == pytest.approx(1, abs=0.25)
    covered = (found.table["low"] <= 1) & (found.table["high"] >= 1)
    assert 0.88 <= covered.mean() <= 1
