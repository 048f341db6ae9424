"""The paper's protocol end to end: on the MIMIC demos, which are tiny, so only that it runs, compares and says so; and
on a synthetic hospital's tables in MIMIC's form, where the truth is known."""

import numpy as np
import pandas as pd
import pytest

import hospitals
from mlci.base.errors import InputError
from mlci.benchmark import _sizes, tables
from mlci.benchmark import reproduce as module
from mlci.benchmark.runs import Settings
from mlci.sources import synthetic

QUICK = ["charlson", "multinomial_nb", "deepsets_sum", "paper"]


@pytest.mark.parametrize("dataset", ["mimic3", "mimic4"])
def test_the_demos_run_and_state_their_size(dataset, demos, tmp_path):
    settings = Settings(seeds=(11, 101), epochs=1)
    location = demos / f"{dataset}_demo"
    found = module.reproduce(dataset, location, tmp_path, models=QUICK, settings=settings)
    assert {run.status for run in found.runs} == {"done"}
    assert "mean nothing" in found.remarks[0]
    assert "paper 50,971" in found.remarks[0] or "paper 11,909" in found.remarks[0]
    # Four models, two metrics, four outcomes, all of which the paper reports.
    assert len(found.scores) == 4 * 2 * 4
    assert found.scores["paper"].notna().all()
    row = found.scores.set_index(["title", "metric", "outcome"]).loc[("Our Model", "dcorr", "mortality")]
    assert row["paper"] == pytest.approx({"mimic4": 0.5480, "mimic3": 0.3906}[dataset])
    deviation = np.hypot(row["sd"], row["paper_sd"])
    assert row["in_sds"] == pytest.approx((row["mean"] - row["paper"]) / deviation)
    assert set(found.diagnostics["quantity"]) >= {"sigma_1", "J", "J1", "j_v", "rho2_v", "nhsic", "rho2"}
    assert found.diagnostics["paper"].notna().all()
    assert list(found.diagnostics.query("quantity == 'j_v'")["seed"]) == [
        11,
        101,
    ]  # a position is not averaged over seeds
    retention = found.diagnostics.query("quantity == 'gamma'")["paper"].iloc[0]
    thresholds = (tmp_path / "tables" / "table4_thresholds.txt").read_text()
    assert (retention, "2.74%" in thresholds) == {"mimic4": (0.64, True), "mimic3": (0.38, False)}[dataset]
    assert f"the paper, {module.TITLES[dataset]}" in thresholds
    assert list(found.curves["outcome"]) == ["mortality", "mortality_30d", "long_stay", "icu_transfer"]
    for name in (
        "cohort.parquet",
        "tables/beside_paper_scores.csv",
        "tables/table1_dcorr.md",
        "tables/remarks.txt",
        "tables/table8_risk_curves.tex",
    ):
        assert (tmp_path / name).exists()


@pytest.mark.parametrize("dataset", ["mimic3", "mimic4"])
def test_synthetic_tables_in_the_form_of_mimic_run(dataset, tmp_path):
    raw = tmp_path / "raw"
    truth = synthetic.read(1_000, seed=3, icd9_share=dataset == "mimic3", as_mimic4=raw).table.sort_by("admission_id")
    reversed_stay = hospitals.reverse_one_stay(raw)
    location = raw if dataset == "mimic4" else hospitals.as_mimic3(raw, tmp_path / "mimic3")
    settings = Settings(seeds=(11, 101), epochs=2)
    found = module.reproduce(dataset, location, tmp_path / "out", models=["charlson", "paper"], settings=settings)
    assert {run.status for run in found.runs} == {"done"}
    assert any(remark.startswith("1 admissions end before they begin") for remark in found.remarks)
    # By the paper's rule, the stay that ends before it begins is not a long stay.
    cohort = module.read_cohort(tmp_path / "out" / "cohort.parquet")
    for name in ("admission_id", "codes", "mortality", "mortality_30d"):
        assert cohort.table[name].to_pylist() == truth[name].to_pylist(), name
    stays = dict(zip(truth["admission_id"].to_pylist(), truth["long_stay"].to_pylist())) | {reversed_stay: False}
    assert cohort.table["long_stay"].to_pylist() == list(stays.values())
    data = found.data.set_index("quantity")
    assert data.loc["source_admissions", "ours"] == 1_000
    assert data.loc["cohort_patients", "ours"] == len(set(truth["subject_id"].to_pylist()))
    assert (
        data.loc[["patients_train", "patients_valid", "patients_test"], "ours"].sum()
        == data.loc["cohort_patients", "ours"]
    )
    assert data.loc["source_icu_share", "paper"] == {"mimic3": 0.980, "mimic4": 0.156}[dataset]
    assert 0 < data.loc["source_icu_share", "ours"] < 1
    assert (tmp_path / "out" / "tables" / "data.tex").exists()
    severity = truth["true_severity"].to_numpy()[cohort.column("split") == "test"]
    correlations = [
        np.corrcoef(score, severity)[0, 1] for score in tables.test_scores(found.runs, cohort)["paper"].values()
    ]
    assert len(correlations) == 2
    assert min(correlations) > 0.25
    # Every cell has the paper's value; if both have several seeds, the difference is also given in SDs.
    assert len(found.scores) == 2 * 2 * 4
    assert found.scores["difference"].notna().all()
    assert found.scores["in_sds"].notna().tolist() == (found.scores["title"] == "Our Model").tolist()
    assert found.diagnostics["difference"].notna().all()
    assert found.curves["in_sds"].notna().all()


def test_the_paper_model_may_be_absent(demos, tmp_path):
    found = module.reproduce("mimic3", demos / "mimic3_demo", tmp_path, models=["charlson"])
    assert len(found.curves) == len(found.diagnostics) == 0
    # A clinical index has no SD over seeds, so there is only the difference.
    assert found.scores["in_sds"].isna().all()
    assert found.scores["difference"].notna().all()


def test_a_folder_of_the_other_dataset_is_refused(demos, tmp_path):
    module.reproduce("mimic3", demos / "mimic3_demo", tmp_path, models=["charlson"])
    with pytest.raises(InputError, match="cohort from mimic3, not from mimic4"):
        module.reproduce("mimic4", demos / "mimic4_demo", tmp_path, models=["charlson"])


def test_the_size_of_the_papers_cohort_is_recognised():
    paper = module.paper_figures("mimic3")
    assert _sizes.remark(paper, paper).startswith("The cohort has the paper's size in every split")
    assert paper["patients_train"] + paper["patients_valid"] + paper["patients_test"] == paper["source_patients"]
    assert paper["source_icu_any"] / paper["source_admissions"] == pytest.approx(paper["source_icu_share"], abs=5e-4)


def test_differences_are_given_in_standard_deviations():
    ours = pd.DataFrame({"k": ["a", "b", "c"], "mean": [1.0, 2.0, 3.0], "sd": [0.3, np.nan, np.nan]})
    paper = pd.DataFrame({"k": ["a", "b"], "value": [0.5, 1.0], "sd": [0.4, np.nan]})
    both = module.beside(ours, paper, ["k"])
    assert both["in_sds"].tolist()[0] == pytest.approx(1.0)
    assert both["in_sds"].isna().tolist() == [False, True, True]
    assert both["difference"].isna().tolist() == [False, False, True]


def test_the_command_prints_the_comparison_and_refuses_other_datasets(mlci_cli, demos, tmp_path, monkeypatch):
    drawn = []  # the test of `mlci benchmark` draws these pictures
    monkeypatch.setattr("mlci.cli._campaign.draw", lambda folder, *_: drawn.append(folder))
    words = ("reproduce", "mimic4", demos / "mimic4_demo", "-o", tmp_path / "out", "--models", "charlson")
    shown = mlci_cli(*words, "--seeds", "11").stdout
    assert "mean nothing" in " ".join(shown.split())
    assert "12.59" in shown
    assert "in SDs" in shown
    assert drawn == [tmp_path / "out"]
    assert "allowed are mimic3, mimic4" in mlci_cli("reproduce", "omop", tmp_path, "-o", tmp_path / "x", code=2).stderr
