"""A cohort: one row per admission, with its codes, its outcomes (null = not known) and its split.

In comes a table from a source or a cohort file; out comes the same for every later step. Nothing later than this file
asks where the rows came from.
"""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import mlci
from mlci.codes.admissions import Admissions
from mlci.errors import InputError
from mlci.files import atomic

SPLITS = ("train", "valid", "test")
COLUMNS = ("admission_id", "subject_id", "icd_version", "codes", "split")
KEY = b"mlci"


@dataclass(frozen=True)
class Step:
    """One rule of the selection, in words, with the admissions it removed and those it left."""

    rule: str
    removed: int
    left: int


@dataclass(frozen=True)
class Cohort:
    """One row per admission; `outcomes` maps each outcome's column to its rule in words."""

    table: pa.Table
    source: str
    outcomes: dict[str, str]
    attrition: tuple[Step, ...] = ()
    notes: tuple[str, ...] = ()
    version: str = field(default=mlci.__version__)

    def __len__(self) -> int:
        return self.table.num_rows

    def split(self, *names: str) -> "Cohort":
        """The admissions of one or several splits."""
        return self.where(np.isin(self.column("split"), names))

    def where(self, rows: np.ndarray) -> "Cohort":
        """The admissions chosen by a Boolean array; what is known about the cohort stays with them."""
        table = self.table.filter(pa.array(rows))
        return Cohort(table, self.source, self.outcomes, self.attrition, self.notes, self.version)

    def column(self, name: str) -> np.ndarray:
        return self.table[name].to_numpy()

    def labels(self, *names: str) -> np.ndarray:
        """Outcomes as float64, one column each (all of them by default), NaN where not known."""
        columns = [self.table[name].cast(pa.float64()).to_numpy() for name in names or self.outcomes]
        return np.column_stack(columns) if columns else np.empty((len(self), 0))

    def admissions(self) -> Admissions:
        """The code lists, dictionary-encoded."""
        codes = self.table["codes"].combine_chunks()
        offsets = codes.offsets.to_numpy().astype(np.int64)
        flat = codes.values.slice(offsets[0], offsets[-1] - offsets[0])
        version = np.repeat(self.column("icd_version").astype(np.int8), np.diff(offsets))
        parts = []
        for number in np.unique(version):
            encoded = flat.filter(pa.array(version == number)).dictionary_encode()
            parts.append((number, encoded.dictionary.to_numpy(zero_copy_only=False), encoded.indices.to_numpy()))
        indices = np.empty(len(flat), dtype=np.int32)
        start = 0
        for number, values, ids in parts:
            indices[version == number] = ids + start
            start += len(values)
        values = [values for _, values, _ in parts] or [np.empty(0, dtype=object)]
        versions = [np.full(len(values), number, dtype=np.int8) for number, values, _ in parts]
        return Admissions(
            ids=self.column("admission_id"),
            values=np.concatenate(values),
            versions=np.concatenate(versions or [np.empty(0, dtype=np.int8)]),
            indices=indices,
            offsets=offsets - offsets[0],
        )

    def write(self, path: str | Path) -> None:
        """Write the cohort file: Parquet, with what is known about the cohort in its metadata."""
        facts = {
            "source": self.source,
            "outcomes": self.outcomes,
            "attrition": [asdict(step) for step in self.attrition],
            "notes": self.notes,
            "version": self.version,
        }
        with atomic(path) as temporary:
            pq.write_table(self.table.replace_schema_metadata({KEY: json.dumps(facts).encode()}), temporary)


def read_cohort(path: str | Path) -> Cohort:
    """Read a cohort file."""
    try:
        table = pq.read_table(path)
    except pa.ArrowInvalid as error:
        raise InputError(f"{path}: is not a Parquet file; a cohort comes from `mlci cohort`.") from error
    facts = (table.schema.metadata or {}).get(KEY)
    if facts is None:
        raise InputError(f"{path}: is not a cohort file; `mlci cohort` makes one.")
    missing = [name for name in COLUMNS if name not in table.column_names]
    if missing:
        raise InputError(f"{path}: lacks the column {missing[0]}; a cohort has {', '.join(COLUMNS)}.")
    facts = json.loads(facts)
    attrition = tuple(Step(**step) for step in facts["attrition"])
    return Cohort(table, facts["source"], facts["outcomes"], attrition, tuple(facts["notes"]), facts["version"])
