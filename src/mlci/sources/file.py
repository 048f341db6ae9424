"""The source `file`: one table of admissions, codes and outcomes, as a spreadsheet, a CSV or Parquet file, or a frame.

    mlci cohort file visits.xlsx -o cohort.parquet --id visit_id --codes 'DX*' --outcome 'mortality=expired:Y'

The table has one of the layouts of `mlci.codes.layout`. Columns that no option names are guessed by their names, and
notes report the guesses. The draft has one row per admission with a code. A TOML file may hold the same options:

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
from mlci.codes._encoding import are_empty, check_unshortened
from mlci.codes.admissions import Admissions
from mlci.codes.lookback import trimmed
from mlci.codes.streams import ROW, stream_table
from mlci.codes.versions import guess_version
from mlci.sources import Attrition, Draft
from mlci.sources._cohort_file import SPLITS
from mlci.sources._meaning import Meaning, applied, opened, understand
from mlci.sources._outcomes import Rule
from mlci.sources._people import ages, cells, sexes
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
    """Read the admissions of one table; columns that are not named are guessed by their names.

    Args:
        location: a CSV, Parquet or Excel file, `-` for standard input, or a frame.
        id: the column of admissions.
        subject: the column of patients.
        codes: a column or a pattern (`DX*`), or several.
        icd_version: 9 or 10 for all codes, or the column that holds it.
        outcomes: for each outcome its rule (`expired:Y`, `los > 7`) or its column.
        age: the column of ages in years.
        sex: the column of sexes.
        split: the column that holds train, valid or test.
        admitted: the column of the time of admission; a look-back needs it.
        keep: further columns to keep.
        restore_zeros: whether to restore leading zeros that ICD-9 codes have lost.
        config: a TOML file with the same options, or its content; the arguments above override it.
        tell: called with the meaning of the columns, before the rows are read.

    Returns:
        A draft: one row per admission that has a code.

    >>> import pandas as pd
    >>> read(pd.DataFrame({"visit_id": [1, 2], "DX1": ["I50.9", "E11.9"], "died": [1, 0]}), icd_version=10).outcomes
    {'mortality': 'column died says yes'}
    """
    options = {"id": id, "subject": subject, "codes": codes, "icd_version": icd_version, "outcomes": outcomes}
    options |= {"age": age, "sex": sex, "split": split, "admitted": admitted, "keep": keep}
    with opened(location) as file:
        meaning = understand(file, options, config)
        if tell:
            tell(meaning)
        return _draft(file, meaning, restore_zeros=restore_zeros)


def _draft(file: TableFile, meaning: Meaning, *, restore_zeros: bool) -> Draft:
    batches, carried, doubts = [], [], []
    options = {"icd_version": meaning.icd_version, "restore_zeros": restore_zeros, "on_doubt": doubts.append}
    for admissions, rows in stream_table(file, meaning.layout, carry=[*meaning.carried], **options):
        batches.append(admissions)
        carried.append(rows)
    if not batches:
        raise InputError(f"{file.where}: has no rows; at least one admission is needed.")
    others = pa.concat_tables(carried, promote_options="permissive").combine_chunks()  # the columns other than codes
    version, notes = _guess_version(batches, file.where)
    codes, flags, versions, dropped = _codes(batches, version)
    columns: dict[str, Any] = {
        "admission_id": pa.array(np.concatenate([part.ids for part in batches])),
        "icd_version": pa.array(versions, pa.int8()),
        "codes": codes,
        **({} if flags is None else {"poa": flags}),
    }
    row_of = others[ROW].to_numpy()
    columns["subject_id"] = columns["admission_id"]
    if meaning.subject:
        columns["subject_id"] = _subjects(others[meaning.subject], file.where, meaning.subject, row_of)
    else:
        notes.append("no column identifies patients (--subject): each admission counts as a patient of its own.")
    for name, rule in meaning.rules.items():
        columns[name] = _outcome(others[rule.column], rule, file.where, row_of)
        notes += _below_zero(others[rule.column], rule)
    for role, read_column in (("age", ages), ("sex", sexes)):
        if name := getattr(meaning, role):
            columns[role], notes_on_column = read_column(others[name], name, cells(file.where, name, row_of))
            notes += notes_on_column
    if meaning.split:
        columns["split"] = _splits(others[meaning.split], file.where, meaning.split, row_of)
    columns |= {name: others[name] for name in meaning.keep}
    attrition = Attrition(pa.table(columns), f"admissions of {file.where}")
    has_code = pc.greater(pc.list_value_length(codes), 0)
    attrition.keep(has_code, "has a diagnosis")
    rows = row_of[has_code.to_numpy(zero_copy_only=False)]
    if found := twins(attrition.table["admission_id"]):
        first, later = rows[[found.first, found.later]]
        raise InputError(f"{file.where}: column {meaning.layout.id}, {found.words(first, later)}.")
    if dropped:
        notes.append(f"{dropped} diagnoses of another ICD version than the rest of their admission were dropped.")
    if recorded := [part.poa for part in batches if part.poa is not None]:
        notes.append(poa.words(np.concatenate(recorded)))
    often: Counter[str] = Counter()
    for part in batches:
        places = certainty.attached(part.values)
        often.update(dict(zip(part.values[places], part.mentions[places].tolist())))
    notes += certainty.notes(sum(part.unsure for part in batches), often)
    short = sum(part.short for part in batches)
    if short:
        notes.append(
            f"{short:,} codes have fewer than three digits before their dot, as if a spreadsheet had dropped a zero; "
            "they are read as they are (--restore-zeros restores the zeros)."
        )
    for name in meaning.unfit:
        notes.append(f"column {name} is not used as an outcome: most of its values do not fit (--outcome says how).")
    words = {name: rule.words for name, rule in meaning.rules.items()}
    times = others[meaning.admitted].filter(has_code) if meaning.admitted else None
    return Draft(attrition.table, words, tuple(attrition.steps), (*notes, *doubts), times, rows)


def _guess_version(batches: list[Admissions], where: str) -> tuple[int, list[str]]:
    """Guess the ICD version of codes whose version the table does not state; return it with a note."""
    counts: Counter[str] = Counter()
    for part in batches:
        unknown = part.versions == 0
        counts.update(dict(zip(part.values[unknown], part.mentions[unknown].tolist())))
    if not counts:
        return 0, []
    version, note = guess_version(counts, where)
    return version, [note]


def _codes(batches: list[Admissions], guessed: int) -> tuple[pa.ListArray, pa.ListArray | None, np.ndarray, int]:
    """Return lists of codes, lists of their flags (None without flags), and the one ICD version of each admission.

    The version is that of most of its codes, the newer on a tie. The number of codes of the other version, which are
    dropped, comes last.
    """
    flat, flags, lengths, versions, dropped = [], [], [], [], 0
    for part in batches:
        version = np.where(part.versions == 0, np.int8(guessed), part.versions)[part.indices]
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
    poa_lists = pa.ListArray.from_arrays(offsets, pa.concat_arrays(flags)) if flags else None
    return pa.ListArray.from_arrays(offsets, pa.concat_arrays(flat)), poa_lists, np.concatenate(versions), dropped


def _outcome(column: pa.ChunkedArray, rule: Rule, where: str, row_of: np.ndarray) -> pa.Array:
    value, filled = applied(column, rule)
    place = pc.index(pc.and_(pc.is_null(value), filled), True).as_py()
    if place >= 0:
        raise InputError(
            f"{where}: column {rule.column}, row {row_of[place]}: {kind_of(column[place].as_py())} is not "
            f"{rule.allowed}."
            + (" --outcome 'name=column:VALUE' says which values count." if rule.kind == "flag" else "")
        )
    return value


def _below_zero(column: pa.ChunkedArray, rule: Rule) -> list[str]:
    """Return a note on numbers below 0 that are compared with a number above 0: -9 often stands for "not known"."""
    if rule.kind != "compare" or rule.number < 0:
        return []
    many = pc.sum(applied(column, replace(rule, sign="<", number=0.0))[0]).as_py()
    if not many:
        return []
    found = f"column {rule.column}: numbers below 0 ({many:,}) count as they are"
    return [f"{found}; empty their cells if they mean not known."]


def _subjects(column: pa.ChunkedArray, where: str, name: str, row_of: np.ndarray) -> pa.ChunkedArray:
    empty = pc.index(are_empty(column), True).as_py()
    if empty >= 0:
        raise InputError(f"{where}: column {name}, row {row_of[empty]}: is empty; each admission needs its patient.")
    check_unshortened(column, name, where, lambda place: row_of[place])
    if not pa.types.is_string(column.type):
        return column
    whole = pc.all(pc.match_substring_regex(column, r"^(0|-?[1-9]\d{0,17})$")).as_py()
    return column.cast(pa.int64()) if whole else column


def _splits(column: pa.ChunkedArray, where: str, name: str, row_of: np.ndarray) -> pa.ChunkedArray:
    column = trimmed(column)
    odd = pc.index(pc.is_in(column, pa.array(SPLITS)), False).as_py()
    if odd >= 0:
        raise InputError(
            f"{where}: column {name}, row {row_of[odd]}: {kind_of(column[odd].as_py())} is not a split; allowed are "
            f"{', '.join(SPLITS)}."
        )
    return column


def preview(file: TableFile, meaning: Meaning, *, restore_zeros: bool = False) -> pa.Table:
    """Return the first admissions of a table in the form that a cohort has.

    Args:
        file: the table, opened.
        meaning: the meaning of its columns.
        restore_zeros: whether to restore leading zeros that ICD-9 codes have lost.

    >>> import pandas as pd
    >>> with opened(pd.DataFrame({"visit_id": [1, 2], "DX1": ["I50.9", "E11.9"], "died": ["Y", None]})) as table:
    ...     preview(table, understand(table, {"icd_version": 10}))["mortality"].to_pylist()
    [True, None]
    """
    wanted = list(dict.fromkeys([*meaning.layout.columns, *meaning.carried]))
    first = next((rows for rows in file.read(wanted, rows=200) if len(rows)), None)
    if first is None:
        raise InputError(f"{file.where}: has no rows; at least one admission is needed.")
    part = replace(file, rows=lambda names, _, __: iter([first.select(names)]))
    return _draft(part, meaning, restore_zeros=restore_zeros).table[:SHOWN]
