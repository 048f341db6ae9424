"""The NHDS parser compared with an independent reading of the same file, and on broken files."""

import bz2
import gzip
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import mlci
from mlci.sources import nhds


@pytest.fixture(scope="module")
def published(shared_data: Path) -> Path:
    return shared_data / "nhds2010" / "NHDS10.PU.txt.bz2"


@pytest.fixture(scope="module")
def sample(demos: Path) -> Path:
    return demos / "nhds2010"


@pytest.fixture(scope="module")
def records(sample: Path) -> pa.Table:
    return nhds._read_records(sample / "sample.txt.bz2", not_stated="null")


@pytest.mark.slow
def test_the_whole_file_agrees_with_the_tidy_reading(published):
    records = nhds._read_records(published, not_stated="null")
    assert len(records) == 151_551
    agree(records, published.parent)


def test_every_record_agrees_with_the_tidy_reading(records, sample):
    agree(records, sample)


def agree(records: pa.Table, folder: Path) -> None:
    tidy = pq.read_table(folder / "tidy_admissions.parquet")
    assert len(records) == len(tidy)
    same = {
        "admission_id": "adm_id",
        "newborn": "newborn",
        "sex": "sex",
        "los_days": "los_days",
        "race": "race",
        "region": "region",
        "ownership": "ownership",
        "beds": "beds",
        "weight": "weight",
        "mortality": "died_hosp",
        "long_stay": "los_gt7",
        "critical_care": "crit_care_proc",
    }
    for ours, theirs in same.items():
        assert records[ours].combine_chunks().cast(tidy[theirs].type).equals(tidy[theirs].combine_chunks()), ours
    assert pc.floor(tidy["age"]).combine_chunks().equals(records["age"].combine_chunks())
    assert tidy["dc_month"].combine_chunks().cast(pa.int32()).equals(records["month"].combine_chunks())
    # The tidy file leaves the dead out of "discharged to a facility"; the benchmark counts them as not at home.
    not_home = pc.if_else(pc.equal(tidy["dc_status"], "dead"), 1, tidy["dc_facility"]).cast(pa.bool_())
    assert not_home.combine_chunks().equals(records["non_home_discharge"].combine_chunks())


def test_every_code_agrees_with_the_tidy_reading(records, sample):
    tidy = pq.read_table(sample / "tidy_diagnoses.parquet").sort_by([("adm_id", "ascending"), ("seq", "ascending")])
    lists = records["codes"].combine_chunks()
    assert lists.flatten().to_pylist() == tidy["code"].to_pylist()
    np.testing.assert_array_equal(lists.value_parent_indices().to_numpy() + 1, tidy["adm_id"].to_numpy())


# 694 short-term, 3,131 long-term, 538 dead; 1,336 alive with the disposition not stated are null; 718 are not stated.
@pytest.mark.parametrize(
    ("options", "not_home"),
    [
        ({}, (5_081, 24_576)),
        pytest.param(
            {"not_stated": "null"}, (694 + 3_131 + 538, 25_912 - 1_336 - 718), marks=pytest.mark.slow, id="not stated"
        ),
    ],
)
def test_the_open_benchmark(published, options, not_home):
    cohort = mlci.build_cohort("nhds", published, **options)
    assert [len(cohort), *(len(cohort.split(name)) for name in ("train", "valid", "test"))] == [
        *(129_242, 90_338, 12_992, 25_912)
    ]
    newborn = pc.sum(pq.read_table(published.with_name("tidy_admissions.parquet"))["newborn"]).as_py()
    assert [step.left for step in cohort.attrition] == [151_551, 151_551 - newborn, 129_242]
    labels = cohort.split("test").labels()
    positives = dict(zip(cohort.outcomes, zip(np.nansum(labels, axis=0), np.sum(~np.isnan(labels), axis=0))))
    assert positives == {
        "mortality": (538, 25_194),
        "non_home_discharge": not_home,
        "long_stay": (3_989, 25_912),
        "critical_care": (776, 25_912),
    }
    assert "3,501 admissions" in cohort.notes[0]
    assert set(cohort.column("icd_version")) == {9}
    assert cohort.column("subject_id").tolist() == cohort.column("admission_id").tolist()


@pytest.fixture(scope="module")
def lines(sample: Path) -> list[bytes]:
    with bz2.open(sample / "sample.txt.bz2") as file:
        return [next(file) for _ in range(50)]


def packed(lines: list[bytes], folder: Path, kind: str) -> Path:
    data, path = b"".join(lines), folder / f"nhds.{kind}"
    if kind == "zip":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("NHDS10.PU.TXT", data)
    else:
        pack = {"bz2": bz2.compress, "gz": gzip.compress, "txt": bytes, "unix": lambda d: d.replace(b"\r\n", b"\n")}
        path.write_bytes(pack[kind](data))
    return path


@pytest.mark.parametrize("kind", ["txt", "unix", "bz2", "gz", "zip"])
def test_any_packing_reads_the_same(kind, lines, tmp_path, records):
    found = nhds._read_records(packed(lines, tmp_path, kind), not_stated="null")
    assert found.equals(records.slice(0, 50))


def change(line: bytes, field: str, value: bytes) -> bytes:
    return line[: nhds.START[field]] + value + line[nhds.START[field] + len(value) :]


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (lambda line: line[:-5] + b"\r\n", "record 3 has 146 characters; an NHDS 2010 record has 149"),
        (
            lambda line: change(line, "status", b"7"),
            "record 3, field status: a whole number is not one of 1, 2, 3, 4, 5, 6, 9",
        ),
        (lambda line: change(line, "age_unit", b" "), "record 3, field age_unit: empty is not one of 1, 2, 3"),
        (
            lambda line: change(line, "los_days", b"  x1"),
            "record 3, field los_days: text of 2 characters is not a whole number",
        ),
        (lambda line: change(line, "age", "é".encode()), "record 3 holds a byte that is not plain text"),
    ],
)
def test_an_odd_record_is_named(broken, message, lines, tmp_path):
    path = packed([*lines[:2], broken(lines[2]), *lines[3:]], tmp_path, "txt")
    with pytest.raises(mlci.InputError, match=message):
        nhds._read_records(path)


@pytest.mark.parametrize(
    ("data", "message"),
    [(b"", "is empty"), (b"\r\n", "is empty"), (bz2.compress(b"x" * 9999)[:-20], "cut short"), (b"PK..", "damaged")],
)
def test_an_unreadable_file_is_refused(data, message, tmp_path):
    (tmp_path / "nhds").write_bytes(data)
    with pytest.raises(mlci.InputError, match=message):
        nhds._read_records(tmp_path / "nhds")
