"""The source `nhds`: the National Hospital Discharge Survey 2010, a file of fixed-width records, one per discharge.

It reads the public-use file (plain, .bz2, .gz or .zip). The draft has one row per adult's record, with ICD-9-CM codes
and the four outcomes of the open benchmark. The survey has no patient identifier, so the number of a record in the file
(from 1) identifies both admission and patient. The file is read as one matrix of bytes, so that a field is a block of
columns.
"""

import bz2
import gzip
import io
import zipfile
import zlib
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mlci.base.errors import InputError, kind_of
from mlci.sources import Attrition, Draft

WIDTHS = {
    "year": 2,
    "newborn": 1,
    "age_unit": 1,
    "age": 2,
    "sex": 1,
    "race": 1,
    "marital_status": 1,
    "month": 2,
    "status": 1,
    "los_days": 4,
    "same_day": 1,
    "region": 1,
    "beds": 1,
    "ownership": 1,
    "weight": 5,
    "century": 2,
    "diagnoses": 75,  # fifteen of 5
    "procedures": 32,  # eight of 4
    "payers": 4,  # two of 2
    "drg": 3,
    "admission_type": 1,
    "admission_origin": 2,
    "admitting_diagnosis": 5,
}
START = dict(zip(WIDTHS, accumulate(WIDTHS.values(), initial=0)))
WIDTH = sum(WIDTHS.values())
# The values that the file's documentation allows in the fields for selection and outcomes.
ALLOWED = {"newborn": "12", "age_unit": "123", "sex": "12", "status": "1234569"}
YEARS, DEAD = "1", "6"
# ICD-9-CM procedures of critical care: intubation, ventilation, CPR, vasopressor, balloon pump, ECMO.
CRITICAL_CARE = ("9604", "9670", "9671", "9672", "9960", "0017", "3761", "3965")
OUTCOMES = {
    "mortality": "discharge status dead (6); null when not stated (9)",
    "non_home_discharge": "discharged to a short-term hospital (3), long-term care (4) or dead (6); null when alive "
    "with the disposition not stated (5)",
    "long_stay": "days of care > 7",
    "critical_care": "a procedure for intubation, ventilation, CPR, vasopressor, balloon pump or ECMO "
    f"({', '.join(CRITICAL_CARE)})",
}


# How a discharge whose status is not stated (9) counts for non-home discharge.
NOT_STATED = {"non-home": "; not stated (9) counts as non-home", "null": "; null when not stated (9)"}


def read(location: str | Path, *, not_stated: str = "non-home") -> Draft:
    """Read the adults of the survey: the cohort of the open benchmark.

    Args:
        location: the published file, plain or compressed.
        not_stated: how a discharge whose status is not stated counts for `non_home_discharge`. In the benchmark's
            published counts and results it counts as "non-home"; "null" leaves the outcome unknown. A note reports it.

    Returns:
        A draft with the four outcomes of the benchmark.

    >>> from tempfile import TemporaryDirectory
    >>> fields = {"newborn": "2", "age_unit": "1", "age": "70", "sex": "2", "month": "05", "status": "6"}
    >>> fields |= {"weight": "00100", "los_days": "0009", "diagnoses": "4280-5849-"}
    >>> record = "".join(fields.get(name, "").ljust(width) for name, width in WIDTHS.items())
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, "nhds10.txt").write_text(record)
    ...     read(Path(folder, "nhds10.txt")).table.select(["age", "codes", "mortality", "long_stay"]).to_pylist()
    [{'age': 70.0, 'codes': ['4280', '5849'], 'mortality': True, 'long_stay': True}]
    """
    if not_stated not in NOT_STATED:
        raise InputError(f"not_stated is {not_stated!r}; allowed is {', '.join(NOT_STATED)}.")
    attrition = Attrition(_read_records(location, not_stated=not_stated), "records of the survey")
    attrition.keep(pc.invert(attrition.table["newborn"]), "not a newborn")
    attrition.keep(pc.greater_equal(attrition.table["age"], 18), "18 years or older")
    table = attrition.table.drop_columns("newborn")
    version = pa.repeat(pa.scalar(9, pa.int8()), len(table))
    outcomes = OUTCOMES | {"non_home_discharge": OUTCOMES["non_home_discharge"] + NOT_STATED[not_stated]}
    count = table["mortality"].null_count  # null exactly where the status is not stated
    effect = "counts as a non-home discharge (as in the benchmark's counts; --not-stated null leaves it open)"
    if not_stated == "null":
        effect = "leaves non_home_discharge open (the benchmark's counts take it as non-home)"
    note = f"A discharge status that is not stated ({count:,} admissions) {effect}."
    return Draft(table.append_column("icd_version", version), outcomes, tuple(attrition.steps), (note,))


def _read_records(path: str | Path, *, not_stated: str = "non-home") -> pa.Table:
    """Read every record of the file, in order, newborns and children included."""
    fields = _Fields(path, _matrix(Path(path)))
    for name, codes in ALLOWED.items():
        text = fields.text(name)
        _refuse(path, name, text, pc.is_in(text, pa.array(list(codes))), f"one of {', '.join(codes)}")
    ids = pa.array(np.arange(1, len(fields.records) + 1))
    status, days = fields.text("status"), fields.number("los_days")
    elsewhere, unknown = ("349", "5") if not_stated == "non-home" else ("34", "59")
    years = fields.number("age").cast(pa.float64())
    return pa.table(
        {
            "admission_id": ids,
            "subject_id": ids,
            "newborn": pc.equal(fields.text("newborn"), "1"),
            # An age in months or days is less than a year.
            "age": pc.if_else(pc.equal(fields.text("age_unit"), YEARS), years, 0.0),
            "sex": pc.if_else(pc.equal(fields.text("sex"), "1"), "M", "F"),
            "codes": fields.items("diagnoses", 5),
            "mortality": _among(status, DEAD, unknown="9"),
            "non_home_discharge": _among(status, elsewhere + DEAD, unknown=unknown),
            "long_stay": pc.greater(days, 7),
            "critical_care": _with_any(fields.items("procedures", 4), CRITICAL_CARE),
            "los_days": days,
            "race": fields.text("race"),
            "region": fields.text("region"),
            "ownership": fields.text("ownership"),
            "beds": fields.text("beds"),
            "month": fields.number("month"),
            "weight": fields.number("weight"),
        }
    )


@dataclass(frozen=True)
class _Fields:
    """The fields of all records, by name."""

    path: str | Path
    records: np.ndarray  # bytes, one row per record

    def text(self, name: str, width: int | None = None) -> pa.Array:
        """Return a field as text, without blanks and filler; with a `width`, its items one after the other."""
        block = np.ascontiguousarray(self.records[:, START[name] : START[name] + WIDTHS[name]])
        width = width or WIDTHS[name]
        items = pa.FixedSizeBinaryArray.from_buffers(pa.binary(width), block.size // width, [None, pa.py_buffer(block)])
        return pc.replace_substring(pc.utf8_trim(items.cast(pa.string()), " "), "-", "")

    def number(self, name: str) -> pa.Array:
        text = self.text(name)
        _refuse(self.path, name, text, pc.match_substring_regex(text, r"^\d+$"), "a whole number")
        return text.cast(pa.int32())

    def items(self, name: str, width: int) -> pa.ListArray:
        """Return the filled items of a field, each of this width, as a list for each record."""
        flat = self.text(name, width)
        present = pc.not_equal(flat, "")
        counts = present.to_numpy(zero_copy_only=False).reshape(len(self.records), -1).sum(axis=1)
        offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
        return pa.ListArray.from_arrays(offsets, flat.filter(present))


def _with_any(lists: pa.ListArray, wanted: tuple[str, ...]) -> pa.Array:
    """Return for each list whether it holds one of the wanted codes."""
    hits = lists.value_parent_indices().filter(pc.is_in(lists.flatten(), pa.array(wanted)))
    found = np.zeros(len(lists), dtype=bool)
    found[hits.to_numpy()] = True
    return pa.array(found)


def _among(text: pa.Array, codes: str, *, unknown: str) -> pa.Array:
    """Return whether a text is one of the codes; null for `unknown` texts, which never count as no."""
    stated = pc.invert(pc.is_in(text, pa.array(list(unknown))))
    return pc.if_else(stated, pc.is_in(text, pa.array(list(codes))), pa.scalar(None, pa.bool_()))


def _matrix(path: Path) -> np.ndarray:
    """Return the file as bytes, one row per record."""
    try:
        data = _unpacked(path)
    except InputError:
        raise
    # The errors of bz2, gzip and zipfile for damaged, unusual and locked archives.
    except (OSError, EOFError, ValueError, zlib.error, NotImplementedError, RuntimeError, zipfile.BadZipFile) as error:
        if isinstance(error, OSError) and error.errno:  # an error of the file system
            raise
        raise InputError(f"{path}: the archive is damaged, cut short or locked.") from error
    if not data.strip():
        raise InputError(f"{path}: is empty; the NHDS file has records of {WIDTH} characters.")
    data = np.frombuffer(data.rstrip(b"\r\n\x1a") + b"\n", dtype=np.uint8)
    ends = np.flatnonzero(data == ord("\n"))
    starts = np.concatenate([[0], ends[:-1] + 1])
    ends = ends - (data[ends - 1] == ord("\r"))
    odd = np.flatnonzero(ends - starts != WIDTH)
    if len(odd):
        width = ends[odd[0]] - starts[odd[0]]
        raise InputError(f"{path}: record {odd[0] + 1} has {width} characters; an NHDS 2010 record has {WIDTH}.")
    records = data[starts[:, None] + np.arange(WIDTH)]
    odd = np.flatnonzero((records < ord(" ")).any(axis=1) | (records > ord("~")).any(axis=1))
    if len(odd):
        raise InputError(f"{path}: record {odd[0] + 1} holds a byte that is not plain text.")
    return records


def _unpacked(path: Path) -> bytes:
    data = path.read_bytes()
    if data.startswith(b"BZh"):
        return bz2.decompress(data)
    if data.startswith(b"\x1f\x8b"):
        return gzip.decompress(data)
    if data.startswith(b"PK"):
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = [entry for entry in archive.infolist() if not entry.is_dir()]
            if len(members) != 1:
                raise InputError(f"{path}: the archive holds {len(members)} files; one file of records is needed.")
            return archive.read(members[0])
    return data


def _refuse(path: str | Path, name: str, text: pa.Array, good: pa.Array, allowed: str) -> None:
    if not pc.all(good).as_py():
        row = pc.index(good, False).as_py()
        raise InputError(f"{path}: record {row + 1}, field {name}: {kind_of(text[row].as_py())} is not {allowed}.")
