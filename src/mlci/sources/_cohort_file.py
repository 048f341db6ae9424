"""Check a cohort file before it is used: its columns, their types and their values.

Anybody may have written the file. What is wrong raises an error of one sentence that names the column.
"""

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from mlci.base.errors import InputError, columns_of, name_of
from mlci.sources._twins import twins

SPLITS = ("train", "valid", "test")
COLUMNS = ("admission_id", "subject_id", "icd_version", "codes", "split")
RESERVED = (*COLUMNS, "poa", "age", "sex", "days_observed")  # have a meaning of their own in a cohort
KEY = b"mlci"  # of the metadata


def check_columns(schema: pa.Schema, outcomes: Mapping[str, Any], where: str) -> None:
    """Refuse a table with a missing column, a repeated one, or one of another type."""
    found = schema.names
    for name in (*COLUMNS, *outcomes):
        if name not in found:
            raise InputError(f"{where}: lacks the column {name_of(name)}; {columns_of(found, COLUMNS)}.")
    twice = next((name for name in found if found.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"{where}: has the column {name_of(twice)} twice; each needs a name of its own.")
    wanted = {
        **dict.fromkeys(("admission_id", "subject_id"), ("whole numbers or text", _is_id)),
        "icd_version": ("whole numbers", pa.types.is_integer),
        **dict.fromkeys(
            ("codes", "poa"), ("lists of text", lambda kind: pa.types.is_list(kind) and _is_text(kind.value_type))
        ),
        **dict.fromkeys(("split", "sex"), ("text", _is_text)),
        **dict.fromkeys(
            ("age", "days_observed"), ("numbers", lambda kind: pa.types.is_floating(kind) or pa.types.is_integer(kind))
        ),
        **dict.fromkeys(outcomes, ("true, false or null", pa.types.is_boolean)),
    }
    for name, (words, fits) in wanted.items():
        if name in found and not fits(schema.field(name).type):
            raise InputError(f"{where}: column {name_of(name)}: is {schema.field(name).type}; {words} are needed.")


def check_rows(table: pa.Table, where: str) -> None:
    """Refuse values that no cohort has: repeated or missing ids, unknown ICD versions or splits, and the like."""
    for name in COLUMNS:
        if name != "subject_id" and table[name].null_count:
            raise InputError(f"{where}: column {name}: {table[name].null_count} rows are empty; each needs one.")
    if found := twins(table["admission_id"]):
        raise InputError(f"{where}: column admission_id, {found.words(found.first + 1, found.later + 1)}.")
    for name, allowed in (("icd_version", (9, 10)), ("split", SPLITS)):
        kind = table[name].type
        odd = [value for value in table[name].unique().to_pylist() if value not in allowed]
        if odd:
            row = pc.index(table[name], pa.scalar(odd[0], kind)).as_py() + 1
            raise InputError(f"{where}: column {name}, row {row}: allowed is {', '.join(map(str, allowed))}.")
    if "poa" in table.column_names:
        unlike = pc.not_equal(*(pc.fill_null(pc.list_value_length(table[name]), 0) for name in ("poa", "codes")))
        if row := pc.index(unlike, True).as_py() + 1:
            raise InputError(f"{where}: column poa, row {row}: has other than one flag for each code.")
    empty = sum(chunk.flatten().null_count for chunk in table["codes"].chunks)
    if empty:
        raise InputError(f"{where}: column codes: {empty} codes are empty; a list holds text alone.")


def write_facts(table: pa.Table, facts: Mapping[str, Any]) -> pa.Table:
    """Return the table with these facts, and nothing else, in its metadata."""
    return table.replace_schema_metadata({KEY: json.dumps(facts).encode()})


def _is_id(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or _is_text(kind)


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)
