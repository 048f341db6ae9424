"""Read tables from CSV, Parquet, Excel or standard input as Arrow tables, some rows at a time.

`open_table` opens a file, lists its columns and reads the wanted ones, as often as wanted. CSV and Excel cells are read
as text, so that no type is guessed and no zero is lost; cells that mean "not known" are null. Rows of CSV and Excel
files in which every cell is empty are left out.
"""

import codecs
import contextlib
import datetime
import re
import shutil
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mlci.base.errors import InputError, header_of, looks_like_row, name_of, reading
from mlci.base.files import scratch
from mlci.base.parquet import open_parquet, plain
from mlci.base.quotes import among_all, blank_lines, check_quotes
from mlci.base.workbooks import check_workbook

if TYPE_CHECKING:
    import pyarrow as pa

STANDARD = "-"  # standard input, or output
MISSING = ("", "NA", "N/A", "NaN", "nan", "NULL", "null", "None", "none", "#N/A", "?", ".", "-", "Unknown", "unknown")
ROWS = 131_072  # rows that are read at once
BLOCK = 1 << 21  # the least number of bytes of a CSV that are parsed at once; no row may be longer
SEPARATORS = b",;\t|"
NAMED = 5  # the most sheets, columns or rows that a message names
DATES = (datetime.date, datetime.time, datetime.timedelta)  # of Excel; a datetime is a date too
UTF8 = "save the table as CSV UTF-8, or as .xlsx"
EXACT = 2**53  # from here on, a workbook no longer tells whole numbers apart
KINDS = ".csv, .tsv, .txt (also .gz, .bz2, .zst), .parquet or .xlsx"
_CSV = re.compile(r"\.(csv|tsv|txt)(\.(gz|bz2|zst))?$")
_PACKED = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
_EXCEL = re.compile(r"\.(xlsx|xlsm)$")
_OTHER_SHEETS = re.compile(r"\.(xls|xlsb|ods|numbers)$")


@dataclass(frozen=True)
class TableFile:
    """A table that can be read several times, whatever kind of file holds it."""

    where: str  # its name in messages
    names: tuple[str, ...]
    first_row: int  # the number that an editor shows next to the first row: 2 below a header
    rows: Callable[[list[str], Sequence[str], int], Iterator["pa.Table"]]
    numbers: Mapping[str, int] = field(default_factory=dict)  # Excel: column -> first row whose cell is a number
    dates: Mapping[str, int] = field(default_factory=dict)  # the same for dates and times
    doubt: str = ""  # sentences on parts of the file that are not read
    empty: Sequence[int] | np.ndarray = ()  # positions of the empty rows, which `read` leaves out; ascending
    rounded: Mapping[str, int] = field(default_factory=dict)  # the same as `numbers` for numbers that lost digits

    def __str__(self) -> str:
        return self.where

    def read(self, columns: Sequence[str], *, repeated: Sequence[str] = (), rows: int = ROWS) -> Iterator["pa.Table"]:
        """Read the table from its beginning.

        Args:
            columns: the columns to read.
            repeated: columns whose values repeat; they are dictionary-encoded where that is cheap.
            rows: about how many rows at a time.

        Returns:
            Tables, one after another.

        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     _ = Path(folder, "visits.csv").write_text("visit,DX1\\n7,I50.9\\n8,E11.9\\n")
        ...     with open_table(Path(folder, "visits.csv")) as table:
        ...         [row["DX1"] for rows in table.read(["DX1"]) for row in rows.to_pylist()]
        ['I50.9', 'E11.9']
        """
        return self.rows(list(columns), repeated, rows)

    def check_exact(self, columns: Collection[str]) -> None:
        """Refuse columns in which a workbook has rounded numbers, so that several identifiers may have become one.

        Args:
            columns: the columns to check.

        >>> TableFile("a.xlsx", ("visit",), 2, lambda *_: iter(()), rounded={"visit": 3}).check_exact(["visit"])
        Traceback (most recent call last):
        mlci.base.errors.InputError: a.xlsx: column visit, row 3: a workbook rounds numbers of more than 15 digits; ...
        """
        for name in self.rounded.keys() & columns:
            raise InputError(
                f"{self.where}: column {name}, row {self.rounded[name]}: a workbook rounds numbers of more than 15 "
                "digits; identifiers of that length must be text."
            )

    def row_number(self, place: Any) -> Any:
        """Return the number that an editor shows next to a row.

        Args:
            place: the position of the row among those that `read` returns, or an array of positions.

        >>> TableFile("visits.csv", ("visit",), 2, lambda *_: iter(()), empty=[1]).row_number(np.array([0, 1]))
        array([2, 4])
        """
        return self.first_row + among_all(place, self.empty)


def is_sheet(path: str | Path) -> bool:
    """Return whether a `path` has the name of a CSV or Excel file.

    >>> is_sheet("visits.CSV.gz"), is_sheet("cohort.parquet")
    (True, False)
    """
    name = Path(path).name.lower()
    return bool(_CSV.search(name) or _EXCEL.search(name))


@contextlib.contextmanager
def open_table(path: str | Path | TableFile) -> Iterator[TableFile]:
    """Open a table, whose kind is known by the ending of its name; use it in a `with` statement.

    Args:
        path: a CSV, Parquet or Excel file, `-` for standard input, or an open table, which is returned.

    Yields:
        The table, unread.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "visits.csv")
    ...     _ = file.write_text("visit,DX1,DX2\\n7,I50.9,?\\n")
    ...     with open_table(file) as table:
    ...         table.names, [rows.to_pylist() for rows in table.read(["DX1", "DX2"])]
    (('visit', 'DX1', 'DX2'), [[], [{'DX1': 'I50.9', 'DX2': None}]])
    """
    if isinstance(path, TableFile):
        yield path
    elif str(path) == STANDARD:
        with scratch() as folder:
            yield _open(_spooled(folder), "standard input")
    else:
        yield _open(Path(path), str(path))


def _open(path: Path, where: str) -> TableFile:
    name = path.name.lower()
    if _CSV.search(name):
        return _open_csv(path, where)
    if _EXCEL.search(name):
        return _open_excel(path, where)
    if _OTHER_SHEETS.search(name):
        raise InputError(f"{where}: a spreadsheet is read as .xlsx; save it as that, or as CSV.")
    return _open_parquet(path, where)


def _spooled(folder: Path) -> Path:
    """Write standard input to a file, so that it can be read twice; its first bytes show its kind."""
    if sys.stdin is None:
        raise InputError("standard input is closed; name a file.")
    source = sys.stdin.buffer
    first = source.read(4)
    kinds = {
        b"PAR1": "parquet",
        b"PK\x03\x04": "xlsx",
        b"\x1f\x8b": "csv.gz",
        b"BZh": "csv.bz2",
        b"\x28\xb5\x2f": "csv.zst",
    }
    kind = next((kind for magic, kind in kinds.items() if first.startswith(magic)), "csv")
    file = folder / f"input.{kind}"
    with file.open("wb") as copy:
        copy.write(first)
        shutil.copyfileobj(source, copy, 1 << 20)
    return file


def _open_parquet(path: Path, where: str) -> TableFile:
    with reading(path, "a table"), path.open("rb") as start:
        if start.read(4) != b"PAR1":
            raise InputError(f"{where}: is neither Parquet nor named as a table; {KINDS} is needed.")
    return parquet_table(path, where)


def parquet_table(
    path: str | Path, where: str, *, groups: Sequence[int] | None = None, filesystem: Any = None
) -> TableFile:
    """Open a Parquet file, or some of its row groups, here or on another machine.

    Args:
        path: the file.
        where: its name in messages.
        groups: the numbers of the row groups to read; all by default.
        filesystem: a filesystem of `pyarrow.fs`, for a file on another machine.

    Returns:
        The table, unread.

    >>> import pyarrow as pa, pyarrow.parquet as pq, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     pq.write_table(pa.table({"visit": [7, 8, 9]}), f"{folder}/visits.parquet", row_group_size=2)
    ...     part = parquet_table(f"{folder}/visits.parquet", "the visits", groups=[1])
    ...     [rows["visit"].to_pylist() for rows in part.read(["visit"])]
    [[9]]
    """
    import pyarrow as pa

    with open_parquet(path, filesystem=filesystem) as file:
        columns_of_file = [file.schema.column(place) for place in range(len(file.schema))]
        texts = [leaf.path for leaf in columns_of_file if leaf.physical_type == "BYTE_ARRAY"]
        names = tuple(file.schema_arrow.names)

    def read(columns: list[str], repeated: Sequence[str], rows: int) -> Iterator[pa.Table]:
        # Parquet stores each distinct text once per row group: use its dictionary rather than build our own, so that
        # long texts are not copied before their length is checked. Row groups are read one by one, because Arrow cannot
        # hold two dictionaries inside a list.
        text = [leaf for leaf in texts if leaf.split(".")[0] in columns]
        options = {"filesystem": filesystem, "read_dictionary": text}
        with open_parquet(path, **options) as file, reading(where, "Parquet"):
            for group in range(file.num_row_groups) if groups is None else groups:
                for part in file.iter_batches(rows, row_groups=[group], columns=columns):
                    table = pa.Table.from_batches([part]).select(columns)
                    yield plain(table, where, [name for name in columns if name not in repeated])

    return TableFile(where, names, 1, read)


@dataclass
class _Csv:
    """A CSV file; Arrow reads its cells as text."""

    path: Path
    where: str
    delimiter: str
    header: int  # bytes of the header
    written: dict[str, str] = field(default_factory=dict)  # column -> its name in the file, with blanks around it

    def bytes(self) -> Any:
        """Open the file's bytes, decompressed."""
        import pyarrow as pa

        return pa.input_stream(str(self.path), compression=_PACKED.get(self.path.suffix.lower()))

    def tables(
        self,
        columns: Sequence[str] = (),
        repeated: Sequence[str] = (),
        rows: int = ROWS,
        *,
        threads: bool = True,
        missing: Sequence[str] = MISSING,
    ) -> Iterator["pa.Table"]:
        """Read columns, all by default; rows without any value stay."""
        import pyarrow as pa
        from pyarrow import csv

        encoded, plain_text = pa.dictionary(pa.int32(), pa.string()), pa.string()
        kinds = {self.written[name]: encoded if name in repeated else plain_text for name in columns or self.written}
        block_size = max(BLOCK, 16 * rows) + 2 * self.header
        try:
            with self.bytes() as stream:
                reader = csv.open_csv(
                    stream,
                    read_options=csv.ReadOptions(use_threads=threads, block_size=block_size),
                    parse_options=csv.ParseOptions(delimiter=self.delimiter, newlines_in_values=True),
                    convert_options=csv.ConvertOptions(
                        column_types=kinds,
                        include_columns=list(kinds) if columns else [],
                        null_values=missing,
                        strings_can_be_null=True,
                    ),
                )
                names = list(columns) or reader.schema.names
                yield reader.schema.empty_table().rename_columns(names)  # a table without rows has its columns too
                yield from (pa.Table.from_batches([part]).rename_columns(names) for part in reader)
        except pa.ArrowInvalid as error:
            if threads and re.search("Expected|UTF8", str(error)):  # only one thread counts rows
                for _ in self.tables(columns, repeated, rows, threads=False):
                    pass
            if cell := re.search(r"column #(\d+): Row #(\d+): .*UTF8", str(error)):
                name, row = [*self.written][int(cell[1])], self._row(int(cell[2]))
                raise InputError(f"{self.where}: column {name_of(name)}, row {row}: is not UTF-8; {UTF8}.") from None
            raise InputError(f"{self.where}: is not a CSV table in UTF-8: {_why(str(error), self._row)}.") from None

    def _row(self, number: int) -> int:
        """Return the number that an editor shows next to a row; Arrow does not count blank lines."""
        with self.bytes() as stream:
            above_header, blank = blank_lines(stream, self.delimiter)
        return 2 + above_header + int(among_all(number - 2, blank))


def _open_csv(path: Path, where: str) -> TableFile:
    with reading(where, "a CSV table"):
        with _Csv(path, where, ",", 0).bytes() as stream:
            header = stream.read(1 << 16).removeprefix(b"\xef\xbb\xbf").lstrip(b"\r\n").split(b"\n")[0]
        if not _is_utf8(header):
            raise InputError(f"{where}: its header is not UTF-8; {UTF8}.")
        file = _Csv(path, where, chr(max(SEPARATORS, key=re.sub(rb'"[^"]*"', b"", header).count)), len(header))
        with file.bytes() as stream:
            empty_lines = check_quotes(stream, file.delimiter, where)
    written = next(file.tables()).column_names
    names = tuple(name.strip() for name in written)
    file.written.update(zip((*names, *written), 2 * written))  # by either name, so that every column is text
    if not any(names):
        raise InputError(f"{where}: its first line is empty; the names of the columns belong there.")
    twice = next((name for name in names if name and names.count(name) > 1), None)
    if twice is not None:
        raise InputError(_doubled(where, twice, names))
    unnamed, filled = set(_unnamed(names)), set()
    for part in file.tables() if unnamed else ():
        filled |= {place for place in unnamed - filled if part[place].null_count < len(part)}
    first_row = 2
    full = _full_rows(file.tables(missing=[""])) if any(empty_lines) else np.empty(0, dtype=bool)
    to_drop = np.flatnonzero(~full)
    if empty_lines.blank:  # Arrow skips blank lines, but an editor counts them
        with file.bytes() as stream:
            above_header, blank = blank_lines(stream, file.delimiter)
        first_row += above_header
        full = np.insert(full, blank - np.arange(len(blank)), False)

    def read(columns: list[str], repeated: Sequence[str], rows: int) -> Iterator["pa.Table"]:
        tables = file.tables(columns, repeated, rows)
        return _without_rows(tables, to_drop) if len(to_drop) else tables

    doubt = " ".join(filter(None, [_without_name(filled), _empty_sentence(full, first_row)]))
    return TableFile(where, names, first_row, read, doubt=doubt, empty=np.flatnonzero(~full))


def _full_rows(tables: Iterator["pa.Table"]) -> np.ndarray:
    """Return for each row whether some cell holds more than blanks."""
    import pyarrow.compute as pc

    found = []
    for table in tables:
        empty = np.ones(len(table), dtype=bool)
        for column in table.columns:
            text = pc.fill_null(column.cast("string"), "")
            empty &= pc.equal(pc.utf8_trim_whitespace(text), "").to_numpy()
        found.append(~empty)
    return np.concatenate(found)


def _without_rows(tables: Iterator["pa.Table"], places: np.ndarray) -> Iterator["pa.Table"]:
    """Leave out the rows at these positions, which ascend."""
    import pyarrow as pa

    start = 0
    for table in tables:
        first, last = np.searchsorted(places, [start, start + len(table)])
        start += len(table)
        if last > first:
            kept = np.ones(len(table), dtype=bool)
            kept[places[first:last] - (start - len(table))] = False
            table = table.filter(pa.array(kept))
        yield table


def _empty_sentence(full: np.ndarray, first_row: int) -> str:
    """Return a sentence on the empty rows above the last full one; those below it are of no interest."""
    last = np.flatnonzero(full)[-1:].sum()
    empty = (first_row + np.flatnonzero(~full[:last])).tolist()
    if not empty:
        return ""
    if len(empty) == 1:
        return f"row {empty[0]} is empty and left out."
    rows = ", ".join(map(str, empty[:NAMED])) + (", ..." if len(empty) > NAMED else "")
    return f"{len(empty):,} rows are empty and left out: {rows}."


def _unnamed(names: Sequence[str]) -> list[int]:
    """Return the places of columns without a name, except those before all others, which hold row numbers."""
    first = next((place for place, name in enumerate(names) if name), len(names))
    return [place for place, name in enumerate(names) if not name and place > first]


def _without_name(filled: Collection[int]) -> str:
    """Return a sentence on unnamed columns, as below a merged header: their values are not read."""
    if not filled:
        return ""
    places = [str(place + 1) for place in sorted(filled)]
    listed = ", ".join(places[:NAMED]) + (" and others" if len(places) > NAMED else "")
    subject = f"columns {listed} hold values but have" if len(places) > 1 else f"column {listed} holds values but has"
    return f"{subject} no name: these values are not read."


def _doubled(where: str, name: str, names: Sequence[str]) -> str:
    """Return a sentence on two columns of the same name; do not repeat the name if it may be a patient's value."""
    if looks_like_row(names):
        return f"{where}: its first line has {header_of(names)}."
    return f"{where}: has two columns {name_of(name)}; each needs a name of its own."


def _is_utf8(text: bytes) -> bool:
    try:
        codecs.getincrementaldecoder("utf-8")().decode(text)  # accepts a character that is cut at the end
    except UnicodeDecodeError:
        return False
    return True


def _why(message: str, row_number: Callable[[int], int]) -> str:
    """Return Arrow's reason for refusing a CSV, without the cells that it quotes.

    `row_number` turns Arrow's number of a row into that of the file.
    """
    if found := re.search(r"Expected (\d+) columns, got (\d+)", message):
        row = re.search(r"Row #(\d+)", message)
        above = found[1] == "1" or bool(row and row[1] == "2")  # a title, or Excel's line `sep=;`
        place = f"row {row_number(int(row[1]))}: " if row else ""
        title = " (is there a title above the header?)" if above else ""
        return f"{place}{found[2]} cells where the header has {found[1]}{title}"
    if "Empty CSV file" in message:
        return "it is empty; a header row and rows below it are needed"
    if "straddling" in message:
        return f"a row has more than {BLOCK >> 20} MB"
    return "its text is not UTF-8" if "UTF8" in message else "it is damaged, or of another kind"


def _open_excel(path: Path, where: str) -> TableFile:
    """Open the first sheet that holds a table; cells are converted to the text that a person would type."""
    import pyarrow as pa

    try:
        from python_calamine import CalamineWorkbook
    except ImportError as error:
        raise InputError(f"{where}: reading Excel needs `pip install 'mlci[excel]'`; or save it as CSV.") from error
    errors = check_workbook(path, where)
    with reading(where, "a workbook"), CalamineWorkbook.from_path(path) as book:
        sheets = (book.get_sheet_by_index(place) for place in range(len(book.sheet_names)))
        filled = [(sheet.name, found) for sheet in sheets if (found := sheet.to_python(skip_empty_area=False))]
        name, cells = next(filter(_is_table, filled), filled[0] if filled else ("", []))
        doubt = _left_out(book, name, filled)
    start = next((place for place, row in enumerate(cells) if any(map(_as_text, row))), len(cells))
    if start == len(cells):
        raise InputError(f"{where}: is empty; a header row and rows below it are needed.")
    names = [str(_as_text(cell) or "") for cell in cells[start]]
    where += f", sheet {name_of(name)}" if doubt else ""
    body = cells[start + 1 :]
    columns, numbers, dates, rounded = {}, {}, {}, {}
    for place, name in enumerate(names):
        if not name:
            continue
        if name in columns:
            raise InputError(_doubled(where, name, names))
        values = [row[place] for row in body]
        columns[name] = pa.array([_as_text(value) for value in values], pa.string())
        number = [isinstance(value, int | float) and not isinstance(value, bool) for value in values]
        if any(number):
            numbers[name] = start + 2 + number.index(True)
        date = [isinstance(value, DATES) for value in values]
        if any(date):
            dates[name] = start + 2 + date.index(True)
        large = [isinstance(value, int | float) and abs(value) >= EXACT for value in values]
        if any(large):
            rounded[name] = start + 2 + large.index(True)
    full = np.array([any(str(cell).strip() for cell in row) for row in body], dtype=bool)
    table = pa.table(columns).filter(pa.array(full))

    def read(wanted: list[str], repeated: Sequence[str], rows: int) -> Iterator[pa.Table]:
        chosen = table.select(wanted) if wanted else table
        yield from (chosen[place : place + rows] for place in range(0, max(len(chosen), 1), rows))

    filled = [place for place in _unnamed(names) if any(_as_text(row[place]) for row in body)]
    sentences = [doubt, _of_errors(errors), _without_name(filled), _empty_sentence(full, start + 2)]
    doubt = " ".join(filter(None, sentences))
    return TableFile(where, tuple(columns), start + 2, read, numbers, dates, doubt, np.flatnonzero(~full), rounded)


def _is_table(sheet: tuple[str, list[list[Any]]]) -> bool:
    """Return whether a sheet has several columns; a sheet with one column is a cover or a readme."""
    return any(sum(bool(str(cell).strip()) for cell in row) > 1 for row in sheet[1])


def _left_out(book: Any, read: str, sheets: list[tuple[str, list[list[Any]]]]) -> str:
    """Return a sentence that names the visible, filled sheets other than the one that is read."""
    from python_calamine import SheetTypeEnum, SheetVisibleEnum

    seen = {
        sheet.name
        for sheet in book.sheets_metadata
        if (sheet.typ, sheet.visible) == (SheetTypeEnum.WorkSheet, SheetVisibleEnum.Visible)
    }
    filled = [
        name for name, rows in sheets if name in seen - {read} and any(cell != "" for row in rows for cell in row)
    ]
    if not filled:
        return ""
    named = ", ".join(name_of(name) for name in filled[:NAMED]) + (" and others" if len(filled) > NAMED else "")
    return f"only the sheet {name_of(read)} is read; filled too, and left out: {named}."


def _of_errors(many: int) -> str:
    """Return a sentence on cells of a workbook that hold an error, or a formula that was never calculated."""
    if not many:
        return ""
    subject = "1 cell of the workbook holds" if many == 1 else f"{many:,} cells of the workbook hold"
    verb = "counts" if many == 1 else "count"
    return f"{subject} an error, such as #REF!, or a formula without a result, and {verb} as empty."


def _as_text(cell: Any) -> str | None:
    if isinstance(cell, bool):
        return "true" if cell else "false"
    if isinstance(cell, float) and cell.is_integer():
        cell = int(cell)
    text = cell.isoformat(" ") if isinstance(cell, datetime.datetime) else str(cell).strip()
    return None if text in MISSING else text
