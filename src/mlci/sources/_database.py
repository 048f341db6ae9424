"""Open tables with Ibis: of a database by its URL, of an open backend, or the views of a folder.

The tables have exactly the columns that a source needs, in lower case and with the types that it needs.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ibis
import ibis.expr.types as ir
from ibis.expr import datatypes as dt

from mlci.base.errors import InputError, address, columns_of, without_secrets
from mlci.base.extras import need
from mlci.sources._folder import Columns, Folder, raw


@dataclass(frozen=True)
class Opened:
    """An Ibis backend and its tables."""

    backend: Any  # each engine has a class of its own
    raw: dict[str, ir.Table]  # the tables as they are
    tables: dict[str, ir.Table]  # with the wanted columns and types


def of_folder(folder: Folder) -> Opened:
    """Return the views of a folder as Ibis tables."""
    backend = ibis.duckdb.from_connection(folder.connection)
    views = folder.views.items()
    return Opened(
        backend,
        {name: backend.table(raw(view)) for name, view in views},
        {name: backend.table(view) for name, view in views},
    )


def open_database(
    location: Any,
    wanted: Mapping[str, Columns],
    schemas: Sequence[str],
    prefix: str,
    aliases: Mapping[str, str],
    optional: Collection[str],
) -> "tuple[Opened, dict[str, str]]":
    """Find the wanted tables in a database; return them with their names for messages."""
    if isinstance(location, str):
        shown, scheme = address(location), location.partition("://")[0].lower()
        if scheme in ("postgres", "postgresql"):
            need("postgres", to="read from a PostgreSQL database")
        try:
            if scheme == "duckdb" and "read_only" not in location:
                location += ("&" if "?" in location else "?") + "read_only=True"
            backend: Any = ibis.connect(location)
        except Exception as error:  # drivers raise errors of many kinds
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
    found, where = {}, {}
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
        found[name] = backend.table(here[schema][key], database=schema)
        where[name] = f"{shown}: {schema + '.' if schema else ''}{here[schema][key]}"
    lax = backend.name == "pyspark"
    shaped = {name: _shape(found[name], wanted[name], where[name], lax=lax) for name in found}
    return Opened(backend, found, shaped), where


def _shape(table: ir.Table, columns: Columns, where: str, *, lax: bool) -> ir.Table:
    """Return a table with exactly the wanted columns, in lower case and with the wanted types."""
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
        raise InputError(f"{where}: is text; {kind} is needed, because Spark would turn unreadable text into null.")
    same = (dt.DataType.is_integer, dt.DataType.is_timestamp, dt.DataType.is_string)
    return column if any(test(kind) and test(column.type()) for test in same) else column.cast(kind)
