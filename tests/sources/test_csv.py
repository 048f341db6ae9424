"""Arrow reads the same values as DuckDB; what Arrow refuses is left to DuckDB."""

import gzip

import pyarrow as pa
import pytest

import hospitals
from mlci.base.errors import InputError
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
    assert _csv.read(file, {"a": "int64"}) == pa.table({"a": pa.array([1], pa.int32())})
    monkeypatch.setattr(_csv, "PLAIN", 3)
    assert _csv.read(file, {"a": "int64"}) is None


def test_whole_numbers_that_are_long_take_more_memory(tmp_path):
    file = tmp_path / "stays.csv"
    file.write_text(f"a,b\n{2**31 - 1},1\n{-(2**40)},2\n")
    found = _csv.read(file, {"a": "int64", "b": "int64"})
    assert found == pa.table({"a": [2**31 - 1, -(2**40)], "b": [1, 2]})


def _damaged(text: bytes) -> dict[str, bytes]:
    packed = gzip.compress(text)
    middle = len(packed) // 2
    return {
        "cut": packed[:middle],
        "without its end": packed[:-8],
        "of another length": packed[:-1] + bytes([packed[-1] ^ 1]),
        "of another checksum": packed[:-8] + bytes([packed[-8] ^ 1]) + packed[-7:],
        "flipped": packed[:middle] + bytes([packed[middle] ^ 4]) + packed[middle + 1 :],
        "with a cut second part": packed + gzip.compress(b"9,I10\n")[:-6],
    }


@pytest.mark.parametrize("how", _damaged(b"a"))
@pytest.mark.parametrize("by", ["Arrow", "DuckDB, odd", "DuckDB, large"])
def test_a_damaged_gzip_file_is_refused_by_arrow_and_duckdb(how, by, tmp_path, monkeypatch):
    """DuckDB would take the beginning for the whole, and looks at no checksum."""
    rows = b"".join(b"%d,%d\n" % (row, row % 7) for row in range(50_000))
    first = b"1.0,1\n" if by == "DuckDB, odd" else b""  # which Arrow refuses
    (tmp_path / "stays.csv.gz").write_bytes(_damaged(b"a,b\n" + first + rows)[how])
    if by == "DuckDB, large":
        monkeypatch.setattr(_csv, "PACKED", 3)
    with pytest.raises(InputError, match=r"stays\.csv\.gz: is not a whole gzip file"):
        open_tables(tmp_path, {"stays": {"a": "int64", "b": "string"}})


@pytest.mark.parametrize(
    "source", ["mimic4", *(pytest.param(name, marks=pytest.mark.slow) for name in ("mimic3", "omop"))]
)
def test_a_cohort_is_the_same_by_either(source, demos, tmp_path, monkeypatch):
    omop = source == "omop"
    folder = hospitals.omop(demos / "mimic4_demo", tmp_path / "omop") if omop else demos / f"{source}_demo"
    cohort = build_cohort(source, folder)
    monkeypatch.setattr("mlci.sources._folder.read_csv", lambda *_: None)
    assert build_cohort(source, folder) == cohort
