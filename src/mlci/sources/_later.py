"""What arises after admission, in the synthetic hospital: an admission's own codes come in, out come later ones too.

A later burden, drawn for each admission apart from all else, is a known share of severity. It shows in complications
alone (`data/complications.csv`: how common each is, and how fast it grows with the burden), which are flagged as not
present on admission. So an index that reads only what was present can know the rest of severity at best, and what the
flags cost or save is known before it is measured.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np
import pyarrow as pa

from mlci.sources._world import GRID, Urn, rows_of

MEAN, GROWTH = 0.8, 0.7  # later codes of an admission at a burden of 0, and how fast they grow (log scale)
MOST = 6  # later codes of an admission
UNSURE, UNSAID = 0.01, 0.02  # flags W among the codes of the day of admission, and U among later ones
EXEMPT = {10: ("Z",), 9: ("V", "E")}  # codes that need no flag begin so


@dataclass(frozen=True)
class Later:
    """The part of severity that arises after admission, and a stream of its own for all that follows from it."""

    rng: np.random.Generator
    burden: np.ndarray
    share: float

    @classmethod
    def of(cls, rng: np.random.Generator, many: int, share: float) -> "Later":
        return cls(rng, rng.normal(size=many), share)

    def severity(self, at_admission: np.ndarray) -> np.ndarray:
        """Return severity in all; both parts and their sum have a standard deviation of 1."""
        return np.sqrt(1 - self.share) * at_admission + np.sqrt(self.share) * self.burden

    def codes(self, lists: pa.ListArray, version: np.ndarray) -> tuple[pa.ListArray, pa.ListArray]:
        """Return the codes of each admission with the later ones behind them, and their flags."""
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
        order = np.lexsort((new, rows))  # stable: each admission's own codes first, as they stood
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
    """Return the places of each admission's codes where they come first: what was there before does not arise again."""
    number = np.unique(codes.astype(str), return_inverse=True)[1]
    return np.sort(np.unique(rows * np.int64(number.max(initial=0) + 1) + number, return_index=True)[1])


@cache
def _urn() -> Urn:
    """Return complications by the later burden: over all burdens each is as common as its share says."""
    found = rows_of("complications.csv")
    share, slope = (np.array([float(row[name]) for row in found]) for name in ("share", "slope"))
    return Urn.of([(np.arange(len(found)), share * np.exp(slope * burden - slope**2 / 2)) for burden in GRID])
