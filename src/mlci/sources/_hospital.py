"""Turn the rows of a hospital database into a draft, after the checks that all hospital databases share.

A database that breaks its own rules (an admission that is repeated, has no patient, or ends before it begins) raises an
error of one sentence, so that an error in the data cannot become an outcome.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mlci.base.errors import InputError
from mlci.sources import Attrition, Draft, Step
from mlci.sources._engine import Query, Tables
from mlci.sources._gathered import places
from mlci.sources._twins import repeated

if TYPE_CHECKING:
    import ibis.expr.types as ir

# Stays that end before they begin: an error (False), kept with an unknown length (True), or kept as not long ("short",
# as in the paper).
NegativeStays = bool | Literal["short"]
COUNTS = ("other_codes", "unknown_codes", "not_codes")  # counts of diagnoses that are not used as codes
CHECKS = (*COUNTS, "has_patient", "negative_stay", "died_on_the_day", "died_before")


def number(tables: Any) -> "ir.Table":
    """Describe the number of all diagnoses, those without an admission included."""
    return tables["diagnoses_icd"].agg(n=tables["diagnoses_icd"].count())


def in_order(batches: pa.RecordBatchReader) -> pa.Table:
    """Return rows of admissions sorted by id; this is cheap here, before lists of codes are added."""
    rows = batches.read_all().combine_chunks()
    return rows.take(pc.sort_indices(rows["admission_id"]))


def with_codes(tables: Tables, queries: Sequence[Query]) -> tuple[pa.Table, int]:
    """Run four queries; return the admissions with their codes, and the number of all diagnoses.

    The queries are for admissions, codes, the diagnoses of each admission that are not used as codes, and the number of
    all diagnoses. Codes are fetched as rows, because an engine would take longer to collect them into lists.
    """
    rows, codes, left_out, number = tables.ask(queries)
    ids = rows["admission_id"]
    rows = rows.append_column("codes", codes.lists(ids, tables.where["diagnoses_icd"]))
    place = places(left_out["admission"], ids)
    for name in COUNTS:
        counts = np.zeros(len(ids), dtype=np.int64)
        counts[place[place >= 0]] = left_out[name].to_numpy()[place >= 0]
        rows = rows.append_column(name, pa.array(counts))
    return rows, number["n"][0].as_py()


def draft(
    rows: pa.Table,
    tables: Tables,
    *,
    admissions: tuple[str, str, str, str],
    patients: str,
    diagnoses: str,
    icd_version: int,
    need_codes: bool,
    outcomes: dict[str, str],
    death_day_counts: bool,
    negative_stays: NegativeStays,
    chosen: Sequence[Step] = (),
    recorded: int | None = None,
) -> Draft:
    """Check the rows, whose codes are in order, and count what the rules remove.

    `admissions` names the table and its columns of admission, patient and end of stay, for messages. `chosen` are the
    steps with which the query itself chose the rows. `recorded` is the number of all diagnoses, if each diagnosis of an
    admission is a code or in one of its counts; diagnoses without an admission then need no query of their own.
    """
    table, key, _, end = admissions
    where = tables.where[table]
    _check_keys(rows, tables, admissions, patients)
    attrition = Attrition(rows, f"rows of {table}")

    def total(name: str) -> int:
        return pc.sum(attrition.table[name]).as_py() or 0

    negative = total("negative_stay")
    if negative and not negative_stays:
        raise negative_stays_error(f"{where}: column {end}", negative)
    if negative_stays == "short":  # the paper's rule: longer than 7 days, or not
        column = pc.if_else(pc.fill_null(attrition.table["negative_stay"], False), False, attrition.table["long_stay"])
        place = attrition.table.column_names.index("long_stay")
        attrition.table = attrition.table.set_column(place, "long_stay", column)
    if need_codes:
        has_code = pc.greater(pc.list_value_length(attrition.table["codes"]), 0)
        attrition.keep(has_code, f"at least one ICD-{icd_version} diagnosis")
        if not len(attrition.table):
            raise _no_codes(rows, tables.where[diagnoses], icd_version)
    if recorded is None:
        orphans = tables.count(tables[diagnoses].anti_join(tables[table], key))
    else:
        orphans = recorded - _diagnoses(rows)
    notes = [f"{orphans:,} rows of {diagnoses} belong to no row of {table} and were dropped."] if orphans else []
    notes += count_notes(attrition.table, icd_version, death_day_counts, negative_stays)
    kept = attrition.table.drop_columns([*CHECKS, "admitted"])
    return Draft(
        table=kept.append_column("icd_version", pa.repeat(pa.scalar(icd_version, pa.int8()), len(kept))),
        outcomes=outcomes,
        attrition=(*chosen, *attrition.steps[bool(chosen) :]),
        notes=tuple(notes),
        admitted=attrition.table["admitted"],
    )


def _diagnoses(rows: pa.Table) -> int:
    """Return the number of diagnoses of the rows, those that are not used as codes included."""
    unused = sum(pc.sum(rows[name]).as_py() or 0 for name in COUNTS)
    return int(unused) + (pc.sum(pc.list_value_length(rows["codes"])).as_py() or 0)


def paper_outcomes(icu_hours: int, death_day_counts: bool) -> dict[str, str]:
    """Return the paper's outcomes in words.

    >>> paper_outcomes(24, death_day_counts=False)["icu_transfer"]
    'first ICU entry more than 24 h after admission'
    """
    after = f"more than {icu_hours} h after admission" if icu_hours else "after admission"
    return {
        "mortality": "death in hospital: DEATHTIME is recorded",
        "mortality_30d": "PATIENTS.DOD from 0 to 30 elapsed days after ADMITTIME"
        + (", or on the day of admission" if death_day_counts else ""),
        "long_stay": "DISCHTIME more than 7 elapsed days after ADMITTIME",
        "icu_transfer": f"first ICU entry {after}",
    }


def _check_keys(rows: pa.Table, tables: Tables, admissions: tuple[str, str, str, str], patients: str) -> None:
    """Refuse rows without an admission, with a repeated admission, or without a patient."""
    table, admission, patient, _ = admissions
    where = tables.where[table]
    if not len(rows):
        raise InputError(f"{where}: has no rows; at least one admission is needed.")
    ids = rows["admission_id"]
    if ids.null_count:
        raise InputError(f"{where}: column {admission}: {ids.null_count} rows have none; every admission needs one.")
    if many := repeated(ids):
        people = tables[patients][patient]
        twice = tables.fetch(tables[patients].agg(n=people.count() - people.nunique()))["n"][0].as_py()
        at, column, count = (tables.where[patients], patient, twice) if twice else (where, admission, many)
        raise InputError(f"{at}: column {column}: {count} rows repeat the id of another; each may occur once.")
    orphans = rows["has_patient"].null_count
    if orphans:
        raise InputError(
            f"{where}: column {patient}: {orphans} admissions have no patient in {tables.where[patients]}."
        )


def _no_codes(rows: pa.Table, where: str, icd_version: int) -> InputError:
    not_icd = pc.sum(rows["not_codes"]).as_py() or 0
    advice = (
        f" {not_icd:,} rows hold no code, or only one of another vocabulary, such as SNOMED: the table "
        "concept_relationship, with its rows 'Maps to' between ICD and standard concepts, maps them back to ICD."
    )
    return InputError(
        f"{where}: none of {len(rows)} admissions has an ICD-{icd_version} diagnosis; "
        f"--icd-version chooses the other version.{advice if not_icd else ''}"
    )


def negative_stays_error(where: str, many: int) -> InputError:
    """Return the error of stays that end before they begin; `where` names their table, and the column if it has one."""
    return InputError(
        f"{where}: {many} admissions end before they begin; correct them, or keep them with an unknown length of stay "
        "(--negative-stays)."
    )


def count_notes(table: pa.Table, icd_version: int, death_day_counts: bool, negative_stays: NegativeStays) -> list[str]:
    """Return a note for each column of counts of which the table has some.

    >>> count_notes(pa.table({"other_codes": [2, 1]}), 10, death_day_counts=False, negative_stays=False)
    ['3 diagnoses of another ICD version than 10 were dropped.']
    """
    length = (
        "they are no long stays, by the paper's rule" if negative_stays == "short" else "their long_stay is not known"
    )
    counted = "as deaths" if death_day_counts else "as alive, as the paper does (--death-day-counts changes it)"
    texts = {
        "other_codes": f"diagnoses of another ICD version than {icd_version} were dropped.",
        "unknown_codes": "diagnoses whose ICD version cannot be told were dropped.",
        "not_codes": "diagnoses hold no ICD code (none, a chart entry, another vocabulary alone) and were left out.",
        "died_on_the_day": "admissions have a date of death on the day of admission and no time of death; "
        f"mortality_30d counts them {counted}.",
        "died_before": "admissions begin on a day after the date of death; mortality_30d is false, as in the paper.",
        "negative_stay": f"admissions end before they begin; {length}.",
    }
    numbers = {name: pc.sum(table[name]).as_py() for name in texts if name in table.column_names}
    return [f"{number:,} {texts[name]}" for name, number in numbers.items() if number]
