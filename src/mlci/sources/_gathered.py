"""The codes of each admission, in recorded order: rows of codes, or lists with positions in front, come in.

Engines gather in orders of their own, and not all of them can sort a list; so the order is made here, by position and
then by code, and a position below 0 is refused in one sentence.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mlci.base.errors import InputError

FIRST, LAST = 10_000, 89_999  # what is added to a code's position, and the last position
BELOW = "00000"  # in place of a position below 0


def codes_by_admission(rows: pa.Table, ids: pa.ChunkedArray, where: str) -> pa.ListArray:
    """Gather the codes of each admission of `ids`, by position (then by code); null where an admission has none.

    `rows` has one for each code, with its `admission`, `position` and `code`; those of no admission are left out.

    >>> rows = pa.table({"admission": [8, 7, 7, 9], "position": [1, 2, 1, 1], "code": ["I10", "N179", "I509", "E119"]})
    >>> codes_by_admission(rows, pa.chunked_array([[7, 8, 6]]), "diagnoses").to_pylist()
    [['I509', 'N179'], ['I10'], None]
    """
    codes, position = rows["code"].combine_chunks().dictionary_encode(), rows["position"].to_numpy()
    rank = np.argsort(pc.sort_indices(codes.dictionary).to_numpy())
    number = codes.indices.to_numpy()
    key = position * len(rank) + rank[number]
    starts, place = _runs(rows["admission"].combine_chunks(), ids.combine_chunks())
    known = place >= 0
    if below := int((position < 0)[np.repeat(known, np.diff(starts))].sum()):
        raise InputError(f"{where}: {below} codes have a position below 0; positions are whole numbers from 0.")
    order = _by_runs(key, starts, place)
    counts = np.bincount(place[known], np.diff(starts)[known], minlength=len(ids)).astype(np.int64)
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    values = pa.DictionaryArray.from_arrays(pa.array(number[order]), codes.dictionary)
    return pa.ListArray.from_arrays(pa.array(offsets), values, mask=pa.array(counts == 0))


def _runs(admission: pa.Array, ids: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Return where runs of rows of the same admission begin (and the last ends), and its place among `ids`, or -1."""
    column = admission.to_numpy(zero_copy_only=False)
    starts = np.flatnonzero(np.concatenate([[True], column[1:] != column[:-1]])) if len(column) else np.empty(0, int)
    place = pc.fill_null(pc.index_in(admission.take(pa.array(starts)), value_set=ids), -1)
    return np.append(starts, len(column)), place.to_numpy()


def _by_runs(key: np.ndarray, starts: np.ndarray, place: np.ndarray) -> np.ndarray:
    """Return the rows of known places in the order of these, and within a place by key.

    Databases write the codes of an admission one after another, in order: whole runs are then moved.
    """
    lengths, run = np.diff(starts), np.argsort(place, kind="stable")
    run = run[np.searchsorted(place[run], 0) :]
    falls = key[1:] < key[:-1]
    falls[starts[1:-1] - 1] = False
    lengths, moved = lengths[run], place[run]
    ends = np.cumsum(lengths)
    rows = np.repeat(starts[run] - (ends - lengths), lengths) + np.arange(lengths.sum())
    if not falls.any() and (np.diff(moved) > 0).all():
        return rows
    return rows[np.lexsort((key[rows], np.repeat(moved, lengths)))]


def codes_in_order(placed: pa.ChunkedArray, where: str) -> pa.ListArray:
    """Sort lists made with `_rules.placed` by position (then by code), and take the position off."""
    lists = placed.cast(pa.list_(pa.string())).combine_chunks()
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy()
    flat = lists.flatten().dictionary_encode()
    marked = np.asarray(pc.starts_with(flat.dictionary, BELOW))
    if marked.any():
        below = int(marked[flat.indices.to_numpy()].sum())
        raise InputError(f"{where}: {below} codes have a position below 0; positions are whole numbers from 0.")
    rank = np.argsort(pc.sort_indices(flat.dictionary).to_numpy())  # digits of one width: as text, so by position
    place = np.repeat(np.arange(len(lists)), lengths) * len(rank) + rank[flat.indices.to_numpy()]
    order = np.argsort(place, kind="stable")  # linear where an engine collects in the order of the file, as most do
    codes = pc.utf8_slice_codeunits(flat.dictionary, len(str(FIRST)))
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    values = pa.DictionaryArray.from_arrays(flat.indices.take(pa.array(order)), codes)
    return pa.ListArray.from_arrays(pa.array(offsets), values, mask=pc.is_null(lists))
