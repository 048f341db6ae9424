"""OMOP CDM 5.4: inpatient and emergency-to-inpatient visits, with the paper's four outcomes as the CDM can tell them.

The ICD version of a diagnosis is that of its source concept. Where the source concept is missing, the source value
counts if only one ICD version can have written it: what begins with E or V exists in both, and is dropped and counted.
"""

from collections.abc import Sequence
from typing import Any

import ibis
import ibis.expr.types as ir
from ibis import _

from mlci.codes.icd import check_version
from mlci.sources import Draft, Step, _hospital
from mlci.sources._engine import open_tables
from mlci.sources._rules import died_within, elapsed, known, placed, stayed_longer

TABLES = {
    "visit_occurrence": {
        "visit_occurrence_id": "int64",
        "person_id": "int64",
        "visit_concept_id": "int64",
        "visit_start_date": "timestamp",
        "visit_start_datetime": "timestamp?",
        "visit_end_date": "timestamp",
        "visit_end_datetime": "timestamp?",
    },
    "visit_detail": {
        "visit_occurrence_id": "int64",
        "visit_detail_concept_id": "int64",
        "visit_detail_start_date": "timestamp",
        "visit_detail_start_datetime": "timestamp?",
    },
    "condition_occurrence": {
        "condition_occurrence_id": "int64",
        "visit_occurrence_id": "int64",
        "condition_source_concept_id": "int64",
        "condition_source_value": "string",
    },
    "concept": {"concept_id": "int64", "vocabulary_id": "string", "concept_code": "string"},
    "death": {"person_id": "int64", "death_date": "timestamp", "death_datetime": "timestamp?"},
    "person": {"person_id": "int64", "gender_concept_id": "int64", "year_of_birth": "int64"},
}
INPATIENT = (9201, 262, 8717)  # inpatient; emergency room and inpatient; inpatient hospital
INTENSIVE = (32037, 581379)  # intensive care; inpatient critical care facility
VOCABULARIES = {"ICD9CM": 9, "ICD10CM": 10}
SHAPES = {9: r"^[0-9]{3}[.]?[0-9]{0,2}$", 10: r"^[A-DF-UW-Z][0-9][0-9A-Z][.]?[0-9A-Z]{0,4}$"}


def read(
    location: Any,
    *,
    icd_version: int = 10,
    death_day_counts: bool = False,
    negative_stays: bool = False,
    schema: Sequence[str] = (),
    prefix: str = "",
) -> Draft:
    """OMOP visits of one ICD version; `negative_stays` keeps them with an unknown length of stay."""
    check_version(icd_version)
    with open_tables(location, TABLES, schemas=schema, prefix=prefix) as tables:
        rows = tables.fetch(admissions(tables, icd_version=icd_version, death_day_counts=death_day_counts))
        visited = tables["visit_occurrence"]
        visits = tables.fetch(visited.agg(n=visited.count()))["n"][0].as_py()
        return _hospital.draft(
            rows,
            tables,
            admissions=("visit_occurrence", "visit_occurrence_id", "person_id", "visit_end_date"),
            patients="person",
            diagnoses="condition_occurrence",
            icd_version=icd_version,
            need_codes=True,
            outcomes={
                "mortality": "death from the start to the end of the visit, by time where both are timed, else by date",
                "mortality_30d": "death from 0 to 30 elapsed days after the start of the visit"
                + (", or on the day it starts" if death_day_counts else ""),
                "long_stay": "the visit ends more than 7 elapsed days after it starts",
                "icu_transfer": "first intensive-care visit detail after the start of the visit",
            },
            death_day_counts=death_day_counts,
            negative_stays=negative_stays,
            chosen=(
                Step("rows of visit_occurrence", 0, visits),
                Step("inpatient, or emergency room and inpatient", visits - len(rows), len(rows)),
            ),
        )


def admissions(tables: Any, *, icd_version: int = 10, death_day_counts: bool = False) -> ir.Table:
    """One row per inpatient visit; `codes` is null where none is of the ICD version."""
    visits = tables["visit_occurrence"].filter(_.visit_concept_id.isin(INPATIENT))
    people = tables["person"].mutate(has_patient=True)
    deaths = (
        tables["death"]
        .group_by("person_id")
        .agg(death_date=_.death_date.min(), death_datetime=_.death_datetime.min(), has_death=True)
    )
    units = (
        tables["visit_detail"]
        .filter(_.visit_detail_concept_id.isin(INTENSIVE))
        .group_by("visit_occurrence_id")
        .agg(
            icu_date=_.visit_detail_start_date.min(),
            icu_datetime=_.visit_detail_start_datetime.min(),
            icu_stays=_.count(),
            icu_untimed=_.visit_detail_start_datetime.isnull().sum(),
        )
    )
    joined = (
        visits.left_join(people, "person_id", rname="person_{name}")
        .left_join(deaths, "person_id", rname="death_{name}")
        .left_join(units, "visit_occurrence_id", rname="icu_{name}")
        .left_join(_codes(tables, icd_version), "visit_occurrence_id", rname="code_{name}")
    ).mutate(
        start=ibis.coalesce(_.visit_start_datetime, _.visit_start_date),
        death=ibis.coalesce(_.death_datetime, _.death_date),
        timed=_.visit_start_datetime.notnull() & _.visit_end_datetime.notnull(),
        icu_timed=(_.icu_untimed == 0) & _.visit_start_datetime.notnull(),
    )
    # Two moments are compared by time where both have one, else by date: a date is no midnight.
    begin = ibis.ifelse(_.timed, _.visit_start_datetime, _.visit_start_date)
    end = ibis.ifelse(_.timed, _.visit_end_datetime, _.visit_end_date)
    in_hospital = ibis.ifelse(
        _.timed & _.death_datetime.notnull(),
        (_.death_datetime >= _.visit_start_datetime) & (_.death_datetime <= _.visit_end_datetime),
        (_.death_date >= _.visit_start_date) & (_.death_date <= _.visit_end_date),
    )
    later = ibis.ifelse(
        _.icu_timed,
        elapsed(_.icu_datetime, _.visit_start_datetime) > 0,
        # On the day of admission, without times, the order of the two is not known.
        ibis.ifelse(_.icu_date > _.visit_start_date, True, ibis.null("boolean")),
    )
    return joined.select(
        "codes",
        "other_codes",
        "unknown_codes",
        "has_patient",
        admission_id=_.visit_occurrence_id,
        subject_id=_.person_id,
        mortality=known(in_hospital, _.death.isnull() | (begin.notnull() & end.notnull())),
        mortality_30d=died_within(30, _.death, _.start, death_day_counts=death_day_counts),
        long_stay=stayed_longer(7, end, begin),
        icu_transfer=ibis.ifelse(_.icu_stays.isnull(), False, later),
        age=_hospital.capped(_.start.year() - _.year_of_birth),
        sex=ibis.cases((_.gender_concept_id == 8507, "M"), (_.gender_concept_id == 8532, "F")),
        negative_stay=elapsed(end, begin) < 0,
        **_hospital.deaths_before(_.death, _.start),
    )


def _codes(tables: Any, icd_version: int) -> ir.Table:
    """The diagnoses of each visit, in the order of their ids: the CDM has no other."""
    concepts = tables["concept"].filter(_.vocabulary_id.isin(tuple(VOCABULARIES)))
    value = _.condition_source_value.strip().upper()
    shapes = [(_.concept_code.isnull() & value.re_search(shape), number) for number, shape in SHAPES.items()]
    conditions = (
        tables["condition_occurrence"]
        .left_join(concepts, [("condition_source_concept_id", "concept_id")])
        .mutate(
            version=ibis.cases(*((_.vocabulary_id == name, number) for name, number in VOCABULARIES.items()), *shapes),
            code=ibis.coalesce(_.concept_code, value),
            position=ibis.row_number().over(
                ibis.window(group_by="visit_occurrence_id", order_by="condition_occurrence_id")
            ),
        )
    )
    return conditions.group_by("visit_occurrence_id").agg(
        codes=placed(_.code, _.position).collect(where=_.version == icd_version),
        other_codes=(_.version != icd_version).sum(),
        unknown_codes=_.version.isnull().sum(),
    )
