"""Every kind of table file is written in the same way; what cannot be written raises an error of one sentence."""

import io
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mlci.base.errors import InputError
from mlci.base.tablefile import open_table
from mlci.base.tablewriter import writing


def content(path) -> list[dict]:
    with open_table(path) as file:
        return [row for table in file.read(file.names) for row in table.to_pylist()]


@pytest.mark.parametrize("name", ["s.csv", "s.parquet", "s.xlsx"])
def test_what_is_written_reads_the_same(tmp_path, name):
    table = pa.table({"id": ["=1+1", "b"], "score": [0.5, None]})
    with writing(tmp_path / name) as write:
        write(table[:1])
        write(table[1:])
    found = content(tmp_path / name)
    assert [row["id"] for row in found] == ["=1+1", "b"]
    assert [None if row["score"] is None else float(row["score"]) for row in found] == [0.5, None]


def test_files_that_cannot_be_written_raise_a_clear_error(tmp_path, monkeypatch):
    pq.write_table(pa.table({"a": [1]}), tmp_path / "in.parquet")
    with (
        pytest.raises(InputError, match="would be overwritten"),
        writing(tmp_path / "in.parquet", inputs=[tmp_path / "in.parquet"]),
    ):
        pass
    with pytest.raises(InputError, match=r"\.parquet, \.csv or \.xlsx"), writing(tmp_path / "s.doc"):
        pass
    monkeypatch.setitem(sys.modules, "xlsxwriter", None)
    with pytest.raises(InputError, match=r"pip install 'mlci\[excel\]'"), writing(tmp_path / "s.xlsx"):
        pass
    assert not (tmp_path / "s.xlsx").exists()


def test_a_closed_standard_output_raises_a_clear_error(monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    with pytest.raises(InputError, match="is closed; name a file"), writing("-"):
        pass


def test_long_identifiers_are_written_to_a_workbook_as_text(tmp_path):
    ids = [234567890123456788, 234567890123456789, 7]
    with writing(tmp_path / "a.xlsx") as write:
        write(pa.table({"admission_id": ids, "score": [0.5, float("nan"), 1.0]}))
    assert [row["admission_id"] for row in content(tmp_path / "a.xlsx")] == [str(number) for number in ids]


def test_a_csv_on_standard_output_is_utf_8_in_every_locale(monkeypatch):
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="latin-1"))
    with writing("-") as write:
        write(pa.table({"visit": ["Ä日"]}))
    sys.stdout.flush()
    assert written.getvalue().decode() == '"visit"\n"Ä日"\n'
