"""The source `meds`: hospital admissions with the paper's outcomes, from events of the Medical Event Data Standard.

    data/**/*.parquet                   subject_id, time, code, numeric_value and, optionally, hadm_id
    metadata/subject_splits.parquet     subject_id, split (train, tuning, held_out); used if present

The kind of an event is at the beginning of its code: `HOSPITAL_ADMISSION`, `HOSPITAL_DISCHARGE` (`//DIED`),
`ICU_ADMISSION`, `MEDS_DEATH`, `MEDS_BIRTH`, `GENDER//F`, and `DIAGNOSIS//ICD//10//A047`; each prefix can be changed. An
event with a `hadm_id` belongs to that admission. Without one, a discharge ends the admission before it, and a diagnosis
belongs to the admission during which it was recorded. Codes keep the order of the files.
"""

from collections.abc import Mapping
from pathlib import Path

import ibis
import ibis.expr.types as ir
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from ibis import _

from mlci.base.errors import InputError, reading
from mlci.codes.icd import check_version
from mlci.sources import Attrition, Draft
from mlci.sources._gathered import codes_in_order
from mlci.sources._hospital import CHECKS, count_notes, negative_stays_error
from mlci.sources._people import sexes
from mlci.sources._rules import (
    DAY,
    capped,
    deaths_before,
    died_within,
    elapsed,
    entered_after,
    known,
    placed,
    stayed_longer,
)
from mlci.sources._twins import repeated

PREFIXES = {
    "admission": "HOSPITAL_ADMISSION",
    "discharge": "HOSPITAL_DISCHARGE",
    "died": "HOSPITAL_DISCHARGE//DIED",
    "icu": "ICU_ADMISSION",
    "death": "MEDS_DEATH",
    "birth": "MEDS_BIRTH",
    "sex": "GENDER//",
    "diagnosis": "DIAGNOSIS//ICD//",
}
SPLITS = {"train": "train", "tuning": "valid", "held_out": "test"}
NEEDED = ("subject_id", "time", "code")
YEAR = 365.2425
CHECKED = ds.ParquetFileFormat(
    default_fragment_scan_options=ds.ParquetFragmentScanOptions(page_checksum_verification=True)
)


def read(
    location: str | Path,
    *,
    icd_version: int = 10,
    prefixes: Mapping[str, str] | None = None,
    death_day_counts: bool = False,
    negative_stays: bool = False,
) -> Draft:
    """Read the hospital admissions of a MEDS folder that have codes of one ICD version.

    Args:
        location: the folder with `data/` and, optionally, `metadata/`.
        icd_version: 9 or 10.
        prefixes: kind of event → prefix of its codes, for kinds whose prefix differs from the default.
        death_day_counts: whether a death recorded on the date of admission, without a time, is one within 30 days.
        negative_stays: whether to keep admissions that end before they begin, with an unknown length of stay; else
            they raise an error.

    Returns:
        A draft with the paper's four outcomes.

    >>> import pandas as pd
    >>> from tempfile import TemporaryDirectory
    >>> codes = ["HOSPITAL_ADMISSION//URGENT", "DIAGNOSIS//ICD//10//I509", "HOSPITAL_DISCHARGE//DIED"]
    >>> events = pd.DataFrame({"subject_id": 1, "time": pd.to_datetime(["2020-01-01", "2020-01-02", "2020-01-09"])})
    >>> with TemporaryDirectory() as folder:
    ...     Path(folder, "data").mkdir()
    ...     events.assign(code=codes, numeric_value=None).to_parquet(Path(folder, "data", "0.parquet"))
    ...     read(folder).table.select(["codes", "mortality", "long_stay"]).to_pylist()
    [{'codes': ['I509'], 'mortality': True, 'long_stay': True}]
    """
    version = check_version(icd_version)
    named = _prefixes(prefixes or {})
    folder = Path(location)
    events = ibis.memtable(_events(folder, named))
    stays = ibis.memtable(_stays(events, named).to_pyarrow())  # an engine would compute it for each of its uses
    coded = ibis.memtable(_coded(stays, events, named).to_pyarrow())
    rows = _admissions(stays, coded, events, named, version, death_day_counts=death_day_counts).to_pyarrow()
    if not len(rows):
        raise InputError(f"{folder}: no event begins with {named['admission']}; --event admission=... names another.")
    sex, sex_notes = sexes(rows["sex"], named["sex"], lambda _: f"{folder}: events {named['sex']}")
    rows = rows.set_column(rows.column_names.index("sex"), "sex", sex)
    if many := repeated(rows["admission_id"]):
        raise InputError(f"{folder}: column hadm_id: {many} admissions have the id of another; each needs its own.")
    steps = Attrition(rows, f"events that begin with {named['admission']}")
    steps.keep(pc.is_valid(steps.table["discharged"]), f"has a discharge ({named['discharge']})")
    negative = pc.sum(steps.table["negative_stay"]).as_py()
    if negative and not negative_stays:
        raise negative_stays_error(str(folder), negative)
    steps.keep(pc.greater(pc.list_value_length(steps.table["codes"]), 0), f"at least one ICD-{version} diagnosis")
    table = steps.table
    orphans = _of(events, named, "diagnosis").anti_join(coded, "row").count().to_pyarrow().as_py()
    notes = [f"{orphans:,} diagnoses belong to no admission and were dropped."] if orphans else []
    notes += sex_notes + count_notes(table, version, death_day_counts, negative_stays)
    table = table.drop_columns([name for name in CHECKS if name in table.column_names])
    columns = {name: table[name] for name in table.column_names if name not in ("codes", "admitted", "discharged")}
    columns["codes"] = codes_in_order(table["codes"], str(folder))
    columns["icd_version"] = pa.repeat(pa.scalar(version, pa.int8()), len(table))
    columns["prediction_time"] = table["discharged"]
    if (split := _split(folder, table["subject_id"])) is not None:
        columns["split"] = split
    words = _words(named, death_day_counts)
    return Draft(pa.table(columns), words, tuple(steps.steps), tuple(notes), table["admitted"])


def _prefixes(own: Mapping[str, str]) -> dict[str, str]:
    for name, prefix in own.items():
        if name not in PREFIXES:
            raise InputError(f"prefixes: {name} is not a kind of event; allowed are {', '.join(PREFIXES)}.")
        if not prefix:
            raise InputError(f"prefixes: {name} has no prefix; one is needed, as in --event {name}={PREFIXES[name]}.")
    return {**PREFIXES, **own}


def _events(folder: Path, named: Mapping[str, str]) -> pa.Table:
    """Return the events of the needed kinds in the order of the files, with their rows."""
    files = sorted((folder / "data").rglob("*.parquet")) if (folder / "data").is_dir() else []
    if not files:
        raise InputError(f"{folder}: has no data/*.parquet; a MEDS folder is needed.")
    with reading(folder / "data", "MEDS events"):
        data = ds.dataset(files, format=CHECKED)
        missing = [name for name in NEEDED if name not in data.schema.names]
        if missing:
            raise InputError(f"{folder}: the events lack the column {missing[0]}; needed are {', '.join(NEEDED)}.")
        wanted = [pc.starts_with(pc.field("code").cast(pa.string()), prefix) for prefix in named.values()]
        chosen = wanted[0]
        for condition in wanted[1:]:
            chosen = chosen | condition
        columns = [*NEEDED, *(name for name in ("hadm_id",) if name in data.schema.names)]
        table = data.to_table(columns=columns, filter=chosen)
    if "hadm_id" not in table.column_names:
        table = table.append_column("hadm_id", pa.nulls(len(table), pa.int64()))
    kinds = {"subject_id": pa.int64(), "time": pa.timestamp("us"), "code": pa.string(), "hadm_id": pa.int64()}
    table = pa.table({name: table[name].cast(kind) for name, kind in kinds.items()})
    return table.append_column("row", pa.array(range(len(table)), pa.int64()))


def _of(events: ir.Table, named: Mapping[str, str], kind: str) -> ir.Table:
    """Return the events of a kind."""
    return events.filter(_.code.startswith(named[kind]))


def _stays(events: ir.Table, named: Mapping[str, str]) -> ir.Table:
    """Describe one row per hospital admission, with its discharge if there is one."""
    subject = ibis.window(group_by="subject_id", order_by=["time", "row"])
    first = (events.hadm_id.max().as_scalar() + 1).fill_null(0)  # numbers that no admission has
    begun = _of(events, named, "admission").mutate(
        next_time=_.time.lead().over(subject), number=ibis.row_number() + first
    )
    begun = begun.select("subject_id", "next_time", admitted=_.time, admission_id=ibis.coalesce(_.hadm_id, _.number))
    begun = begun.distinct(on=["subject_id", "admission_id"], keep="first")
    ended = _of(events, named, "discharge").mutate(dead=_.code.startswith(named["died"]))
    ended = ended.select("dead", subject_right="subject_id", discharge_id="hadm_id", discharged="time")
    by_time = (ended.discharged >= begun.admitted) & (begun.next_time.isnull() | (ended.discharged < begun.next_time))
    belongs = (begun.subject_id == ended.subject_right) & ibis.ifelse(
        ended.discharge_id.notnull(), ended.discharge_id == begun.admission_id, by_time
    )
    # Two joins: an outer join with a rule other than equality compares every pair.
    ends = begun.inner_join(ended, belongs).group_by("subject_id", "admission_id")
    ends = ends.agg(discharged=_.discharged.min(), dead=_.dead.any())
    stays = begun.left_join(ends, ["subject_id", "admission_id"])
    return stays.select("admission_id", "subject_id", "admitted", "discharged", "dead")


def _admissions(
    stays: ir.Table,
    coded: ir.Table,
    events: ir.Table,
    named: Mapping[str, str],
    version: int,
    *,
    death_day_counts: bool,
) -> ir.Table:
    """Describe one row per hospital admission; `codes` is null if no code is of the ICD version."""

    def of(kind: str) -> ir.Table:
        return _of(events, named, kind)

    units = of("icu").select(icu_subject="subject_id", icu_id="hadm_id", entered="time")
    within = (units.entered >= stays.admitted) & (units.entered <= stays.discharged)
    within_stay = (stays.subject_id == units.icu_subject) & ibis.ifelse(
        units.icu_id.notnull(), units.icu_id == stays.admission_id, within
    )
    icu = stays.inner_join(units, within_stay).group_by("admission_id").agg(entered=_.entered.min(), units=_.count())
    codes = _listed(coded, version)
    deaths = of("death").group_by("subject_id").agg(death=_.time.min())
    births = of("birth").group_by("subject_id").agg(birth=_.time.min())
    sexes = of("sex").group_by("subject_id").agg(sex=_.code.substr(len(named["sex"])).max())
    joined = (
        stays.left_join(icu, "admission_id", rname="icu_{name}")
        .left_join(codes, "admission_id", rname="code_{name}")
        .left_join(deaths, "subject_id", rname="death_{name}")
        .left_join(births, "subject_id", rname="birth_{name}")
        .left_join(sexes, "subject_id", rname="sex_{name}")
    )
    in_hospital = _.dead | ((_.death >= _.admitted) & (_.death <= _.discharged)).fill_null(False)
    age = (elapsed(_.admitted, _.birth) / (DAY * YEAR)).floor()
    return joined.select(
        *("admission_id", "subject_id", "codes", "other_codes", "admitted", "discharged", "sex"),
        mortality=known(in_hospital, _.death.isnull() | _.discharged.notnull()),
        mortality_30d=died_within(30, _.death, _.admitted, death_day_counts=death_day_counts),
        long_stay=stayed_longer(7, _.discharged, _.admitted),
        icu_transfer=entered_after(0, _.entered, _.units, _.admitted),
        age=capped(age),
        negative_stay=elapsed(_.discharged, _.admitted) < 0,
        **deaths_before(_.death, _.admitted),
    )


def _coded(stays: ir.Table, events: ir.Table, named: Mapping[str, str]) -> ir.Table:
    """Return the diagnoses with the stays to which they belong."""
    coded = _of(events, named, "diagnosis").mutate(rest=_.code.substr(len(named["diagnosis"])))
    coded = coded.select(dx_subject="subject_id", dx_id="hadm_id", dx_time="time", row="row", rest="rest")
    coded = coded.mutate(version=_.rest.split("//")[0], icd=_.rest.split("//")[1])
    timed = (coded.dx_time >= stays.admitted) & (coded.dx_time <= stays.discharged)
    theirs = (stays.subject_id == coded.dx_subject) & ibis.ifelse(
        coded.dx_id.notnull(), coded.dx_id == stays.admission_id, timed
    )
    return stays.inner_join(coded, theirs)


def _listed(coded: ir.Table, version: int) -> ir.Table:
    """Return the codes of each stay in the order of their rows, and the number of codes of the other ICD version."""
    place = ibis.row_number().over(ibis.window(group_by="admission_id", order_by="row"))
    return (
        coded.mutate(position=place)
        .group_by("admission_id")
        .agg(
            codes=placed(_.icd, _.position).collect(where=_.version == str(version)),
            other_codes=(_.version != str(version)).cast("int64").sum(),
        )
    )


def _split(folder: Path, subjects: pa.ChunkedArray) -> pa.Array | None:
    """Return the split of each admission's subject, or None if the folder has no splits."""
    file = folder / "metadata" / "subject_splits.parquet"
    if not file.is_file():
        return None
    with reading(file, "MEDS splits"):
        table = ds.dataset(file, format=CHECKED).to_table(columns=["subject_id", "split"])
    place = pc.index_in(subjects.combine_chunks(), table["subject_id"].combine_chunks())
    names = pc.index_in(table["split"].cast(pa.string()).combine_chunks().take(place), pa.array(list(SPLITS)))
    if names.null_count:
        raise InputError(
            f"{file}: {names.null_count} admissions have no split; each subject needs one of {', '.join(SPLITS)}."
        )
    return pa.array(list(SPLITS.values())).take(names)


def _words(named: Mapping[str, str], death_day_counts: bool) -> dict[str, str]:
    return {
        "mortality": f"{named['died']}, or {named['death']} from admission to discharge",
        "mortality_30d": f"{named['death']} from 0 to 30 elapsed days after admission"
        + (", or on the day of admission" if death_day_counts else ""),
        "long_stay": "discharge more than 7 elapsed days after admission",
        "icu_transfer": f"first {named['icu']} after admission",
    }
