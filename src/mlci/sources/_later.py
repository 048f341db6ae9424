"""Simulate complications that arise after admission, for the synthetic hospital.

Each admission has a later burden, drawn independently of everything else, which is a known share of severity. It shows
only in complications, which are flagged as not present on admission. `data/complications.csv` holds how common each is
and how fast it grows with the burden. An index that reads only codes present on admission can know at best the rest of
severity, so the effect of the flags is known in advance.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np
import pyarrow as pa

from mlci.sources._world import GRID, Urn, rows_of

MEAN, GROWTH = 0.8, 0.7  # mean number of later codes at a burden of 0, and its growth with the burden (log scale)
MOST = 6  # the most later codes of an admission
UNSURE, UNSAID = 0.01, 0.02  # share of the flag W among codes present on admission, and of U among later codes
EXEMPT = {10: ("Z",), 9: ("V", "E")}  # first letters of codes that are exempt from flags


@dataclass(frozen=True)
class Later:
    """The part of severity that arises after admission, with a random stream of its own."""

    rng: np.random.Generator
    burden: np.ndarray
    share: float

    @classmethod
    def of(cls, rng: np.random.Generator, many: int, share: float) -> "Later":
        return cls(rng, rng.normal(size=many), share)

    def severity(self, at_admission: np.ndarray) -> np.ndarray:
        """Return the total severity; both parts and their sum have a standard deviation of 1."""
        return np.sqrt(1 - self.share) * at_admission + np.sqrt(self.share) * self.burden

    def codes(self, lists: pa.ListArray, version: np.ndarray) -> tuple[pa.ListArray, pa.ListArray]:
        """Append the later codes to the codes of each admission; return them with their flags."""
        many = np.minimum(self.rng.poisson(MEAN * np.exp(GROWTH * self.burden)), MOST)
        admission = np.repeat(np.arange(len(many)), many)
        cell = np.clip(np.searchsorted(GRID, self.burden), 0, len(GRID) - 1)[admission]
        drawn = _urn().draw(cell, self.rng.random(len(admission)))
        names = np.array([[row["icd9"], row["icd10"]] for row in rows_of("complications.csv")], dtype=object)
        later = names[drawn, (version[admission] == 10).astype(int)]
        before = np.repeat(np.arange(len(many)), lists.value_lengths().to_numpy())
        codes = np.concatenate([lists.flatten().to_numpy(zero_copy_only=False), later])
        rows = np.concatenate([before, admission])
        new = np.arange(len(codes)) >= len(before)
        order = np.lexsort((new, rows))  # stable: an admission's own codes stay first, in their order
        rows, codes, new = rows[order], codes[order], new[order]
        once = _first(rows, codes)
        rows, codes, new = rows[once], codes[once], new[once]
        offsets = pa.array(np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=len(many)))]).astype(np.int32))
        flags = self._flags(codes, version[rows], new)
        return pa.ListArray.from_arrays(offsets, pa.array(codes)), pa.ListArray.from_arrays(offsets, pa.array(flags))

    def _flags(self, codes: np.ndarray, version: np.ndarray, new: np.ndarray) -> np.ndarray:
        exempt = np.array(
            [code.startswith(EXEMPT[number]) for code, number in zip(codes, version.tolist())], dtype=bool
        )
        chance = self.rng.random(len(codes))
        own = np.where(exempt, "1", np.where(chance < UNSURE, "W", "Y"))
        return np.where(new, np.where(chance < UNSAID, "U", "N"), own).astype(object)


def _first(rows: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """Return the place of the first occurrence of each code in its admission: a code does not arise twice."""
    number = np.unique(codes.astype(str), return_inverse=True)[1]
    return np.sort(np.unique(rows * np.int64(number.max(initial=0) + 1) + number, return_index=True)[1])


@cache
def _urn() -> Urn:
    """Return complications by later burden; over all burdens, each occurs with its share."""
    found = rows_of("complications.csv")
    share, slope = (np.array([float(row[name]) for row in found]) for name in ("share", "slope"))
    return Urn.of([(np.arange(len(found)), share * np.exp(slope * burden - slope**2 / 2)) for burden in GRID])
