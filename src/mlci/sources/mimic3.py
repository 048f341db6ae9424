"""The source `mimic3`: every admission of MIMIC-III (1.4 and its demo), with ICD-9 codes and the paper's outcomes.

Nearly every admission of MIMIC-III has an ICU stay, so the ICU outcome is a late transfer, more than 24 hours after
admission. Admissions without any diagnosis are kept, as in the paper's cohort.
"""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from mlci.sources import Draft, _hospital
from mlci.sources._engine import Query, open_tables
from mlci.sources._gathered import Gathered

if TYPE_CHECKING:
    import ibis.expr.types as ir

TABLES = {
    "admissions": {
        "subject_id": "int64",
        "hadm_id": "int64",
        "admittime": "timestamp",
        "dischtime": "timestamp",
        "deathtime": "timestamp",
    },
    "patients": {"subject_id": "int64", "gender": "string", "dob": "timestamp", "dod": "timestamp"},
    "diagnoses_icd": {"hadm_id": "int64", "seq_num": "int64", "icd9_code": "string"},
    "icustays": {"hadm_id": "int64", "intime": "timestamp"},
}
SCHEMAS = ("mimiciii",)


def read(
    location: Any,
    *,
    death_day_counts: bool = False,
    negative_stays: _hospital.NegativeStays = False,
    schema: Sequence[str] = (),
    prefix: str = "",
) -> Draft:
    """Read every admission of MIMIC-III.

    Args:
        location: a folder of CSV, CSV.gz or Parquet files, a database URL, or an Ibis backend.
        death_day_counts: whether a death recorded on the date of admission, without a time, is one within 30 days.
        negative_stays: what to do with admissions that end before they begin: False raises an error, True keeps them
            with an unknown length of stay, and "short" keeps them as not long.
        schema: schemas of a database to search before its default one.
        prefix: what the names of tables or files begin with.

    Returns:
        A draft with the paper's four outcomes; an ICU transfer counts if it is more than 24 hours after admission.

    >>> import ibis
    >>> database = ibis.duckdb.connect()
    >>> for name, row in {
    ...     "admissions": "7 hadm_id, 1 subject_id, '2101-01-01' admittime, '2101-01-10' dischtime, NULL deathtime",
    ...     "patients": "1 subject_id, 'F' gender, '2040-01-01' dob, NULL dod",
    ...     "diagnoses_icd": "7 hadm_id, 1 seq_num, '4280' icd9_code",
    ...     "icustays": "7 hadm_id, '2101-01-03' intime",
    ... }.items():
    ...     _ = database.raw_sql(f"CREATE TABLE {name} AS SELECT {row}")
    >>> read(database).table.select(["codes", "mortality", "long_stay", "icu_transfer"]).to_pylist()
    [{'codes': ['4280'], 'mortality': False, 'long_stay': True, 'icu_transfer': True}]
    """
    with open_tables(location, TABLES, schemas=schema or SCHEMAS, prefix=prefix) as tables:
        rows, recorded = _hospital.with_codes(tables, _queries(death_day_counts=death_day_counts))
        return _hospital.draft(
            rows,
            tables,
            admissions=("admissions", "hadm_id", "subject_id", "dischtime"),
            patients="patients",
            diagnoses="diagnoses_icd",
            icd_version=9,
            need_codes=False,
            outcomes=_hospital.paper_outcomes(24, death_day_counts),
            death_day_counts=death_day_counts,
            negative_stays=negative_stays,
            recorded=recorded,
        )


def _queries(*, death_day_counts: bool) -> list[Query]:
    """Describe the queries: admissions, their codes, other diagnoses, and the number of all diagnoses."""
    death = ", death day counts" if death_day_counts else ""
    return [
        Query(
            f"mimic3: admissions{death}", partial(_admissions, death_day_counts=death_day_counts), _hospital.in_order
        ),
        Query("mimic3: codes", _codes, Gathered.of),
        Query("mimic3: left out", _left_out),
        Query("mimic3: number of diagnoses", _hospital.number),
    ]


def _admissions(tables: Any, *, death_day_counts: bool = False) -> "ir.Table":
    """Describe one row per admission of the database, without its codes."""
    import ibis
    from ibis import _

    from mlci.sources import _mimic
    from mlci.sources._rules import DAY, elapsed

    # Dates of birth of patients over 89 are moved back by 300 years; the cap at 90 corrects their ages.
    age = elapsed(_.admittime, _.dob) / DAY / ibis.literal(365.2425, "float64")
    return _mimic.admissions(tables, age=age, icu_hours=24, death_day_counts=death_day_counts)


def _codes(tables: Any) -> "ir.Table":
    """Describe one row per code."""
    from mlci.sources import _mimic

    return _mimic.coded(_diagnoses(tables), 9)


def _left_out(tables: Any) -> "ir.Table":
    """Describe how many diagnoses of each admission have no code."""
    from mlci.sources import _mimic

    return _mimic.left_out(_diagnoses(tables), 9)


def _diagnoses(tables: Any) -> "ir.Table":
    """Describe the diagnoses as MIMIC-IV has them."""
    import ibis
    from ibis import _

    return tables["diagnoses_icd"].select("hadm_id", "seq_num", icd_code=_.icd9_code, icd_version=ibis.literal(9))


def totals(location: Any) -> dict[str, int]:
    """Count what the tables hold before any rule.

    Args:
        location: a folder of CSV, CSV.gz or Parquet files, a database URL, or an Ibis backend.

    Returns:
        How many admissions there are, how many patients, and how many admissions with an ICU stay.

    >>> import ibis
    >>> database = ibis.duckdb.connect()
    >>> for name, columns in TABLES.items():
    ...     _ = database.create_table(name, schema=columns)
    >>> _ = database.raw_sql("INSERT INTO admissions (hadm_id, subject_id) VALUES (7, 1), (8, 1)")
    >>> _ = database.raw_sql("INSERT INTO icustays (hadm_id) VALUES (7)")
    >>> totals(database)
    {'admissions': 2, 'patients': 1, 'icu_any': 1}
    """
    from mlci.sources import _mimic

    with open_tables(location, TABLES, schemas=SCHEMAS) as tables:
        return _mimic.totals(tables)
