"""Write the synthetic hospital's admissions as raw tables in the form of MIMIC-IV (CSV.gz), for tests of scale."""

import gzip
import io
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow.csv import WriteOptions, write_csv

from mlci.base.files import atomic
from mlci.sources._rules import DAY

PIECE = 2**16  # rows that are compressed together
MIMIC4 = {
    "hosp/admissions": (
        *("subject_id", "hadm_id", "admittime", "dischtime", "deathtime", "admission_type", "admit_provider_id"),
        *("admission_location", "discharge_location", "insurance", "language", "marital_status", "race", "edregtime"),
        *("edouttime", "hospital_expire_flag"),
    ),
    "hosp/patients": ("subject_id", "gender", "anchor_age", "anchor_year", "anchor_year_group", "dod"),
    "hosp/diagnoses_icd": ("subject_id", "hadm_id", "seq_num", "icd_code", "icd_version"),
    "icu/icustays": (
        *("subject_id", "hadm_id", "stay_id", "first_careunit", "last_careunit", "intime", "outtime", "los"),
    ),
}


def write_mimic4(blocks: Iterable[pa.Table], folder: Path) -> Iterator[pa.Table]:
    """Yield the blocks of admissions, and write each as raw tables of MIMIC-IV in CSV.gz.

    Each piece of a table is a separate gzip member, so that compression uses all cores and memory stays bounded.
    """
    with ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor())
        out = {}
        for name in MIMIC4:
            path = folder / f"{name}.csv.gz"
            path.parent.mkdir(parents=True, exist_ok=True)
            out[name] = stack.enter_context(stack.enter_context(atomic(path)).open("wb"))
        first = True
        for block in blocks:
            raw = _as_mimic4(block)
            pieces = [
                (name, raw[name].slice(start, PIECE), first and start == 0)
                for name in MIMIC4
                for start in range(0, max(len(raw[name]), 1), PIECE)
            ]
            for (name, _, _), member in zip(pieces, pool.map(_member, pieces)):
                out[name].write(member)
            first = False
            yield block


def _member(piece: tuple[str, pa.Table, bool]) -> bytes:
    _, table, header = piece
    text = io.BytesIO()
    write_csv(table, text, WriteOptions(include_header=header, quoting_style="none"))
    return gzip.compress(text.getvalue(), 6, mtime=0)


def _as_mimic4(block: pa.Table) -> dict[str, pa.Table]:
    """Return tables with the columns of MIMIC-IV, in their order; columns without data are empty."""
    many = pc.list_value_length(block["codes"]).to_numpy()
    row = np.repeat(np.arange(len(block)), many)
    place = np.arange(len(row)) - np.repeat(np.cumsum(many) - many, many) + 1
    subject, hadm, year = block["subject_id"], block["admission_id"], pc.year(block["admitted"])
    entered = block.filter(pc.is_valid(block["first_icu"]))
    first = np.flatnonzero(np.diff(subject.to_numpy(), prepend=0))
    # A person has one date of death: the last one, because the dead do not return.
    deaths = block.group_by("subject_id", use_threads=False).aggregate([("dod", "max")])
    seconds = pc.subtract(entered["discharged"], entered["first_icu"]).cast(pa.int64())
    columns = {
        "hosp/admissions": {
            "subject_id": subject,
            "hadm_id": hadm,
            "admittime": block["admitted"],
            "dischtime": block["discharged"],
            "deathtime": block["died"],
            "admission_type": pc.if_else(block["icu_transfer"], "EW EMER.", "OBSERVATION ADMIT"),
            "discharge_location": pc.if_else(block["mortality"], "DIED", "HOME"),
            "hospital_expire_flag": block["mortality"].cast(pa.int8()),
        },
        "hosp/patients": {
            "subject_id": subject.take(first),
            "gender": block["sex"].take(first),
            "anchor_age": block["age"].take(first).cast(pa.int64()),
            "anchor_year": year.take(first),
            "anchor_year_group": pa.repeat("2017 - 2019", len(first)),
            "dod": deaths["dod_max"].cast(pa.date32()),
        },
        "hosp/diagnoses_icd": {
            "subject_id": subject.take(row),
            "hadm_id": hadm.take(row),
            "seq_num": place,
            "icd_code": pc.list_flatten(block["codes"]),
            "icd_version": block["icd_version"].take(row),
        },
        "icu/icustays": {
            "subject_id": entered["subject_id"],
            "hadm_id": entered["admission_id"],
            "stay_id": pc.add(entered["admission_id"], 10_000_000),
            "first_careunit": pa.repeat("Medical Intensive Care Unit (MICU)", len(entered)),
            "last_careunit": pa.repeat("Medical Intensive Care Unit (MICU)", len(entered)),
            "intime": entered["first_icu"],
            "outtime": entered["discharged"],
            "los": pc.divide(seconds.cast(pa.float64()), DAY),
        },
    }
    return {
        name: pa.table(
            {column: columns[name].get(column, pa.nulls(len(next(iter(columns[name].values()))))) for column in wanted}
        )
        for name, wanted in MIMIC4.items()
    }
