"""MIMIC's rules as Ibis expressions: admissions, their codes, and totals before any rule."""

from typing import Any

import ibis.expr.types as ir
from ibis import _

from mlci.sources._engine import Tables
from mlci.sources._rules import bounded, capped, deaths_before, died_within, elapsed, entered_after, stayed_longer


def admissions(tables: Any, *, age: Any, icu_hours: int, death_day_counts: bool) -> ir.Table:
    """Return one row per row of ADMISSIONS, with outcomes and the columns that `draft` checks.

    Codes come from `coded`, and counts of other diagnoses from `left_out`.
    """
    stays = tables["icustays"].group_by("hadm_id").agg(first_icu=_.intime.min(), icu_stays=_.count())
    patients = tables["patients"].mutate(has_patient=True)
    joined = tables["admissions"].left_join(patients, "subject_id").left_join(stays, "hadm_id")
    return joined.select(
        "subject_id",
        "has_patient",
        admission_id=_.hadm_id,
        admitted=_.admittime,
        mortality=_.deathtime.notnull(),
        mortality_30d=died_within(30, _.dod, _.admittime, death_day_counts=death_day_counts),
        long_stay=stayed_longer(7, _.dischtime, _.admittime),
        icu_transfer=entered_after(icu_hours, _.first_icu, _.icu_stays, _.admittime),
        age=capped(age),
        sex=_.gender,
        negative_stay=elapsed(_.dischtime, _.admittime) < 0,
        **deaths_before(_.dod, _.admittime),
    )


def coded(diagnoses: ir.Table, icd_version: int) -> ir.Table:
    """Return one row per diagnosis of an ICD version, with its admission, position and code."""
    wanted = diagnoses.filter((_.icd_version == icd_version) & _.icd_code.notnull() & _.hadm_id.notnull())
    return wanted.select(admission=_.hadm_id, position=bounded(_.seq_num), code=_.icd_code)


def left_out(diagnoses: ir.Table, icd_version: int) -> ir.Table:
    """Return one row per admission with diagnoses that `coded` leaves out, with their numbers by kind."""
    odd = (_.icd_version != icd_version) | _.icd_version.isnull() | _.icd_code.isnull()
    return (
        diagnoses.filter(odd & _.hadm_id.notnull())
        .group_by(admission=_.hadm_id)
        .agg(
            other_codes=_.count(where=(_.icd_version != icd_version) & _.icd_code.notnull()),
            unknown_codes=_.count(where=_.icd_version.isnull() & _.icd_code.notnull()),
            not_codes=_.count(where=_.icd_code.isnull()),
        )
    )


def totals(tables: Tables) -> dict[str, int]:
    """Count all admissions, patients, and admissions with an ICU stay, before any rule."""
    stays = tables["icustays"].select("hadm_id").distinct().mutate(in_icu=True)
    joined = tables["admissions"].left_join(stays, "hadm_id")
    counts = joined.agg(admissions=_.count(), patients=_.subject_id.nunique(), icu_any=_.in_icu.count())
    return {name: int(values[0].as_py()) for name, values in zip(counts.columns, tables.fetch(counts).columns)}
