"""The source `mimic4`: admissions of MIMIC-IV (2.0 and later, and its demo) with codes of one ICD version.

It reads the `hosp` and `icu` tables as PhysioNet publishes them, or as mimic-code loads them into a database. The draft
has the paper's four outcomes, and one row per admission with at least one diagnosis of the chosen ICD version.
"""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from mlci.codes.icd import check_version
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
    "patients": {
        "subject_id": "int64",
        "gender": "string",
        "anchor_age": "int64",
        "anchor_year": "int64",
        "dod": "timestamp",
    },
    "diagnoses_icd": {"hadm_id": "int64", "seq_num": "int64", "icd_code": "string", "icd_version": "int64"},
    "icustays": {"hadm_id": "int64", "intime": "timestamp"},
}
SCHEMAS = ("mimiciv_hosp", "mimiciv_icu")


def read(
    location: Any,
    *,
    icd_version: int = 10,
    death_day_counts: bool = False,
    negative_stays: _hospital.NegativeStays = False,
    schema: Sequence[str] = (),
    prefix: str = "",
) -> Draft:
    """Read the admissions of MIMIC-IV that have codes of one ICD version.

    Args:
        location: a folder of CSV, CSV.gz or Parquet files, a database URL, or an Ibis backend.
        icd_version: 9 or 10.
        death_day_counts: whether a death recorded on the date of admission, without a time, is one within 30 days.
        negative_stays: what to do with admissions that end before they begin: False raises an error, True keeps them
            with an unknown length of stay, and "short" keeps them as not long.
        schema: schemas of a database to search before its default one.
        prefix: what the names of tables or files begin with.

    Returns:
        A draft with the paper's four outcomes; ICU transfer is any stay in intensive care after admission.

    >>> import ibis
    >>> database = ibis.duckdb.connect()
    >>> for name, row in {
    ...     "admissions": "7 hadm_id, 1 subject_id, '2101-01-01' admittime, '2101-01-03' dischtime, NULL deathtime",
    ...     "patients": "1 subject_id, 'F' gender, 61 anchor_age, 2101 anchor_year, '2101-01-20' dod",
    ...     "diagnoses_icd": "7 hadm_id, 1 seq_num, 'I509' icd_code, 10 icd_version",
    ...     "icustays": "8 hadm_id, '2101-01-03' intime",
    ... }.items():
    ...     _ = database.raw_sql(f"CREATE TABLE {name} AS SELECT {row}")
    >>> read(database).table.select(["codes", "mortality", "mortality_30d", "icu_transfer"]).to_pylist()
    [{'codes': ['I509'], 'mortality': False, 'mortality_30d': True, 'icu_transfer': False}]
    """
    check_version(icd_version)
    with open_tables(location, TABLES, schemas=schema or SCHEMAS, prefix=prefix) as tables:
        asked = _queries(icd_version=icd_version, death_day_counts=death_day_counts)
        rows, recorded = _hospital.with_codes(tables, asked)
        return _hospital.draft(
            rows,
            tables,
            admissions=("admissions", "hadm_id", "subject_id", "dischtime"),
            patients="patients",
            diagnoses="diagnoses_icd",
            icd_version=icd_version,
            need_codes=True,
            outcomes=_hospital.paper_outcomes(0, death_day_counts),
            death_day_counts=death_day_counts,
            negative_stays=negative_stays,
            recorded=recorded,
        )


def _queries(*, icd_version: int, death_day_counts: bool) -> list[Query]:
    """Describe the queries: admissions, their codes, other diagnoses, and the number of all diagnoses."""
    death = ", death day counts" if death_day_counts else ""
    return [
        Query(
            f"mimic4: admissions{death}", partial(_admissions, death_day_counts=death_day_counts), _hospital.in_order
        ),
        Query(f"mimic4: codes, ICD-{icd_version}", partial(_codes, icd_version=icd_version), Gathered.of),
        Query(f"mimic4: left out, ICD-{icd_version}", partial(_left_out, icd_version=icd_version)),
        Query("mimic4: number of diagnoses", _hospital.number),
    ]


def _admissions(tables: Any, *, death_day_counts: bool = False) -> "ir.Table":
    """Describe one row per admission of the database, without its codes."""
    from ibis import _

    from mlci.sources import _mimic

    # Age in the year of admission: the age is known for one year, the anchor year.
    age = _.anchor_age + _.admittime.year() - _.anchor_year
    return _mimic.admissions(tables, age=age, icu_hours=0, death_day_counts=death_day_counts)


def _codes(tables: Any, *, icd_version: int) -> "ir.Table":
    """Describe one row per code of the version."""
    from mlci.sources import _mimic

    return _mimic.coded(tables["diagnoses_icd"], icd_version)


def _left_out(tables: Any, *, icd_version: int) -> "ir.Table":
    """Describe the numbers of other diagnoses of each admission."""
    from mlci.sources import _mimic

    return _mimic.left_out(tables["diagnoses_icd"], icd_version)


def totals(location: Any) -> dict[str, int]:
    """Count what the tables hold before any rule.

    Args:
        location: a folder of CSV, CSV.gz or Parquet files, a database URL, or an Ibis backend.

    Returns:
        The numbers of admissions, patients, and admissions with an ICU stay.

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
