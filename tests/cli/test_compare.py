"""`mlci compare`: from files to a page, a table and what a terminal shows."""

import shutil

import numpy as np
import pandas as pd
import pytest

import mlci
from toys import six_hospitals


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made")
    cohort = six_hospitals(effect=0.7)
    cohort.write(folder / "cohort.parquet")
    frame = {name: cohort.column(name) for name in ("admission_id", "severity", "age")}
    pd.DataFrame(frame).to_csv(folder / "scores.csv", index=False)
    return folder


@pytest.fixture
def files(made, tmp_path):
    for name in ("cohort.parquet", "scores.csv"):
        shutil.copy(made / name, tmp_path)
    return tmp_path


WORDS = ("compare", "cohort.parquet", "scores.csv", "--by", "hospital", "--outcome", "mortality", "--resamples", 20)


def test_a_page_and_what_the_terminal_shows(files, mlci_cli, empty_figures):
    options = ("--overdispersion", "none", "--adjust", "age", "--suppress")
    said = mlci_cli(*WORDS, *options, "-o", "page.html", "--score", "severity").stdout
    assert "adjusted by severity" in said
    assert "hidden" in said
    page = (files / "page.html").read_text()
    assert "In-hospital mortality by hospital" in page
    assert "mlci compare cohort.parquet" in page


def test_a_score_that_hardly_adjusts_is_flagged(files, mlci_cli, empty_figures):
    scores = pd.read_csv(files / "scores.csv")
    scores.assign(noise=np.random.default_rng(99).normal(size=len(scores))).to_csv(files / "scores.csv", index=False)
    for score, flagged in (("noise", True), ("severity", False)):
        mlci_cli(*WORDS, "-o", f"{score}.html", "--score", score)
        assert (f"hardly adjusted for case mix: {score} (AUROC" in (files / f"{score}.html").read_text()) == flagged


def test_a_table_and_several_scores(files, mlci_cli):
    said = mlci_cli(*WORDS, "--weights", "weight", "--split", "train,valid", "-o", "table.csv").stdout
    assert "severity and age:" in said
    assert "groups have a different verdict" in said
    table = pd.read_csv(files / "table.csv")
    assert set(table["model"]) == {"severity", "age"}
    assert table["n"].sum() < 2 * 4060


def test_admissions_without_scores_are_reported(files, mlci_cli):
    whole = mlci_cli(*WORDS).stdout
    assert "have all scores" not in whole
    scores = pd.read_csv(files / "scores.csv")
    scores[: len(scores) // 2].to_csv(files / "scores.csv", index=False)
    said = f"{len(scores) // 2:,} of the cohort's {len(scores):,} admissions (split: all) have all scores.\n"
    assert said in mlci_cli(*WORDS).stdout
    assert said in mlci_cli("curves", "scores.csv", "cohort.parquet", "-o", "curves", "--split", "all").stdout


def test_admissions_without_weight_are_reported(files, mlci_cli):
    cohort = mlci.read_cohort(files / "cohort.parquet")
    table = cohort.table.append_column("half", [np.arange(len(cohort)) % 2.0])
    type(cohort)(table, cohort.source, cohort.outcomes).write(files / "cohort.parquet")
    said = mlci_cli(*WORDS, "--weights", "half", "-o", "page.html", "--score", "age").stdout
    told = "2,030 admissions are left out: their group or outcome is unknown, or their weight (half) is 0."
    assert told in " ".join(said.split())
    assert told in (files / "page.html").read_text()


def test_a_table_holds_no_formula(files, mlci_cli):
    cohort = mlci.read_cohort(files / "cohort.parquet")
    names = [f"={name}" for name in cohort.column("hospital")]
    table = cohort.table.drop_columns(["hospital"]).append_column("hospital", [names])
    type(cohort)(table, cohort.source, cohort.outcomes).write(files / "cohort.parquet")
    mlci_cli(*WORDS, "-q", "-o", "table.csv", "--score", "age")
    assert set(pd.read_csv(files / "table.csv")["group"].str[:2]) == {"'="}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("-o", "page.pdf"), "page.pdf: the name must end in .html"),
        (("-o", "cohort.parquet"), "cohort.parquet: the name must end in .html"),
        (("--by", "ward"), "cohort.parquet: the cohort has no column ward"),
        (("--by", "split", "--split", "test"), "cohort.parquet: column split: has 1 groups"),
        (("--outcome", "sepsis"), "cohort.parquet: the cohort has no outcome 'sepsis'"),
        (("--adjust", "ward"), "cohort.parquet: the cohort has no column ward"),
        (("--weights", "hospital"), "cohort.parquet: column hospital: is not numeric"),
        (("--score", "points"), "scores.csv: has no numeric column points"),
        (("--split", "later"), "cohort.parquet: there is no split 'later'"),
    ],
)
def test_bad_options_are_reported(files, mlci_cli, options, message):
    assert message in mlci_cli(*WORDS, *options, code=2).stderr


def test_scores_that_rank_no_group_are_not_compared(files, mlci_cli):
    said = mlci_cli(*WORDS[:4], "admission_id", *WORDS[5:]).stdout
    assert "0 of 4,060 groups" in said
    assert "nan" not in said


def test_two_treatments(files, mlci_cli, empty_figures):
    words = ("compare", "cohort.parquet", "scores.csv", "--outcome", "mortality")
    cohort = mlci.read_cohort(files / "cohort.parquet")
    kept = cohort.table.append_column("old", [cohort.column("age") > 55])
    type(cohort)(kept, cohort.source, cohort.outcomes).write(files / "cohort.parquet")
    said = mlci_cli(*words, "--treatment", "old", "--adjust", "severity", "--score", "severity", "-o", "t.html").stdout
    assert "Effect of old = True on mortality" in said
    assert "Standardised differences" in said
    assert "Are the groups comparable?" in (files / "t.html").read_text()
    mlci_cli(*words, "--treatment", "old", "-q", "-o", "t.csv")
    assert set(pd.read_csv(files / "t.csv")["method"]) == {"none", "weighting", "regression"}
    for wrong in ((), ("--by", "hospital", "--treatment", "old")):
        assert "give either --by or --treatment" in mlci_cli(*words, *wrong, code=2).stderr
    assert "cohort.parquet: column hospital: has 6 " in mlci_cli(*words, "--treatment", "hospital", code=2).stderr


def test_inputs_are_never_overwritten(files, mlci_cli):
    before = (files / "scores.csv").read_bytes()
    assert "scores.csv" in mlci_cli(*WORDS, "-o", "scores.csv", code=2).stderr
    assert (files / "scores.csv").read_bytes() == before
