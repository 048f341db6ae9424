"""Rows that name an admission again: ids come in, the first two such rows go out, to be told by file and row."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


@dataclass(frozen=True)
class Twins:
    """Two rows of one admission, where each should have one: their places, and how many rows repeat an earlier one."""

    first: int
    later: int
    many: int

    def words(self, first: int, later: int) -> str:
        """Return the end of a sentence, with the rows as the file counts them."""
        more = f"; {self.many} rows repeat an earlier one" if self.many > 1 else ""
        return f"row {later}: names the admission of row {first} again; each has one row{more}"


def twins(ids: pa.ChunkedArray) -> Twins | None:
    """Return the first row that repeats an earlier one, or None."""
    if len(ids) == pc.count_distinct(ids, mode="all").as_py():
        return None
    numbers = ids.combine_chunks().dictionary_encode().indices.to_numpy(zero_copy_only=False)
    order = np.argsort(numbers, kind="stable")
    later = order[1:][np.diff(numbers[order]) == 0]
    place = int(later.min())
    return Twins(int(np.flatnonzero(numbers == numbers[place])[0]), place, len(later))
