"""Every kind of table file is read in the same way; unreadable files raise an error of one sentence."""

import datetime
import gzip
import io
import re
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mlci.base.errors import InputError
from mlci.base.tablefile import open_table
from mlci.cohort import build_cohort
from mlci.judging.scores import read_scores

FRAME = pd.DataFrame({"visit": ["007", "8"], "DX1": ["I50.9", "?"], "los": ["3", None]})
ROWS = [{"visit": "007", "DX1": "I50.9", "los": "3"}, {"visit": "8", "DX1": None, "los": None}]


def content(path) -> list[dict]:
    with open_table(path) as file:
        return [row for table in file.read(file.names) for row in table.to_pylist()]


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_csv_of_every_separator(tmp_path, separator):
    FRAME.to_csv(tmp_path / "a.csv", index=False, sep=separator)
    assert content(tmp_path / "a.csv") == ROWS


def test_compressed_csv_and_excel(tmp_path):
    FRAME.to_csv(tmp_path / "a.csv.gz", index=False)
    FRAME.to_excel(tmp_path / "a.xlsx", index=False)
    assert content(tmp_path / "a.csv.gz") == content(tmp_path / "a.xlsx") == ROWS


def test_excel_cells_become_the_text_that_a_person_typed(tmp_path):
    cells = {
        "number": [7, 2.5],
        "yes": [True, False],
        "day": [datetime.datetime(2020, 1, 2), None],
        "text": [" a ", ""],
    }
    pd.DataFrame(cells).to_excel(tmp_path / "a.xlsx", index=False, startrow=2)
    with open_table(tmp_path / "a.xlsx") as file:
        (table,) = file.read(file.names)
        assert (file.first_row, dict(file.numbers)) == (4, {"number": 4})
    assert table.to_pydict() == {
        "number": ["7", "2.5"],
        "yes": ["true", "false"],
        "day": ["2020-01-02", None],
        "text": ["a", None],
    }


@pytest.mark.parametrize("name", ["a.csv", "a.parquet", "a.xlsx"])
def test_the_kind_of_standard_input_is_found_by_its_first_bytes(tmp_path, monkeypatch, name):
    writer = {"csv": FRAME.to_csv, "parquet": FRAME.to_parquet, "xlsx": FRAME.to_excel}[name.split(".")[1]]
    writer(tmp_path / name, index=False)
    stream = io.TextIOWrapper(io.BytesIO((tmp_path / name).read_bytes()))
    monkeypatch.setattr(sys, "stdin", stream)
    assert [row["visit"] for row in content("-")] == ["007", "8"]


def test_files_that_cannot_be_read_raise_a_clear_error(tmp_path, monkeypatch):
    for name, words in {"a.doc": "neither Parquet nor named as a table", "a.xlsx": "is not a workbook"}.items():
        (tmp_path / name).write_text("x,y\n")
        with pytest.raises(InputError, match=words):
            content(tmp_path / name)
    pd.DataFrame().to_excel(tmp_path / "empty.xlsx", index=False)
    with pytest.raises(InputError, match="is empty"):
        content(tmp_path / "empty.xlsx")
    monkeypatch.setitem(sys.modules, "python_calamine", None)
    with pytest.raises(InputError, match=r"pip install 'mlci\[excel\]'"):
        content(Path(tmp_path / "empty.xlsx"))


def test_a_long_text_is_refused_before_it_is_multiplied(tmp_path):
    path = tmp_path / "a.parquet"
    one = pa.DictionaryArray.from_arrays(pa.array([0] * 3000, pa.int32()), ["A" * 1_000_000])  # 3 GB, written out
    pq.write_table(pa.table({"id": one}), path, compression="zstd", store_schema=False)
    assert path.stat().st_size < 5_000
    pool = pa.default_memory_pool()
    before, peak = pool.bytes_allocated(), pool.max_memory()
    with open_table(path) as table, pytest.raises(InputError, match="column id: holds cells of more than 1,000"):
        list(table.read(["id"]))
    assert pool.max_memory() <= max(peak, before + 50_000_000)


def test_text_comes_as_it_was_whether_or_not_it_repeats(tmp_path):
    path, ids = tmp_path / "a.parquet", [f"id{row}" for row in range(1000)]
    pq.write_table(pa.table({"id": ids, "code": ["I10", None] * 500}), path)
    with open_table(path) as table:
        (found,) = table.read(["code", "id"], repeated=["code"])
        assert found["id"].to_pylist() == ids
        assert found["id"].type == pa.string()
        assert found["code"].to_pylist() == ["I10", None] * 500
        assert pa.types.is_dictionary(found["code"].type)


def test_two_columns_of_one_name_are_refused(tmp_path):
    (tmp_path / "a.csv").write_text("admission_id,codes,codes\n1,I10,E11\n")
    with pytest.raises(InputError, match="has two columns codes"), open_table(tmp_path / "a.csv"):
        pass


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("Straße;DX1\n1;I50.9\n".encode("cp1252"), "its header is not UTF-8; save the table as CSV UTF-8"),
        ("visit;DX1\n1;I50.9\n".encode("utf-16"), "its header is not UTF-8"),
        (b"Export 2019\n\nvisit,DX1\n1,I50.9\n", "is there a title above the header?"),
        (
            b"sep=;\nvisit;DX1;DX2\n1;I50.9;\n",
            "row 2: 3 cells where the header has 2 (is there a title above the header?)",
        ),
        (b"", "it is empty; a header row and rows below it are needed"),
        (
            b"visit;DX1;ward\n\n1;I10;A\n2;I10;M\xe4nner\n",
            "column ward, row 4: is not UTF-8; save the table as CSV UTF-8",
        ),
        (b"visit,DX1\n1," + b"I" * 5_000_000 + b"\n2,I10\n", "a row has more than 2 MB"),
    ],
)
def test_a_csv_with_errors_of_spreadsheets_raises_a_clear_error(written, words, tmp_path):
    (tmp_path / "visits.csv").write_bytes(written)
    with pytest.raises(InputError, match=re.escape(words)):
        content(tmp_path / "visits.csv")


@pytest.mark.parametrize("row", ["17,I50.9,Smith,Smith", "1.5,,Smith,Smith", "2020-01-31,a,Smith,Smith"])
def test_a_message_does_not_repeat_a_first_line_that_is_a_row(row, tmp_path):
    (tmp_path / "a.csv").write_text(f"{row}\n{row}\n")
    with pytest.raises(InputError, match="cells that look like a row") as found, open_table(tmp_path / "a.csv"):
        pass
    assert "Smith" not in str(found.value)


@pytest.mark.parametrize("name", ["A.CSV.GZ", "a.csv.Gz", "a.csv.gz"])
def test_packed_tables_are_known_by_their_ending_in_any_case(name, tmp_path):
    (tmp_path / name).write_bytes(gzip.compress(b"visit,DX1\n7,I50.9\n"))
    with open_table(tmp_path / name) as table:
        assert pa.concat_tables(table.read(["DX1"]))["DX1"].to_pylist() == ["I50.9"]


def test_a_packed_table_that_was_cut_short_is_refused(tmp_path):
    packed = gzip.compress(b"visit,DX1\n" + b"7,I50.9\n" * 9999)
    for damaged in (packed[: len(packed) // 2], packed[:-8] + b"\0" * 8):
        (tmp_path / "a.csv.gz").write_bytes(damaged)
        with pytest.raises(InputError, match="damaged"), open_table(tmp_path / "a.csv.gz"):
            pass


def workbook(path, sheets, hidden=()):
    with pd.ExcelWriter(path, engine="xlsxwriter") as book:
        for name, frame in sheets.items():
            frame.to_excel(book, sheet_name=name, index=False)
        for name in hidden:
            book.sheets[name].hide()


def test_filled_sheets_that_are_not_read_are_named(tmp_path):
    nothing = pd.DataFrame()
    sheets = {"March": FRAME, "April": FRAME, "empty": nothing, "lists": FRAME, "Mai\t": FRAME}
    workbook(tmp_path / "a.xlsx", sheets, hidden=["lists"])
    with open_table(tmp_path / "a.xlsx") as file:
        assert (
            file.doubt == "only the sheet March is read; filled too, and left out: April, Mai\N{REPLACEMENT CHARACTER}."
        )
        assert file.where == f"{tmp_path / 'a.xlsx'}, sheet March"  # in all messages about the table
    workbook(tmp_path / "many.xlsx", {"first": nothing, **{f"m{n}": FRAME for n in range(8)}})
    with open_table(tmp_path / "many.xlsx") as file:
        assert file.doubt == "only the sheet m0 is read; filled too, and left out: m1, m2, m3, m4, m5 and others."
    workbook(tmp_path / "one.xlsx", {"first": nothing, "second": FRAME})
    with open_table(tmp_path / "one.xlsx") as file:
        assert file.doubt == ""
        assert file.where == str(tmp_path / "one.xlsx")


@pytest.mark.parametrize("shortened", ["1.23457E+18", "1,23E+18", "1E+18"])
def test_identifiers_that_a_spreadsheet_has_shortened_are_refused(shortened, tmp_path):
    rows = [f"A{place};7;I10;0" for place in range(3)]
    for column, row in (("visit", f"{shortened};7;I10;0"), ("mrn", f"A9;{shortened};I10;0")):
        (tmp_path / "a.csv").write_text("\n".join(["visit;mrn;code;died", *rows, row]))
        with pytest.raises(InputError, match=f"column {column}, row 5: is a number that a spreadsheet has shortened"):
            build_cohort("file", tmp_path / "a.csv", icd_version=10)
    (tmp_path / "a.csv").write_text("visit;mrn;code;died\n12E5;A.1E+7;I10;0\n")  # digits of other identifiers
    assert build_cohort("file", tmp_path / "a.csv", icd_version=10).table["subject_id"].to_pylist() == ["A.1E+7"]


def test_identifiers_that_a_workbook_has_rounded_are_refused(tmp_path):
    long = [1234567890123456788, 1234567890123456789]  # a workbook holds one number for both
    visits = {"visit": [1, 2], "DX1": ["I50.9", "I10"], "died": [0, 1]}
    for name, column in (("id", "visit"), ("subject", "mrn")):
        pd.DataFrame({**visits, column: [1, long[0]]}).to_excel(tmp_path / "a.xlsx", index=False)
        with pytest.raises(InputError, match=f"column {column}, row 3: a workbook rounds numbers of more than 15"):
            build_cohort("file", tmp_path / "a.xlsx", **{name: column})
    pd.DataFrame({"admission_id": long, "score": [0.1, 0.2]}).to_excel(tmp_path / "a.xlsx", index=False)
    with pytest.raises(InputError, match="column admission_id, row 2: a workbook rounds"):
        read_scores(tmp_path / "a.xlsx")
    pd.DataFrame({**visits, "mrn": [2**53 - 1, 1]}).to_excel(tmp_path / "a.xlsx", index=False)  # still exact
    cohort = build_cohort("file", tmp_path / "a.xlsx", subject="mrn")
    assert cohort.table["subject_id"].to_pylist() == [2**53 - 1, 1]


def test_blanks_around_the_names_of_columns_are_no_part_of_them(tmp_path):
    (tmp_path / "a.csv").write_text("Visit_ID , DX1,died \n7, I50.9,1\n")
    with open_table(tmp_path / "a.csv") as table:
        assert table.names == ("Visit_ID", "DX1", "died")
        found = pa.concat_tables(table.read(["died", "DX1"], repeated=["DX1"]))
    assert found.cast(pa.schema([("died", pa.string()), ("DX1", pa.string())])).to_pylist() == [
        {"died": "1", "DX1": " I50.9"}
    ]
    (tmp_path / "a.csv").write_text("DX1 , DX1,died \n7, I50.9,1\n")
    with pytest.raises(InputError, match="two columns DX1"), open_table(tmp_path / "a.csv"):
        pass


def test_a_cover_sheet_is_not_the_table(tmp_path):
    import xlsxwriter

    with xlsxwriter.Workbook(tmp_path / "a.xlsx") as book:
        book.add_worksheet("Readme").write_column(0, 0, ["Discharges of 2023", "Ward 5"])
        book.add_worksheet("Data").write_row(0, 0, ["visit_id", "DX1"])
    with open_table(tmp_path / "a.xlsx") as table:
        assert table.names == ("visit_id", "DX1")
        assert "Readme" in table.doubt


@pytest.mark.parametrize("above", [[" "], ["", "-"], ["\t", " "]])
def test_blanks_above_a_header_are_no_header(above, tmp_path):
    import xlsxwriter

    with xlsxwriter.Workbook(tmp_path / "a.xlsx") as book:
        sheet = book.add_worksheet()
        for place, row in enumerate([above, ["visit", "DX1"], ["7", "I50.9"]]):
            sheet.write_row(place, 0, row)
    with open_table(tmp_path / "a.xlsx") as table:
        assert (table.names, table.first_row) == (("visit", "DX1"), 3)
    assert content(tmp_path / "a.xlsx") == [{"visit": "7", "DX1": "I50.9"}]
    (tmp_path / "a.csv").write_text(",\nvisit,DX1\n7,I50.9\n")
    with pytest.raises(InputError, match="first line is empty; the names of the columns belong there"):
        content(tmp_path / "a.csv")


def test_columns_without_a_name_are_text_too(tmp_path):
    rows = "".join(f"{number},I50.9,{number},1\n" for number in range(150_000))  # more than Arrow guesses a type from
    (tmp_path / "a.csv").write_text(f"visit,DX1, ,\n{rows}7,I50.9,B2,x\n")
    with open_table(tmp_path / "a.csv") as table:
        assert table.doubt.startswith("columns 3, 4 hold values but have no name")


def test_a_row_that_is_cut_short_is_numbered_on_several_cores_too(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"visit,DX1\n1,I50.9\n2,I10\n3\n")
    cores = pa.cpu_count()
    pa.set_cpu_count(2)  # on which Arrow does not count rows
    try:
        with pytest.raises(InputError, match="row 4: 1 cells where the header has 2"):
            content(tmp_path / "a.csv")
    finally:
        pa.set_cpu_count(cores)


def test_a_long_cell_is_read_whatever_the_number_of_rows_at_a_time(tmp_path):
    (tmp_path / "a.csv").write_text("visit,DX1\n7," + "I50.9 " * 20_000 + "\n8,I10\n")
    with open_table(tmp_path / "a.csv") as table:
        assert sum(map(len, table.read(["DX1"], rows=10))) == 2


def test_a_closed_standard_input_raises_a_clear_error(monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(InputError, match="is closed; name a file"), open_table("-"):
        pass


GAPS = "visit,DX1\n\n7,I50.9\n,\n \t,\n8,E11.9\n\n9,\n,\n\n"  # rows 3, 6 and 8 hold a visit


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "a.xlsx"])
def test_empty_rows_are_left_out_and_counted(name, tmp_path):
    if name == "a.xlsx":
        import xlsxwriter

        with xlsxwriter.Workbook(tmp_path / name) as book:
            sheet = book.add_worksheet()
            for place, line in enumerate(GAPS.split("\n")):
                sheet.write_row(place, 0, line.split(","))
    else:
        write = gzip.open if name.endswith("gz") else open
        with write(tmp_path / name, "wt", newline="\r\n") as file:
            file.write(GAPS)
    with open_table(tmp_path / name) as file:
        for columns in (["visit", "DX1"], ["DX1"]):
            table = pa.concat_tables(file.read(columns, rows=2))
            assert table["DX1"].to_pylist() == ["I50.9", "E11.9", None]
        assert file.row_number(np.arange(3)).tolist() == [3, 6, 8]
        assert file.doubt == "4 rows are empty and left out: 2, 4, 5, 7."


def test_a_table_without_empty_rows_is_not_read_again(tmp_path):
    (tmp_path / "a.csv").write_text(',visit\n0,"a\n\nb"\n1,\n')
    with open_table(tmp_path / "a.csv") as file:
        assert [row for table in file.read(["visit"]) for row in table["visit"].to_pylist()] == ["a\n\nb", None]
        assert (file.doubt, file.row_number(1)) == ("", 3)
    (tmp_path / "a.csv").write_text("\n\nvisit,DX1\nNA,NA\n")
    with open_table(tmp_path / "a.csv") as file:
        assert (file.doubt, file.row_number(0)) == ("", 4)
        assert sum(map(len, file.read(["visit"]))) == 1  # not known, but not empty


@pytest.mark.parametrize("lead", ["", "\n", "\ufeff", "\ufeff\n\n"])
def test_blank_lines_above_a_header_change_neither_separator_nor_rows(lead, tmp_path):
    (tmp_path / "a.csv").write_text(f'{lead}visit;DX1\n\n7;"I50;9"\n8;\n', "utf-8", newline="\r\n")
    above = lead.count("\n")
    with open_table(tmp_path / "a.csv") as file:
        assert [row for table in file.read(["visit", "DX1"]) for row in table.to_pylist()] == [
            {"visit": "7", "DX1": "I50;9"},
            {"visit": "8", "DX1": None},
        ]
        assert file.row_number(np.arange(2)).tolist() == [above + 3, above + 4]
        assert file.doubt == f"row {above + 2} is empty and left out."
    (tmp_path / "a.csv").write_text(f"{lead}visit;DX1\n\n7;I50.9\n8;I10;1\n", "utf-8")
    with pytest.raises(InputError, match=f"row {above + 4}: 3 cells"), open_table(tmp_path / "a.csv"):
        pass


def test_a_row_of_quoted_blanks_is_empty(tmp_path):
    (tmp_path / "a.csv").write_text('visit,DX1\n" "," "\n7,I50.9\n"\n",""\n')
    with open_table(tmp_path / "a.csv") as file:
        assert [row for table in file.read(["visit"]) for row in table["visit"].to_pylist()] == ["7"]


@pytest.mark.parametrize("name", ["a.csv", "a.xlsx"])
def test_columns_below_a_merged_header_are_not_left_out_in_silence(name, tmp_path):
    def told(*rows):
        if name == "a.csv":
            (tmp_path / name).write_text("\n".join(",".join(row) for row in rows))
        else:
            import xlsxwriter

            with xlsxwriter.Workbook(tmp_path / name) as book:
                sheet = book.add_worksheet()
                for place, row in enumerate(rows):
                    sheet.write_row(place, 0, row)
        with open_table(tmp_path / name) as table:
            return table.doubt

    head = ("", "visit_id", "diagnoses", "", "", "")  # row numbers are in an unnamed first column
    two = told(head, ("1", "7", "I10", "I50.9", "", ""), ("2", "8", "I10", "", "NA", "A41.9"))
    assert two == "columns 4, 6 hold values but have no name: these values are not read."
    assert told(head[:4], ("1", "7", "I10", "I50.9")).startswith("column 4 holds values but has no name")
    assert told(head, ("1", "7", "I10", "", "NA", "")) == ""


def test_separators_within_quoted_names_of_columns_do_not_count(tmp_path):
    (tmp_path / "a.csv").write_text('"Fall";"Diagnose, Haupt";"Diagnose, Neben"\n"7";"I50.9";\n')
    assert content(tmp_path / "a.csv") == [{"Fall": "7", "Diagnose, Haupt": "I50.9", "Diagnose, Neben": None}]
