"""Tables where they lie: a folder read by embedded DuckDB, a database by its URL, or a backend that is already open.

In comes a location and the columns that a source needs, with their types; out come Ibis tables with exactly those
columns, in lower case. A message names the file, column and row of what is missing or unreadable.
"""

import csv
import gzip
import re
import weakref
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

import ibis
import ibis.expr.types as ir
import pyarrow as pa
from ibis.expr import datatypes as dt

from mlci.base.errors import InputError, address, columns_of, kind_of, without_secrets
from mlci.base.extras import need
from mlci.base.files import scratch
from mlci.sources._csv import is_packed
from mlci.sources._csv import read as read_csv

Columns = Mapping[str, str]  # column -> Ibis type; a type that ends in "?" may be missing and is then null
ENDINGS = (".csv", ".csv.gz", ".parquet")
DUCKDB_TYPES = {"int64": "BIGINT", "float64": "DOUBLE", "string": "VARCHAR", "timestamp": "TIMESTAMP", "date": "DATE"}
ENGINES = ("duckdb", "_duckdb", "psycopg", "pyspark", "py4j", "google", "snowflake", "ibis")


@dataclass(frozen=True)
class Tables:
    """Opened tables by name, and how each is called in a message."""

    tables: dict[str, ir.Table]
    where: dict[str, str]
    backend: Any  # of Ibis: each engine has a class of its own
    ours: bool  # opened here, to be closed here

    def __getitem__(self, name: str) -> ir.Table:
        return self.tables[name]

    def __contains__(self, name: object) -> bool:
        return name in self.tables

    def __enter__(self) -> "Tables":
        return self

    def __exit__(self, *_: object) -> None:
        if self.ours:
            self.backend.disconnect()

    def fetch(self, expression: ir.Table) -> pa.Table:
        """Run an expression where the tables lie; say in one sentence what the engine refuses."""
        try:
            query = self.backend.compile(expression)
            if self.backend.name == "pyspark":  # Ibis would go through pandas, which Spark calls in an outdated way
                return self.backend._session.sql(query).toArrow()
            if self.backend.name == "duckdb":  # Ibis would copy the result once more
                return self.backend.con.sql(query).to_arrow_table()
            return self.backend.to_pyarrow(expression)
        except Exception as error:  # engines share no base class: errors are recognised by module, others go on
            if type(error).__module__.split(".")[0] not in ENGINES:
                raise
            raise InputError(_csv_sentence(str(error)) or self._cast_sentence() or self._sentence(error)) from None

    def count(self, expression: ir.Table) -> int:
        """Return how many rows an expression has, counted where the tables lie."""
        return self.fetch(expression.agg(n=expression.count()))["n"][0].as_py()

    def _cast_sentence(self) -> str | None:
        """Return the first text in a table of DuckDB that is not of its column's type."""
        for name, table in self.tables.items() if self.backend.name == "duckdb" else ():
            operation: Any = table.op()
            raw = operation.parent.to_expr()
            for column, kind in table.schema().items():
                there = next((other for other in raw.columns if other.lower() == column), None)
                if there is None or not raw[there].type().is_string() or kind.is_string():
                    continue
                odd = raw.filter(raw[there].notnull() & raw[there].try_cast(kind).isnull()).select(value=there)
                values = self.backend.to_pyarrow(odd)["value"]
                if len(values):
                    return _no(f"{self.where[name]}: column {column}, {len(values)} rows", values[0].as_py(), str(kind))
        return None

    def _sentence(self, error: Exception) -> str:
        """Return the engine's own first line, with names of tables and columns and no other quoted word or number."""
        known = {*self.tables, *(column for table in self.tables.values() for column in table.columns)}
        line = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
        quoted = re.sub(r"'[^']*'|\"[^\"]*\"", lambda text: text[0] if text[0][1:-1].lower() in known else "...", line)
        return f"{', '.join(self.where.values())}: {re.sub('[0-9]+', '...', quoted)}."


def open_tables(
    location: Any,
    wanted: Mapping[str, Columns],
    *,
    schemas: Sequence[str] = (),
    prefix: str = "",
    aliases: Mapping[str, str] = MappingProxyType({}),
    optional: Collection[str] = (),
) -> Tables:
    """Open the wanted tables, to be used in a `with`; names match in any case.

    `schemas` of a database are searched in order, then its default one; a table may also be named with its schema
    (`ward.stays`), which in a folder is a subfolder. `aliases` are other names of tables; `optional` tables may be
    missing and are then not among those opened.
    """
    if isinstance(location, str | Path) and "://" not in str(location):
        backend, found, where = _open_folder(Path(location), wanted, prefix, aliases, optional)
    else:
        backend, found, where = _open_database(location, wanted, schemas, prefix, aliases, optional)
    lax = backend.name == "pyspark"
    shaped = {name: _shape(found[name], wanted[name], where[name], lax=lax) for name in wanted if name in found}
    return Tables(shaped, where, backend, ours=isinstance(location, str | Path))


def _shape(table: ir.Table, columns: Columns, where: str, *, lax: bool) -> ir.Table:
    """Return exactly the columns wanted, in lower case, of the wanted types."""
    actual = {name.lower(): name for name in table.columns}
    chosen = {}
    for name, kind in columns.items():
        optional, kind = kind.endswith("?"), kind.removesuffix("?")
        if name in actual:
            chosen[name] = _cast(table[actual[name]], dt.dtype(kind), f"{where}: column {name}", lax)
        elif optional:
            chosen[name] = ibis.null(kind)
        else:
            raise InputError(f"{where}: lacks the column {name}; {columns_of(table.columns, columns)}.")
    return table.select(**chosen)


def _cast(column: Any, kind: dt.DataType, where: str, lax: bool) -> Any:
    if lax and column.type().is_string() and not kind.is_string():
        raise InputError(f"{where}: is text; Spark would turn what it cannot read into null, so {kind} is needed.")
    same = (dt.DataType.is_integer, dt.DataType.is_timestamp, dt.DataType.is_string)
    return column if any(test(kind) and test(column.type()) for test in same) else column.cast(kind)


def _open_folder(
    folder: Path, wanted: Mapping[str, Columns], prefix: str, aliases: Mapping[str, str], optional: Collection[str]
):
    if not folder.is_dir():
        reason = "is a file" if folder.exists() else "does not exist"
        raise InputError(f"{folder}: {reason}; a folder with the tables or a database URL is needed.")
    found = {
        name: _find_file(folder, f"{prefix}{name}", aliases.get(name), optional=name in optional) for name in wanted
    }
    files = {name: file for name, file in found.items() if file is not None}
    kinds = {name: _kinds(file, wanted[name]) for name, file in files.items() if ".csv" in file.name.lower()}
    with ThreadPoolExecutor(1 + len(kinds)) as pool:
        reading = {name: pool.submit(_in_memory, files[name], kinds[name], wanted[name]) for name in kinds}
        if kinds:
            pool.submit(import_module, "pyarrow.dataset")  # DuckDB imports it once it is handed a table
        backend = _duckdb()
    read = {name: table.result() for name, table in reading.items()}
    tables = {}
    for name, file in files.items():
        table = read.get(name)
        if table is not None:
            view = name.replace(".", "_")
            backend.con.register(view, table)  # nothing is copied
            tables[name] = backend.table(view)
        elif name in kinds:
            tables[name] = _read_csv(backend, file, kinds[name])
        else:
            tables[name] = _read_parquet(backend, file)
    return backend, tables, {name: str(file) for name, file in files.items()}


def _duckdb() -> Any:
    """Return an embedded DuckDB, whose libraries take as long to import as a file to read."""
    # Half the machine would be wasted on hashing less than a gigabyte; the limit makes DuckDB spill instead.
    # Its folder is for this connection alone: two that share one crash, and no one else may read what lies there.
    spill = ExitStack()
    backend = ibis.duckdb.connect(memory_limit="2GB", temp_directory=str(spill.enter_context(scratch())))
    weakref.finalize(backend, spill.close)
    # The order of rows and of collected codes is made later, so that DuckDB need not keep the files'.
    backend.raw_sql("SET enable_progress_bar = false; SET preserve_insertion_order = false")
    return backend


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
            f"{folder}: lacks the table {name}; allowed are {allowed}, in any case, here or one folder down."
        )
    if len(found) > 1:
        raise InputError(f"{folder}: holds the table {name} {len(found)} times ({found[0]}, {found[1]}); leave one.")
    return found[0]


def _kinds(file: Path, columns: Columns) -> dict[str, str]:
    """Return the columns of a CSV file, each with its type: the wanted ones as wanted, the others as text."""
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


def _read_csv(backend: ibis.BaseBackend, file: Path, kinds: Mapping[str, str]) -> ir.Table:
    """Read a CSV file by DuckDB; nothing is guessed, and text that nobody asks for is not parsed."""
    types = {name: DUCKDB_TYPES[kind] for name, kind in kinds.items()}
    form: dict[str, Any] = {"header": True, "auto_detect": False, "delim": ",", "quote": '"', "escape": '"'}
    form["compression"] = "gzip" if is_packed(file) else "none"  # DuckDB looks for .gz in lower case alone
    return backend.read_csv(_literal(file), columns=types, **form)


def _header(file: Path) -> list[str]:
    opened = gzip.open if is_packed(file) else open
    try:
        with opened(file, "rt", encoding="utf-8-sig", newline="") as lines:
            header = next(csv.reader(lines), [])
    except (gzip.BadGzipFile, EOFError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(
            f"{file}: is not readable as {'gzipped ' * (opened is gzip.open)}CSV text ({error})."
        ) from error
    if not header:
        raise InputError(f"{file}: is empty; a header line and rows are needed.")
    return header


def _read_parquet(backend: ibis.BaseBackend, file: Path) -> ir.Table:
    with file.open("rb") as stream:  # raises what the file system itself refuses
        if stream.read(4) != b"PAR1":
            raise InputError(f"{file}: is not a Parquet file.")
    return backend.read_parquet(_literal(file))


def _literal(file: Path) -> str:
    """Return the path as DuckDB writes one that is no pattern: a folder may be named x[1] or h*."""
    return re.sub(r"[*?\[]", r"[\g<0>]", str(file))


def _open_database(
    location: Any,
    wanted: Mapping[str, Columns],
    schemas: Sequence[str],
    prefix: str,
    aliases: Mapping[str, str],
    optional: Collection[str],
):
    if isinstance(location, str):
        shown = address(location)
        if urlsplit(location).scheme in ("postgres", "postgresql"):
            need("postgres", to="read from a PostgreSQL database")
        try:
            if urlsplit(location).scheme == "duckdb" and "read_only" not in location:
                location += ("&" if "?" in location else "?") + "read_only=True"
            backend: Any = ibis.connect(location)
        except Exception as error:  # whatever a driver raises, there is no connection
            reason = without_secrets(str(error), location) or type(error).__name__
            raise InputError(f"{shown}: no connection ({reason}).") from None
    else:
        backend = location if isinstance(location, ibis.BaseBackend) else ibis.pyspark.connect(location)
        shown = backend.name
    existing = {schema.lower(): schema for schema in backend.list_databases()}
    qualified = [name.partition(".")[0] for name in wanted if "." in name]
    searched = [existing[schema.lower()] for schema in (*schemas, *qualified) if schema.lower() in existing]
    here = {
        schema: {table.lower(): table for table in backend.list_tables(database=schema)} for schema in (*searched, None)
    }
    tables, where = {}, {}
    for name in wanted:
        within, _, plain = name.rpartition(".")
        places = [place for place in here if not within or str(place).lower() == within.lower()]
        keys = [f"{prefix}{text}".lower() for text in (plain, aliases.get(name)) if text]
        schema, key = next(((place, key) for place in places for key in keys if key in here[place]), (..., ""))
        if schema is ... and name in optional:
            continue
        if schema is ...:
            places = ", ".join((*schemas, "the default schema"))
            raise InputError(f"{shown}: lacks the table {prefix}{name}; searched were {places}.")
        tables[name] = backend.table(here[schema][key], database=schema)
        where[name] = f"{shown}: {schema + '.' if schema else ''}{here[schema][key]}"
    return backend, tables, where


def _csv_sentence(message: str) -> str | None:
    """Return what DuckDB's CSV reader says, as file, column, row and value; never the line, which is a patient's."""
    where = re.search(r"CSV Error on Line: (\d+)\n(?:.|\n)*\n  file ?= ?(.*)\n", message)
    if not where:
        return None
    row, file = where.groups()
    odd = re.search(r"converting column \"([^\"]+)\"\. Could not convert string \"((?:.|\n)*?)\" to '(\w+)'", message)
    if odd:
        return _no(f"{file}: column {odd[1]}, row {row}", odd[2], odd[3])
    return f"{file}: row {row}: {message.split(chr(10) + 'Possible')[0].strip().splitlines()[-1].rstrip('.')}."


def _no(where: str, value: str, kind: str) -> str:
    words = {"int": "a whole number", "big": "a whole number", "tim": "a timestamp; allowed is YYYY-MM-DD hh:mm:ss"}
    return f"{where}: {kind_of(value)} is not {words.get(kind.lower()[:3], 'a number')}."
