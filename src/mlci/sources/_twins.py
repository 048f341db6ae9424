"""Find rows that repeat an admission, for messages that name both rows."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mlci.base.marks import count_marked

NEAR = 32  # the widest range of whole numbers, as a multiple of their number, for which an array with all is made


@dataclass(frozen=True)
class Twins:
    """The places of the first two rows of one admission, and the number of rows that repeat an earlier one."""

    first: int
    later: int
    many: int

    def words(self, first: int, later: int) -> str:
        """Return the end of a sentence, given the numbers of the two rows in the file."""
        more = f"; {self.many} rows repeat an earlier one" if self.many > 1 else ""
        return f"row {later}: names the admission of row {first} again; each has one row{more}"


def repeated(ids: pa.ChunkedArray) -> int:
    """Return how many rows repeat the id of an earlier one; null counts as an id.

    >>> repeated(pa.chunked_array([[7, 8, 7]])), repeated(pa.chunked_array([["a", None], [None]]))
    (1, 1)
    """
    if ends := near(ids):
        return len(ids) - count_marked([ids], *ends)
    return len(ids) - pc.count_distinct(ids, mode="all").as_py()


def near(ids: pa.ChunkedArray) -> tuple[int, int] | None:
    """Return the least and the largest of ids that are whole numbers in a narrow range, else None.

    >>> near(pa.chunked_array([[7, 9]])), near(pa.chunked_array([[7, 1_000_000]]))
    ((7, 9), None)
    """
    if pa.types.is_integer(ids.type) and len(ids) and not ids.null_count:
        least, most = pc.min_max(ids).as_py().values()
        if most < 1 << 63 and most - least < NEAR * len(ids):
            return least, most
    return None


def twins(ids: pa.ChunkedArray) -> Twins | None:
    """Return the first row that repeats an earlier one, or None."""
    if not repeated(ids):
        return None
    numbers = ids.combine_chunks().dictionary_encode().indices.to_numpy(zero_copy_only=False)
    order = np.argsort(numbers, kind="stable")
    later = order[1:][np.diff(numbers[order]) == 0]
    place = int(later.min())
    return Twins(int(np.flatnonzero(numbers == numbers[place])[0]), place, len(later))
