"""Errors in a user's tables: one sentence with file, column and row or count, exit code 2, and no output file."""

import errno
import gzip
import os

import click
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import hospitals
from mlci.base.errors import InputError
from mlci.cli import cli
from mlci.cohort import build_cohort

TABLES = {
    "hosp/admissions": [
        [1, 101, "2150-01-01 00:00:00", "2150-01-03 00:00:00", ""],
        [2, 102, "2150-01-01 00:00:00", "2150-01-09 00:00:00", "2150-01-09 00:00:00"],
    ],
    "hosp/patients": [[1, "F", 50, 2150, ""], [2, "M", 60, 2150, "2150-01-09"]],
    "hosp/diagnoses_icd": [[1, 101, 1, "I509", 10], [2, 102, 1, "E119", 10]],
    "icu/icustays": [[2, 102, "2150-01-02 00:00:00"]],
}


def changed(table: str, row: int, column: str, value: object) -> dict:
    tables = {name: [list(row) for row in rows] for name, rows in TABLES.items()}
    tables[table][row][hospitals.HEADERS[table].index(column)] = value
    return tables


def rewritten(file: str, change):
    """The hospital, with one file's bytes changed."""

    def make(folder):
        path = hospitals.write(folder, TABLES) / file
        path.write_bytes(change(path.read_bytes()))

    return make


def removed(file: str):
    def make(folder):
        (hospitals.write(folder, TABLES) / file).unlink()

    return make


def with_tables(tables):
    return lambda folder: hospitals.write(folder, tables)


def truncated(folder):
    file = hospitals.write(folder, TABLES) / "hosp/diagnoses_icd.csv"
    packed = gzip.compress(file.read_bytes() * 2000)
    (folder / "hosp/diagnoses_icd.csv.gz").write_bytes(packed[: len(packed) // 2])
    file.unlink()


def twice(folder):
    file = hospitals.write(folder, TABLES) / "hosp/patients.csv"
    (folder / "PATIENTS.csv.gz").write_bytes(gzip.compress(file.read_bytes()))


def text_in_parquet(folder):
    tables = changed("hosp/admissions", 1, "dischtime", "later")["hosp/admissions"]
    columns = {
        name.upper(): [str(row[i]) for row in tables] for i, name in enumerate(hospitals.HEADERS["hosp/admissions"])
    }
    columns["DEATHTIME"] = [None, "2150-01-09 00:00:00"]
    (hospitals.write(folder, TABLES) / "hosp/admissions.csv").unlink()
    pq.write_table(pa.table(columns), folder / "ADMISSIONS.parquet")


CASES = {
    "unreadable timestamp in Parquet": (
        text_in_parquet,
        ["ADMISSIONS.parquet", "column dischtime", "1 rows", "text of 5 characters", "YYYY-MM-DD"],
    ),
    "missing table": (removed("icu/icustays.csv"), ["lacks the table icustays", "icustays.csv.gz"]),
    "table twice": (twice, ["holds the table patients 2 times"]),
    "missing column": (
        rewritten("hosp/patients.csv", lambda b: b.replace(b"anchor_age", b"alter")),
        ["patients.csv", "lacks the column anchor_age", "alter"],
    ),
    "unreadable timestamp": (
        with_tables(changed("hosp/admissions", 1, "admittime", "soon")),
        ["admissions.csv", "column admittime", "row 3", "text of 4 characters", "YYYY-MM-DD"],
    ),
    "impossible date": (
        with_tables(changed("hosp/patients", 0, "dod", "2150-02-30")),
        ["patients.csv", "column dod", "row 2", "text of 10 characters"],
    ),
    "id that is no number": (
        with_tables(changed("hosp/diagnoses_icd", 0, "hadm_id", "A1")),
        ["diagnoses_icd.csv", "column hadm_id", "row 2", "text of 2 characters", "whole number"],
    ),
    "duplicate admission": (
        with_tables(changed("hosp/admissions", 1, "hadm_id", 101)),
        ["admissions.csv", "column hadm_id", "1 rows repeat"],
    ),
    "duplicate patient": (
        with_tables(changed("hosp/patients", 1, "subject_id", 1)),
        ["patients.csv", "column subject_id", "1 rows repeat"],
    ),
    "admission without id": (
        with_tables(changed("hosp/admissions", 1, "hadm_id", "")),
        ["admissions.csv", "column hadm_id", "1 rows have none"],
    ),
    "admission without patient": (
        with_tables(changed("hosp/admissions", 1, "subject_id", 3)),
        ["admissions.csv", "column subject_id", "1 admissions have no patient", "patients.csv"],
    ),
    "discharge before admission": (
        with_tables(changed("hosp/admissions", 1, "dischtime", "2149-12-31 23:59:59")),
        ["admissions.csv", "column dischtime", "1 admissions end before", "--negative-stays"],
    ),
    "no diagnosis left": (
        with_tables({**TABLES, "hosp/diagnoses_icd": [[1, 101, 1, "4280", 9], [2, 102, 1, "", 10]]}),
        ["diagnoses_icd.csv", "none of 2 admissions", "ICD-10"],
    ),
    "empty file": (rewritten("hosp/admissions.csv", lambda b: b""), ["admissions.csv", "is empty"]),
    "header alone": (with_tables({**TABLES, "hosp/admissions": []}), ["admissions.csv", "has no rows"]),
    "wrong separator": (
        rewritten("hosp/admissions.csv", lambda b: b.replace(b",", b";")),
        ["admissions.csv", "separator must be a comma"],
    ),
    "row too short": (
        rewritten("hosp/admissions.csv", lambda b: b.rstrip() + b"\r\n3,103\r\n"),
        ["admissions.csv", "row 4"],
    ),
    "not text": (rewritten("hosp/admissions.csv", lambda b: b"\xff\xfe\x00\x80"), ["admissions.csv", "CSV text"]),
    "not UTF-8": (
        rewritten("hosp/diagnoses_icd.csv", lambda b: b.replace(b"E119", b"E11\xf6")),
        ["diagnoses_icd.csv", "row 3: is not UTF-8; save the table as CSV UTF-8"],
    ),
    "gzip cut off": (truncated, ["diagnoses_icd.csv.gz"]),
    "gzip that is none": (
        lambda folder: (hospitals.write(folder, TABLES) / "hosp/patients.csv").rename(folder / "hosp/patients.csv.gz"),
        ["patients.csv.gz", "gzipped CSV"],
    ),
    "Parquet that is none": (
        lambda folder: (hospitals.write(folder, TABLES) / "hosp/patients.csv").rename(folder / "patients.parquet"),
        ["patients.parquet", "is not a Parquet file"],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_tables(name, tmp_path):
    make, words = CASES[name]
    make(tmp_path)
    with pytest.raises(InputError) as error:
        build_cohort("mimic4", tmp_path)
    sentence = str(error.value)
    assert all(word in sentence for word in words), sentence
    assert "\n" not in sentence
    assert sentence.endswith(".")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["mimic4", "nowhere"], "nowhere: does not exist"),
        (["mimic5", "."], "allowed are file, meds, mimic3, mimic4"),
        (["mimic3", ".", "--icd-version", "10"], "no option icd_version"),
        (["mimic4", ".", "--proportions", "0.5,0.5"], "sum to 1"),
        (["mimic4", ".", "--proportions", "a,b,c"], "three numbers"),
        (["mimic4", ".", "--proportions", "nan,0,1"], "sum to 1"),
        (["mimic4", "postgres://user:secret@127.0.0.1:1/x"], "no connection"),
        (["mimic4", "postgres://user:secret@[::1/x"], "no connection"),
        (["mimic4", "nosuch://x"], "no connection"),
    ],
)
def test_words(mlci_cli, tmp_path, words, said):
    done = mlci_cli("cohort", *words, "-o", "cohort.parquet", code=2)
    assert said in done.stderr
    assert "secret" not in done.stderr
    assert not list(tmp_path.glob("*"))


def test_no_permission(mlci_cli, tmp_path, monkeypatch):
    folder = hospitals.write(tmp_path / "in", TABLES)
    assert "does not exist" in mlci_cli("cohort", "mimic4", folder, "-o", "no/such/c.parquet", code=2).stderr
    (folder / "hosp/admissions.csv").chmod(0)
    if not os.access(folder / "hosp/admissions.csv", os.R_OK):  # root may read everything
        assert "no permission" in mlci_cli("cohort", "mimic4", folder, "-o", "c.parquet", code=2).stderr


def test_disk_that_fills(tmp_path, monkeypatch):
    cohort = build_cohort("mimic4", hospitals.write(tmp_path / "in", TABLES))

    def full(table, path, **options):
        path.write_bytes(b"PAR1")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(pq, "write_table", full)
    with pytest.raises(InputError, match="the disk is full"):
        cohort.write(tmp_path / "cohort.parquet")
    assert [file.name for file in tmp_path.iterdir()] == ["in"]


def test_negative_stays_can_be_kept_but_are_not_known(tmp_path):
    make, _ = CASES["discharge before admission"]
    cohort = build_cohort("mimic4", make(tmp_path), negative_stays=True)
    assert cohort.table["long_stay"].to_pylist() == [False, None]
    assert "1 admissions end before they begin; their long_stay is not known." in cohort.notes


@pytest.mark.parametrize(
    "words",
    [
        ["report", "m", "c"],
        ["card", "m", "c"],
        ["score", "m", "c"],
        ["fit", "c"],
        ["evaluate", "s", "c"],
        ["indices", "c"],
    ],
)
def test_an_output_never_replaces_an_input(words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in words[1:]:
        (tmp_path / name).write_text("what a person has")
    for name in words[1:]:
        (tmp_path / f"{name}.csv").symlink_to(name)
        with pytest.raises(InputError, match="read by this command"):
            cli.main([*words, "-o", f"{name}.csv"], standalone_mode=False)
        assert (tmp_path / name).read_text() == "what a person has"


def test_a_long_value_of_a_config_is_not_repeated_whole(tmp_path):
    (tmp_path / "f.toml").write_text(f"[tokens]\ndepths = [{'4, ' * 100_000}4]\n")
    with pytest.raises(InputError, match="100001 values, 1 of them distinct") as told:
        cli.main(
            ["fit", __file__, "-o", str(tmp_path / "m"), "--config", str(tmp_path / "f.toml")], standalone_mode=False
        )
    assert len(str(told.value)) < 500


@pytest.mark.parametrize("model", ["us2010", "mine.safetensors"])
def test_a_model_in_place_of_scores_is_reported(model):
    with pytest.raises(click.UsageError, match=f"{model} is a model, not a file of scores: `mlci score` writes"):
        cli.main(["evaluate", model, "cohort.parquet"], standalone_mode=False)
