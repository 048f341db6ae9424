"""Piecewise linear interpolation at very many places: bit-for-bit the result of `numpy.interp` in a third of its time.

For a thousand knots, `numpy.interp` makes ten bisections per place, and the processor mispredicts half of these
branches. Here the range is divided into cells of equal width. A place's cell gives the number of knots before it, and
the few knots within the cell are counted without branches.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

CELLS = 4096
MANY = 10_000  # the least number of places for which the cells pay off
ROWS = 16_384  # places that are computed at once: they fit in a core's cache


@dataclass(frozen=True)
class Pieces:
    """A function given by its heights at ascending knots, linear between them and constant beyond the ends.

    >>> Pieces(np.array([0.0, 1.0, 3.0]), np.array([0.0, 50.0, 100.0]))(np.array([-1.0, 0.5, 2.0, 9.0]))
    array([  0.,  25.,  75., 100.])
    """

    knots: np.ndarray
    heights: np.ndarray

    def __call__(self, places: np.ndarray) -> np.ndarray:
        if np.size(places) < MANY or not np.isfinite(places).all():  # a single number too
            return np.interp(places, self.knots, self.heights)
        return np.concatenate([self._of(places[start : start + ROWS]) for start in range(0, len(places), ROWS)])

    def _of(self, places: np.ndarray) -> np.ndarray:
        before, halves, padded, (begins, slopes, heights) = self._cells
        piece = before.take(self._cell(places))
        for half in halves:
            piece += half * (padded.take(piece + (half - 1)) <= places)
        found = places - begins.take(piece)
        found *= slopes.take(piece)
        found += heights.take(piece)
        return found

    def _cell(self, places: np.ndarray) -> np.ndarray:
        """Return the cell of each place; it is monotone in the place, however numbers are rounded."""
        low, high = self.knots[0], self.knots[-1]
        cell = places - low
        cell *= CELLS / (high - low) if high > low else 0.0
        return np.clip(cell, 0, CELLS, out=cell).astype(np.intp)

    @cached_property
    def _cells(self) -> tuple[np.ndarray, list[int], np.ndarray, tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """The number of knots before each cell, the steps that count knots within it, padded knots, and the pieces."""
        cells, widths = self._cell(self.knots), np.diff(self.knots)
        most = int(np.bincount(cells).max())
        slopes = np.divide(np.diff(self.heights), widths, out=np.zeros_like(widths), where=widths > 0)
        pieces = (
            np.concatenate([self.knots[:1], self.knots]),
            np.concatenate([[0.0], slopes, [0.0]]),
            np.concatenate([self.heights[:1], self.heights]),
        )
        before = np.searchsorted(cells, np.arange(CELLS + 1)).astype(np.intp)
        padded = np.concatenate([self.knots, np.full(2 * most, np.inf)])
        return before, [1 << power for power in reversed(range(most.bit_length()))], padded, pieces
