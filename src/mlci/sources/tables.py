"""A hospital's own tables: a short TOML file says which columns hold what, and what the outcomes are.

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
    icd_version = 10                  # or the name of a column that holds 9 or 10

    [outcomes]
    mortality = "expired"             # a column of 0 and 1, empty where not known
    mortality_30d = "death within 30 days"
    long_stay = "los_days > 7"
    icu_transfer = "icu after 24 hours"

In comes that file and a folder or database; out comes one row per admission that has a diagnosis. A value that is
neither 0 nor 1 is never taken for a 0: it is an error that names the row.
"""

import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import ibis
import ibis.expr.types as ir
import pyarrow as pa
import pyarrow.compute as pc
from ibis import _
from pydantic import BaseModel, ConfigDict, ValidationError

from mlci.base.errors import InputError, kind_of
from mlci.sources import Attrition, Draft
from mlci.sources._engine import Tables, codes_in_order, open_tables
from mlci.sources._rules import died_within, elapsed, entered_after, placed, same_day, stayed_longer

RULES = {
    "stay": re.compile(r"los_days\s*>\s*(\d+(?:\.\d+)?)"),
    "death": re.compile(r"death within (\d+) days?"),
    "icu": re.compile(r"icu after (\d+) hours?"),
}
FORMS = "a column of the admissions, 'los_days > 7', 'death within 30 days' or 'icu after 24 hours'"
TRUE, FALSE = ("1", "1.0", "true", "t"), ("0", "0.0", "false", "f")
SPLITS = ("train", "valid", "test")
RESERVED = ("admission_id", "subject_id", "icd_version", "codes", "split", "age", "sex")
Rules = Mapping[str, tuple[str, Any]]  # outcome -> kind (of RULES, or "column") and its number or column


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class AdmissionColumns(_Section):
    """Names of columns; `keep` are carried along as text."""

    table: str
    admission_id: str
    subject_id: str
    admitted: str | None = None
    discharged: str | None = None
    los_days: str | None = None
    died: str | None = None
    first_icu: str | None = None
    age: str | None = None
    sex: str | None = None
    split: str | None = None
    keep: list[str] = []


class DiagnosisColumns(_Section):
    """Without `position` the order of an admission's codes is alphabetical: a table has no order of its own."""

    table: str
    admission_id: str
    code: str
    icd_version: int | str
    position: str | None = None


class IcuColumns(_Section):
    """One row per stay in intensive care, where the admissions do not hold the first entry themselves."""

    table: str
    admission_id: str
    entered: str


class Layout(_Section):
    admissions: AdmissionColumns
    diagnoses: DiagnosisColumns
    icu: IcuColumns | None = None
    outcomes: dict[str, str]


TYPES = {
    **dict.fromkeys(("admitted", "discharged", "died", "first_icu", "entered"), "timestamp"),
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
    """A cohort from own tables; `config` is the TOML file, or its content as dictionaries."""
    layout, where = _layout(config)
    rules = {name: _rule(layout, name, text, where) for name, text in layout.outcomes.items()}
    with open_tables(location, _wanted(layout, rules, where), schemas=schema, prefix=prefix) as tables:
        rows = tables.fetch(admissions(tables, layout, rules, death_day_counts=death_day_counts))
        _check(tables, layout, rules, rows, negative_stays=negative_stays)
        coded = _coded(tables, layout)
        recorded = tables.fetch(coded.agg(n=coded.count()))["n"][0].as_py()
    where = f"{tables.where[layout.diagnoses.table]}: column {layout.diagnoses.position}"
    return _draft(layout, rules, rows, where, recorded=recorded, death_day_counts=death_day_counts)


def _layout(config: Any) -> tuple[Layout, str]:
    if config is None:
        raise InputError("source tables: needs the option config (--config), a TOML file that names the columns.")
    if isinstance(config, Mapping):
        values, where = dict(config), "config"
    else:
        where = str(config)
        try:
            values = tomllib.loads(Path(config).read_text("utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise InputError(f"{where}: is not TOML: {error}.") from error
    try:
        layout = Layout.model_validate(values)
    except ValidationError as error:
        raise InputError(f"{where}: {_first(error)}") from error
    version = layout.diagnoses.icd_version
    if isinstance(version, int) and version not in (9, 10):
        raise InputError(f"{where}: diagnoses.icd_version is {version}; allowed is 9, 10 or the name of a column.")
    if not layout.outcomes:
        raise InputError(f"{where}: outcomes is empty; an outcome is {FORMS}.")
    taken = {*RESERVED, *layout.admissions.keep} & {*layout.outcomes} or {*RESERVED} & {*layout.admissions.keep}
    if taken:
        raise InputError(f"{where}: the name {min(taken)} is taken; give the outcome or kept column another one.")
    return layout, where


def _first(error: ValidationError) -> str:
    """The first complaint as a sentence: the key, and what is allowed."""
    problem = error.errors(include_url=False)[0]
    *parents, key = [part for part in problem["loc"] if isinstance(part, str)]
    name = ".".join([*parents, key])
    sections = {"admissions": AdmissionColumns, "diagnoses": DiagnosisColumns, "icu": IcuColumns}
    if problem["type"] == "extra_forbidden":
        model = sections[parents[0]] if parents else Layout
        return f"{name} is not a known key; allowed are {', '.join(model.model_fields)}."
    if problem["type"] == "missing":
        return f"{name} is missing; it is needed."
    return f"{name}: {problem['input']!r} is not allowed ({problem['msg']})."


def _rule(layout: Layout, name: str, text: str, where: str) -> tuple[str, Any]:
    """An outcome's kind and its number or column; what its rule needs must be named."""
    columns = layout.admissions
    found = next(((kind, match[1]) for kind, rule in RULES.items() if (match := rule.fullmatch(text.strip()))), None)
    if found is None:
        if re.search(r"[<>=]", text):
            raise InputError(f"{where}: outcomes.{name}: {text!r} is not a rule; allowed is {FORMS}.")
        return "column", text
    kind, number = found
    needs = {
        "stay": ["los_days"] if columns.los_days else ["admitted", "discharged"],
        "death": ["admitted", "died"],
        "icu": ["admitted"] if layout.icu else ["admitted", "first_icu"],
    }
    missing = [f"admissions.{column}" for column in needs[kind] if getattr(columns, column) is None]
    if missing:
        raise InputError(f"{where}: outcomes.{name}: {text!r} needs {' and '.join(missing)}, which names no column.")
    return kind, float(number) if "." in number else int(number)


def _wanted(layout: Layout, rules: Rules, where: str) -> dict[str, dict[str, str]]:
    """The columns of each table with their types; ids and flags come as text, so that no value is lost on the way."""
    wanted: dict[str, dict[str, str]] = {}
    for section in filter(None, (layout.admissions, layout.diagnoses, layout.icu)):
        names = section.model_dump(exclude={"table", "keep"}, exclude_none=True)
        pairs = [(name, TYPES.get(role, "string")) for role, name in names.items() if isinstance(name, str)]
        if section is layout.admissions:
            flags = [column for kind, column in rules.values() if kind == "column"]
            pairs += [(name, "string") for name in (*flags, *layout.admissions.keep)]
        columns = wanted.setdefault(section.table, {})
        for name, kind in pairs:
            if columns.setdefault(name.lower(), kind) != kind:
                raise InputError(
                    f"{where}: column {name} of {section.table} is named both as {columns[name.lower()]} and as {kind}."
                )
    return wanted


def _column(table: ir.Table, name: str | None, kind: str = "string") -> Any:
    return ibis.null(kind) if name is None else table[name.lower()]


def _coded(tables: Any, layout: Layout) -> ir.Table:
    """The diagnoses that hold a code."""
    dx = layout.diagnoses
    table = tables[dx.table]
    version: Any = (
        ibis.literal(str(dx.icd_version)) if isinstance(dx.icd_version, int) else _column(table, dx.icd_version)
    )
    return table.select(
        admission_id=_column(table, dx.admission_id),
        code=_column(table, dx.code),
        position=_column(table, dx.position, "int64"),
        version=version.strip(),
    ).filter(_.code.strip() != "")


def admissions(tables: Any, layout: Layout, rules: Rules, *, death_day_counts: bool = False) -> ir.Table:
    """One row per admission of the admissions table, with placed codes by ICD version and what `_check` looks at."""
    columns = layout.admissions
    table = tables[columns.table]
    base = table.select(
        **{
            role: _column(table, getattr(columns, role), TYPES.get(role, "string"))
            for role in AdmissionColumns.model_fields
            if role not in ("table", "keep")
        },
        **{f"kept_{name}": _column(table, name) for name in columns.keep},
        **{f"flag_{name}": _column(table, value) for name, (kind, value) in rules.items() if kind == "column"},
    )
    codes = (
        _coded(tables, layout)
        .group_by("admission_id")
        .agg(
            codes_9=placed(_.code, _.position).collect(where=_.version == "9"),
            codes_10=placed(_.code, _.position).collect(where=_.version == "10"),
            number_9=(_.version == "9").sum(),
            number_10=(_.version == "10").sum(),
            odd_version=_.version.fill_null("").max(where=~_.version.fill_null("").isin(["9", "10"])),
        )
    )
    joined = base.left_join(codes, "admission_id").drop("admission_id_right")
    if layout.icu:
        table = tables[layout.icu.table]
        stays = table.select(
            admission_id=table[layout.icu.admission_id.lower()], entered=table[layout.icu.entered.lower()]
        )
        stays = stays.group_by("admission_id").agg(entered=_.entered.min(), stays=_.count())
        joined = joined.left_join(stays, "admission_id").drop("admission_id_right")
    else:
        joined = joined.mutate(entered=_.first_icu, stays=ibis.ifelse(_.first_icu.notnull(), 1, 0))

    def outcome(name: str, kind: str, value: Any) -> Any:
        if kind == "column":
            flag = _[f"flag_{name}"].strip().lower()
            return ibis.cases((flag.isin(TRUE), True), (flag.isin(FALSE), False), else_=ibis.null("boolean"))
        if kind == "death":
            return died_within(value, _.died, _.admitted, death_day_counts=death_day_counts)
        if kind == "icu":
            return entered_after(value, _.entered, _.stays, _.admitted)
        if columns.los_days:
            return ibis.ifelse(_.los_days >= 0, _.los_days > value, ibis.null("boolean"))
        return stayed_longer(value, _.discharged, _.admitted)

    # Versions never mix within an admission: it has the one that most of its codes have, the newer one on a tie.
    newer = _.number_10 >= _.number_9
    negative = _.los_days < 0 if columns.los_days else elapsed(_.discharged, _.admitted) < 0
    return joined.select(
        *("admission_id", "subject_id", "age", "sex", "split", "odd_version"),
        *(f"kept_{name}" for name in columns.keep),
        *(f"flag_{name}" for name, (kind, _value) in rules.items() if kind == "column"),
        icd_version=ibis.ifelse(newer, 10, 9),
        codes=ibis.ifelse(newer, _.codes_10, _.codes_9),
        other_codes=ibis.ifelse(newer, _.number_9, _.number_10),
        all_codes=_.number_9 + _.number_10,
        negative_stay=negative,
        died_on_the_day=same_day(_.died, _.admitted) & (elapsed(_.died, _.admitted) < 0),
        **{name: outcome(name, *rule) for name, rule in rules.items()},
    )


def _check(tables: Tables, layout: Layout, rules: Rules, rows: pa.Table, *, negative_stays: bool) -> None:
    columns, dx = layout.admissions, layout.diagnoses

    def refuse(table: str, column: str, odd: pa.ChunkedArray, allowed: str) -> None:
        """The first odd value, if any, with its row in the file; a database table has no rows to count."""
        odd = odd.drop_null()
        if not len(odd):
            return
        value, where = odd[0].as_py(), tables.where[table]
        row = ""
        if Path(where).is_file():
            numbered = tables[table].mutate(row=ibis.row_number())
            hits = numbered.filter(numbered[column.lower()].fill_null(ibis.literal("")) == value)
            first = tables.fetch(hits.aggregate(row=hits.row.min()))["row"][0].as_py()
            row = f", row {first + (1 if where.lower().endswith('.parquet') else 2)}"  # a CSV's header is row 1
        raise InputError(f"{where}: column {column}{row}: {kind_of(value)} is not {allowed}.")

    for name in ("admission_id", "subject_id"):
        blank = pc.sum(pc.equal(pc.fill_null(pc.utf8_trim_whitespace(rows[name]), ""), "")).as_py()
        if blank:
            raise InputError(
                f"{tables.where[columns.table]}: column {getattr(columns, name)}: {blank} admissions have none; "
                "each admission needs one."
            )
    if isinstance(dx.icd_version, str):
        refuse(dx.table, dx.icd_version, rows["odd_version"], "an ICD version; allowed is 9 or 10")
    for name, (kind, column) in rules.items():
        if kind == "column":
            flag = rows[f"flag_{name}"]
            misfit = pc.and_(pc.is_null(rows[name]), pc.not_equal(pc.utf8_trim_whitespace(flag), ""))
            refuse(columns.table, column, flag.filter(misfit), "0 or 1; allowed is 0, 1 or empty where not known")
    if columns.split:
        odd = rows["split"].filter(pc.invert(pc.is_in(rows["split"], pa.array(SPLITS))))
        refuse(columns.table, columns.split, odd.fill_null(""), f"a split; allowed are {', '.join(SPLITS)}")
    negative = pc.sum(rows["negative_stay"]).as_py() or 0
    if negative and not negative_stays:
        raise InputError(
            f"{tables.where[columns.table]}: column {columns.los_days or columns.discharged}: {negative} admissions "
            "end before they begin; correct them, or keep them with an unknown length of stay (--negative-stays)."
        )


def _draft(layout: Layout, rules: Rules, rows: pa.Table, where: str, *, recorded: int, death_day_counts: bool) -> Draft:
    attrition = Attrition(rows, f"rows of {layout.admissions.table}")
    attrition.keep(pc.greater(pc.list_value_length(rows["codes"]), 0), "has a diagnosis")
    table = attrition.table

    def count(name: str) -> int:
        return pc.sum(table[name]).as_py() or 0

    belonging = pc.sum(rows["all_codes"]).as_py() or 0
    notes = {
        "{} diagnoses belong to no row of the admissions and were dropped.": recorded - belonging,
        "{} diagnoses of another ICD version than the rest of their admission were dropped.": count("other_codes"),
    }
    if any(kind == "death" for kind, _value in rules.values()):
        counted = "as deaths" if death_day_counts else "as alive (--death-day-counts changes it)"
        notes[f"{{}} patients died on the day of admission, before its time of day; they count {counted}."] = count(
            "died_on_the_day"
        )
    if any(kind == "stay" for kind, _value in rules.values()):
        notes["{} admissions end before they begin; the length of stay is not known."] = count("negative_stay")
    words = {
        "column": "column {} is 1",
        "stay": "stay of more than {} elapsed days",
        "death": "death from 0 to {} elapsed days after admission",
        "icu": "first entry to intensive care more than {} hours after admission",
    }
    named = [name for name in ("age", "sex", "split") if getattr(layout.admissions, name)]
    columns = {
        "admission_id": _whole(table["admission_id"]),
        "subject_id": _whole(table["subject_id"]),
        "icd_version": table["icd_version"],
        "codes": codes_in_order(table["codes"], where),
        **{name: table[name] for name in (*rules, *named)},
        **{name: table[f"kept_{name}"] for name in layout.admissions.keep},
    }
    return Draft(
        pa.table(columns),
        {name: words[kind].format(value) for name, (kind, value) in rules.items()},
        tuple(attrition.steps),
        tuple(text.format(number) for text, number in notes.items() if number),
    )


def _whole(ids: pa.ChunkedArray) -> pa.ChunkedArray:
    """Ids as whole numbers where all of them are such, else as they are."""
    plain = pc.all(pc.match_substring_regex(ids, r"^(0|[1-9]\d{0,17})$")).as_py()
    return ids.cast(pa.int64()) if plain else ids
