"""Admissions and their codes as every scorer takes them: dictionary-encoded, so each distinct code is looked at once.

In come lists of lists, frames (pandas, polars, Arrow), cohort files and any Parquet or CSV with `admission_id` and
codes; out comes `Admissions`, whole or in batches. NumPy alone is imported at the top: a bare GPU machine trains too.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Admissions:
    """Admission i has the codes `values[indices[offsets[i] : offsets[i + 1]]]`, in recorded order."""

    ids: np.ndarray  # one per admission
    values: np.ndarray  # distinct codes, normalised text
    versions: np.ndarray  # int8, ICD version of each of `values`: 9 or 10, 0 where nobody said
    indices: np.ndarray  # int32 into `values`, one per recorded code
    offsets: np.ndarray  # int64, one more than admissions

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @classmethod
    def from_lists(cls, codes: Sequence[Sequence[str]], *, icd_version: int = 0) -> "Admissions":
        """Lists of codes that are already normalised."""
        flat = [code for admission in codes for code in admission]
        values, indices = np.unique(np.array(flat, dtype=object), return_inverse=True)
        lengths = np.fromiter((len(admission) for admission in codes), dtype=np.int64, count=len(codes))
        return cls(
            ids=np.arange(len(codes)),
            values=values,
            versions=np.full(len(values), icd_version, dtype=np.int8),
            indices=indices.astype(np.int32),
            offsets=np.concatenate([[0], np.cumsum(lengths)]),
        )
