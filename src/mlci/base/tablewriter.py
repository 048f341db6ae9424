"""Write Arrow tables, some rows at a time, to the kind of file that a name asks for: Parquet, CSV or Excel."""

import contextlib
import io
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlci.base.errors import InputError
from mlci.base.files import atomic
from mlci.base.parquet import WRITTEN
from mlci.base.tablefile import STANDARD
from mlci.base.workbooks import new_workbook

if TYPE_CHECKING:
    import pyarrow as pa

EXCEL_ROWS = 1_048_575  # rows of a sheet below its header
DIGITS = 10**15  # from here on, a spreadsheet shows zeros in place of the last digits of a whole number


@contextlib.contextmanager
def writing(
    target: str | Path, *, inputs: Sequence[str | Path] = (), repeated: bool | Sequence[str] = False
) -> Iterator[Callable[["pa.Table"], None]]:
    """Open a table file to be written some rows at a time; it appears when the block ends without an error.

    Args:
        target: a Parquet, CSV or Excel file, or `-` for CSV on standard output.
        inputs: files that are read at the same time and must not be overwritten.
        repeated: the columns whose values repeat, or True for all (Parquet).

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
        if str(target) == STANDARD and isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(encoding="utf-8")  # as every file, whatever the locale
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
    """Return the package that writes workbooks; if it is missing, the error says how to install it."""
    try:
        import xlsxwriter
    except ImportError as error:
        raise InputError("writing Excel needs `pip install 'mlci[excel]'`; or name the output .csv.") from error
    return xlsxwriter


class _Sheet:
    """A workbook with one sheet, written row by row in little memory; text never becomes a formula or a link."""

    def __init__(self, path: str, names: Sequence[str]):
        options = {"constant_memory": True, "strings_to_formulas": False, "strings_to_urls": False}
        self.making = new_workbook(path, options)
        self.sheet = self.making.__enter__().add_worksheet()
        self.sheet.write_row(0, 0, names)
        self.row = 0

    def __enter__(self) -> "_Sheet":
        return self

    def __exit__(self, *failure: Any) -> None:
        self.making.__exit__(*failure)

    def write_table(self, table: "pa.Table") -> None:
        if self.row + len(table) > EXCEL_ROWS:
            raise InputError(f"a sheet of Excel holds {EXCEL_ROWS:,} rows; write .parquet or .csv.")
        for row in zip(*(column.to_pylist() for column in table.columns)):
            self.row += 1
            self.sheet.write_row(self.row, 0, map(_as_cell, row))


def _as_cell(value: Any) -> Any:
    """Return a value as a workbook can hold it: nothing in place of NaN, and text in place of a long whole number."""
    if isinstance(value, int) and abs(value) >= DIGITS:
        return str(value)
    return None if value != value else value
