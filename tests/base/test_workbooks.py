"""Workbooks that would take too much memory are refused before they are opened."""

import errno
import os
import struct
import tempfile
import zipfile
from pathlib import Path

import pytest
import xlsxwriter

from mlci.base import workbooks
from mlci.base.errors import InputError
from mlci.base.tablefile import open_table
from mlci.base.workbooks import check_workbook, new_workbook

SHEET = "xl/worksheets/sheet1.xml"


@pytest.fixture
def book(tmp_path):
    """A workbook of a few cells."""
    path = tmp_path / "a.xlsx"
    with xlsxwriter.Workbook(path) as made:
        sheet = made.add_worksheet()
        for row, cells in enumerate([["visit", "DX1", "DX2"], ["7", "I50.9", 5], ["8", "E11.9", 6]]):
            sheet.write_row(row, 0, cells)
    return path


def rewritten(path: Path, name: str = SHEET, *, under: str | None = None, **changes: bytes) -> Path:
    """The workbook with a piece of one of its parts replaced, or that part under another name."""
    target = path.with_name("changed.xlsx")
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as new:
        for part in old.infolist():
            data = old.read(part)
            if part.filename == name:
                assert changes["old"] in data
                data = data.replace(changes["old"], changes["new"])
            new.writestr(under if under and part.filename == name else part.filename, data)
    return target


def content(path: Path) -> list[dict]:
    with open_table(path) as table:
        return [row for rows in table.read(["DX1", "DX2"]) for row in rows.to_pylist()]


def test_a_workbook_as_it_should_be_is_read(book):
    assert content(book) == [{"DX1": "I50.9", "DX2": "5"}, {"DX1": "E11.9", "DX2": "6"}]


@pytest.mark.parametrize(
    "cell",
    [
        b'<row r="1048576"><c r="XFD1048576"><v>1</v></c></row>',
        b"<row r='9'><c s='1' r='XFD1048576'><v>1</v></c></row>",
        b'<x:row xmlns:x="a"><x:c r="XFD1048576"><v>1</v></x:c></x:row>',
        b'<row r="900000">' + b"<c><v>1</v></c>" * 30 + b"</row>",  # cells without a position
        b"<row>" + b"<c><v>1</v></c>" * 2000 + b"</row>" + b"<row/>" * 600 + b"<row><c><v>1</v></c></row>",
    ],
)
def test_cells_far_apart_are_refused(book, cell):
    far = rewritten(book, old=b"</sheetData>", new=cell + b"</sheetData>")
    with pytest.raises(InputError, match=r"cells lie in [\d,]+ rows and [\d,]+ columns; save the table as CSV"):
        content(far)


def test_a_bomb_is_refused_whatever_size_the_file_states(book, monkeypatch):
    monkeypatch.setattr(workbooks, "MOST_UNPACKED", 1_000_000)
    bomb = rewritten(book, old=b"</sheetData>", new=b"<!-- <> -->" * 200_000 + b"</sheetData>")
    with pytest.raises(InputError, match=r"a: unpacks to more than 1 MB"):
        check_workbook(bomb, "a")
    data, size = bomb.read_bytes(), len(zipfile.ZipFile(bomb).read(SHEET))
    assert data.count(struct.pack("<L", size)) == 2  # in the part's own head and in the list at the end
    bomb.write_bytes(data.replace(struct.pack("<L", size), struct.pack("<L", 1000)))
    with pytest.raises(InputError, match=r"a: unpacks to more than 1 MB"):
        check_workbook(bomb, "a")


def test_a_text_that_is_too_long_or_repeated_too_often_is_refused(book, monkeypatch):
    long = rewritten(book, "xl/sharedStrings.xml", old=b"I50.9", new=b"x" * 600_000)
    with pytest.raises(InputError, match=r"a: holds a text of more than 32,767 characters"):
        check_workbook(long, "a")
    monkeypatch.setattr(workbooks, "MOST_UNPACKED", 2_000_000)
    often = rewritten(book, "xl/sharedStrings.xml", old=b"I50.9", new=b"x" * 30_000)
    check_workbook(often, "a")  # once
    again = b"".join(b'<row r="%d"><c r="A%d" t="s"><v>4</v></c></row>' % (row, row) for row in range(4, 104))
    with pytest.raises(InputError, match=r"a: its cells hold more than 2,000,000 characters"):
        check_workbook(rewritten(often.rename(book), old=b"</sheetData>", new=again + b"</sheetData>"), "a")


@pytest.mark.parametrize(
    "spoil", [lambda data: data[:-30], lambda data: data[:300] + b"?" + data[301:], lambda data: b"PK"]
)
def test_a_damaged_workbook_raises_a_clear_error(book, spoil):
    book.write_bytes(spoil(book.read_bytes()))
    with pytest.raises(InputError, match=r"is not a workbook that can be read"):
        content(book)


def test_a_sheet_that_passes_for_a_picture_and_other_kinds_of_sheets_are_refused(book, tmp_path):
    with pytest.raises(InputError, match=r"a: is not a workbook"):
        check_workbook(rewritten(book, under="xl/media/a.png", old=b"", new=b""), "a")
    (tmp_path / "a.ods").write_text("x")
    with pytest.raises(InputError, match=r"a\.ods: a spreadsheet is read as \.xlsx; save it as that, or as CSV"):
        content(tmp_path / "a.ods")


REPORTED = "an error, such as #REF!, or a formula without a result, and"


@pytest.mark.parametrize(
    ("cell", "reported"),
    [
        (b'<c r="B2" t="str"><f>A1</f><v>I50.9</v></c>', False),
        (b'<c r="B2"><f t="shared" si="0"/><v>5</v></c>', False),
        (b'<c r="B2" t="str"><f>A1</f><v></v></c>', False),  # an empty text
        (b'<c r="B2"><f>A1</f><v></v></c>', True),  # as openpyxl writes it
        (b'<c r="B2"><f>A1</f><v/></c>', True),
        (b'<c r="B2"><f>A1</f></c>', True),
        (b'<c r="B2" t="e"><f>A1</f><v>#REF!</v></c>', True),
    ],
)
def test_formulas_that_were_never_calculated_are_reported(book, cell, reported):
    written = rewritten(book, old=b'<c r="B2" t="s"><v>4</v></c>', new=cell)
    charted = rewritten(
        written.rename(book), old=b"</sheetData>", new=b"</sheetData><ext><line><x:f>A1</x:f></line></ext>"
    )
    with open_table(charted) as table:
        assert table.doubt == (f"1 cell of the workbook holds {REPORTED} counts as empty." if reported else "")


def test_cells_with_errors_are_counted_and_reported(book):
    code, number = b'<c r="B2" t="s"><v>4</v></c>', b'<c r="C2"><v>5</v></c>'
    wrong = rewritten(book, old=code, new=b'<c r="B2" t="e"><v>#N/A</v></c>')
    with open_table(wrong) as table:
        assert table.doubt == f"1 cell of the workbook holds {REPORTED} counts as empty."
        assert [rows["DX1"].to_pylist() for rows in table.read(["DX1"])] == [[None, "E11.9"]]
    wrong = rewritten(wrong.rename(book), old=number, new=b'<c r="C2" t="e"><v>#REF!</v></c>')
    with open_table(wrong) as table:
        assert table.doubt == f"2 cells of the workbook hold {REPORTED} count as empty."


def test_a_full_disk_is_a_plain_error():
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)), new_workbook("/dev/full", {}) as made:
        made.add_worksheet()


def test_what_a_writer_keeps_on_disk_is_private_and_removed(tmp_path, monkeypatch):
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    with new_workbook(tmp_path / "a.xlsx", {"constant_memory": True}) as made:
        made.add_worksheet().write(0, 0, "patients")
        (private,) = folder.iterdir()
        assert [*private.iterdir()]
    assert not [*folder.iterdir()]
    with pytest.raises(FileNotFoundError), new_workbook(tmp_path / "b.xlsx", {"tmpdir": str(tmp_path / "no")}):
        pass
