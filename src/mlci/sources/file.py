"""One table as people have it: a spreadsheet, a CSV or Parquet file, or a frame, with admissions, codes and outcomes.

    mlci cohort file visits.xlsx -o cohort.parquet --id visit_id --codes 'DX*' --outcome 'mortality=expired:Y'

In comes the table, wide, long or with a list of codes (`mlci.codes.layout`), and what a person said of its columns; the
rest is guessed by name. Out comes one row per admission that has a code, with what was guessed in the notes. The same
words stand in a TOML file:

    [admissions]
    admission_id = "visit_id"
    subject_id = "mrn"
    keep = ["hospital"]

    [diagnoses]
    codes = "DX*"
    icd_version = 10

    [outcomes]
    mortality = "expired:Y"
    long_stay = "los > 7"
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mlci.base.errors import InputError, kind_of
from mlci.base.tablefile import TableFile
from mlci.codes import certainty, poa
from mlci.codes.admissions import Admissions
from mlci.codes.streams import ROW, stream_table
from mlci.codes.versions import guess_version
from mlci.sources import Attrition, Draft
from mlci.sources._meaning import Meaning, applied, opened, understand
from mlci.sources._outcomes import Rule
from mlci.sources._people import ages, sexes
from mlci.sources._twins import twins

SHOWN = 5  # rows of a dry run


def read(
    location: Any,
    *,
    id: str | None = None,
    subject: str | None = None,
    codes: str | Sequence[str] | None = None,
    icd_version: int | str | None = None,
    outcomes: Mapping[str, str] | None = None,
    age: str | None = None,
    sex: str | None = None,
    split: str | None = None,
    admitted: str | None = None,
    keep: Sequence[str] = (),
    restore_zeros: bool = False,
    config: str | Path | Mapping[str, Any] | None = None,
    tell: Callable[[Meaning], None] | None = None,
) -> Draft:
    """Read the admissions of one table; a column that nobody names is guessed by its name.

    Args:
        location: a CSV, Parquet or Excel file, `-` for standard input, or a frame.
        id: the column of admissions.
        subject: the column of patients.
        codes: a column or a pattern (`DX*`), or several.
        icd_version: 9 or 10 for all codes, or the column that says it.
        outcomes: each outcome with its rule (`expired:Y`, `los > 7`), or with its column.
        age: the column of ages in years.
        sex: the column of sexes.
        split: the column of train, valid and test.
        admitted: the column that says when an admission began; a look-back needs it.
        keep: further columns to keep.
        restore_zeros: whether ICD-9 codes lost their leading zeros, which are put back.
        config: a TOML file that says the same, or its content; the arguments above come before it.
        tell: called with what was understood, before the rows are read.

    Returns:
        A draft: one row per admission that has a code.

    >>> import pandas as pd
    >>> read(pd.DataFrame({"visit_id": [1, 2], "DX1": ["I50.9", "E11.9"], "died": [1, 0]}), icd_version=10).outcomes
    {'mortality': 'column died says yes'}
    """
    said = {"id": id, "subject": subject, "codes": codes, "icd_version": icd_version, "outcomes": outcomes}
    said |= {"age": age, "sex": sex, "split": split, "admitted": admitted, "keep": keep}
    with opened(location) as file:
        meaning = understand(file, said, config)
        if tell:
            tell(meaning)
        draft = _draft(file, meaning, restore_zeros=restore_zeros)
        return replace(draft, notes=(*draft.notes, *filter(None, (file.doubt, meaning.layout.doubt))))


def _draft(file: TableFile, meaning: Meaning, *, restore_zeros: bool) -> Draft:
    batches, carried = [], []
    options = {"icd_version": meaning.icd_version, "restore_zeros": restore_zeros}
    for admissions, rows in stream_table(file, meaning.layout, carry=[*meaning.carried], **options):
        batches.append(admissions)
        carried.append(rows)
    if not batches:
        raise InputError(f"{file.where}: has no rows; at least one admission is needed.")
    beside = pa.concat_tables(carried, promote_options="permissive").combine_chunks()
    version, notes = _version(batches, meaning, file.where)
    codes, flags, versions, dropped = _codes(batches, version)
    columns: dict[str, Any] = {
        "admission_id": pa.array(np.concatenate([part.ids for part in batches])),
        "icd_version": pa.array(versions, pa.int8()),
        "codes": codes,
        **({} if flags is None else {"poa": flags}),
    }
    row_of = beside[ROW].to_numpy()
    columns["subject_id"] = columns["admission_id"]
    if meaning.subject:
        columns["subject_id"] = _subjects(beside[meaning.subject], file.where, meaning.subject, row_of)
    else:
        notes.append("no column tells patients (--subject): each admission counts as a patient of its own.")
    for name, rule in meaning.rules.items():
        columns[name] = _outcome(beside[rule.column], rule, file.where, row_of)
        notes += _below_zero(beside[rule.column], rule)
    for role, read_column in (("age", ages), ("sex", sexes)):
        if name := getattr(meaning, role):
            columns[role], said = read_column(beside[name], file.where, name, row_of)
            notes += said
    if meaning.split:
        columns["split"] = beside[meaning.split]
    columns |= {name: beside[name] for name in meaning.keep}
    attrition = Attrition(pa.table(columns), f"admissions of {file.where}")
    has_code = pc.greater(pc.list_value_length(codes), 0)
    attrition.keep(has_code, "has a diagnosis")
    if found := twins(attrition.table["admission_id"]):
        first, later = row_of[has_code.to_numpy(zero_copy_only=False)][[found.first, found.later]]
        raise InputError(f"{file.where}: column {meaning.layout.id}, {found.words(first, later)}.")
    if dropped:
        notes.append(f"{dropped} diagnoses of another ICD version than the rest of their admission were dropped.")
    if recorded := [part.poa for part in batches if part.poa is not None]:
        notes.append(poa.words(np.concatenate(recorded)))
    often: Counter[str] = Counter()
    for part in batches:
        places = certainty.attached(part.values)
        often.update(dict(zip(part.values[places], part.mentions[places].tolist())))
    notes += certainty.told(sum(part.unsure for part in batches), often)
    short = sum(part.short for part in batches)
    if short:
        notes.append(
            f"{short:,} codes have fewer than three digits before their dot, as if a spreadsheet had eaten a zero; "
            "they are taken as they stand (--restore-zeros puts it back)."
        )
    for name in meaning.unfit:
        notes.append(f"column {name} is no outcome here: most of its values are not read as one (--outcome says how).")
    words = {name: rule.words for name, rule in meaning.rules.items()}
    moments = beside[meaning.admitted].filter(has_code) if meaning.admitted else None
    return Draft(attrition.table, words, tuple(attrition.steps), tuple(notes), moments)


def _version(batches: list[Admissions], meaning: Meaning, where: str) -> tuple[int, list[str]]:
    """Return the ICD version of the codes of which the table does not say it, and a note if it was guessed."""
    counts: dict[str, int] = {}
    for part in batches:
        silent = part.versions == 0
        many = part.mentions
        for value, number in zip(part.values[silent], many[silent]):
            counts[value] = counts.get(value, 0) + int(number)
    if not counts:
        return 0, []
    version, said = guess_version(counts, where)
    return version, [said]


def _codes(batches: list[Admissions], silent: int) -> tuple[pa.ListArray, pa.ListArray | None, np.ndarray, int]:
    """Return lists of codes, their flags if they have such, and the one ICD version of each admission.

    It is that of most of its codes, the newer on a tie; how many codes of the other were dropped comes last.
    """
    flat, flags, lengths, versions, dropped = [], [], [], [], 0
    for part in batches:
        version = np.where(part.versions == 0, np.int8(silent), part.versions)[part.indices]
        row = np.repeat(np.arange(len(part)), np.diff(part.offsets))
        tens = np.bincount(row[version == 10], minlength=len(part))
        nines = np.bincount(row[version == 9], minlength=len(part))
        chosen = np.where(tens >= nines, 10, 9).astype(np.int8)
        kept = version == chosen[row]
        dropped += int((~kept).sum())
        flat.append(pa.array(part.values, pa.string()).take(pa.array(part.indices[kept])))
        flags += [] if part.poa is None else [poa.written(part.poa[kept])]
        lengths.append(np.bincount(row[kept], minlength=len(part)))
        versions.append(chosen)
    offsets = pa.array(np.concatenate([[0], np.cumsum(np.concatenate(lengths))]).astype(np.int32))
    beside = pa.ListArray.from_arrays(offsets, pa.concat_arrays(flags)) if flags else None
    return pa.ListArray.from_arrays(offsets, pa.concat_arrays(flat)), beside, np.concatenate(versions), dropped


def _outcome(column: pa.ChunkedArray, rule: Rule, where: str, row_of: np.ndarray) -> pa.Array:
    value, said = applied(column, rule)
    place = pc.index(pc.and_(pc.is_null(value), said), True).as_py()
    if place >= 0:
        raise InputError(
            f"{where}: column {rule.column}, row {row_of[place]}: {kind_of(column[place].as_py())} is not "
            f"{rule.allowed}."
            + (" --outcome 'name=column:VALUE' says which values count." if rule.kind == "flag" else "")
        )
    return value


def _below_zero(column: pa.ChunkedArray, rule: Rule) -> list[str]:
    """Return a note on numbers below 0 that are compared with one above: in many a file -9 stands for "not known"."""
    if rule.kind != "compare" or rule.number < 0:
        return []
    many = pc.sum(applied(column, replace(rule, sign="<", number=0.0))[0]).as_py()
    said = f"column {rule.column}: numbers below 0 ({many:,}) count as they stand"
    return [f"{said}; empty the cells where they mean not known."] if many else []


def _subjects(column: pa.ChunkedArray, where: str, name: str, row_of: np.ndarray) -> pa.ChunkedArray:
    blank = pc.index(pc.is_null(column), True).as_py()
    if blank >= 0:
        raise InputError(f"{where}: column {name}, row {row_of[blank]}: is empty; each admission needs its patient.")
    if not pa.types.is_string(column.type):
        return column
    whole = pc.all(pc.match_substring_regex(column, r"^(0|-?[1-9]\d{0,17})$")).as_py()
    return column.cast(pa.int64()) if whole else column


def preview(file: TableFile, meaning: Meaning, *, restore_zeros: bool = False) -> pa.Table:
    """Return the first admissions of a table as they are understood.

    Args:
        file: the table, opened.
        meaning: which of its columns is what.
        restore_zeros: whether ICD-9 codes lost their leading zeros, which are put back.

    >>> import pandas as pd
    >>> with opened(pd.DataFrame({"visit_id": [1, 2], "DX1": ["I50.9", "E11.9"], "died": ["Y", None]})) as table:
    ...     preview(table, understand(table, {"icd_version": 10}))["mortality"].to_pylist()
    [True, None]
    """
    first = next((rows for rows in file.read(file.names, rows=200) if len(rows)), None)
    if first is None:
        raise InputError(f"{file.where}: has no rows; at least one admission is needed.")
    part = TableFile(
        file.where, file.names, file.first_row, lambda names, _, __: iter([first.select(names)]), file.numbers
    )
    return _draft(part, meaning, restore_zeros=restore_zeros).table[:SHOWN]
