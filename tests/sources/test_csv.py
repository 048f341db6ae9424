"""What Arrow reads is what DuckDB would have read; what Arrow refuses is left to DuckDB."""

import gzip

import pyarrow as pa
import pytest

import hospitals
from mlci.cohort import build_cohort
from mlci.sources import _csv
from mlci.sources._engine import open_tables

KINDS = {"a": "int64", "b": "string", "t": "timestamp", "d": "date", "x": "float64"}


def rows(folder, text: str, name: str = "stays.csv", *, by_arrow: bool, monkeypatch) -> list[dict]:
    file = folder / name
    file.write_bytes(gzip.compress(text.encode()) if name.lower().endswith(".gz") else text.encode())
    monkeypatch.setattr("mlci.sources._folder.read_csv", _csv.read if by_arrow else lambda *_: None)
    with open_tables(folder, {"stays": KINDS}) as tables:
        found = tables.fetch(tables["stays"])
    return sorted(found.to_pylist(), key=str)


@pytest.mark.parametrize("name", ["stays.csv", "STAYS.CSV.GZ"])
@pytest.mark.parametrize(
    "row",
    [
        "1,E119,2180-01-02 03:04:05,2180-01-02,1.5",
        "-7,é “x”,2180-01-02,2180-01-02,1e-3",
        ',"","","",""',
        '9,"a, ""b""",2180-01-02T03:04:05.123456,1999-12-31,inf',
        "12.0, x ,2180-01-02 03:04:05,2180-01-02 00:00:00, 5",  # Arrow refuses a part of it
        '1,"two\nlines",2180-01-02 03:04:05,2180-01-02,7',
        "1,NA,,,",
    ],
)
def test_arrow_and_duckdb_read_the_same(row, name, tmp_path, monkeypatch):
    text = f"x_unused,A,b,T,d,x\n,{row}\n0,{row}\n"
    found = [rows(tmp_path, text, name, by_arrow=kind, monkeypatch=monkeypatch) for kind in (True, False)]
    assert found[0] == found[1]
    assert len(found[0]) == 2


def test_large_and_broken_files_are_left_to_duckdb(tmp_path, monkeypatch):
    file = tmp_path / "stays.csv"
    file.write_text("a\n1\n")
    assert _csv.read(file, {"a": "int64"}) == pa.table({"a": [1]})
    monkeypatch.setattr(_csv, "PLAIN", 3)
    assert _csv.read(file, {"a": "int64"}) is None
    packed = tmp_path / "stays.csv.gz"
    packed.write_bytes(gzip.compress(b"a\n1\n" * 1000)[:-9])
    assert _csv.read(packed, {"a": "int64"}) is None


@pytest.mark.parametrize(
    "source", ["mimic4", *(pytest.param(name, marks=pytest.mark.slow) for name in ("mimic3", "omop"))]
)
def test_a_cohort_is_the_same_by_either(source, demos, tmp_path, monkeypatch):
    omop = source == "omop"
    folder = hospitals.omop(demos / "mimic4_demo", tmp_path / "omop") if omop else demos / f"{source}_demo"
    cohort = build_cohort(source, folder)
    monkeypatch.setattr("mlci.sources._folder.read_csv", lambda *_: None)
    assert build_cohort(source, folder) == cohort
