"""What a cohort file must be before anything is made of it: the types of its columns and the facts in its metadata.

In come a table and its metadata, which anybody may have written; out come the facts, or one sentence that says what is
wrong and in which column.
"""

import json
from collections.abc import Mapping
from typing import Annotated, Any

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mlci.base.complaints import complaint
from mlci.base.errors import InputError, columns_of, name_of
from mlci.sources._twins import twins

SPLITS = ("train", "valid", "test")
COLUMNS = ("admission_id", "subject_id", "icd_version", "codes", "split")
KEY = b"mlci"
MOST_FACTS = 16 << 20  # bytes
Name = Annotated[str, Field(min_length=1, max_length=200)]
Text = Annotated[str, Field(max_length=20_000)]


class _Checked(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True)


class StepFacts(_Checked):
    rule: Text
    removed: int = Field(ge=0)
    left: int = Field(ge=0)


class CohortFacts(_Checked):
    source: Text
    outcomes: dict[Name, Text] = Field(max_length=1000)
    attrition: list[StepFacts] = Field(max_length=1000)
    notes: list[Text] = Field(max_length=1000)
    version: Name
    look_back: float = Field(default=0, ge=0, allow_inf_nan=False)


def read_facts(schema: pa.Schema, where: str) -> CohortFacts:
    """Return the facts of a cohort file, from the metadata of its schema."""
    text = (schema.metadata or {}).get(KEY)
    if text is None:
        raise InputError(f"{where}: is not a cohort file; `mlci cohort` makes one.")
    try:
        if len(text) > MOST_FACTS:
            raise ValueError
        return CohortFacts.model_validate_json(text)
    except ValidationError as error:
        said = complaint(error.errors(include_url=False, include_input=False, include_context=False))
        raise InputError(f"{where}: the metadata is not that of a cohort file ({said}).") from None
    except ValueError:
        raise InputError(f"{where}: the metadata is not that of a cohort file.") from None


def check_columns(schema: pa.Schema, outcomes: Mapping[str, Any], where: str) -> None:
    """Refuse a table that lacks a column, has one twice, or has one of another type."""
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
    """Refuse values that no cohort has: an admission twice or without id, another ICD version, an unknown split."""
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
