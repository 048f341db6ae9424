"""Tables in files: CSV, Parquet, Excel or standard input in, Arrow tables out, some rows at a time; and the way back.

`open_table` says which columns a file has and reads those that are wanted, as often as wanted. What a file does not
type itself (CSV, Excel) comes as text, so that nothing is guessed and no zero is lost; what stands for "not known"
comes as null. `writing` writes tables to the kind of file that a name asks for.
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

from mlci.base.errors import InputError, header_of, looks_like_row, name_of, reading
from mlci.base.files import atomic, scratch
from mlci.base.parquet import WRITTEN, open_parquet, plain
from mlci.base.quotes import check_quotes
from mlci.base.workbooks import check_workbook

if TYPE_CHECKING:
    import pyarrow as pa

STANDARD = "-"  # standard input, or output
MISSING = ("", "NA", "N/A", "NaN", "nan", "NULL", "null", "None", "none", "#N/A", "?", ".", "-", "Unknown", "unknown")
ROWS = 131_072  # of a table that is read at once
BLOCK = 1 << 21  # bytes of a CSV that are parsed at once, at least: no row may be longer
SEPARATORS = b",;\t|"
SHEETS = 5  # that are named where they are left out, and so many columns
EXCEL_ROWS = 1_048_575  # below its header
KINDS = ".csv, .tsv, .txt (also .gz, .bz2, .zst), .parquet or .xlsx"
_CSV = re.compile(r"\.(csv|tsv|txt)(\.(gz|bz2|zst))?$")
_PACKED = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
_EXCEL = re.compile(r"\.(xlsx|xlsm)$")
_OTHER_SHEETS = re.compile(r"\.(xls|xlsb|ods|numbers)$")


@dataclass(frozen=True)
class TableFile:
    """A table that can be read again and again, whatever kind of file it lies in."""

    where: str  # as messages call it
    names: tuple[str, ...]
    first_row: int  # the number that an editor shows beside the first row: 2 below a header
    rows: Callable[[list[str], Sequence[str], int], Iterator["pa.Table"]]
    numbers: Mapping[str, int] = field(default_factory=dict)  # Excel: column -> first row whose cell is a number
    doubt: str = ""  # what of the file is left out, in a sentence

    def __str__(self) -> str:
        return self.where

    def read(self, columns: Sequence[str], *, repeated: Sequence[str] = (), rows: int = ROWS) -> Iterator["pa.Table"]:
        """Read the table from its beginning.

        Args:
            columns: which columns.
            repeated: those whose values come often; they are dictionary-encoded where that is cheap.
            rows: about how many at a time.

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


def is_sheet(path: str | Path) -> bool:
    """Return whether a `path` is named as CSV or Excel.

    >>> is_sheet("visits.CSV.gz"), is_sheet("cohort.parquet")
    (True, False)
    """
    name = Path(path).name.lower()
    return bool(_CSV.search(name) or _EXCEL.search(name))


@contextlib.contextmanager
def open_table(path: str | Path | TableFile) -> Iterator[TableFile]:
    """Open a table by the ending of its name, to be used in a `with`.

    Args:
        path: a CSV, Parquet or Excel file, `-` for standard input, or a table that is open, which is given back.

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
    """Write standard input to a file, so that it can be read twice; its first bytes say what it is."""
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
    """Open a Parquet file, or some of its row groups, wherever it lies.

    Args:
        path: the file.
        where: what messages call it.
        groups: the numbers of the row groups to read; all by default.
        filesystem: of `pyarrow.fs`, for a file that does not lie on this machine.

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
        # Parquet stores each distinct text once per row group: take its dictionary rather than build our own. (A batch
        # across row groups would have two of them, which Arrow cannot hold inside a list.) So no text is multiplied in
        # memory before its length was seen.
        text = [leaf for leaf in texts if leaf.split(".")[0] in columns]
        options = {"filesystem": filesystem, "read_dictionary": text}
        with open_parquet(path, **options) as file, reading(where, "Parquet"):
            for group in range(file.num_row_groups) if groups is None else groups:
                for part in file.iter_batches(rows, row_groups=[group], columns=columns):
                    table = pa.Table.from_batches([part]).select(columns)
                    yield plain(table, where, [name for name in columns if name not in repeated])

    return TableFile(where, names, 1, read)


def _open_csv(path: Path, where: str) -> TableFile:
    import pyarrow as pa
    from pyarrow import csv

    packed = _PACKED.get(path.suffix.lower())

    with reading(where, "a CSV table"):
        with pa.input_stream(str(path), compression=packed) as stream:
            header = stream.read(1 << 16).split(b"\n")[0]
        if not _is_utf8(header):
            raise InputError(f"{where}: its header is not UTF-8; save the table as CSV UTF-8, or as .xlsx.")
        delimiter = chr(max(SEPARATORS, key=header.count))
        with pa.input_stream(str(path), compression=packed) as stream:
            check_quotes(stream, delimiter, where)

    written: dict[str, str] = {}  # of each column its name in the file, which may have blanks around it

    def blocks(columns: list[str], repeated: Sequence[str], rows: int, threads: bool = True) -> Iterator[pa.Table]:
        often, plainly = pa.dictionary(pa.int32(), pa.string()), pa.string()
        kinds = {written[name]: often if name in repeated else plainly for name in columns or written}
        try:
            with pa.input_stream(str(path), compression=packed) as stream:
                reader = csv.open_csv(
                    stream,
                    read_options=csv.ReadOptions(
                        use_threads=threads, block_size=max(BLOCK, 16 * rows) + 2 * len(header)
                    ),
                    parse_options=csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
                    convert_options=csv.ConvertOptions(
                        column_types=kinds,
                        include_columns=list(kinds) if columns else [],
                        null_values=MISSING,
                        strings_can_be_null=True,
                    ),
                )
                names = columns or reader.schema.names
                yield reader.schema.empty_table().rename_columns(names)  # a table without rows has its columns too
                yield from (pa.Table.from_batches([part]).rename_columns(names) for part in reader)
        except pa.ArrowInvalid as error:
            if threads and "Expected" in str(error):  # a row that is cut short: one thread alone counts them
                for _ in blocks(columns, repeated, rows, threads=False):
                    pass
            raise InputError(f"{where}: is not a CSV table in UTF-8: {_why(str(error))}.") from None

    found = next(blocks([], (), ROWS)).column_names
    names = tuple(name.strip() for name in found)
    written.update(zip(names, found))
    twice = next((name for name in names if name and names.count(name) > 1), None)
    if twice is not None:
        raise InputError(_doubled(where, twice, names))
    unnamed, filled = set(_unnamed(names)), set()
    for part in blocks([], (), ROWS) if unnamed else ():
        filled |= {place for place in unnamed - filled if part[place].null_count < len(part)}
    return TableFile(where, names, 2, blocks, doubt=_without_name(filled))


def _unnamed(names: Sequence[str]) -> list[int]:
    """Return the places of the columns that have no name, but for the numbers of rows that stand before all names."""
    first = next((place for place, name in enumerate(names) if name), len(names))
    return [place for place, name in enumerate(names) if not name and place > first]


def _without_name(filled: Collection[int]) -> str:
    """Return a sentence on columns, by their places, that hold values and are not read, as below a merged header."""
    if not filled:
        return ""
    places = [str(place + 1) for place in sorted(filled)]
    told = ", ".join(places[:SHEETS]) + (" and others" if len(places) > SHEETS else "")
    held = f"columns {told} hold values but have" if len(places) > 1 else f"column {told} holds values but has"
    return f"{held} no name: what stands there is not read."


def _doubled(where: str, name: str, names: Sequence[str]) -> str:
    """Return a sentence on two columns of one name, which is no name where the first line is a patient's row."""
    if looks_like_row(names):
        return f"{where}: its first line has {header_of(names)}."
    return f"{where}: has two columns {name_of(name)}; each needs a name of its own."


def _is_utf8(text: bytes) -> bool:
    try:
        codecs.getincrementaldecoder("utf-8")().decode(text)  # which minds no character that is cut in half at the end
    except UnicodeDecodeError:
        return False
    return True


def _why(message: str) -> str:
    """Return what Arrow has against a CSV, without the cells that it quotes."""
    if found := re.search(r"Expected (\d+) columns, got (\d+)", message):
        row = re.search(r"Row #(\d+)", message)
        title = " (does a title stand above the header?)" if found[1] == "1" else ""
        return f"{f'row {row[1]}: ' if row else ''}{found[2]} cells where the header has {found[1]}{title}"
    if "Empty CSV file" in message:
        return "it is empty; a header row and rows below it are needed"
    if "straddling" in message:
        return f"a row has more than {BLOCK >> 20} MB"
    return "its text is not UTF-8" if "UTF8" in message else "it is damaged, or of another kind"


def _open_excel(path: Path, where: str) -> TableFile:
    """Return the first sheet that holds a table; its cells become text as a person would type them."""
    import pyarrow as pa

    try:
        from python_calamine import CalamineWorkbook
    except ImportError as error:
        raise InputError(f"{where}: reading Excel needs `pip install 'mlci[excel]'`; or save it as CSV.") from error
    check_workbook(path, where)
    with reading(where, "a workbook"), CalamineWorkbook.from_path(path) as book:
        sheets = (book.get_sheet_by_index(place) for place in range(len(book.sheet_names)))
        filled = [(sheet.name, found) for sheet in sheets if (found := sheet.to_python(skip_empty_area=False))]
        name, cells = next(filter(_is_table, filled), filled[0] if filled else ("", []))
        doubt = _left_out(book, name, filled)
    start = next((place for place, row in enumerate(cells) if any(cell != "" for cell in row)), len(cells))
    if start == len(cells):
        raise InputError(f"{where}: is empty; a header row and rows below it are needed.")
    names = [str(_as_text(cell) or "") for cell in cells[start]]
    body = cells[start + 1 :]
    columns, numbers = {}, {}
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
    table = pa.table(columns)
    full = [any(cell != "" for cell in row) for row in body]
    while full and not full[-1]:  # rows that were only formatted
        full.pop()
    table = table[: len(full)]

    def read(wanted: list[str], repeated: Sequence[str], rows: int) -> Iterator[pa.Table]:
        chosen = table.select(wanted) if wanted else table
        yield from (chosen[place : place + rows] for place in range(0, max(len(chosen), 1), rows))

    filled = [place for place in _unnamed(names) if any(_as_text(row[place]) for row in body)]
    doubt = " ".join(filter(None, [doubt, _without_name(filled)]))
    return TableFile(where, tuple(columns), start + 2, read, numbers, doubt)


def _is_table(sheet: tuple[str, list[list[Any]]]) -> bool:
    """Return whether a sheet has two columns or more: one on its own is a cover, or a readme."""
    return any(sum(cell != "" for cell in row) > 1 for row in sheet[1])


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
    named = ", ".join(name_of(name) for name in filled[:SHEETS]) + (" and others" if len(filled) > SHEETS else "")
    return f"only the sheet {name_of(read)} is read; filled too, and left out: {named}."


def _as_text(cell: Any) -> str | None:
    if isinstance(cell, bool):
        return "true" if cell else "false"
    if isinstance(cell, float) and cell.is_integer():
        cell = int(cell)
    text = cell.isoformat(" ") if isinstance(cell, datetime.datetime) else str(cell).strip()
    return None if text in MISSING else text


@contextlib.contextmanager
def writing(
    target: str | Path, *, inputs: Sequence[str | Path] = (), repeated: bool | Sequence[str] = False
) -> Iterator[Callable[["pa.Table"], None]]:
    """Open a table file to be written some rows at a time; it appears when the block ends without an error.

    Args:
        target: a Parquet, CSV or Excel file, or `-` for CSV on standard output.
        inputs: files that are read meanwhile, and must not be overwritten.
        repeated: the columns whose values come often, or True for all (Parquet).

    Yields:
        A function that writes one table after another.

    >>> import pyarrow as pa
    >>> with writing("-") as write:
    ...     write(pa.table({"admission_id": [7], "score": [0.5]}))
    "admission_id","score"
    7,0.5
    """
    kind = "csv" if str(target) == STANDARD else Path(target).suffix.lower().removeprefix(".")
    if kind not in ("csv", "parquet", "pq", "xlsx"):
        raise InputError(f"{target}: scores are written as .parquet, .csv or .xlsx, or (-) as CSV to standard output.")
    if kind == "xlsx":
        _excel()
    with contextlib.ExitStack() as stack:
        place: Any = _Standard()
        if str(target) == STANDARD and sys.stdout is None:
            raise InputError("standard output is closed; name a file.")
        if str(target) != STANDARD:
            place = str(stack.enter_context(atomic(target, inputs=[path for path in inputs if str(path) != STANDARD])))
        sink: Any = None

        def write(table: "pa.Table") -> None:
            nonlocal sink
            if sink is None:
                sink = stack.enter_context(_sink(kind, place, table.schema, repeated))
            sink.write_table(table)

        yield write


def _sink(kind: str, place: Any, schema: "pa.Schema", repeated: bool | Sequence[str]) -> Any:
    from pyarrow import csv, parquet

    if kind == "csv":
        return csv.CSVWriter(place, schema)
    if kind == "xlsx":
        return _Sheet(place, schema.names)
    return parquet.ParquetWriter(place, schema, use_dictionary=repeated, **WRITTEN)


class _Standard:
    """Standard output as a file that Arrow may write to and close."""

    closed = False

    def write(self, data: Any) -> int:
        text = bytes(data).decode()
        sys.stdout.write(text)
        return len(data)

    def flush(self) -> None:
        sys.stdout.flush()

    def close(self) -> None:
        sys.stdout.flush()
        self.closed = True


def _excel() -> Any:
    """Return the package that writes workbooks, or raise a sentence that says how to get it."""
    try:
        import xlsxwriter
    except ImportError as error:
        raise InputError("writing Excel needs `pip install 'mlci[excel]'`; or name the output .csv.") from error
    return xlsxwriter


class _Sheet:
    """One sheet that is written row by row, in little memory; text stays text, whatever it begins with."""

    def __init__(self, path: str, names: Sequence[str]):
        options = {"constant_memory": True, "strings_to_formulas": False, "strings_to_urls": False}
        self.book = _excel().Workbook(path, options)
        self.sheet = self.book.add_worksheet()
        self.sheet.write_row(0, 0, names)
        self.row = 0

    def __enter__(self) -> "_Sheet":
        return self

    def __exit__(self, kind: Any, *_: object) -> None:
        self.book.close()

    def write_table(self, table: "pa.Table") -> None:
        if self.row + len(table) > EXCEL_ROWS:
            raise InputError(f"a sheet of Excel holds {EXCEL_ROWS:,} rows; write .parquet or .csv.")
        for row in zip(*(column.to_pylist() for column in table.columns)):
            self.row += 1
            self.sheet.write_row(self.row, 0, [None if value != value else value for value in row])
