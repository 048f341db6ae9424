"""Codes of a patient's earlier admissions: whose admission each is, when it began and how far to look back come in.

An earlier admission counts if it began before this one and no more than so many days before. All work is done in order
of patient and time, one step back at a time for all admissions at once, so a million of them take a second or two. What
a patient had before the first admission that the data hold is not known: `since_first` says how far one could look.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mlci.base.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

    from mlci.codes.carrying import Carry

DAY = 86_400
PART = 2**13  # admissions whose codes are carried at once: few enough that what is looked up stays near
ADMITTED, OBSERVED = "admitted", "days_observed"  # columns: when it began; days since the patient's first admission


@dataclass(frozen=True)
class LookBack:
    """How far to look back in a file, its columns of patients and of when admissions began, and how long codes count.

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
        """The columns that it reads, as far as a file has them."""
        return (self.subject, self.admitted, *([OBSERVED] if self.admitted == ADMITTED else []))

    def carried(self, own: np.ndarray, past: Mapping[float, np.ndarray], table: "pa.Table", where: str) -> np.ndarray:
        """Return the category bits of each admission with those of its earlier ones.

        Args:
            own: bits, the last axis is admissions.
            past: how many days → the bits that count for so long.
            table: a row for each admission.
            where: what messages call the file.

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
            seconds, known = seconds_of(table[admitted], f"{where}: column {admitted}")
        found = table[self.subject].combine_chunks().dictionary_encode()
        known = known & found.is_valid().to_numpy(zero_copy_only=False)
        numbers = pc.fill_null(found.indices, 0).to_numpy()
        return np.where(known, numbers, -1 - np.arange(len(table))), seconds


@dataclass(frozen=True)
class History:
    """Admissions in order of patient and time; `days` is how far to look back."""

    order: np.ndarray  # rows, by patient, then time, then row
    patient: np.ndarray  # of each row, in that order
    seconds: np.ndarray  # when it began, in that order
    days: float

    @classmethod
    def of(cls, patients: np.ndarray, seconds: np.ndarray, days: float) -> "History":
        """Return the history of admissions.

        Args:
            patients: of each admission.
            seconds: when it began, since any moment.
            days: how far to look back.

        >>> History.of(np.array([2, 1, 1]), np.array([0, 9, 5]), 365).order.tolist()
        [2, 1, 0]
        """
        order = np.lexsort((seconds, patients))
        return cls(order, patients[order], np.asarray(seconds, dtype=np.int64)[order], days)

    def pairs(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield rows and the earlier rows that count for them, the latest earlier ones first.

        >>> history = History.of(np.array([1, 1, 1, 2]), np.array([0, 10, 400, 0]) * DAY, 365)
        >>> [(late.tolist(), early.tolist()) for late, early in history.pairs()]
        [([1], [0])]
        """
        for late, early, _ in self._steps(0, len(self.order)):
            yield self.order[late], self.order[early]

    def _steps(self, start: int, end: int) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Yield places in the order from `start` to `end`, earlier ones that count for them, and the time between."""
        late = np.arange(start, end)
        step = 0
        while len(late):
            step += 1
            late = late[late >= start + step]
            early = late - step
            gap = self.seconds[late] - self.seconds[early]
            near = (self.patient[late] == self.patient[early]) & (gap <= self.days * DAY)
            late, early, gap = late[near], early[near], gap[near]
            some = gap > 0  # two that began at once are not each other's past
            if some.any():
                yield late[some], early[some], gap[some]

    def _parts(self) -> Iterator[tuple[int, int]]:
        """Yield the order in parts of about so many admissions, cut between patients."""
        first = np.append(np.flatnonzero(self.patient[1:] != self.patient[:-1]) + 1, len(self.order))
        start = 0
        while start < len(self.order):
            end = int(first[min(np.searchsorted(first, start + PART), len(first) - 1)])
            yield start, end
            start = end

    def carried(self, own: np.ndarray, past: np.ndarray) -> np.ndarray:
        """Return the category bits of each admission with those that its earlier ones hand on.

        Args:
            own: bits, the last axis is admissions.
            past: the bits that each admission hands on.

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
        """Return each admission's codes with those of its earlier ones behind them, each once.

        Args:
            indices: the number of each recorded code, admission after admission.
            offsets: where each admission's codes begin, and the end.
            reach: for how many days each recorded code is carried, where that is less than `days`.

        Returns:
            The places in `indices` that now make up the lists, where each list begins, and which codes are carried.

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
        # From the order of patients and times back to that of the rows.
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
        """Return of a part of the order the places of all codes, which are carried, and how many each admission has."""
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
        kept = np.flatnonzero(~again | (np.arange(len(row)) < len(rows[0])))  # recorded twice, an own code stays twice
        kept = kept[np.argsort(row[kept], kind="stable")]
        small = np.int32 if len(indices) < 2**31 else np.int64
        return place[kept].astype(small), kept >= len(rows[0]), np.bincount(row[kept], minlength=end - start)


def since_first(patients: np.ndarray, seconds: np.ndarray) -> np.ndarray:
    """Tell how long after a patient's first admission each one began.

    Args:
        patients: a small whole number for each patient, from 0.
        seconds: when each admission began, in seconds since any moment.

    Returns:
        Seconds, one number per admission: how far back one could look.

    >>> since_first(np.array([1, 1, 0]), np.array([5, 35, 7])).tolist()
    [0, 30, 0]
    """
    first = np.full(patients.max(initial=0) + 1, np.iinfo(np.int64).max)
    np.minimum.at(first, patients, seconds)
    return seconds - first[patients]


def seconds_of(moments: "pa.Array | pa.ChunkedArray", where: str) -> tuple[np.ndarray, np.ndarray]:
    """Read times as seconds since 1970.

    Args:
        moments: times, dates, or text such as 2024-05-31 or 2024-05-31 06:00.
        where: what messages call their table.

    Returns:
        The seconds, and whether each is known; what is no time is an `InputError`.

    >>> import pyarrow as pa
    >>> seconds, known = seconds_of(pa.array(["1970-01-02", ""]), "visits.csv")
    >>> seconds[known].tolist(), known.tolist()
    ([86400], [True, False])
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    text = moments.combine_chunks() if isinstance(moments, pa.ChunkedArray) else moments
    if pa.types.is_string(text.type) or pa.types.is_large_string(text.type):
        text = pc.utf8_trim_whitespace(text)
        text = pc.if_else(pc.equal(text, ""), pa.scalar(None, text.type), text)
    try:
        if pa.types.is_integer(text.type):  # would be taken for seconds since 1970
            raise pa.ArrowInvalid
        moments = pc.cast(text, pa.timestamp("s"), safe=False)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):  # text that is no time, or a type that never is one
        raise InputError(
            f"{where}: a time of admission is not one; allowed is a date or time such as 2024-05-31 or "
            "2024-05-31 06:00, or empty."
        ) from None
    known = pc.is_valid(moments).to_numpy(zero_copy_only=False)
    return pc.fill_null(moments.cast(pa.int64()), 0).to_numpy(), known
