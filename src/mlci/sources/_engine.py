"""Open tables in place: a folder with embedded DuckDB, a database by its URL, or a backend that is already open.

A source names the columns that it needs, with their types, and gets tables with exactly those columns, to be queried
with Ibis expressions. Importing Ibis takes longer than reading most files. The SQL of common queries of folders is
therefore stored (`_kept`) and runs on DuckDB without Ibis.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from mlci.base.errors import InputError, kind_of
from mlci.sources._folder import Columns, Folder, open_folder
from mlci.sources._kept import kept

if TYPE_CHECKING:
    import ibis.expr.types as ir

    from mlci.sources._database import Opened

ENGINES = ("duckdb", "_duckdb", "psycopg", "pyspark", "py4j", "google", "snowflake", "ibis")


@dataclass(frozen=True)
class Query:
    """A query of tables: its name among the stored SQL, its Ibis expression, and a function that reads the rows."""

    name: str
    of: "Callable[[Any], ir.Table]"
    take: Callable[[pa.RecordBatchReader], Any] = pa.RecordBatchReader.read_all


@dataclass(frozen=True)
class Tables:
    """Opened tables by name."""

    where: dict[str, str]  # table -> its name in messages
    open: "Callable[[], Opened]"  # opens the tables with Ibis, when the first expression needs them
    ours: bool  # whether the connection was opened here and must be closed here
    folder: Folder | None = None

    def __getitem__(self, name: str) -> "ir.Table":
        return self._asked.tables[name]

    def __contains__(self, name: object) -> bool:
        return name in self.where

    def __enter__(self) -> "Tables":
        return self

    def __exit__(self, *_: object) -> None:
        if self.folder:
            self.folder.connection.close()
        elif self.ours:
            self.backend.disconnect()

    @cached_property
    def _asked(self) -> "Opened":
        return self.open()

    @property
    def backend(self) -> Any:
        """The Ibis backend."""
        return self._asked.backend

    def ask(self, queries: Sequence[Query]) -> list[Any]:
        """Answer queries: on files at the same time, with their stored SQL; else one by one, with Ibis."""
        found = None
        if self.folder and self.folder.exact:
            found = self.folder.answers([(kept(query.name), query.take) for query in queries])
        # If the stored SQL fails, Ibis gives the error message.
        return found or [query.take(self.fetch(query.of(self)).to_reader()) for query in queries]

    def fetch(self, expression: "ir.Table") -> pa.Table:
        """Run an expression on the engine; an engine's error becomes an `InputError` of one sentence."""
        try:
            query = self.backend.compile(expression)
            if self.backend.name == "pyspark":  # Ibis would convert by way of pandas, with deprecated calls
                return self.backend._session.sql(query).toArrow()
            if self.backend.name == "duckdb":  # Ibis would copy the result again
                return self.backend.con.sql(query).to_arrow_table()
            return self.backend.to_pyarrow(expression)
        except Exception as error:  # engines share no base class: their errors are recognised by module
            if type(error).__module__.split(".")[0] not in ENGINES:
                raise
            raise InputError(_csv_sentence(str(error)) or self._cast_sentence() or self._sentence(error)) from None

    def count(self, expression: "ir.Table") -> int:
        """Return the number of rows of an expression, counted by the engine."""
        return self.fetch(expression.agg(n=expression.count()))["n"][0].as_py()

    def _cast_sentence(self) -> str | None:
        """Return a sentence on the first text in a table of DuckDB that does not fit its column's type."""
        for name, table in self._asked.tables.items() if self.backend.name == "duckdb" else ():
            raw = self._asked.raw[name]
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
        """Return the first line of the engine's message, without numbers and quoted words other than known names."""
        tables = self._asked.tables
        known = {*tables, *(column for table in tables.values() for column in table.columns)}
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
    """Open the wanted tables, for use in a `with` statement; names match in capitals or not.

    The `schemas` of a database are searched in order, then its default schema. A table may also be named with its
    schema (`ward.stays`); in a folder this is a subfolder. `aliases` are other names of tables. `optional` tables may
    be missing and are then not in the result.
    """
    if isinstance(location, str | Path) and "://" not in str(location):
        folder = open_folder(Path(location), wanted, prefix, aliases, optional)
        return Tables(folder.where, lambda: _database().of_folder(folder), ours=True, folder=folder)
    asked, where = _database().open_database(location, wanted, schemas, prefix, aliases, optional)
    return Tables(where, lambda: asked, ours=isinstance(location, str))


def _database() -> Any:
    """Return the module that needs Ibis."""
    from mlci.sources import _database

    return _database


def _csv_sentence(message: str) -> str | None:
    """Turn an error of DuckDB's CSV reader into a sentence with file, column and row, without the patient's line."""
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
