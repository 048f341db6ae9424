"""Open a folder of tables with embedded DuckDB: each file becomes a view with the wanted columns and types.

A second view of each file has all columns as they are. Errors name the file, column and row of what is missing or
cannot be read.
"""

import csv
import gzip
import re
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from mlci.base.errors import InputError, columns_of, reading
from mlci.base.files import scratch
from mlci.sources._csv import is_packed
from mlci.sources._csv import read as read_csv

if TYPE_CHECKING:
    import duckdb

Columns = Mapping[str, str]  # column -> Ibis type; with a "?" at the end, the column may be missing and is then null
ENDINGS = (".csv", ".csv.gz", ".parquet")
TYPES = {"int64": "BIGINT", "float64": "DOUBLE", "string": "VARCHAR", "timestamp": "TIMESTAMP", "date": "DATE"}
ROWS = 1 << 18  # rows per batch of a result
WHOLE = {f"{sign}{size}" for sign in ("", "U") for size in ("TINYINT", "SMALLINT", "INTEGER", "BIGINT")}
NUMBERS = WHOLE | {"FLOAT", "DOUBLE"}


@dataclass(frozen=True)
class Folder:
    """A connection to DuckDB in which each table is a view."""

    connection: "duckdb.DuckDBPyConnection"
    views: dict[str, str]  # table -> view; `raw` of its name is the view of the file as it is
    where: dict[str, str]  # table -> file
    read: dict[str, pa.Table]  # view -> a file that Arrow has read
    exact: bool  # whether all columns have exactly the wanted types, rather than related ones

    def answers(self, queries: Sequence[tuple[str, Callable[[pa.RecordBatchReader], Any]]]) -> list[Any] | None:
        """Run queries at the same time; return what their functions make of the rows, or None if DuckDB refuses one."""
        import duckdb

        def answer(cursor: "duckdb.DuckDBPyConnection", query: tuple[str, Callable]) -> Any:
            return query[1](cursor.sql(query[0]).to_arrow_reader(ROWS))

        cursors = [self._cursor() for _ in queries]
        with ThreadPoolExecutor(1 + len(queries)) as pool:
            try:
                found = pool.map(answer, cursors, queries)
                pool.submit(import_module, "pyarrow.parquet")  # will be needed to write the cohort
                return list(found)
            except duckdb.Error:
                return None
            except BaseException:  # Ctrl-C: stop all queries
                for cursor in cursors:
                    cursor.interrupt()
                raise

    def _cursor(self) -> "duckdb.DuckDBPyConnection":
        cursor = self.connection.cursor()
        for view, table in self.read.items():
            cursor.register(view, table)
        return cursor


def raw(view: str) -> str:
    """Return the name of the view with all columns of a table's file as they are."""
    return f"{view}/raw"


def open_folder(
    folder: Path, wanted: Mapping[str, Columns], prefix: str, aliases: Mapping[str, str], optional: Collection[str]
) -> Folder:
    """Find the file of each wanted table, read the CSV files, and make the views."""
    if not folder.is_dir():
        reason = "is a file" if folder.exists() else "does not exist"
        raise InputError(f"{folder}: {reason}; a folder with the tables or a database URL is needed.")
    found = {
        name: _find_file(folder, f"{prefix}{name}", aliases.get(name), optional=name in optional) for name in wanted
    }
    files = {name: file for name, file in found.items() if file is not None}
    kinds = {name: _kinds(file, wanted[name]) for name, file in files.items() if ".csv" in file.name.lower()}
    longest_first = sorted(kinds, key=lambda name: -files[name].stat().st_size)  # each is decompressed on one core
    with ThreadPoolExecutor(1 + len(kinds)) as pool:
        parsed = {name: pool.submit(_in_memory, files[name], kinds[name], wanted[name]) for name in longest_first}
        if kinds:
            pool.submit(import_module, "pyarrow.dataset")  # DuckDB will import it with the first Arrow table
        connection, spill = _duckdb()
    views = {name: name.replace(".", "_") for name in files}
    read = {raw(views[name]): table for name, future in parsed.items() if (table := future.result()) is not None}
    exact = True
    for name, file in files.items():
        view = views[name]
        if raw(view) in read:
            connection.register(raw(view), read[raw(view)])  # nothing is copied
        else:
            scan = _csv_scan(file, kinds[name]) if name in kinds else _parquet_scan(file)
            with reading(file, "a table"):
                connection.execute(f'CREATE VIEW "{raw(view)}" AS FROM {scan}')
        exact &= _shape(connection, view, wanted[name], str(file))
    opened = Folder(connection, views, {name: str(file) for name, file in files.items()}, read, exact)
    weakref.finalize(opened, spill.close)
    return opened


def _duckdb() -> "tuple[duckdb.DuckDBPyConnection, ExitStack]":
    """Return an embedded DuckDB, and its temporary folder, which must be closed after it."""
    import duckdb

    # By default DuckDB may use most of the memory; with this limit it writes temporary data to disk instead.
    # The folder is for this connection alone: two connections that share one crash, and the data are private.
    spill = ExitStack()
    settings: Any = {"memory_limit": "2GB", "temp_directory": str(spill.enter_context(scratch()))}
    connection = duckdb.connect(config=settings)
    connection.execute("SET enable_progress_bar = false")
    return connection, spill


def _shape(connection: "duckdb.DuckDBPyConnection", view: str, columns: Columns, where: str) -> bool:
    """Make a view with exactly the wanted columns, in lower case; return whether all have exactly the wanted types."""
    file = connection.sql(f'FROM "{raw(view)}"')
    actual = {name.lower(): (name, str(kind)) for name, kind in zip(file.columns, file.types)}
    chosen, exact = [], True
    for name, kind in columns.items():
        optional, kind = kind.endswith("?"), TYPES[kind.removesuffix("?")]
        if name not in actual and not optional:
            raise InputError(f"{where}: lacks the column {name}; {columns_of(file.columns, columns)}.")
        column, found = actual.get(name, (None, kind))
        if kind in ("TIMESTAMP", "DATE") and found in NUMBERS:
            raise InputError(f"{where}: column {name}: is {found}; {kind.lower()} is needed.")
        cell = "NULL" if column is None else '"' + column.replace('"', '""') + '"'
        related = found in WHOLE if kind == "BIGINT" else found.startswith(kind)
        chosen.append(f'{cell if related and column else f"CAST({cell} AS {kind})"} AS "{name}"')
        exact &= not related or kind in (found, "BIGINT")
    connection.execute(f'CREATE VIEW "{view}" AS SELECT {", ".join(chosen)} FROM "{raw(view)}"')
    return exact


def _find_file(folder: Path, name: str, alias: str | None = None, *, optional: bool = False) -> Path | None:
    """Return the one file of a table, in the folder or one of its subfolders (MIMIC-IV's hosp/ and icu/)."""
    names = {f"{text}{ending}".lower() for text in (name, alias) if text for ending in ENDINGS}
    inside = {text.replace(".", "/", 1) for text in names}  # ward.stays may be ward/stays
    found = [
        file
        for pattern in ("*", "*/*")
        for file in sorted(folder.glob(pattern))
        if file.name.lower() in names or (file.parent != folder and f"{file.parent.name}/{file.name}".lower() in inside)
    ]
    if not found and optional:
        return None
    if not found:
        allowed = ", ".join(f"{name}{ending}" for ending in ENDINGS)
        raise InputError(
            f"{folder}: lacks the table {name}; allowed are {allowed}, in capitals or not, here or one folder down."
        )
    if len(found) > 1:
        raise InputError(f"{folder}: holds the table {name} {len(found)} times ({found[0]}, {found[1]}); leave one.")
    return found[0]


def _kinds(file: Path, columns: Columns) -> dict[str, str]:
    """Return the columns of a CSV file with their types; those that are not wanted are text."""
    header = _header(file)
    lower = [name.lower() for name in header]
    missing = [name for name, kind in columns.items() if name not in lower and not kind.endswith("?")]
    if missing and len(header) == 1:
        raise InputError(f"{file}: the first line has one column; the separator must be a comma.")
    if missing:
        raise InputError(f"{file}: lacks the column {missing[0]}; {columns_of(header, columns)}.")
    return {name: columns.get(name.lower(), "string").removesuffix("?") for name in header}


def _in_memory(file: Path, kinds: Mapping[str, str], columns: Columns) -> pa.Table | None:
    return read_csv(file, {name: kind for name, kind in kinds.items() if name.lower() in columns})


def _csv_scan(file: Path, kinds: Mapping[str, str]) -> str:
    """Return the SQL with which DuckDB reads a CSV file; all types are given, so that DuckDB guesses nothing."""
    types = ", ".join(f"{_quoted(name)}: {TYPES[kind]!r}" for name, kind in kinds.items())
    packed = "gzip" if is_packed(file) else "none"  # DuckDB recognises .gz in small letters only
    form = f"""header=true, auto_detect=false, delim=',', quote='"', escape='"', compression={packed!r}"""
    return f"read_csv({_quoted(_literal(file))}, {form}, columns={{{types}}})"


def _header(file: Path) -> list[str]:
    opened = gzip.open if is_packed(file) else open
    try:
        with opened(file, "rt", encoding="utf-8-sig", errors="replace", newline="") as lines:  # rows are checked later
            header = next(csv.reader(lines), None)
    except (gzip.BadGzipFile, EOFError, csv.Error) as error:
        raise InputError(
            f"{file}: is not readable as {'gzipped ' * (opened is gzip.open)}CSV text ({error})."
        ) from error
    if header is None:
        raise InputError(f"{file}: is empty; a header line and rows are needed.")
    if not any(map(str.strip, header)):
        raise InputError(f"{file}: its first line is empty; the names of the columns belong there.")
    if any("\N{REPLACEMENT CHARACTER}" in name for name in header):
        raise InputError(f"{file}: is not readable as CSV text: its header is not UTF-8; save the table as CSV UTF-8.")
    return header


def _parquet_scan(file: Path) -> str:
    with file.open("rb") as stream:  # raises the errors of the file system
        if stream.read(4) != b"PAR1":
            raise InputError(f"{file}: is not a Parquet file.")
    return f"read_parquet({_quoted(_literal(file))})"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _literal(file: Path) -> str:
    """Return the path, escaped for DuckDB, which would read names such as x[1] or h* as patterns."""
    return re.sub(r"[*?\[]", r"[\g<0>]", str(file))
