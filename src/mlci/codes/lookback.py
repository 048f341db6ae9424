"""Find each patient's earlier admissions, and add their codes or categories to an admission's own.

An earlier admission counts if it began before this one, by at most a given number of days. Admissions are sorted by
patient and time, and all of them take one step back at a time, so that a million of them take a second or two. The data
do not show what a patient had before the first admission; `since_first` tells how far one can look back.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mlci.base.errors import InputError
from mlci.codes._encoding import ROW

if TYPE_CHECKING:
    import pyarrow as pa

    from mlci.codes.carrying import Carry

DAY = 86_400
PART = 2**13  # admissions whose codes are carried at once: few enough for the processor's cache
ADMITTED, OBSERVED = "admitted", "days_observed"  # columns: time of admission; days since the patient's first admission


@dataclass(frozen=True)
class LookBack:
    """How many days to look back in a file, its columns of patients and times of admission, and which codes count.

    A cohort file has `days_observed` in place of times.
    """

    days: float
    subject: str = "subject_id"
    admitted: str = ADMITTED
    carry: "Carry | None" = None

    def __post_init__(self) -> None:
        if not 0 < self.days < np.inf:
            raise InputError(f"look_back: {self.days:g} is not allowed; allowed is a number of days above 0.")

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it reads, if the file has them."""
        return (self.subject, self.admitted, *([OBSERVED] if self.admitted == ADMITTED else []))

    def carried(self, own: np.ndarray, past: Mapping[float, np.ndarray], table: "pa.Table", where: str) -> np.ndarray:
        """Return the category bits of each admission with those of its earlier ones.

        Args:
            own: the bits of each admission, along the last axis.
            past: number of days → the bits that count for so many days.
            table: a row for each admission.
            where: the file's name in messages.

        >>> import pyarrow as pa
        >>> table = pa.table({"subject_id": [1, 1], "admitted": ["2020-01-01", "2020-03-01"]})
        >>> bits = np.array([1, 2], dtype=np.uint64)
        >>> LookBack(365).carried(bits, {np.inf: bits}, table, "visits.csv").tolist()
        [1, 3]
        """
        patients, seconds = self._times(table, where)
        for days, bits in past.items():
            own = History.of(patients, seconds, min(days, self.days)).carried(own, bits)
        return own

    def _times(self, table: "pa.Table", where: str) -> tuple[np.ndarray, np.ndarray]:
        import pyarrow.compute as pc

        admitted = self.admitted
        if self.admitted == ADMITTED and ADMITTED not in table.column_names and OBSERVED in table.column_names:
            admitted = OBSERVED
        for name in (self.subject, admitted):
            if name not in table.column_names:
                raise InputError(f"{where}: lacks the column {name}, which a look-back needs (--subject, --admitted).")
        if admitted == OBSERVED:
            known = table[OBSERVED].is_valid().to_numpy(zero_copy_only=False)
            seconds = np.rint(pc.fill_null(table[OBSERVED].cast("float64"), 0).to_numpy() * DAY).astype(np.int64)
        else:
            rows = table[ROW].to_numpy() if ROW in table.column_names else None
            seconds, known = seconds_of(table[admitted], f"{where}: column {admitted}", rows)
        found = table[self.subject].combine_chunks().dictionary_encode()
        known = known & found.is_valid().to_numpy(zero_copy_only=False)
        numbers = pc.fill_null(found.indices, 0).to_numpy()
        return np.where(known, numbers, -1 - np.arange(len(table))), seconds


@dataclass(frozen=True)
class History:
    """Admissions in order of patient and time; `days` limits the look-back."""

    order: np.ndarray  # rows, by patient, then time, then row
    patient: np.ndarray  # the patient of each row, in that order
    seconds: np.ndarray  # the time of admission of each row, in that order
    days: float

    @classmethod
    def of(cls, patients: np.ndarray, seconds: np.ndarray, days: float) -> "History":
        """Return the history of admissions.

        Args:
            patients: the patient of each admission.
            seconds: the time of each admission, in seconds since any moment.
            days: the days to look back.

        >>> History.of(np.array([2, 1, 1]), np.array([0, 9, 5]), 365).order.tolist()
        [2, 1, 0]
        """
        order = np.lexsort((seconds, patients))
        return cls(order, patients[order], np.asarray(seconds, dtype=np.int64)[order], days)

    def pairs(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield rows with the earlier rows that count for them, the most recent ones first.

        >>> history = History.of(np.array([1, 1, 1, 2]), np.array([0, 10, 400, 0]) * DAY, 365)
        >>> [(late.tolist(), early.tolist()) for late, early in history.pairs()]
        [([1], [0])]
        """
        for late, early, _ in self._steps(0, len(self.order)):
            yield self.order[late], self.order[early]

    def _steps(self, start: int, end: int) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Yield places from `start` to `end` of the order, earlier places that count for them, and the time between.

        Each step looks one admission further back.
        """
        late = np.arange(start, end)
        step = 0
        while len(late):
            step += 1
            late = late[late >= start + step]
            early = late - step
            gap = self.seconds[late] - self.seconds[early]
            near = (self.patient[late] == self.patient[early]) & (gap <= self.days * DAY)
            late, early, gap = late[near], early[near], gap[near]
            some = gap > 0  # of two that began at the same time, neither is earlier
            if some.any():
                yield late[some], early[some], gap[some]

    def _parts(self) -> Iterator[tuple[int, int]]:
        """Yield the bounds of parts of about `PART` admissions, cut between patients."""
        first = np.append(np.flatnonzero(self.patient[1:] != self.patient[:-1]) + 1, len(self.order))
        start = 0
        while start < len(self.order):
            end = int(first[min(np.searchsorted(first, start + PART), len(first) - 1)])
            yield start, end
            start = end

    def carried(self, own: np.ndarray, past: np.ndarray) -> np.ndarray:
        """Return the category bits of each admission with those that its earlier ones pass on.

        Args:
            own: the bits of each admission, along the last axis.
            past: the bits that each admission passes on.

        >>> history = History.of(np.array([1, 1, 2]), np.array([0, 30, 7]) * DAY, 365)
        >>> bits = np.array([1, 2, 4], dtype=np.uint64)
        >>> history.carried(bits, bits).tolist()
        [1, 3, 4]
        """
        found = own.copy()
        for late, early in self.pairs():
            found[..., late] |= past[..., early]
        return found

    def codes(
        self, indices: np.ndarray, offsets: np.ndarray, reach: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return each admission's codes, followed by the codes of its earlier admissions, each once.

        Args:
            indices: the number of each recorded code, admission after admission.
            offsets: where each admission's codes begin, and the end of the last.
            reach: the number of days for which each recorded code is carried, if less than `days`.

        Returns:
            The places in `indices` that make up the new lists, the offsets of the lists, and which codes are carried.

        >>> history = History.of(np.array([1, 1]), np.array([0, 30]) * DAY, 365)
        >>> places, ends, old = history.codes(np.array([7, 8, 8, 9]), np.array([0, 2, 4]))
        >>> np.array([7, 8, 8, 9])[places].tolist(), ends.tolist(), old.tolist()
        ([7, 8, 8, 9, 7], [0, 2, 5], [False, False, False, False, True])
        """
        counts, starts = np.diff(offsets)[self.order], offsets[:-1][self.order]
        size = int(indices.max(initial=0)) + 1
        found = [self._part(bounds, indices, size, counts, starts, reach) for bounds in self._parts()]
        place, old, many = map(np.concatenate, zip(*found)) if found else (np.empty(0, dtype=np.int64),) * 3
        lengths = np.empty(len(many), dtype=np.int64)
        lengths[self.order] = many
        ends = np.concatenate([[0], np.cumsum(lengths)])
        # From the order of patients and times back to the order of the rows.
        where = np.empty(len(many), dtype=np.int64)
        where[self.order] = np.cumsum(many) - many
        back = np.repeat(where - ends[:-1], lengths) + np.arange(ends[-1])
        return place[back], ends, old[back].astype(bool, copy=False)

    def _part(
        self,
        bounds: tuple[int, int],
        indices: np.ndarray,
        size: int,
        counts: np.ndarray,
        starts: np.ndarray,
        reach: np.ndarray | None,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the places of all codes of a part, which of them are carried, and the number per admission."""
        import pandas as pd

        start, end = bounds
        kind = np.int32 if (end - start) * size < 2**31 else np.int64

        def spread(late: np.ndarray, early: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            many = counts[early]
            first = np.repeat(starts[early] - np.cumsum(many) + many, many)
            return np.repeat((late - start).astype(kind), many), first + np.arange(len(first))

        own = np.arange(start, end)
        rows, places = ([part] for part in spread(own, own))
        for late, early, gap in self._steps(start, end):
            row, place = spread(late, early)
            if reach is not None:
                near = np.repeat(gap, counts[early]) <= reach[place] * DAY
                row, place = row[near], place[near]
            rows.append(row)
            places.append(place)
        row, place = np.concatenate(rows), np.concatenate(places)
        again = pd.Series(row * kind(size) + indices[place].astype(kind)).duplicated().to_numpy()
        kept = np.flatnonzero(~again | (np.arange(len(row)) < len(rows[0])))  # own codes stay even if recorded twice
        kept = kept[np.argsort(row[kept], kind="stable")]
        place = place[kept].astype(np.int32 if len(indices) < 2**31 else np.int64)
        return place, kept >= len(rows[0]), np.bincount(row[kept], minlength=end - start)


def since_first(patients: np.ndarray, seconds: np.ndarray) -> np.ndarray:
    """Compute the time from each patient's first admission to each admission: how far one can look back.

    Args:
        patients: the patient of each admission, as a small whole number from 0.
        seconds: the time of each admission, in seconds since any moment.

    Returns:
        Seconds, one number per admission.

    >>> since_first(np.array([1, 1, 0]), np.array([5, 35, 7])).tolist()
    [0, 30, 0]
    """
    first = np.full(patients.max(initial=0) + 1, np.iinfo(np.int64).max)
    np.minimum.at(first, patients, seconds)
    return seconds - first[patients]


def _first_odd(text: "pa.Array") -> int:
    """Return the place of the first value that is no time, in an array that has one."""
    import pyarrow as pa
    import pyarrow.compute as pc

    start, end = 0, len(text)
    while end - start > 1:
        middle = (start + end) // 2
        try:
            pc.cast(text[start:middle], pa.timestamp("s"), safe=False)
            start = middle
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):  # the odd time is in this half
            end = middle
    return start


def seconds_of(
    moments: "pa.Array | pa.ChunkedArray", where: str, rows: "np.ndarray | None" = None
) -> tuple[np.ndarray, np.ndarray]:
    """Read times as seconds since 1970.

    Args:
        moments: times, dates, or text such as 2024-05-31 or 2024-05-31 06:00.
        where: the table's name in messages.
        rows: the number of each row in messages, if known.

    Returns:
        The seconds, and whether each time is known. A value that is no time raises an `InputError`.

    >>> import pyarrow as pa
    >>> seconds, known = seconds_of(pa.array(["1970-01-02", ""]), "visits.csv")
    >>> seconds[known].tolist(), known.tolist()
    ([86400], [True, False])
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    text = trimmed(moments.combine_chunks() if isinstance(moments, pa.ChunkedArray) else moments)
    try:
        if pa.types.is_integer(text.type):  # Arrow would read them as seconds since 1970
            raise pa.ArrowInvalid
        moments = pc.cast(text, pa.timestamp("s"), safe=False)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):  # text that is no time, or a type without a cast to times
        row = "" if rows is None else f" (row {rows[_first_odd(text)]})"
        raise InputError(
            f"{where}: not every time of admission is understood{row}; allowed is a date or time such as 2024-05-31 "
            "or 2024-05-31 06:00, or empty."
        ) from None
    known = pc.is_valid(moments).to_numpy(zero_copy_only=False)
    return pc.fill_null(moments.cast(pa.int64()), 0).to_numpy(), known


def trimmed(column: "pa.Array | pa.ChunkedArray") -> "pa.Array | pa.ChunkedArray":
    """Return a column of text without blanks around its cells, and null for blank ones; other columns as they are.

    >>> import pyarrow as pa
    >>> trimmed(pa.array([" 71", " "])).to_pylist()
    ['71', None]
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return column
    text = pc.utf8_trim_whitespace(column)
    return pc.if_else(pc.equal(text, ""), pa.scalar(None, text.type), text)
