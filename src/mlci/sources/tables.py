"""The source `tables`: a hospital's own tables, with a TOML file that states columns and outcomes.

    [admissions]                      # one row per admission
    table = "stays"                   # stays.csv, stays.csv.gz, stays.parquet, or a table of the database
    admission_id = "encounter"
    subject_id = "mrn"
    admitted = "admit_time"
    discharged = "discharge_time"
    died = "death_date"

    [diagnoses]                       # one row per code
    table = "dx"
    admission_id = "encounter"
    code = "icd"
    position = "rank"
    icd_version = 10                  # or the name of a column that holds 9 or 10 (also ICD9, ICD-10-CM)
    poa = "present"                   # flags of what was present on admission, if there are any

    [outcomes]
    mortality = "expired"             # a column of 0 and 1 or yes and no, empty where not known
    mortality_30d = "death within 30 days"
    long_stay = "los_days > 7"
    icu_transfer = "icu after 24 hours"
    home = "disposition:HOME,HOME HEALTH CARE"
    readmission = "readmission within 30 days"

The draft has one row per admission with a diagnosis. A value that is neither yes nor no never counts as no: it raises
an error that names the row.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import ibis
import ibis.expr.types as ir
import pyarrow as pa
import pyarrow.compute as pc
from ibis import _
from pydantic import BaseModel, ConfigDict, ValidationError

from mlci.base.complaints import complaint
from mlci.base.errors import InputError, kind_of
from mlci.base.quotes import among_all, blank_lines
from mlci.base.toml import read_toml
from mlci.codes import poa
from mlci.sources import Attrition, Draft
from mlci.sources._cohort_file import RESERVED, SPLITS
from mlci.sources._csv import is_packed
from mlci.sources._engine import Tables, open_tables
from mlci.sources._gathered import codes_in_order
from mlci.sources._hospital import negative_stays_error
from mlci.sources._outcomes import FORMS, UNKNOWN, Rule, parse
from mlci.sources._people import AGE_LIMIT, sexes
from mlci.sources._rules import DAY, deaths_before, died_within, elapsed, entered_after, known, placed, years_between
from mlci.sources._twins import twins

LOS = "los_days"  # in a rule: the length of stay, from its column or from admission to discharge
WRITTEN = {version: rf"^(ICD)?[-_ ]?0?{version}([.]0)?([-_ ]?CM)?$" for version in ("9", "10")}
# Separates a code from its flag in the text that an engine collects; sorts before any letter or digit, as codes must.
SEPARATOR = "\t"
ODD = "?"  # stands for a value that is no flag, or no ICD version
Rules = Mapping[str, Rule]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class AdmissionColumns(_Section):
    """Names of columns; those in `keep` are kept as text."""

    table: str
    admission_id: str
    subject_id: str
    admitted: str | None = None
    discharged: str | None = None
    los_days: str | None = None
    died: str | None = None
    first_icu: str | None = None
    age: str | None = None
    born: str | None = None
    sex: str | None = None
    split: str | None = None
    keep: list[str] = []


class DiagnosisColumns(_Section):
    """Names of columns; without `position` an admission's codes are sorted, because a table has no order of its own."""

    table: str
    admission_id: str
    code: str
    icd_version: int | str
    position: str | None = None
    poa: str | None = None


class IcuColumns(_Section):
    """Names of columns of stays in intensive care, if the admissions do not hold the time of first entry."""

    table: str
    admission_id: str
    entered: str


class TableLayout(_Section):
    admissions: AdmissionColumns
    diagnoses: DiagnosisColumns
    icu: IcuColumns | None = None
    outcomes: dict[str, str]


TYPES = {
    **dict.fromkeys(("admitted", "discharged", "died", "first_icu", "entered", "born"), "timestamp"),
    **dict.fromkeys(("los_days", "age"), "float64"),
    "position": "int64",
}


def read(
    location: Any,
    *,
    config: str | Path | Mapping[str, Any] | None = None,
    death_day_counts: bool = False,
    negative_stays: bool = False,
    schema: Sequence[str] = (),
    prefix: str = "",
) -> Draft:
    """Read the admissions of a hospital's own tables.

    Args:
        location: a folder of CSV, CSV.gz or Parquet files, a database URL, or an Ibis backend.
        config: the TOML file that states columns and outcomes, or its content as dictionaries.
        death_day_counts: whether a death recorded on the date of admission, without a time, is one within 30 days.
        negative_stays: whether to keep admissions that end before they begin, with an unknown length of stay; else
            they raise an error.
        schema: schemas of a database to search before its default one.
        prefix: what the names of tables or files begin with.

    Returns:
        A draft with the outcomes that `config` names: one row per admission with a diagnosis.

    >>> import ibis
    >>> database = ibis.duckdb.connect()
    >>> _ = database.raw_sql("CREATE TABLE stays AS SELECT 7 visit, 1 mrn, 'yes' expired, 9.5 los")
    >>> _ = database.raw_sql("CREATE TABLE dx AS SELECT 7 visit, 'I50.9' icd")
    >>> config = {
    ...     "admissions": {"table": "stays", "admission_id": "visit", "subject_id": "mrn", "los_days": "los"},
    ...     "diagnoses": {"table": "dx", "admission_id": "visit", "code": "icd", "icd_version": 10},
    ...     "outcomes": {"mortality": "expired", "long_stay": "los_days > 7"},
    ... }
    >>> read(database, config=config).table.select(["codes", "mortality", "long_stay"]).to_pylist()
    [{'codes': ['I50.9'], 'mortality': True, 'long_stay': True}]
    """
    layout, where = _layout(config)
    rules = {name: _rule(layout, name, text, where) for name, text in layout.outcomes.items()}
    with open_tables(location, _wanted(layout, rules, where), schemas=schema, prefix=prefix) as tables:
        rows = tables.fetch(_admissions(tables, layout, rules, death_day_counts=death_day_counts))
        _check(tables, layout, rules, rows, negative_stays=negative_stays)
        rows, sex_notes = _with_sexes(tables, layout, rows)
        recorded = tables.count(_coded(tables, layout))
        blank = tables.count(tables[layout.diagnoses.table]) - recorded
    where = f"{tables.where[layout.diagnoses.table]}: column {layout.diagnoses.position}"
    found = _draft(layout, rules, rows, where, recorded=recorded, blank=blank, death_day_counts=death_day_counts)
    return replace(found, notes=(*found.notes, *sex_notes))


def _layout(config: Any) -> tuple[TableLayout, str]:
    if config is None:
        raise InputError("source tables: needs the option config (--config), a TOML file that names the columns.")
    where = "config" if isinstance(config, Mapping) else str(config)
    try:
        layout = TableLayout.model_validate(dict(config) if isinstance(config, Mapping) else read_toml(config))
    except ValidationError as error:
        reason = complaint(error.errors(include_url=False), allowed=_keys, repeat=True)
        raise InputError(f"{where}: {reason}.") from error
    version = layout.diagnoses.icd_version
    if isinstance(version, int) and version not in (9, 10):
        raise InputError(f"{where}: diagnoses.icd_version is {version}; allowed is 9, 10 or the name of a column.")
    if not layout.outcomes:
        raise InputError(f"{where}: outcomes is empty; an outcome is {FORMS}.")
    if layout.admissions.born and not layout.admissions.admitted:
        raise InputError(f"{where}: admissions.born needs admissions.admitted: age is computed at admission.")
    taken = {*RESERVED, *layout.admissions.keep} & {*layout.outcomes} or {*RESERVED} & {*layout.admissions.keep}
    if taken:
        raise InputError(f"{where}: the name {min(taken)} is taken; give the outcome or kept column another one.")
    return layout, where


def _keys(path: Sequence[str]) -> Iterable[str]:
    """Return the keys of the layout, or of one of its sections."""
    sections = {"admissions": AdmissionColumns, "diagnoses": DiagnosisColumns, "icu": IcuColumns}
    return (sections[path[0]] if path else TableLayout).model_fields


def _rule(layout: TableLayout, name: str, text: str, where: str) -> Rule:
    """Return an outcome's rule; refuse one that needs columns that are not named."""
    columns = layout.admissions
    rule = parse(text, f"{where}: outcomes.{name}")
    needs = {
        "death": ["admitted", "died"],
        "icu": ["admitted"] if layout.icu else ["admitted", "first_icu"],
        "readmission": ["admitted", "discharged"],
    }.get(rule.kind, [])
    if _is_stay(rule):
        needs = ["los_days"] if columns.los_days else ["admitted", "discharged"]
    missing = [f"admissions.{column}" for column in needs if getattr(columns, column) is None]
    if missing:
        raise InputError(f"{where}: outcomes.{name}: {text!r} needs {' and '.join(missing)}, which names no column.")
    return rule


def _is_stay(rule: Rule) -> bool:
    """Return whether a rule is about the length of stay, rather than about a column of its own."""
    return rule.kind == "compare" and rule.column.lower() == LOS


def _of_column(rule: Rule) -> bool:
    return rule.kind in ("flag", "value", "compare") and not _is_stay(rule)


def _wanted(layout: TableLayout, rules: Rules, where: str) -> dict[str, dict[str, str]]:
    """Return the columns of each table with their types; ids and flags are read as text, so that no value is lost."""
    wanted: dict[str, dict[str, str]] = {}
    for section in filter(None, (layout.admissions, layout.diagnoses, layout.icu)):
        names = section.model_dump(exclude={"table", "keep"}, exclude_none=True)
        pairs = [(name, TYPES.get(role, "string")) for role, name in names.items() if isinstance(name, str)]
        if section is layout.admissions:
            read = {"flag": "string", "value": "string", "compare": "float64"}
            pairs += [(rule.column, read[rule.kind]) for rule in rules.values() if _of_column(rule)]
            pairs += [(name, "string") for name in layout.admissions.keep]
        columns = wanted.setdefault(section.table, {})
        for name, kind in pairs:
            if columns.setdefault(name.lower(), kind) != kind:
                raise InputError(
                    f"{where}: column {name} of {section.table} is named both as {columns[name.lower()]} and as {kind}."
                )
    return wanted


def _column(table: ir.Table, name: str | None, kind: str = "string") -> Any:
    return ibis.null(kind) if name is None else table[name.lower()]


def _coded(tables: Any, layout: TableLayout) -> ir.Table:
    """Return the diagnoses that hold a code."""
    dx = layout.diagnoses
    table = tables[dx.table]
    if isinstance(dx.icd_version, int):
        text: Any = ibis.literal(str(dx.icd_version))
        version = text
    else:
        text = _column(table, dx.icd_version)
        plain = text.strip().upper()
        version = ibis.cases(*((plain.re_search(form), number) for number, form in WRITTEN.items()), else_=ODD)
    return table.select(
        admission_id=_column(table, dx.admission_id),
        code=_column(table, dx.code),
        position=_column(table, dx.position, "int64"),
        version=version,
        version_text=text,
        flag=_column(table, dx.poa),
    ).filter(_.code.strip() != "")


def _flag(text: Any) -> Any:
    """Return the place of a flag among `poa.FLAGS`, as text."""
    plain = text.strip().upper().fill_null("")
    written = {flag: [text for text, meant in poa.WRITTEN.items() if meant == flag] for flag in poa.FLAGS}
    return ibis.cases(*((plain.isin(written[flag]), str(place)) for place, flag in enumerate(poa.FLAGS)), else_=ODD)


def _admissions(tables: Any, layout: TableLayout, rules: Rules, *, death_day_counts: bool = False) -> ir.Table:
    """Describe one row per admission: its codes by ICD version, its outcomes, and the columns that `_check` needs."""
    columns = layout.admissions
    table = tables[columns.table]
    base = table.select(
        **{
            role: _column(table, getattr(columns, role), TYPES.get(role, "string"))
            for role in AdmissionColumns.model_fields
            if role not in ("table", "keep")
        },
        **{f"kept_{name}": _column(table, name) for name in columns.keep},
        **{f"flag_{name}": _column(table, rule.column) for name, rule in rules.items() if _of_column(rule)},
    )
    if any(rule.kind == "readmission" for rule in rules.values()):
        later = ibis.window(group_by="subject_id", order_by=["admitted", "admission_id"])
        base = base.mutate(next_admitted=_.admitted.lead().over(later))
    text = _.code + SEPARATOR + _flag(_.flag) if layout.diagnoses.poa else _.code
    codes = (
        _coded(tables, layout)
        .group_by("admission_id")
        .agg(
            codes_9=placed(text, _.position).collect(where=_.version == "9"),
            codes_10=placed(text, _.position).collect(where=_.version == "10"),
            number_9=(_.version == "9").sum(),
            number_10=(_.version == "10").sum(),
            odd_version=_.version_text.fill_null("").max(where=_.version == ODD),
            odd_flag=_.flag.max(where=_flag(_.flag) == ODD),
        )
    )
    joined = _with_icu(tables, layout, base.left_join(codes, "admission_id").drop("admission_id_right"))
    stay = _.los_days * DAY if columns.los_days else elapsed(_.discharged, _.admitted)

    # An admission has one ICD version: that of most of its codes, the newer on a tie.
    newer = _.number_10 >= _.number_9
    age = _.age if columns.age or not columns.born else years_between(_.born, _.admitted)
    return joined.select(
        *("admission_id", "subject_id", "sex", "split", "odd_version", "odd_flag", "admitted"),
        *(f"kept_{name}" for name in columns.keep),
        *(f"flag_{name}" for name, rule in rules.items() if _of_column(rule)),
        age=ibis.ifelse((age >= 0) & (age < AGE_LIMIT), age, ibis.null("float64")),
        odd_age=(age < 0) | (age >= AGE_LIMIT),
        icd_version=ibis.ifelse(newer, 10, 9),
        codes=ibis.ifelse(newer, _.codes_10, _.codes_9),
        other_codes=ibis.ifelse(newer, _.number_9, _.number_10),
        all_codes=_.number_9 + _.number_10,
        negative_stay=stay < 0,
        **deaths_before(_.died, _.admitted),
        **{name: _outcome(name, rule, stay, death_day_counts) for name, rule in rules.items()},
    )


def _with_icu(tables: Any, layout: TableLayout, joined: ir.Table) -> ir.Table:
    """Add the time of first entry into intensive care and the number of stays, from a table of stays or a column."""
    if not layout.icu:
        return joined.mutate(entered=_.first_icu, stays=ibis.ifelse(_.first_icu.notnull(), 1, 0))
    table = tables[layout.icu.table]
    stays = table.select(admission_id=table[layout.icu.admission_id.lower()], entered=table[layout.icu.entered.lower()])
    stays = stays.group_by("admission_id").agg(entered=_.entered.min(), stays=_.count())
    return joined.left_join(stays, "admission_id").drop("admission_id_right")


def _outcome(name: str, rule: Rule, stay: Any, death_day_counts: bool) -> Any:
    """Return the expression of an outcome; `stay` is the expression of the length of stay in seconds."""
    if rule.kind == "death":
        return died_within(int(rule.number), _.died, _.admitted, death_day_counts=death_day_counts)
    if rule.kind == "icu":
        return entered_after(int(rule.number), _.entered, _.stays, _.admitted)
    if rule.kind == "readmission":
        gap = elapsed(_.next_admitted, _.discharged)
        return known((gap >= 0) & (gap <= rule.number * DAY), _.discharged.notnull())
    if _is_stay(rule):
        in_seconds = replace(rule, number=rule.number * DAY)
        return ibis.ifelse(stay >= 0, in_seconds.of(_.admission_id, stay), ibis.null("boolean"))
    return rule.of(_[f"flag_{name}"], _[f"flag_{name}"])


def _check(tables: Tables, layout: TableLayout, rules: Rules, rows: pa.Table, *, negative_stays: bool) -> None:
    columns, dx = layout.admissions, layout.diagnoses

    def refuse(table: str, column: str, odd: pa.ChunkedArray, allowed: str) -> None:
        """Refuse the first odd value, if any; name its row if the table is a file."""
        odd = odd.drop_null()
        if not len(odd):
            return
        value = odd[0].as_py()
        raise InputError(f"{_cell(tables, table, column, value)}: {kind_of(value)} is not {allowed}.")

    for name in ("admission_id", "subject_id"):
        blank = pc.sum(pc.equal(pc.fill_null(pc.utf8_trim_whitespace(rows[name]), ""), "")).as_py()
        if blank:
            raise InputError(
                f"{tables.where[columns.table]}: column {getattr(columns, name)}: {blank} admissions have none; "
                "each admission needs one."
            )
    if found := twins(rows["admission_id"]):
        value, where = rows["admission_id"][found.later].as_py(), tables.where[columns.table]
        reason = f"{found.many} rows repeat an earlier one; each admission has one row"
        if Path(where).is_file():
            first, later, *_ = sorted(_rows_of(tables, columns.table, columns.admission_id, value))
            reason = found.words(first, later)
        raise InputError(f"{where}: column {columns.admission_id}, {reason}.")
    if isinstance(dx.icd_version, str):
        refuse(
            dx.table,
            dx.icd_version,
            rows["odd_version"],
            "an ICD version; allowed is 9 or 10, also as ICD9 or ICD-10-CM",
        )
    if dx.poa:
        refuse(dx.table, dx.poa, rows["odd_flag"], poa.ALLOWED)
    for name, rule in rules.items():
        if rule.kind == "flag":
            flag = rows[f"flag_{name}"]
            plain = pc.utf8_lower(pc.utf8_trim_whitespace(flag))
            misfit = pc.and_(pc.is_null(rows[name]), pc.invert(pc.is_in(plain, pa.array(UNKNOWN))))
            refuse(columns.table, rule.column, flag.filter(misfit), rule.allowed)
    if columns.split:
        odd = rows["split"].filter(pc.invert(pc.is_in(rows["split"], pa.array(SPLITS))))
        refuse(columns.table, columns.split, odd.fill_null(""), f"a split; allowed are {', '.join(SPLITS)}")
    negative = pc.sum(rows["negative_stay"]).as_py() or 0
    if negative and not negative_stays:
        raise negative_stays_error(
            f"{tables.where[columns.table]}: column {columns.los_days or columns.discharged}", negative
        )


def _rows_of(tables: Tables, table: str, column: str, value: str) -> list[int]:
    """Return the numbers of the first two rows of a file with a value, as an editor shows them."""
    numbered = tables[table].mutate(row=ibis.row_number())
    hits = numbered.filter(numbered[column.lower()].fill_null(ibis.literal("")) == value)
    found, file = tables.fetch(hits.select("row").order_by("row").limit(2))["row"].to_numpy(), Path(tables.where[table])
    if file.suffix.lower() == ".parquet":
        return (1 + found).tolist()
    with pa.input_stream(str(file), compression="gzip" if is_packed(file) else None) as stream:
        blank = blank_lines(stream, ",")[1]  # the first line is not blank, else the folder is refused
    return (2 + among_all(found, blank)).tolist()


def _cell(tables: Tables, table: str, column: str, value: str) -> str:
    """Name the first cell with a value in messages, with its row if the table is a file."""
    where = tables.where[table]
    row = f", row {min(_rows_of(tables, table, column, value))}" if Path(where).is_file() else ""
    return f"{where}: column {column}{row}"


def _with_sexes(tables: Tables, layout: TableLayout, rows: pa.Table) -> tuple[pa.Table, list[str]]:
    """Return the rows with F and M, however the table writes sexes, and notes."""
    table, name = layout.admissions.table, layout.admissions.sex
    if name is None:
        return rows, []
    found, notes = sexes(rows["sex"], name, lambda place: _cell(tables, table, name, rows["sex"][place].as_py()))
    return rows.set_column(rows.column_names.index("sex"), "sex", found), notes


def _draft(
    layout: TableLayout, rules: Rules, rows: pa.Table, where: str, *, recorded: int, blank: int, death_day_counts: bool
) -> Draft:
    attrition = Attrition(rows, f"rows of {layout.admissions.table}")
    attrition.keep(pc.greater(pc.list_value_length(rows["codes"]), 0), "has a diagnosis")
    table = attrition.table

    def count(name: str) -> int:
        return pc.sum(table[name]).as_py() or 0

    belonging = pc.sum(rows["all_codes"]).as_py() or 0
    notes = {
        "{} diagnoses belong to no row of the admissions and were dropped.": recorded - belonging,
        "{} diagnoses hold no code and were dropped.": blank,
        "{} diagnoses of another ICD version than the rest of their admission were dropped.": count("other_codes"),
    }
    if any(rule.kind == "death" for rule in rules.values()):
        counted = "as deaths" if death_day_counts else "as alive (--death-day-counts changes it)"
        notes[f"{{}} patients died on the day of admission, before its time of day; they count {counted}."] = count(
            "died_on_the_day"
        )
        notes["{} admissions begin on a day after the date of death; they do not count as deaths."] = count(
            "died_before"
        )
    if any(map(_is_stay, rules.values())):
        notes["{} admissions end before they begin; the length of stay is not known."] = count("negative_stay")
    odd_ages = f"an age below 0 or from {AGE_LIMIT}, or begin before the birth of their patient"
    notes[f"{{}} admissions have {odd_ages}; their age is not known."] = count("odd_age")
    named = [name for name in ("age", "sex", "split") if getattr(layout.admissions, name)]
    named += ["age"] if layout.admissions.born and not layout.admissions.age else []
    codes = codes_in_order(table["codes"], where)
    flagged, flag_notes = _flagged(codes) if layout.diagnoses.poa else ({"codes": codes}, [])
    columns = {
        "admission_id": _whole(table["admission_id"]),
        "subject_id": _whole(table["subject_id"]),
        "icd_version": table["icd_version"],
        **flagged,
        **{name: table[name] for name in (*rules, *named)},
        **{name: table[f"kept_{name}"] for name in layout.admissions.keep},
    }
    return Draft(
        pa.table(columns),
        {name: _words(rule) for name, rule in rules.items()},
        tuple(attrition.steps),
        (*(text.format(number) for text, number in notes.items() if number), *flag_notes),
        table["admitted"] if layout.admissions.admitted else None,
    )


def _flagged(lists: pa.ListArray) -> tuple[dict[str, pa.ListArray], list[str]]:
    """Separate codes from their flags; return both columns, and a sentence on the flags."""
    pairs: Any = lists.flatten()
    codes = pc.utf8_slice_codeunits(pairs.dictionary, 0, -len(SEPARATOR) - 1)
    places = pc.utf8_slice_codeunits(pairs.dictionary, -1).cast(pa.uint8()).take(pairs.indices).to_numpy()
    values = {"codes": pa.DictionaryArray.from_arrays(pairs.indices, codes), "poa": poa.written(places)}
    return {name: pa.ListArray.from_arrays(lists.offsets, flat) for name, flat in values.items()}, [poa.words(places)]


def _words(rule: Rule) -> str:
    return f"stay of {rule.sign} {rule.number:g} elapsed days" if _is_stay(rule) else rule.words


def _whole(ids: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return ids as whole numbers if all of them are whole numbers, else as they are."""
    plain = pc.all(pc.match_substring_regex(ids, r"^(0|[1-9]\d{0,17})$")).as_py()
    return ids.cast(pa.int64()) if plain else ids
