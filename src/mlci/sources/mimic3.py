"""MIMIC-III (1.4 and its demo): every admission, ICD-9, with the paper's four outcomes.

Nearly every admission of MIMIC-III has an ICU stay, so its ICU outcome is a late transfer: more than 24 hours after
admission. Admissions without any diagnosis stay in, as in the paper's cohort.
"""

from collections.abc import Sequence
from typing import Any

import ibis
import ibis.expr.types as ir
from ibis import _

from mlci.sources import Draft, _hospital
from mlci.sources._engine import open_tables
from mlci.sources._rules import DAY, elapsed

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
    """All MIMIC-III admissions; `negative_stays` keeps those that end before they begin (`NegativeStays`)."""
    with open_tables(location, TABLES, schemas=schema or SCHEMAS, prefix=prefix) as tables:
        rows = tables.fetch(admissions(tables, death_day_counts=death_day_counts))
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
            each_counted=True,
        )


def admissions(tables: Any, *, death_day_counts: bool = False) -> ir.Table:
    """One row per admission of the database; `codes` is null where there are none."""
    diagnoses = tables["diagnoses_icd"].select("hadm_id", "seq_num", icd_code=_.icd9_code, icd_version=ibis.literal(9))
    # Dates of birth of patients over 89 are moved 300 years back; the cap at 90 brings them home.
    age = elapsed(_.admittime, _.dob) / DAY / ibis.literal(365.2425, "float64")
    return _hospital.mimic(tables, diagnoses, age=age, icd_version=9, icu_hours=24, death_day_counts=death_day_counts)


def totals(location: Any) -> dict[str, int]:
    """What the tables hold before any rule: admissions, their patients, and admissions with an ICU stay."""
    with open_tables(location, TABLES, schemas=SCHEMAS) as tables:
        return _hospital.totals(tables)
