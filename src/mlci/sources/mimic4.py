"""MIMIC-IV (2.0 and later, and its demo): ICD-10 admissions, or ICD-9 ones, with the paper's four outcomes.

In come `hosp` and `icu` tables as PhysioNet ships them or as mimic-code loads them into a database; out comes one row
per admission that has at least one diagnosis of the chosen ICD version.
"""

from collections.abc import Sequence
from typing import Any

import ibis.expr.types as ir
from ibis import _

from mlci.codes.icd import check_version
from mlci.sources import Draft, _hospital
from mlci.sources._engine import open_tables

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
    """MIMIC-IV admissions of one ICD version; `negative_stays` keeps those that end before they begin."""
    check_version(icd_version)
    with open_tables(location, TABLES, schemas=schema or SCHEMAS, prefix=prefix) as tables:
        rows = tables.fetch(admissions(tables, icd_version=icd_version, death_day_counts=death_day_counts))
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
            each_counted=True,
        )


def admissions(tables: Any, *, icd_version: int = 10, death_day_counts: bool = False) -> ir.Table:
    """One row per admission of the database; `codes` is null where none is of the ICD version."""
    # Age in the year of admission: the anchor is the one year in which the age is known.
    age = _.anchor_age + _.admittime.year() - _.anchor_year
    return _hospital.mimic(
        tables,
        tables["diagnoses_icd"],
        age=age,
        icd_version=icd_version,
        icu_hours=0,
        death_day_counts=death_day_counts,
    )


def totals(location: Any) -> dict[str, int]:
    """What the tables hold before any rule: admissions, their patients, and admissions with an ICU stay."""
    with open_tables(location, TABLES, schemas=SCHEMAS) as tables:
        return _hospital.totals(tables)
