import os

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from conftest import ROOT
from mlci.base.errors import InputError
from mlci.cohort import Cohort, build_cohort
from mlci.index.estimator import load
from mlci.judging.evaluate import evaluate, judge, subgroup
from mlci.measures import alignment, discrimination, information, resample
from mlci.measures.design import Design
from mlci.measures.intervals import Reach
from mlci.measures.registry import METRICS, Pair


@pytest.fixture(scope="module")
def hospital():
    """Return two scores (one of whole numbers), two outcomes (one with nulls), and patients with several admissions."""
    rng = np.random.default_rng(0)
    n = 900
    severity = rng.normal(size=n)
    risk = 1 / (1 + np.exp(1.5 - 1.2 * severity))
    labels = pd.DataFrame(
        {"death": (rng.random(n) < risk).astype(float), "long_stay": (rng.random(n) < 0.5).astype(float)}
    )
    labels.loc[::7, "long_stay"] = np.nan
    scores = pd.DataFrame({"good": severity, "points": np.round(severity + 2 * rng.normal(size=n))})
    table = pa.table(
        {
            "admission_id": np.arange(n) + 1000,
            "subject_id": rng.integers(500, size=n),
            "icd_version": np.full(n, 10),
            "codes": pa.array([["I10"]] * n),
            "death": pa.array(labels["death"] == 1),
            "long_stay": pa.array([None if np.isnan(v) else bool(v) for v in labels["long_stay"]]),
            "split": np.where(np.arange(n) < 100, "train", "test"),
            "age": pa.array([None if i == 0 else float(i % 100) for i in range(n)]),
            "sex": np.where(np.arange(n) % 3 == 0, "F", "M"),
        }
    )
    cohort = Cohort(table, "synthetic", {"death": "died", "long_stay": "stayed"})
    return scores, labels, cohort, risk


def test_the_table_has_the_value_of_each_measure(hospital):
    scores, labels, cohort, risk = hospital
    found = evaluate(scores, labels, groups=cohort.column("subject_id"), resamples=50, risks={"good": {"death": risk}})
    assert list(found) == ["model", "outcome", "metric", "value", "low", "high", "n", "positives"]
    cell = found.set_index(["model", "outcome", "metric"])["value"]
    score, y = scores["good"].to_numpy(), labels["long_stay"].to_numpy()
    assert cell["good", "long_stay", "dcorr"] == pytest.approx(alignment.distance_correlation(score, y))
    assert cell["good", "long_stay", "nhsic"] == pytest.approx(alignment.nhsic(score, y))
    assert cell["good", "long_stay", "mi"] == pytest.approx(information.mutual_information(score, y))
    assert cell["good", "long_stay", "auroc"] == pytest.approx(discrimination.auroc(score, y))
    assert cell["good", "death", "slope"] == pytest.approx(discrimination.calibration(risk, labels["death"]).slope)
    assert ("points", "death", "mi_plugin") in cell.index
    assert ("good", "death", "mi_plugin") not in cell.index
    rows = found.query("outcome == 'long_stay'")
    assert set(rows["n"]) == {np.sum(~np.isnan(y))}
    assert set(rows["positives"]) == {np.nansum(y)}
    assert set(found["metric"]) == set(METRICS)
    without = found["metric"] == "independence"
    assert (found["low"] <= found["high"])[~without].all()
    assert found.loc[without, "low"].isna().all()
    assert cell["good", "death", "independence"] == 0.005 < cell["good", "long_stay", "independence"]
    inside = (found["low"] <= found["value"]) & (found["value"] <= found["high"])
    assert inside[(found["outcome"] == "death") & ~without].mean() > 0.9


@pytest.mark.parametrize("convert", [lambda f: f, pl.from_pandas, lambda f: {c: list(f[c]) for c in f}])
def test_frames_and_mappings_give_the_same_table(hospital, convert):
    scores, labels, _, _ = hospital
    assert evaluate(convert(scores), convert(labels), resamples=0).equals(evaluate(scores, labels, resamples=0))


def test_a_cohort_supplies_outcomes_and_patients(hospital):
    scores, labels, cohort, _ = hospital
    plain = evaluate(scores, labels, groups=cohort.column("subject_id"), resamples=20)
    assert evaluate(scores, cohort, resamples=20).equals(plain)


def test_differences_are_paired(hospital):
    scores, labels, _, _ = hospital
    twice = judge({"a": scores["good"], "b": scores["good"] * 3 + 1, "worse": scores["points"]}, labels, resamples=99)
    cell = twice.differences.set_index(["model", "outcome", "metric"])
    assert set(twice.differences["versus"]) == {"a"}
    same = cell.loc[("b", "death", "auroc")]
    assert (same["value"], same["low"], same["high"], same["p"]) == (0, 0, 0, 1)
    worse = cell.loc[("worse", "death", "auroc")]
    assert worse["high"] < 0
    assert worse["p"] < 0.001


def test_subgroups_are_the_figures_of_their_admissions(hospital):
    scores, labels, cohort, risk = hospital
    sex, bands = subgroup(cohort, "sex"), subgroup(cohort, "age_band")
    found = judge(
        scores["good"], labels, by={"sex": sex, "age_band": bands}, risks={"score": {"death": risk}}, resamples=10
    ).table
    women = found.query("by == 'sex' and group == 'F' and outcome == 'death'").set_index("metric")["value"]
    rows = sex == "F"
    assert women["auroc"] == discrimination.auroc(scores["good"][rows], labels["death"][rows])
    assert women["slope"] == pytest.approx(discrimination.calibration(risk[rows], labels["death"][rows]).slope)
    whole = alignment.unit_bandwidth(scores["good"].to_numpy())  # one bandwidth for all groups
    assert women["nhsic"] == pytest.approx(alignment.nhsic(scores["good"][rows], labels["death"][rows], sigma=whole))
    found_bands = set(found.query("by == 'age_band'")["group"])
    bands_named = {band for group in found_bands for band in group.split(" or ")}
    assert bands_named == {*("under 18", "18 to 44", "45 to 64", "65 to 74", "75 to 84", "85 and over"), "not known"}
    assert "not known" not in found_bands  # one admission: merged with another band, so that no subtraction reveals it
    assert found.query("by == ''")["n"].max() == len(labels)


def test_unknown_outcomes_and_outcomes_without_events():
    labels = {"unknown": [None] * 5, "never": [0] * 5}
    found = judge(
        {"score": np.arange(5.0)}, labels, risks={"score": {"never": [0.1] * 5, "unknown": [0.1] * 5}}, resamples=5
    )
    cell = found.table.set_index(["outcome", "metric"])["value"]
    assert np.isnan(cell["never"][["dcorr", "mi", "nhsic", "auroc"]]).all()
    assert cell["never", "brier"] == pytest.approx(0.01)
    assert np.isnan(cell["unknown", "brier"])
    assert {"n": 0, "positives": 0}.items() <= found.table.query("outcome == 'unknown'").iloc[0].to_dict().items()
    known = judge({"score": np.arange(5.0)}, {**labels, "known": [0, 1, 0, 1, 1]}, resamples=0)
    alone = judge({"score": np.arange(5.0)}, {"known": [0, 1, 0, 1, 1]}, resamples=0)
    assert known.means().equals(alone.means())  # outcomes that cannot be evaluated do not lower the mean


def test_bad_input_is_named(hospital):
    scores, labels, cohort, _ = hospital
    with pytest.raises(InputError, match=r"mine\[1\]: nan is not a finite number"):
        evaluate({"mine": [0.0, np.nan]}, {"death": [0, 1]})
    with pytest.raises(InputError, match=r"death\[0\]: a number is not 0, 1 or null"):
        evaluate({"mine": [0.0, 1.0]}, {"death": [7, 1]})
    with pytest.raises(InputError, match="b: has 1 admissions, but a has 2"):
        evaluate({"a": [0.0, 1.0], "b": [1.0]}, {"death": [0, 1]})
    with pytest.raises(InputError, match="groups: has 3 admissions"):
        evaluate(scores, labels, groups=[1, 2, 3])
    with pytest.raises(InputError, match=r"has no column ward; it has .*sex.*--keep COLUMN"):
        subgroup(cohort, "ward")


def test_the_command_prints_and_writes_its_tables(hospital, tmp_path, mlci_cli):
    scores, labels, cohort, risk = hospital
    ids = cohort.column("admission_id")
    cohort.write(tmp_path / "cohort.parquet")
    mine = pd.DataFrame({"admission_id": ids, "score": scores["good"], "percentile": 0.5, "risk_death": risk})
    mine.iloc[:-50].to_parquet(tmp_path / "mine.parquet")
    pd.DataFrame({"admission_id": ids, "points": scores["points"]}).to_csv(tmp_path / "points.csv", index=False)
    options = ("--resamples", 40, "-o", "metrics.csv")
    done = mlci_cli(
        "evaluate",
        "mine.parquet",
        "points.csv",
        "cohort.parquet",
        "--by",
        "sex",
        "--bounds",
        "--numeric",
        "age",
        *options,
    )
    assert set(pd.read_csv(tmp_path / "metrics_numeric.csv")["outcome"]) == {"age"}
    assert "Missing outcomes left out, all treated as absent, or all as present" in done.stdout
    assert set(pd.read_csv(tmp_path / "metrics_bounds.csv")["outcome"]) == {"long_stay"}
    assert "mine.parquet: 750 of 800 admissions have scores (split: test)" in done.stdout
    assert "Evaluated on 750 of the 800 admissions of the split." in done.stdout
    assert "By sex" in done.stdout
    assert "Differences from mine" in done.stdout
    places = [done.stdout.index(title) for title in ("Means over outcomes", "AUROC (95", "Distance correlation (95")]
    assert places == sorted(places)
    assert "Average precision" not in done.stdout  # not a main metric: in the file alone
    assert "Do groups differ?" in done.stdout
    assert "mine compared with rivals" in done.stdout
    rivals = pd.read_csv(tmp_path / "metrics_rivals.csv")
    assert {"mine", "Charlson", "Age and sex", "mine, age, sex"} <= set(rivals["model"])
    shares = rivals[rivals["outcome"] == "death"].set_index("model")["deviance"]
    assert shares["mine"] == pytest.approx(discrimination.calibration(risk[100:850], labels["death"][100:850]).deviance)
    assert shares.notna().all()
    assert abs(shares["Charlson"]) < 0.05 < shares["mine, age, sex"]
    gains = pd.read_csv(tmp_path / "metrics_increments.csv").set_index(["outcome", "base"])
    assert gains.loc[("death", "Age and sex"), "gain_low"] > 0
    table = pd.read_csv(tmp_path / "metrics.csv", keep_default_na=False).query("by == ''")
    rows = slice(100, 850)
    expected = evaluate(
        {"mine": scores["good"][rows], "points": scores["points"][rows]},
        cohort.where(np.arange(900) < 850).split("test"),
        resamples=0,
    )
    by_risk = [name for name, metric in METRICS.items() if metric.applies is METRICS["brier"].applies]
    plain = table[~table["metric"].isin(by_risk)]
    np.testing.assert_allclose(plain["value"].astype(float), expected["value"])
    assert set(table[table["metric"].isin(by_risk)]["model"]) == {"mine"}
    assert set(pd.read_csv(tmp_path / "metrics_differences.csv")["model"]) == {"points"}
    assert mlci_cli("evaluate", "points.csv", "cohort.parquet", "--quiet", "--resamples", 0).stdout == ""


def test_the_command_reports_bad_input(hospital, tmp_path, mlci_cli):
    _, _, cohort, _ = hospital
    cohort.write(tmp_path / "cohort.parquet")
    pd.DataFrame({"admission_id": [1, 2], "score": [0.5, 1]}).to_csv(tmp_path / "other.csv", index=False)
    assert "none of its 2 admissions is among" in mlci_cli("evaluate", "other.csv", "cohort.parquet", code=2).stderr
    assert "no such file" in mlci_cli("evaluate", "lost.csv", "cohort.parquet", code=2).stderr
    refused = mlci_cli("evaluate", "other.csv", "cohort.parquet", "-o", "nowhere/x.csv", code=2).stderr
    assert "nowhere does not exist" in refused
    assert "try --split all" in mlci_cli("evaluate", "other.csv", "cohort.parquet", "--split", "valid", code=2).stderr


def test_subgroups_of_another_length_are_refused():
    with pytest.raises(InputError, match="by: sex has 3 admissions, but the score has 4"):
        judge([1.0, 2.0, 3.0, 4.0], [0, 1, 0, 1], by={"sex": ["F", "M", "F"]}, resamples=0)


def test_selected_metrics_equal_those_of_the_full_table(hospital):
    scores, labels = hospital[0], hospital[1]
    whole = judge(scores, labels, resamples=20).table
    some = judge(scores, labels, resamples=20, metrics={"auroc", "mi"}).table
    pd.testing.assert_frame_equal(some, whole[whole["metric"].isin(["auroc", "mi"])].reset_index(drop=True))


def test_only_selected_metrics_are_resampled(hospital, monkeypatch):
    calls, ranking = [], resample.ranking
    monkeypatch.setattr(resample, "ranking", lambda *args, **o: calls.append(o["figures"]) or ranking(*args, **o))
    judge(hospital[0], hospital[1], resamples=20, metrics={"rank_dcorr", "dcorr_corrected", "mi"})
    assert set(calls) == {("dcorr", "rank_dcorr")}


def test_intervals_by_influence_are_not_resampled_for_a_single_score(monkeypatch):
    y, risk = np.arange(60) % 3 == 0, np.linspace(0.05, 0.9, 60)
    data = {"outcomes": {"died": y.astype(float)}, "risks": {"a": {"died": risk}, "b": {"died": risk**2}}}
    metrics = {"metrics": ["risk_auroc"], "resamples": 20}
    whole = judge({"a": risk, "b": -risk}, **data, **metrics)
    monkeypatch.setattr("mlci.measures.resample.area", lambda *_: pytest.fail("resampled"))
    alone = judge({"a": risk}, **data, **metrics).table
    pd.testing.assert_frame_equal(alone, whole.table[whole.table["model"] == "a"])
    assert len(whole.differences) == 1


def test_a_constant_score_is_a_rival_with_weights_and_without(hospital):
    """It orders nothing, in every resample: AUROC is 1/2 and dCorr 0, and differences from it have an interval."""
    labels = hospital[1]
    models, names = {"constant": np.ones(900), "good": hospital[0]["good"]}, ("auroc", "dcorr", "rank_dcorr", "nhsic")
    plain, weighted = (
        judge(models, labels, groups=groups, metrics=names, resamples=60)
        for groups in (None, Design.of(np.arange(900), weights=np.full(900, 3.0)))
    )
    for found in (plain, weighted):
        value = found.table.query("model == 'constant' and outcome == 'death'").set_index("metric")["value"]
        assert value.to_dict() == {"auroc": 0.5, "dcorr": 0, "rank_dcorr": 0, "nhsic": 0}
        apart = found.differences.query("outcome == 'death'").set_index("metric")
        assert (apart["p"] < 1e-6).all()
        assert (apart["low"] > 0).all()
    np.testing.assert_allclose(plain.differences["low"], weighted.differences["low"], atol=1e-9)


def test_the_interval_of_rank_dcorr_depends_on_known_outcomes_alone():
    """Admissions without an outcome, all among the lowest scores, change no rank among the others."""
    rng = np.random.default_rng(2)
    score = np.sort(rng.normal(size=400))
    y = np.where(np.arange(400) < 150, np.nan, rng.random(400) < 0.3 + 0.2 * (score > 1))
    known, options = ~np.isnan(y), {"metrics": ["rank_dcorr"], "resamples": 0}
    pair, alone = (Pair(score[rows], y[rows]) for rows in (np.full(400, True), known))
    drawn, metric = rng.normal(0.3, 0.05, 100), METRICS["rank_dcorr"]
    found, wanted = (metric.interval(of, metric.of(of), drawn, Reach(of.events)) for of in (pair, alone))
    assert found == wanted
    assert judge(score, y, **options).table["value"].tolist() == [found.value]


def test_threads_of_a_small_evaluation_do_not_block_each_others_imports(mlci_cli, tmp_path):
    """Each thread may be the first to import a part of scikit-learn; in its circle of imports two threads deadlock."""
    cohort = build_cohort("nhds", ROOT / "tests" / "data" / "nhds2010" / "sample.txt.bz2")
    cohort.write(tmp_path / "c.parquet")
    load("us2010").table(cohort)[:50].to_csv(tmp_path / "s.csv", index=False)
    options = ("--split", "all", "--resamples", 0, "--no-rivals", "-q")
    mlci_cli("evaluate", "s.csv", "c.parquet", *options, "-o", "m.csv", env={**os.environ})  # in a process of its own
    assert (tmp_path / "m.csv").exists()
