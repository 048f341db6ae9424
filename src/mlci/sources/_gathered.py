"""Collect the codes of each admission in recorded order, from rows of codes or from lists with positions in front.

Engines collect values in orders of their own, and not all of them can sort a list. So codes are sorted here, by
position and then by code. A position below 0 raises an error of one sentence.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mlci.base.errors import InputError
from mlci.sources._twins import near

FIRST, LAST = 10_000, 89_999  # the number added to a code's position, and the last position
BELOW = "00000"  # stands for a position below 0


@dataclass(frozen=True)
class Gathered:
    """Codes in the order of the engine: runs of rows of the same admission."""

    codes: pa.DictionaryArray
    positions: np.ndarray
    starts: np.ndarray  # the start of each run, and the end of the last
    admissions: pa.Array  # the admission of each run

    @classmethod
    def of(cls, batches: Iterable[pa.RecordBatch]) -> "Gathered":
        """Collect rows with `admission`, `position` and `code`, batch by batch, because all rows need much memory."""
        codes, positions, starts, heads, total = [], [], [], [], 0
        for batch in batches:
            admission = batch["admission"]
            start = np.flatnonzero(pc.not_equal(admission[1:], admission[:-1])) + 1
            start = np.concatenate([[0], start]) if len(admission) else start
            heads.append(admission.take(pa.array(start)))
            starts.append(start + total)
            positions.append(np.maximum(batch["position"].to_numpy(), -1).astype(np.int32))
            codes.append(batch["code"].dictionary_encode())
            total += len(batch)
        if not total:
            none = pa.array([], pa.string()).dictionary_encode()
            return cls(none, np.empty(0, np.int32), np.zeros(1, np.int64), pa.array([], pa.int64()))
        head, start = pa.concat_arrays(heads), np.concatenate(starts)
        new = np.concatenate([[True], pc.not_equal(head[1:], head[:-1])])  # a run may continue in the next batch
        return cls(
            pa.chunked_array(codes).unify_dictionaries().combine_chunks(),
            np.concatenate(positions),
            np.append(start[new], total),
            head.filter(pa.array(new)),
        )

    def lists(self, ids: pa.ChunkedArray, where: str) -> pa.ListArray:
        """Return the codes of each admission of `ids`, by position and then by code; null for an admission without any.

        Codes of other admissions are left out.

        >>> rows = {"admission": [8, 7, 7, 9], "position": [1, 2, 1, 1], "code": ["I10", "N179", "I509", "E119"]}
        >>> gathered = Gathered.of(pa.table(rows).to_batches())
        >>> gathered.lists(pa.chunked_array([[7, 8, 6]]), "diagnoses").to_pylist()
        [['I509', 'N179'], ['I10'], None]
        """
        place, lengths = places(self.admissions, ids), np.diff(self.starts)
        if below := int((self.positions < 0)[np.repeat(place >= 0, lengths)].sum()):
            raise InputError(f"{where}: {below} codes have a position below 0; positions are whole numbers from 0.")
        counts = np.bincount(place[place >= 0], lengths[place >= 0], minlength=len(ids))
        offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
        in_place = self._ordered and (np.diff(place, prepend=-1) > 0).all()
        codes = self.codes if in_place else self.codes.take(pa.array(self._order(place)))
        return pa.ListArray.from_arrays(pa.array(offsets), codes, mask=pa.array(counts == 0))

    def _order(self, place: np.ndarray) -> np.ndarray:
        """Return the order in which to take the codes; `place` is the row of each run's admission, or -1."""
        run = np.argsort(place, kind="stable")
        run = run[np.searchsorted(place[run], 0) :]
        place, lengths = place[run], np.diff(self.starts)[run]
        order = np.repeat((self.starts[run] - np.cumsum(lengths) + lengths).astype(np.int32), lengths)
        order += np.arange(len(order), dtype=np.int32)
        if not self._ordered or (np.diff(place) == 0).any():
            rank = np.argsort(pc.sort_indices(self.codes.dictionary).to_numpy())[self.codes.indices.to_numpy()]
            order = order[np.lexsort((rank[order], self.positions[order], np.repeat(place, lengths)))]
        return order

    @property
    def _ordered(self) -> bool:
        """Whether positions ascend within every run, as in most databases; then whole runs can be moved."""
        not_ascending = self.positions[1:] <= self.positions[:-1]
        not_ascending[self.starts[1:-1] - 1] = False
        return not not_ascending.any()


def places(these: pa.Array | pa.ChunkedArray, among: pa.ChunkedArray) -> np.ndarray:
    """Return the first row of each of `these` ids `among` others, or -1.

    Whole numbers in a narrow range are looked up in a table of all numbers between the least and the largest.

    >>> places(pa.array([8, 6, 7]), pa.chunked_array([[7, 8, 8]]))
    array([ 1, -1,  0])
    """
    ends = near(among)
    if ends is None or these.null_count or not pa.types.is_integer(these.type):
        found = pc.index_in(these, value_set=among.combine_chunks().cast(these.type))
        return pc.fill_null(found, -1).to_numpy()
    least, most = ends
    rows = np.full(most - least + 2, -1)  # the last entry is for ids outside the range
    rows[among.cast(pa.int64()).to_numpy()[::-1] - least] = np.arange(len(among))[::-1]
    numbers = these.cast(pa.int64()).to_numpy()
    return rows[np.where((numbers >= least) & (numbers <= most), numbers - least, -1)]


def codes_in_order(placed: pa.ChunkedArray, where: str) -> pa.ListArray:
    """Sort lists made with `_rules.placed` by position and then by code, and remove the positions."""
    lists = placed.cast(pa.list_(pa.string())).combine_chunks()
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy()
    flat = lists.flatten().dictionary_encode()
    marked = np.asarray(pc.starts_with(flat.dictionary, BELOW))
    if marked.any():
        below = int(marked[flat.indices.to_numpy()].sum())
        raise InputError(f"{where}: {below} codes have a position below 0; positions are whole numbers from 0.")
    rank = np.argsort(pc.sort_indices(flat.dictionary).to_numpy())  # text order is order by position: equal widths
    place = np.repeat(np.arange(len(lists)), lengths) * len(rank) + rank[flat.indices.to_numpy()]
    order = np.argsort(place, kind="stable")  # linear if an engine collects in the order of the file, as most do
    codes = pc.utf8_slice_codeunits(flat.dictionary, len(str(FIRST)))
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    values = pa.DictionaryArray.from_arrays(flat.indices.take(pa.array(order)), codes)
    return pa.ListArray.from_arrays(pa.array(offsets), values, mask=pc.is_null(lists))
