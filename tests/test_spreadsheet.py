"""Turn a wide spreadsheet into Charlson, an index and a report with the commands of README.md."""

import re
import shlex

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import meds_folder
import mlci
from conftest import ROOT
from mlci.cli import cli


@pytest.fixture(scope="module")
def visits(tmp_path_factory):
    """Write 2,000 admissions (visit_id, DX1 to DX25, expired, los) as CSV and Excel; return their folder and table."""
    folder = tmp_path_factory.mktemp("visits")
    table = mlci.build_cohort("synthetic", 2_000, seed=3).to_pandas()
    lists = [list(codes)[:25] for codes in table.codes]
    wide = pd.DataFrame(
        [codes + [None] * (25 - len(codes)) for codes in lists], columns=[f"DX{i}" for i in range(1, 26)]
    )
    wide.insert(0, "visit_id", table.admission_id)
    wide["expired"] = np.where(table.mortality, "Y", "N")
    days = np.random.default_rng(0).integers(1, 8, len(table))
    wide["los"] = np.where(table.long_stay, days + 7, days)
    wide.to_csv(folder / "visits.csv", index=False)
    wide.to_excel(folder / "visits.xlsx", index=False)
    return folder, table


def commands() -> list[list[str]]:
    section = (ROOT / "README.md").read_text().split("## From a spreadsheet")[1].split("\n## ")[0]
    lines = re.findall(r"^mlci .*$", section, flags=re.M)
    return [shlex.split(line)[1:] for line in lines]


def run(folder, words) -> None:
    arguments = [
        str(folder / word) if re.search(r"\.(csv|xlsx|parquet|safetensors|html)$", word) else word for word in words
    ]
    done = CliRunner().invoke(cli, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize("kind", ["csv", "xlsx"])
def test_spreadsheet_becomes_a_cohort_and_charlson(visits, kind, tmp_path):
    folder, table = visits
    run(tmp_path, ["cohort", "file", str(folder / f"visits.{kind}"), "-o", "c.parquet", "-q"])
    cohort = mlci.read_cohort(tmp_path / "c.parquet")
    assert cohort.table["codes"].to_pylist() == [list(codes)[:25] for codes in table.codes]
    assert (cohort.labels("mortality")[:, 0] == table.mortality).all()
    assert (cohort.labels("long_stay")[:, 0] == table.long_stay).all()
    run(tmp_path, ["indices", str(folder / f"visits.{kind}"), "-o", "s.parquet", "--icd-version", "10", "-q"])
    lists = [list(codes)[:25] for codes in table.codes]
    expected = mlci.charlson(lists, icd_version=10).cci_charlson
    assert (pd.read_parquet(tmp_path / "s.parquet").cci_charlson == expected).all()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["csv", "xlsx"])
def test_commands_of_the_readme_run(visits, kind):
    folder, _ = visits
    lines = commands()
    assert [words[0] for words in lines] == ["cohort", "fit", "report", "indices"]
    for words in lines:
        words = [word.replace("visits.xlsx", f"visits.{kind}") for word in words]
        run(folder, [*words, "--force"])
    page = (folder / "report.html").read_text()
    assert "Charlson" in page


def test_demo_has_the_same_outcomes_from_every_source(demos, tmp_path):
    """The MIMIC-IV demo as one flat file, as own tables and as MEDS gives the outcomes of the source `mimic4`."""
    demo = demos / "mimic4_demo"
    mimic4 = mlci.build_cohort("mimic4", demo)
    names = ("mortality", "long_stay", "icu_transfer")
    expected = {name: mimic4.labels(name)[:, 0].tolist() for name in names}

    def outcomes(cohort):
        assert cohort.column("admission_id").tolist() == mimic4.column("admission_id").tolist()
        return {name: cohort.labels(name)[:, 0].tolist() for name in names}

    assert outcomes(mlci.build_cohort("meds", meds_folder.write(demo, tmp_path / "meds"))) == expected
    layout = {
        "admissions": {
            "table": "hosp.admissions",
            "admission_id": "hadm_id",
            "subject_id": "subject_id",
            "admitted": "admittime",
            "discharged": "dischtime",
        },
        "diagnoses": {
            "table": "diagnoses_icd",
            "admission_id": "hadm_id",
            "code": "icd_code",
            "position": "seq_num",
            "icd_version": "icd_version",
        },
        "icu": {"table": "icustays", "admission_id": "hadm_id", "entered": "intime"},
        "outcomes": {
            "mortality": "hospital_expire_flag:1",
            "long_stay": "los_days > 7",
            "icu_transfer": "icu after 0 hours",
            "again": "readmission within 30 days",
        },
    }
    tables = mlci.build_cohort("tables", demo, config=layout)
    tables = tables.where(tables.column("icd_version") == 10)
    assert outcomes(tables) == expected
    assert 0 < tables.labels("again").sum() < len(tables)
    # One flat file: a row per code, with the columns of its admission repeated.
    stays = pd.read_csv(demo / "hosp" / "admissions.csv", parse_dates=["admittime", "dischtime"])
    stays["los"] = (stays.dischtime - stays.admittime).dt.total_seconds() / 86_400
    units = pd.read_csv(demo / "icu" / "icustays.csv", parse_dates=["intime"]).groupby("hadm_id").intime.min()
    stays["icu"] = (stays.hadm_id.map(units) > stays.admittime).map({True: "yes", False: "no"})
    codes = pd.read_csv(demo / "hosp" / "diagnoses_icd.csv", dtype={"icd_code": str})
    codes = codes[codes.icd_version == 10].sort_values(["hadm_id", "seq_num"])
    flat = codes.merge(stays[["hadm_id", "hospital_expire_flag", "los", "icu"]], on="hadm_id")
    flat.to_csv(tmp_path / "flat.csv", index=False)
    assert outcomes(mlci.build_cohort("file", tmp_path / "flat.csv")) == expected


def test_sheets_that_are_not_read_are_named_by_every_command(tmp_path):
    rows = pd.DataFrame({"visit_id": range(30), "DX1": "I50.9", "DX2": "N17.9", "expired": ["Y", "N"] * 15})
    with pd.ExcelWriter(tmp_path / "a.xlsx") as book:
        for month in ("March", "April"):
            rows.to_excel(book, sheet_name=month, index=False)
    source, message = str(tmp_path / "a.xlsx"), "only the sheet March is read; filled too, and left out: April."
    version = ["--icd-version", "10"]
    for words in (
        ["score", "us2010", source, "-o", f"{tmp_path}/s.csv"],
        ["indices", source, "-o", f"{tmp_path}/i.csv"],
    ):
        assert message in CliRunner().invoke(cli, [*words, *version], catch_exceptions=False).output
    words = ["cohort", "file", source, "-o", f"{tmp_path}/c.parquet", *version]
    assert message in " ".join(CliRunner().invoke(cli, words, catch_exceptions=False).output.split())
    assert message in mlci.read_cohort(tmp_path / "c.parquet").notes


@pytest.mark.parametrize("given", ["9", "10"])
def test_a_version_that_the_file_contradicts_is_reported_by_every_command(tmp_path, given):
    source, scores, cohort = (str(tmp_path / name) for name in ("a.csv", "s.csv", "c.parquet"))
    rows = [f"{visit},{'9' if visit % 3 else ''},486 427.31,{'YN'[visit % 2]}" for visit in range(30)]
    (tmp_path / "a.csv").write_text("\n".join(["visit_id,icd_version,codes,expired", *rows]))
    message = f"column icd_version states the ICD version of the codes, and --icd-version {given}"
    for words in (
        ["score", "us2010", source, "-o", scores],
        ["explain", "us2010", source, "-o", scores],
        ["indices", source, "-o", scores],
        ["cohort", "file", source, "-o", cohort],
    ):
        said = CliRunner().invoke(cli, [*words, "--icd-version", given], catch_exceptions=False).output
        assert (message in " ".join(said.split())) == (given == "10"), words
