"""The token matrix: a sparse 0/1 matrix of admissions x tokens, multiplied with dense matrices in blocks of rows.

The tokens may be in memory or memory-mapped. A token counts once per admission, however often it was recorded. Needs
NumPy and SciPy.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy import sparse

from mlci.base.files import atomic
from mlci.base.ordered import sort_runs
from mlci.tokens import Tokens

ROWS = 16_384  # admissions in a block: their log-odds fit into a core's cache


@dataclass(frozen=True)
class Presence:
    """Row i has a 1 in the columns `ids[offsets[i] : offsets[i + 1]]`, which are sorted and distinct."""

    ids: np.ndarray  # int32; a memory map if the tokens are one
    offsets: np.ndarray  # int64, one more than rows
    columns: int

    @classmethod
    def of(cls, tokens: Tokens, columns: int) -> "Presence":
        """Return the matrix of the tokens; for memory-mapped tokens it is mapped too, from a file next to theirs."""
        if not isinstance(tokens.ids, np.memmap):
            parts = list(_distinct(tokens, columns))
            ids = np.concatenate([part for part, _ in parts]) if parts else np.empty(0, np.int32)
        else:
            path = Path(str(tokens.ids.filename)).with_suffix(".distinct")
            parts = []
            with atomic(path) as temporary, temporary.open("wb") as file:  # another fit may have mapped such a file
                for part, counts in _distinct(tokens, columns):
                    part.tofile(file)
                    parts.append((None, counts))
            ids = np.memmap(path, np.int32, "r")
        offsets = np.concatenate([[0], *(counts for _, counts in parts)]).cumsum()
        return cls(ids, offsets, columns)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def blocks(self, kind: type) -> Iterator[tuple[slice, sparse.csr_array]]:
        """Yield blocks of rows as sparse matrices with values of this kind; the column numbers are not copied."""
        largest = max(np.diff(self.offsets[::ROWS], append=self.offsets[-1]), default=0)
        ones = np.ones(largest, kind)
        for start in range(0, len(self), ROWS):
            rows = slice(start, min(start + ROWS, len(self)))
            first, last = self.offsets[rows.start], self.offsets[rows.stop]
            pointers = (self.offsets[rows.start : rows.stop + 1] - first).astype(np.int32)
            parts = (ones[: last - first], self.ids[first:last], pointers)
            yield rows, sparse.csr_array(parts, shape=(len(pointers) - 1, self.columns))

    def times(self, weights: np.ndarray) -> np.ndarray:
        """Return the product with `weights` (one row per token): for each admission, the sum over its tokens."""
        return np.concatenate([weights[:0], *(block @ weights for _, block in self.blocks(np.float64))])

    def take(self, rows: np.ndarray) -> "Presence":
        """Return these rows, in memory."""
        tokens = Tokens(self.ids, self.offsets).take(rows)
        return Presence(tokens.ids, tokens.offsets, self.columns)


def _distinct(tokens: Tokens, columns: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield, for blocks of admissions, their distinct tokens in order and the number that each admission has."""
    for start in range(0, len(tokens), ROWS):
        offsets = tokens.offsets[start : start + ROWS + 1]
        counts = np.diff(offsets)
        row = np.repeat(np.arange(len(counts)), counts)
        keys = row * np.int64(columns) + tokens.ids[offsets[0] : offsets[-1]]
        keys = sort_runs(keys, int(counts.max(initial=0)))
        keys = keys[np.diff(keys, prepend=-1) > 0]
        yield (keys % columns).astype(np.int32), np.bincount(keys // columns, minlength=len(counts))
