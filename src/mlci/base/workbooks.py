"""Check the size of a workbook before it is opened, and write workbooks.

A workbook is an archive, so a small file may hold a huge one. Its reader stores cells as a rectangle, so that two cells
in opposite corners of a sheet take as much memory as a full sheet. A workbook that would take too much memory raises an
error before it is read. Sizes are counted, because those stated in the file cannot be trusted.
"""

import contextlib
import io
import zipfile
from collections.abc import Iterator
from functools import reduce
from pathlib import Path
from string import ascii_uppercase, digits
from typing import Any
from xml.parsers import expat

from mlci.base.errors import InputError, reading
from mlci.base.files import scratch

MOST_UNPACKED = 500_000_000  # the most bytes unpacked, and the most characters in all cells
MOST_CELLS = 20_000_000  # the most cells of the rectangle around a sheet's cells
MOST_EMPTY = 1_000_000  # rectangles of more cells need at least one filled cell in FILLED
FILLED = 30
LONGEST = 32_767  # the most characters of a cell, as in Excel
BLOCK = 1 << 18  # bytes read at once; more than any cell of that length takes
STRINGS = "xl/sharedStrings.xml"
WRITTEN_IN_XML = (".xml", ".rels", ".vml")
CELLS = b"sheetData"  # the element that holds cells


def check_workbook(path: Path, where: str) -> int:
    """Refuse a workbook (.xlsx) that is damaged or would take too much memory.

    Args:
        path: the file.
        where: its name in messages.

    Returns:
        How many cells hold an error, such as #REF!, or a formula without a result; a reader takes them as empty.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile() as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
    ...     archive.writestr("xl/worksheets/sheet1.xml", '<sheetData><c r="A1"/><c r="XFD1048576"/></sheetData>')
    ...     archive.close()
    ...     check_workbook(Path(file.name), "far.xlsx")
    Traceback (most recent call last):
    mlci.base.errors.InputError: far.xlsx: 2 cells lie in 1,048,576 rows and 16,384 columns; save the table as CSV.
    """
    try:
        with reading(where, "a workbook"), zipfile.ZipFile(path) as archive:
            return _check(archive, where)
    except InputError:
        raise
    except (ValueError, LookupError, RuntimeError):  # an invalid number, an unknown encoding, a password
        raise InputError(
            f"{where}: is not a workbook that can be read: it is damaged, locked, or of another kind."
        ) from None


@contextlib.contextmanager
def new_workbook(path: str | Path, options: dict[str, Any]) -> Iterator[Any]:
    """Write a workbook; a full disk raises a plain `OSError`, and what the writer keeps on disk is private.

    Args:
        path: the file.
        options: those of `xlsxwriter.Workbook`.

    Yields:
        The `xlsxwriter.Workbook`.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with new_workbook(f"{folder}/scores.xlsx", {}) as book:
    ...         _ = book.add_worksheet().write(0, 0, "score")
    ...     check_workbook(Path(folder, "scores.xlsx"), "scores.xlsx")
    0
    """
    import xlsxwriter
    from xlsxwriter.exceptions import FileCreateError

    packed = io.BytesIO()
    try:
        with scratch() as folder, xlsxwriter.Workbook(packed, {"tmpdir": str(folder), **options}) as book:
            yield book
    except FileCreateError as error:  # without its traceback, which would keep a half-written archive open
        raise error.args[0].with_traceback(None) from None
    Path(path).write_bytes(packed.getbuffer())


def _check(archive: zipfile.ZipFile, where: str) -> int:
    lengths: list[int] = []
    unpacked = errors = 0
    for part in sorted(archive.infolist(), key=lambda part: part.filename != STRINGS):
        strings = part.filename == STRINGS
        found = _Strings(lengths) if strings else _Sheet()
        unpacked += _read(archive, part, found, where, most=MOST_UNPACKED - unpacked)
        if isinstance(found, _Sheet):
            found.check(where)
            errors += found.errors
            if found.refers * max(lengths, default=0) > MOST_UNPACKED:  # too large if every cell has the longest text
                _read(archive, part, _References(lengths, where), where, most=MOST_UNPACKED)
    return errors


def _read(archive: zipfile.ZipFile, part: zipfile.ZipInfo, found: Any, where: str, *, most: int) -> int:
    """Pass the elements and texts of a part to `found`; return its size in bytes."""
    unpacked, end = 0, b""
    parser = expat.ParserCreate()
    if isinstance(found, _Sheet):
        found.parser = parser
    parser.StartElementHandler, parser.CharacterDataHandler = found.start, getattr(found, "text", None)
    for block in _blocks(archive, part):
        unpacked += len(block)
        if unpacked > most:
            raise InputError(f"{where}: unpacks to more than {MOST_UNPACKED // 10**6:,} MB; save the table as CSV.")
        if part.filename.lower().endswith(WRITTEN_IN_XML):
            if b"<" not in block and len(block) == BLOCK:
                raise InputError(f"{where}: holds a text of more than {LONGEST:,} characters; save the table as CSV.")
            parser.Parse(block)
        elif CELLS in end + block:  # a sheet under the name of a picture
            raise zipfile.BadZipFile
        end = block[-len(CELLS) :]
    return unpacked


def _blocks(archive: zipfile.ZipFile, part: zipfile.ZipInfo) -> Iterator[bytes]:
    part.file_size = MOST_UNPACKED + BLOCK  # read to the end of the content, not to the size that the file states
    with archive.open(part) as stream:
        while block := stream.read(BLOCK):
            yield block


class _Strings:
    """The lengths of the texts that cells refer to by number."""

    def __init__(self, lengths: list[int]) -> None:
        self.lengths = lengths

    def start(self, name: str, _: dict[str, str]) -> None:
        if name.endswith("si"):
            self.lengths.append(0)

    def text(self, data: str) -> None:
        if self.lengths:
            self.lengths[-1] += len(data)


class _Sheet:
    """The cells of a sheet: their number, their rows and columns, how many refer to a text or hold no value to read."""

    def __init__(self) -> None:
        self.parser: Any = None
        self.before = self.kind = ""  # the element before; the type of the cell
        self.pending = 0  # 1 from the formula of a cell on until its result
        self.cells = self.refers = self.errors = self.row = self.unnamed = self.most_unnamed = 0
        self.rows, self.columns = {"0"}, {""}  # as text, so that each is converted only once

    def start(self, name: str, attributes: dict[str, str]) -> None:
        name = name.rpartition(":")[2] if name != "v" else name
        if name == "v":
            if self.pending and self.kind == "str":  # a result, which may be an empty text
                self._calculated("")
            elif self.pending:
                self.parser.CharacterDataHandler = self._calculated
            return
        if name == "f" and self.before == "c":  # of a cell, not of a chart
            self.errors, self.pending = self.errors + 1, 1
        self.before = name
        if name == "c":
            self.pending, self.kind = 0, attributes.get("t", "")
            self.cells += 1
            self.refers += self.kind == "s"
            self.errors += self.kind == "e"
            if place := attributes.get("r"):
                self.columns.add(place.rstrip(digits))
                self.rows.add(place.lstrip(ascii_uppercase))
            else:
                self.unnamed += 1
                self.most_unnamed = max(self.most_unnamed, self.unnamed)
                self.rows.add(str(self.row))
        elif name == "row":
            self.row, self.unnamed = int(attributes.get("r", self.row + 1)), 0

    def _calculated(self, _: str) -> None:
        """Note the result of a formula."""
        self.errors, self.pending = self.errors - self.pending, 0
        self.parser.CharacterDataHandler = None

    def check(self, where: str) -> None:
        down, right = max(map(int, self.rows)), max(map(_number, self.columns)) + self.most_unnamed
        if down * right > min(MOST_CELLS, max(MOST_EMPTY, FILLED * self.cells)):
            raise InputError(
                f"{where}: {self.cells:,} cells lie in {down:,} rows and {right:,} columns; save the table as CSV."
            )


class _References:
    """The number of characters in the cells of a sheet that refer to a text."""

    def __init__(self, lengths: list[int], where: str) -> None:
        self.lengths, self.where = lengths, where
        self.characters, self.refers, self.number = 0, False, ""

    def start(self, name: str, attributes: dict[str, str]) -> None:
        if name.rpartition(":")[2] != "c":
            return
        place = int(self.number) if self.number.strip().isdecimal() else len(self.lengths)
        self.characters += self.lengths[place] if place < len(self.lengths) else 0
        if self.characters > MOST_UNPACKED:
            raise InputError(f"{self.where}: its cells hold more than {MOST_UNPACKED:,} characters; save it as CSV.")
        self.refers, self.number = attributes.get("t") == "s", ""

    def text(self, data: str) -> None:
        if self.refers and len(self.number) < 20:
            self.number += data


def _number(letters: str) -> int:
    """Return the number of a column: A is 1, Z 26, AA 27."""
    return reduce(lambda number, letter: number * 26 + ord(letter) - ord("A") + 1, letters, 0)
