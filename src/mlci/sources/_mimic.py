"""What MIMIC-III and MIMIC-IV share: the four outcomes from ADMISSIONS, PATIENTS and ICUSTAYS, and their checks."""

from typing import Any

import ibis
import ibis.expr.types as ir
import pyarrow as pa
import pyarrow.compute as pc
from ibis import _

from mlci.errors import InputError
from mlci.sources import Attrition, Draft
from mlci.sources._engine import Tables, codes_in_order
from mlci.sources._rules import died_within, elapsed, entered_after, placed, same_day, stayed_longer


def admissions(
    tables: Any, diagnoses: ir.Table, *, age: Any, icd_version: int, icu_hours: int, death_day_counts: bool
) -> ir.Table:
    """One row per row of ADMISSIONS, with outcomes, placed codes of one ICD version and what `draft` checks."""
    wanted = (_.icd_version == icd_version) & (_.icd_code.strip() != "")
    codes = diagnoses.group_by("hadm_id").agg(
        codes=placed(_.icd_code, _.seq_num).collect(where=wanted),
        other_codes=(_.icd_version != icd_version).sum(),
    )
    stays = tables["icustays"].group_by("hadm_id").agg(first_icu=_.intime.min(), icu_stays=_.count())
    patients = tables["patients"].mutate(has_patient=True)
    joined = (
        tables["admissions"].left_join(patients, "subject_id").left_join(codes, "hadm_id").left_join(stays, "hadm_id")
    )
    return joined.select(
        "subject_id",
        "codes",
        admission_id=_.hadm_id,
        mortality=_.deathtime.notnull(),
        mortality_30d=died_within(30, _.dod, _.admittime, death_day_counts=death_day_counts),
        long_stay=stayed_longer(7, _.dischtime, _.admittime),
        icu_transfer=entered_after(icu_hours, _.first_icu, _.icu_stays, _.admittime),
        age=ibis.cases((age > 89, 90.0), (age >= 0, age.cast("float64"))),
        sex=_.gender,
        other_codes=_.other_codes,
        has_patient=_.has_patient,
        negative_stay=elapsed(_.dischtime, _.admittime) < 0,
        died_on_the_day=same_day(_.dod, _.admittime) & (elapsed(_.dod, _.admittime) < 0),
        died_before=(elapsed(_.dod, _.admittime) < 0) & ~same_day(_.dod, _.admittime),
    )


def draft(
    rows: pa.Table,
    tables: Tables,
    *,
    icd_version: int,
    need_codes: bool,
    icu_hours: int,
    death_day_counts: bool,
    negative_stays: bool,
) -> Draft:
    """Check the rows, count what the rules remove, put the codes in order."""
    where = tables.where["admissions"]
    orphans = pc.sum(pc.is_null(rows["has_patient"])).as_py()
    if orphans:
        raise InputError(f"{where}: column subject_id: {orphans} admissions have no row in {tables.where['patients']}.")
    negative = pc.sum(rows["negative_stay"]).as_py() or 0
    if negative and not negative_stays:
        raise InputError(
            f"{where}: column dischtime: {negative} admissions end before they begin; "
            "correct them, or keep them with an unknown length of stay (--negative-stays)."
        )
    attrition = Attrition(rows, "rows of ADMISSIONS")
    if need_codes:
        attrition.keep(pc.greater(pc.list_value_length(rows["codes"]), 0), f"has an ICD-{icd_version} diagnosis")
    table = attrition.table

    def count(name: str) -> int:
        return pc.sum(table[name]).as_py() or 0

    counted = "as deaths" if death_day_counts else "as alive, as in the paper (--death-day-counts changes it)"
    notes = {
        f"{{}} diagnoses of another ICD version than {icd_version} were dropped": count("other_codes"),
        f"{{}} patients died on the day of admission; a date of death has no time of day, so mortality_30d counts them "
        f"{counted}": count("died_on_the_day"),
        "{} admissions begin after the patient's date of death; mortality_30d is false, as in the paper": count(
            "died_before"
        ),
        "{} admissions end before they begin; long_stay is not known": count("negative_stay"),
    }
    hours = f"more than {icu_hours} h after admission" if icu_hours else "after admission"
    keep = [
        "admission_id",
        "subject_id",
        "codes",
        "mortality",
        "mortality_30d",
        "long_stay",
        "icu_transfer",
        "age",
        "sex",
    ]
    table = table.select(keep).append_column("icd_version", pa.array([icd_version] * len(table), pa.int8()))
    table = table.set_column(2, "codes", codes_in_order(table["codes"]))
    return Draft(
        table=table,
        outcomes={
            "mortality": "death in hospital: DEATHTIME is recorded",
            "mortality_30d": "PATIENTS.DOD from 0 to 30 elapsed days after ADMITTIME"
            + (", or on the day of admission" if death_day_counts else ""),
            "long_stay": "DISCHTIME more than 7 elapsed days after ADMITTIME",
            "icu_transfer": f"first ICU entry {hours}",
        },
        attrition=tuple(attrition.steps),
        notes=tuple(text.format(number) + "." for text, number in notes.items() if number),
    )
