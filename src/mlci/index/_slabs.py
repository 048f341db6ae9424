"""Matrix products in which the result for a row does not depend on where the row stands, to the last bit.

BLAS does not promise that. OpenBLAS's AVX2 kernel, for example, adds up the first and last eight rows of a block in
another order than the rows between them, so the same row can give a different last digit in another place.

Here rows are multiplied in slabs of a fixed number of rows, one call of BLAS each. The first time, slabs of equal rows
are multiplied to find the places whose results are equal. Rows are only ever read from such places: slabs overlap, so
that the rows at the edge of a slab are in the middle of the next. Where all places are equal, slabs do not overlap.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

ROWS = 320  # of a slab: OpenBLAS's AVX2 kernel cuts longer ones; shorter ones waste more at their edges
PROBES = 4  # random rows that every layer is tried with


@dataclass(frozen=True)
class Slabs:
    """How slabs lie in memory, and which of their places can be used.

    >>> slabs = Slabs(by_column=False, start=8, end=312)
    >>> slabs.used, slabs.number(400), slabs.rows(2)
    (304, 2, 624)
    """

    by_column: bool  # whether products are stored column by column: kernels treat rows and columns differently
    start: int  # the first place of a slab that can be used
    end: int  # the place after the last

    @property
    def used(self) -> int:
        """How many places of a slab can be used."""
        return self.end - self.start

    def number(self, rows: int) -> int:
        """Return how many slabs so many rows need."""
        return -(-rows // self.used)

    def rows(self, number: int) -> int:
        """Return how many rows an array must have for a number of slabs, unused places included."""
        return (number - 1) * self.used + ROWS

    def over(self, array: np.ndarray, number: int) -> np.ndarray:
        """Return an array as overlapping slabs (slabs x rows x columns), a view; row i to be used is `start` + i.

        >>> slabs = Slabs(by_column=False, start=8, end=312)
        >>> slabs.over(np.zeros((624, 2)), 2).shape
        (2, 320, 2)
        """
        windows = sliding_window_view(array[: self.rows(number)], ROWS, axis=0)
        return windows[:: self.used].transpose(0, 2, 1)

    def product(self, memory: np.ndarray, number: int, columns: int) -> np.ndarray:
        """Return flat memory as an array for products (slabs x rows x columns)."""
        memory = memory[: number * ROWS * columns]
        if self.by_column:
            return memory.reshape(number, columns, ROWS).transpose(0, 2, 1)
        return memory.reshape(number, ROWS, columns)

    def tiled(self, values: np.ndarray) -> np.ndarray:
        """Return one value for each column as a slab of equal rows, in the memory order of products.

        NumPy compares arrays of one shape faster than an array and a single row.
        """
        slab = self.product(np.empty(ROWS * len(values), values.dtype), 1, len(values))[0]
        slab[:] = values
        return slab

    def flat(self, product: np.ndarray) -> np.ndarray:
        """Return the used rows of a product one below the other."""
        return product[:, self.start : self.end].reshape(-1, product.shape[2])


@cache
def slabs_for(shapes: Sequence[tuple[int, int]]) -> Slabs:
    """Find the slabs that this machine's BLAS needs for float32 matrices of these shapes.

    Run it while BLAS is kept to one thread, as for the products themselves.

    Args:
        shapes: of the matrices that rows are multiplied with.

    Returns:
        Slabs that lie row by row if all their places are equal, else those with the most places that are.

    >>> slabs_for(((4, 3), (3, 1))).used <= ROWS
    True
    """
    found = []
    for by_column in (False, True):
        start, end = _longest_equal(shapes, by_column)
        found.append(Slabs(by_column, start, end))
        if found[-1].used == ROWS:
            break
    return max(found, key=lambda slabs: slabs.used)


def _longest_equal(shapes: Sequence[tuple[int, int]], by_column: bool) -> tuple[int, int]:
    """Return where the longest run of places begins and ends at which equal rows have equal products."""
    whole, rng = Slabs(by_column, 0, ROWS), np.random.default_rng(0)
    breaks = np.zeros(ROWS + 1, dtype=bool)  # before which places the results change
    breaks[[0, -1]] = True
    for high, wide in [*shapes] * PROBES:
        matrix, row = (rng.random(shape, dtype=np.float32) - np.float32(0.5) for shape in ((high, wide), high))
        target = whole.product(np.empty(ROWS * wide, np.float32), 1, wide)
        for source in (np.tile(row, (ROWS, 1)), whole.tiled(row)):  # what is pooled lies by row, products as they do
            np.matmul(source[None], matrix, out=target)
            breaks[1:-1] |= (target[0, 1:] != target[0, :-1]).any(axis=1)
    edges = np.flatnonzero(breaks)
    longest = np.diff(edges).argmax()
    return int(edges[longest]), int(edges[longest + 1])
