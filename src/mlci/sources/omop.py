"""The source `omop`: inpatient visits of OMOP CDM 5.4, with the paper's four outcomes as far as the CDM allows.

A visit is inpatient if its concept is, or descends from an inpatient one (with table `concept_ancestor`), or if the
user lists its concept: some hospitals file admissions under emergency room or observation. Concepts that are left out
are counted. For a visit with a detail in the emergency room, the length of stay starts at its first detail elsewhere.
Intensive care is recognised by the concept of a visit detail or the name of its care site.

A diagnosis has the ICD version of its source concept. If the vocabulary lacks the concept, the source value counts if
only one ICD version has codes of this form. Some forms occur in both versions (codes that begin with E or V): such a
code gets the version of most other codes of the visit; without a majority it is dropped and counted. Data without any
ICD code are mapped back to ICD from their standard concepts, if the vocabulary's maps are there (`_snomed`).
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import ibis
import ibis.expr.types as ir
import pyarrow as pa
import pyarrow.compute as pc
from ibis import _

from mlci.base.errors import InputError
from mlci.codes.icd import check_version
from mlci.sources import Draft, Step, _hospital, _snomed
from mlci.sources._engine import Tables, open_tables
from mlci.sources._gathered import codes_in_order
from mlci.sources._rules import capped, deaths_before, died_within, elapsed, known, placed, stayed_longer

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
        "care_site_id": "int64?",
    },
    "care_site": {"care_site_id": "int64", "care_site_name": "string?", "care_site_source_value": "string?"},
    "condition_occurrence": {
        "condition_occurrence_id": "int64",
        "visit_occurrence_id": "int64",
        "condition_concept_id": "int64?",
        "condition_source_concept_id": "int64",
        "condition_source_value": "string",
    },
    "observation": {
        "observation_id": "int64",
        "visit_occurrence_id": "int64",
        "observation_concept_id": "int64?",
        "observation_source_concept_id": "int64",
        "observation_source_value": "string",
    },
    "concept": {"concept_id": "int64", "vocabulary_id": "string", "concept_code": "string", "concept_name": "string?"},
    "concept_ancestor": {"ancestor_concept_id": "int64", "descendant_concept_id": "int64"},
    "concept_relationship": _snomed.COLUMNS,
    "death": {"person_id": "int64", "death_date": "timestamp", "death_datetime": "timestamp?"},
    "person": {"person_id": "int64", "gender_concept_id": "int64", "year_of_birth": "int64"},
}
INPATIENT = (9201, 262, 8717)  # inpatient; emergency room and inpatient; inpatient hospital
INTENSIVE = (32037, 581379)  # intensive care; inpatient critical care facility
EMERGENCY, OUTPATIENT = (8870, 9203), (38004207, 9202)  # emergency rooms; outpatient clinics
INTENSIVE_SITES = r"(INTENSIVE CARE|CRITICAL CARE|CORONARY CARE|ICU)"
NEARLY_INTENSIVE = r"(INTERMEDIATE|STEP.?DOWN|HIGH DEPENDENCY)"
OPTIONAL = ("care_site", "observation", "concept_ancestor", "concept_relationship")
ALIASES = {name: f"2b_{name}" for name in ("concept", *OPTIONAL[2:])}  # names in the published demo of MIMIC-IV
VOCABULARIES = {"ICD9CM": 9, "ICD10CM": 10, "ICD10": 10}
# The forms that codes of only one ICD version have, in capitals; then the forms of both.
SHAPES = {
    9: r"^([0-9]{3}[.]?[0-9]{0,2}|E9[0-9]{2}[.]?[0-9]?)$",
    10: r"^(([A-DF-UW-Z][0-9][0-9A-Z]|E0[4-9]|E[1-7][0-9])[.]?[0-9A-Z]{0,4}|V[0-9]{2}[.]?[0-9A-Z]{3,})$",
}
EITHER = r"^(E(0[0-3]|8[0-9])[.]?[0-9A-Z]{0,2}|V[0-9]{2}[.]?[0-9]{0,2})$"


def read(
    location: Any,
    *,
    icd_version: int = 10,
    visits: str | Sequence[int] | None = None,
    icu_sites: str | Sequence[str] = (),
    death_day_counts: bool = False,
    negative_stays: bool = False,
    schema: Sequence[str] = (),
    prefix: str = "",
) -> Draft:
    """Read the inpatient visits of an OMOP database that have codes of one ICD version.

    Args:
        location: a folder of CSV, CSV.gz or Parquet files, a database URL, or an Ibis backend.
        icd_version: 9 or 10.
        visits: the visit concepts that count as admissions, or `all`; by default the inpatient ones.
        icu_sites: names of further care sites that count as intensive care.
        death_day_counts: whether a death recorded on the date of admission, without a time, is one within 30 days.
        negative_stays: whether to keep visits that end before they begin, with an unknown length of stay; else they
            raise an error.
        schema: schemas of a database to search before its default one.
        prefix: what the names of tables or files begin with.

    Returns:
        A draft with the paper's four outcomes, as far as the database allows.

    >>> import ibis
    >>> database = ibis.duckdb.connect()
    >>> for name, columns in TABLES.items():
    ...     _ = database.create_table(name, schema={column: kind.rstrip("?") for column, kind in columns.items()})
    >>> _ = database.raw_sql("INSERT INTO person VALUES (1, 8532, 1950)")
    >>> _ = database.raw_sql("INSERT INTO visit_occurrence VALUES (7, 1, 9201, '2020-01-01', NULL, '2020-01-10', NULL)")
    >>> _ = database.raw_sql("INSERT INTO condition_occurrence VALUES (1, 7, 0, 0, 'I50.9')")
    >>> read(database).table.select(["codes", "mortality", "long_stay", "sex"]).to_pylist()
    [{'codes': ['I50.9'], 'mortality': False, 'long_stay': True, 'sex': 'F'}]
    """
    check_version(icd_version)
    concepts = _concepts(visits)
    with open_tables(location, TABLES, schemas=schema, prefix=prefix, aliases=ALIASES, optional=OPTIONAL) as tables:
        sites = tuple(icu_sites.split(",") if isinstance(icu_sites, str) else icu_sites)
        options = {"icd_version": icd_version, "visits": concepts, "icu_sites": sites}
        options |= {"death_day_counts": death_day_counts}
        rows = tables.fetch(_admissions(tables, **options))
        step, left_out = _left_out(tables, concepts)
        if not len(rows):
            raise InputError(f"{tables.where['visit_occurrence']}: has no inpatient visit; {left_out}")
        notes = [left_out, _nearly_intensive(tables, sites)]
        if "concept_relationship" in tables and not _coded(rows):
            rows = tables.fetch(_admissions(tables, **options, mapped=True))
            notes.append(_back_words(rows, icd_version))
        codes = codes_in_order(rows["codes"], tables.where["condition_occurrence"])
        rows = rows.drop_columns(["codes", "own_codes", "mapped_codes", "vague_codes"]).append_column("codes", codes)
        found = _hospital.draft(
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
                "long_stay": "the visit ends more than 7 elapsed days after it starts, or after its first visit detail "
                "outside the emergency room where it has one inside",
                "icu_transfer": "first intensive-care visit detail after the start of the visit",
            },
            death_day_counts=death_day_counts,
            negative_stays=negative_stays,
            chosen=step,
        )
    return replace(found, notes=(*filter(None, notes), *found.notes))


def _coded(rows: pa.Table) -> bool:
    """Return whether any visit has an ICD code, of either version."""
    return any(pc.sum(rows[name]).as_py() for name in ("own_codes", "other_codes"))


def _back_words(rows: pa.Table, icd_version: int) -> str:
    mapped, vague = (pc.sum(rows[name]).as_py() or 0 for name in ("mapped_codes", "vague_codes"))
    return (
        f"no diagnosis has an ICD code; {mapped:,} were taken back to ICD-{icd_version} from their standard concepts "
        f"by the vocabulary's maps, {vague:,} were left out because their concept stands for several categories."
    )


def _concepts(visits: str | Sequence[int] | None) -> tuple[int, ...] | None:
    """Return the visit concepts that count; None means all."""
    if visits is None:
        return INPATIENT
    words = visits.split(",") if isinstance(visits, str) else [str(concept) for concept in visits]
    if words == ["all"]:
        return None
    if not all(word.strip().isdigit() for word in words):
        raise InputError(f"visits {visits!r}: allowed are concept ids with commas between, as 9201,262, or all.")
    return tuple(int(word) for word in words)


def _descending(tables: Any, concepts: tuple[int, ...]) -> Any:
    """Return a function that tests whether a column's concept is one of `concepts` or descends from one."""
    if "concept_ancestor" not in tables:
        return lambda column: column.isin(concepts)
    ancestors = tables["concept_ancestor"]
    below = ancestors.filter(ancestors.ancestor_concept_id.isin(concepts)).descendant_concept_id
    return lambda column: column.isin(concepts) | column.isin(below)


def _left_out(tables: Tables, concepts: tuple[int, ...] | None) -> tuple[tuple[Step, Step], str]:
    """Count the visits by concept; return the steps of the selection, and a sentence on concepts that are left out.

    If most visits of a concept last over a night, they may be admissions: the sentence then says how to include them.
    """
    visits = tables["visit_occurrence"]
    night = ibis.ifelse(visits.visit_end_date > visits.visit_start_date, 1, 0)
    counts = visits.group_by("visit_concept_id").agg(n=_.count(), nights=night.sum())
    inside = ibis.literal(True) if concepts is None else _descending(tables, concepts)(counts.visit_concept_id)
    found = tables.fetch(counts.mutate(inside=inside.fill_null(False)).order_by([ibis.desc("n"), "visit_concept_id"]))
    rows = found.to_pylist()
    total, kept = (sum(row["n"] for row in rows if row["inside"] or part) for part in (True, False))
    steps = Step("rows of visit_occurrence", 0, total), Step("inpatient by its visit concept", total - kept, kept)
    others = [row for row in rows if not row["inside"]]
    if concepts is None or not others:
        return steps, ""
    counted = ", ".join(f"{row['n']:,} of concept {row['visit_concept_id']}" for row in others[:8])
    overnight = [row for row in others if 2 * row["nights"] > row["n"] and row["visit_concept_id"]]
    advice = "--visits names the concepts that count."
    if overnight:
        lasting = ", ".join(f"{row['nights']:,} of concept {row['visit_concept_id']}" for row in overnight)
        wanted = ",".join(str(concept) for concept in (*concepts, *(row["visit_concept_id"] for row in overnight)))
        advice = f"of these {lasting} last over a night: if they are admissions, --visits {wanted} counts them too."
    return steps, f"{total - kept:,} visits are not inpatient by their concept ({counted}); {advice}"


def _nearly_intensive(tables: Tables, icu_sites: tuple[str, ...]) -> str:
    """Return a sentence on care sites that only some hospitals count as intensive care."""
    if "care_site" not in tables:
        return ""
    sites = tables["care_site"]
    name = ibis.coalesce(sites.care_site_name, sites.care_site_source_value)
    plain, given = name.upper(), [site.strip().upper() for site in icu_sites]
    nearly = plain.re_search(NEARLY_INTENSIVE) & ~plain.re_search(INTENSIVE_SITES) & plain.notin([*given, ""])
    names = tables.fetch(sites.filter(nearly).select(name=name).distinct().order_by("name"))["name"].to_pylist()
    if not names:
        return ""
    listed = "; ".join(names[:8]) + ("; ..." if len(names) > 8 else "")
    return f"care sites that do not count as intensive care: {listed} (--icu-sites NAME,NAME counts them)."


def _admissions(
    tables: Any,
    *,
    icd_version: int = 10,
    visits: tuple[int, ...] | None = INPATIENT,
    icu_sites: tuple[str, ...] = (),
    death_day_counts: bool = False,
    mapped: bool = False,
) -> ir.Table:
    """Describe one row per inpatient visit; `codes` is null if no code is of the ICD version.

    With `mapped`, standard concepts are mapped back to ICD, for data without any ICD code.
    """
    chosen = tables["visit_occurrence"]
    if visits is not None:
        chosen = chosen.filter(_descending(tables, visits)(chosen.visit_concept_id))
    joined = _joined(tables, chosen, icu_sites).left_join(
        _codes(tables, icd_version, mapped=mapped), "visit_occurrence_id", rname="code_{name}"
    )
    # Moments are compared by time if both have a time, else by date: a date does not mean midnight.
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
        # Without times, the order on the day of admission is not known.
        ibis.ifelse(_.icu_date > _.visit_start_date, True, ibis.null("boolean")),
    )
    return joined.select(
        "codes",
        "other_codes",
        "unknown_codes",
        "not_codes",
        "own_codes",
        "mapped_codes",
        "vague_codes",
        "has_patient",
        admission_id=_.visit_occurrence_id,
        admitted=_.start,
        subject_id=_.person_id,
        mortality=known(in_hospital, _.death.isnull() | (begin.notnull() & end.notnull())),
        mortality_30d=died_within(30, _.death, _.start, death_day_counts=death_day_counts),
        long_stay=stayed_longer(7, end, ibis.ifelse(_.timed & (_.emergencies > 0) & _.ward.notnull(), _.ward, begin)),
        icu_transfer=ibis.ifelse(_.icu_stays.isnull(), False, later),
        age=capped(_.start.year() - _.year_of_birth),
        sex=ibis.cases((_.gender_concept_id == 8507, "M"), (_.gender_concept_id == 8532, "F")),
        negative_stay=elapsed(end, begin) < 0,
        **deaths_before(_.death, _.start),
    )


def _joined(tables: Any, visits: ir.Table, icu_sites: tuple[str, ...]) -> ir.Table:
    """Return visits with person, death, intensive care and wards; `timed`: whether start and end have a time."""
    people = tables["person"].mutate(has_patient=True)
    deaths = (
        tables["death"]
        .group_by("person_id")
        .agg(death_date=_.death_date.min(), death_datetime=_.death_datetime.min(), has_death=True)
    )
    units = (
        _intensive(tables, icu_sites)
        .group_by("visit_occurrence_id")
        .agg(
            icu_date=_.visit_detail_start_date.min(),
            icu_datetime=_.visit_detail_start_datetime.min(),
            icu_stays=_.count(),
            icu_untimed=_.visit_detail_start_datetime.isnull().sum(),
        )
    )
    return (
        visits.left_join(people, "person_id", rname="person_{name}")
        .left_join(deaths, "person_id", rname="death_{name}")
        .left_join(units, "visit_occurrence_id", rname="icu_{name}")
        .left_join(_wards(tables), "visit_occurrence_id", rname="ward_{name}")
    ).mutate(
        start=ibis.coalesce(_.visit_start_datetime, _.visit_start_date),
        death=ibis.coalesce(_.death_datetime, _.death_date),
        timed=_.visit_start_datetime.notnull() & _.visit_end_datetime.notnull(),
        icu_timed=(_.icu_untimed == 0) & _.visit_start_datetime.notnull(),
    )


def _wards(tables: Any) -> ir.Table:
    """Return for each visit the first time outside the emergency room, and the number of details inside."""
    inside = _.visit_detail_concept_id.isin(EMERGENCY)
    return (
        tables["visit_detail"]
        .group_by("visit_occurrence_id")
        .agg(
            ward=_.visit_detail_start_datetime.min(where=~inside & _.visit_detail_concept_id.notin(OUTPATIENT)),
            emergencies=ibis.ifelse(inside, 1, 0).sum(),
        )
    )


def _intensive(tables: Any, icu_sites: tuple[str, ...]) -> ir.Table:
    """Return the visit details in intensive care, by concept or by the name of the care site."""
    details = tables["visit_detail"]
    by_concept = _descending(tables, INTENSIVE)(details.visit_detail_concept_id)
    if "care_site" not in tables:
        return details.filter(by_concept)
    sites = tables["care_site"]
    names = ibis.coalesce(sites.care_site_name, sites.care_site_source_value).upper()
    named = names.re_search(INTENSIVE_SITES) | names.isin([name.strip().upper() for name in icu_sites])
    units = sites.filter(named).care_site_id
    return details.filter(by_concept | details.care_site_id.isin(units))


def _codes(tables: Any, icd_version: int, *, mapped: bool = False) -> ir.Table:
    """Return the diagnoses of each visit in the order of their ids, because the CDM stores no other order."""
    recorded = [_recorded(tables["condition_occurrence"], "condition", 0)]
    if "observation" in tables:
        recorded.append(_recorded(tables["observation"], "observation", 1))
    rows = recorded[0] if len(recorded) == 1 else ibis.union(*recorded)
    concepts = tables["concept"].filter(_.vocabulary_id.isin(tuple(VOCABULARIES)))
    concepts = concepts.select("concept_id", "vocabulary_id", "concept_code")
    value = _.value.strip().upper()
    shapes = [(_.concept_code.isnull() & value.re_search(shape), number) for number, shape in SHAPES.items()]
    conditions = rows.left_join(concepts, [("source_concept", "concept_id")]).mutate(
        sure=ibis.cases(*((_.vocabulary_id == name, number) for name, number in VOCABULARIES.items()), *shapes),
        either=(_.concept_code.isnull() & value.re_search(EITHER)).fill_null(False),
        code=ibis.coalesce(_.concept_code, value),
        position=ibis.row_number().over(ibis.window(group_by="visit_occurrence_id", order_by=["part", "row_id"])),
    )
    of_visit = ibis.window(group_by="visit_occurrence_id")
    conditions = conditions.mutate(
        nines=ibis.ifelse(_.sure == 9, 1, 0).sum().over(of_visit),
        tens=ibis.ifelse(_.sure == 10, 1, 0).sum().over(of_visit),
    ).mutate(
        version=ibis.cases(
            (_.sure.notnull(), _.sure), (_.either & (_.tens > _.nines), 10), (_.either & (_.nines > _.tens), 9)
        )
    )
    conditions = _with_back(tables, conditions, icd_version) if mapped else conditions.mutate(mapped=0, vague=0)
    # A code that maps to two standard concepts has two rows, but was recorded once.
    again = ibis.row_number().over(ibis.window(group_by=["visit_occurrence_id", "code"], order_by="position"))
    conditions = conditions.mutate(again=again).filter((_.again == 0) | _.version.isnull())
    return conditions.group_by("visit_occurrence_id").agg(
        codes=placed(_.code, _.position).collect(where=_.version == icd_version),
        other_codes=(_.version != icd_version).sum(),
        unknown_codes=(_.version.isnull() & _.either).sum(),
        not_codes=(_.version.isnull() & ~_.either & (_.part == 0)).sum(),
        own_codes=(_.version == icd_version).sum(),
        mapped_codes=_.mapped.sum(),
        vague_codes=_.vague.sum(),
    )


def _with_back(tables: Any, conditions: ir.Table, icd_version: int) -> ir.Table:
    """Map conditions without an ICD code back from their standard concept, if only one category is possible."""
    names = tuple(name for name, number in VOCABULARIES.items() if number == icd_version)
    back = _snomed.taken_back(tables, names)
    silent = _.version.isnull() & ~_.either & (_.part == 0)
    return (
        conditions.left_join(back, [("concept", "standard")])
        .mutate(
            mapped=ibis.ifelse(silent & (_.categories == 1), 1, 0), vague=ibis.ifelse(silent & (_.categories > 1), 1, 0)
        )
        .mutate(
            code=ibis.ifelse(_.mapped == 1, _.back, _.code), version=ibis.ifelse(_.mapped == 1, icd_version, _.version)
        )
    )


def _recorded(table: ir.Table, name: str, part: int) -> ir.Table:
    """Return the rows of a table that may hold a diagnosis, with the same columns for every table."""
    return table.select(
        "visit_occurrence_id",
        row_id=table[f"{name}_occurrence_id" if name == "condition" else f"{name}_id"],
        concept=table[f"{name}_concept_id"],
        source_concept=table[f"{name}_source_concept_id"],
        value=table[f"{name}_source_value"],
        part=ibis.literal(part),
    )
