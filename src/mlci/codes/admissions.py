"""Admissions and their codes in the form that every scorer takes: dictionary-encoded.

Each distinct code is processed once, however often it occurs. `as_admissions` encodes lists of lists, frames (pandas,
polars, Arrow) and cohorts; `mlci.codes.streams` reads files, some admissions at a time. Admissions are in the order of
first appearance and their codes in recorded order. Missing codes are dropped; an admission without codes stays. The
module imports NumPy alone at the top, so that training works where nothing else is installed.
"""

import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from mlci.base.errors import InputError
from mlci.codes.layout import CODES, Layout, find_layout
from mlci.codes.poa import ALL, late

if TYPE_CHECKING:
    import pyarrow as pa

WRITTEN_VERSION = r"(?:ICD)?[-_ ]?0?(9|10)(?:\.0)?(?:[-_ ]?CM)?"  # an ICD version as text, in capitals
COUNTED = 2**17  # codes counted in one call, which holds the GIL


@dataclass(frozen=True)
class Admissions:
    """Admission i has the codes `values[indices[offsets[i] : offsets[i + 1]]]`, in recorded order."""

    ids: np.ndarray  # one per admission
    values: np.ndarray  # distinct codes, normalised text
    versions: np.ndarray  # int8, ICD version of each of `values`: 9, 10, or 0 if unknown
    indices: np.ndarray  # int32 into `values`, one per recorded code
    offsets: np.ndarray  # int64, one more than admissions
    short: int = 0  # recorded codes that were written with fewer than three digits before the dot
    poa: np.ndarray | None = None  # uint8, flag per recorded code, encoded as in `mlci.codes.poa`; None: not read
    late: int = 0  # recorded codes that were left out because they arose after admission
    unsure: int = 0  # recorded codes that were left out as suspected or ruled out (`mlci.codes.certainty`)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @cached_property
    def counts(self) -> np.ndarray:
        """The number of codes of each admission.

        >>> Admissions.from_lists([["A", "B"], []]).counts
        array([2, 0])
        """
        return np.diff(self.offsets)

    @cached_property
    def mentions(self) -> np.ndarray:
        """The number of times that each of `values` is recorded.

        >>> Admissions.from_lists([["A", "B"], ["B"]]).mentions
        array([1, 2])
        """
        found = np.zeros(len(self.values), dtype=np.int64)
        for start in range(0, len(self.indices), COUNTED):
            found += np.bincount(self.indices[start : start + COUNTED], minlength=len(found))
        return found

    def count(self, flags: np.ndarray) -> np.ndarray:
        """Return how many codes of each admission are flagged; `flags` has a Boolean for each of `values`.

        >>> Admissions.from_lists([["A", "B", "A"], [], ["B"]]).count(np.array([True, False]))
        array([2, 0, 0])
        """
        if not flags.any():
            return np.zeros(len(self), dtype=np.int64)
        return np.diff(self._before(flags.take(self.indices)))

    def take(self, rows: np.ndarray) -> "Admissions":
        """Return the admissions at the positions `rows`, in the order of `rows`.

        >>> Admissions.from_lists([["A", "B"], [], ["B"]]).take(np.array([2, 0])).offsets
        array([0, 1, 3])
        """
        lengths = self.counts[rows]
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        places = np.arange(offsets[-1]) + np.repeat(self.offsets[rows] - offsets[:-1], lengths)
        poa = None if self.poa is None else self.poa[places]
        return replace(self, ids=self.ids[rows], indices=self.indices[places], offsets=offsets, poa=poa)

    def keep(self, flags: np.ndarray) -> "Admissions":
        """Return the admissions with only the flagged codes; `flags` has a Boolean for each of `values`.

        >>> Admissions.from_lists([["A", "B"], ["B"]]).keep(np.array([True, False])).offsets
        array([0, 1, 1])
        """
        return self if flags.all() else self._where(flags[self.indices])

    def present(self) -> "Admissions":
        """Return the admissions without the codes that arose after admission by their flags; `late` counts them.

        >>> admissions = replace(Admissions.from_lists([["A", "B"]]), poa=np.array([1, 2], dtype=np.uint8))
        >>> admissions.present().offsets.tolist(), admissions.present().late
        ([0, 1], 1)
        """
        if self.poa is None:
            return self
        arose = late(self.poa)
        return replace(self._where(~arose), poa=None, late=self.late + int(arose.sum()))

    def _where(self, kept: np.ndarray) -> "Admissions":
        """Keep some of the recorded codes; `kept` has a Boolean for each of `indices`."""
        poa = None if self.poa is None else self.poa[kept]
        return replace(self, indices=self.indices[kept], offsets=self._before(kept), poa=poa)

    def _before(self, kept: np.ndarray) -> np.ndarray:
        """Return for each admission how many of the earlier `indices` are kept; the last entry is the total."""
        found = np.zeros(len(kept) + 1, dtype=np.int32 if len(kept) < 2**31 else np.int64)
        np.cumsum(kept, out=found[1:], dtype=found.dtype)
        return found.take(self.offsets).astype(np.int64)

    @classmethod
    def from_lists(cls, codes: Sequence[Sequence[str]], *, icd_version: int = 0) -> "Admissions":
        """Encode lists of codes that are already normalised.

        Args:
            codes: one list per admission; the ids are 0, 1, 2, ...
            icd_version: 9 or 10 for every code, or 0 if unknown.

        Returns:
            The admissions, in their order.

        >>> admissions = Admissions.from_lists([["I509", "N179"], []], icd_version=10)
        >>> len(admissions), admissions.values.tolist(), admissions.offsets.tolist()
        (2, ['I509', 'N179'], [0, 2, 2])
        """
        flat = [code for admission in codes for code in admission]
        values, indices = np.unique(np.array(flat, dtype=object), return_inverse=True)
        lengths = np.fromiter((len(admission) for admission in codes), dtype=np.int64, count=len(codes))
        return cls(
            ids=np.arange(len(codes)),
            values=values,
            versions=np.full(len(values), icd_version, dtype=np.int8),
            indices=indices.astype(np.int32),
            offsets=np.concatenate([[0], np.cumsum(lengths)]),
        )


def as_admissions(
    data: Any,
    *,
    icd_version: int | str | None = None,
    id: str | None = None,
    codes: str | Sequence[str] | None = None,
    restore_zeros: bool = False,
    poa: str = ALL,
) -> Admissions:
    """Encode admissions that are in memory.

    Args:
        data: lists of codes, a pandas, polars or Arrow frame, a `Cohort`, or `Admissions`, which are returned.
        icd_version: 9 or 10 for codes whose version the data do not state, or the name of the column that holds it.
        id: the column of admissions in a frame, if its name is not one that is recognised (`mlci.codes.layout`).
        codes: the column or columns of codes in a frame, if their names are not recognised.
        restore_zeros: whether to restore leading zeros that ICD-9 codes have lost.
        poa: `all` codes, or `only` those that the flags of a cohort or frame mark as present on admission; plain lists
            have no flags and are taken as they are.

    Returns:
        The admissions, in their order.

    >>> import pandas as pd
    >>> frame = pd.DataFrame({"visit_id": [7, 8], "DX1": ["i50.9", "E11.9"], "DX2": ["N17.9", None]})
    >>> admissions = as_admissions(frame, icd_version=10)
    >>> admissions.ids.tolist(), admissions.values[admissions.indices].tolist(), admissions.offsets.tolist()
    ([7, 8], ['I509', 'N179', 'E119'], [0, 2, 3])
    """
    import narwhals as nw
    import pyarrow as pa

    from mlci.codes._encoding import ZEROS, AdmissionsEncoder, check_ids, one_chunk

    if isinstance(data, Admissions):
        version = _version_number(icd_version)
        if version is None or data.versions.all():
            return data
        return replace(data, versions=np.where(data.versions == 0, np.int8(version), data.versions))
    if nw.dependencies.is_into_dataframe(data) or nw.dependencies.is_polars_lazyframe(data):
        table = as_table(data)
        version, column = version_or_column(icd_version)
        options = {"id": id, "codes": codes, "version": column, "needs_id": False, "poa": poa}
        layout = find_layout(table.column_names, "the frame", **options)
        if layout.id is not None:
            check_ids(one_chunk(table[layout.id]), layout.id, "the frame", lambda place: place + 1)
        layout = layout.settled(table)
        if layout.doubt:
            warnings.warn(layout.doubt, stacklevel=2)
        return AdmissionsEncoder(layout, "the frame", version, restore_zeros=restore_zeros)(table)
    if hasattr(data, "admissions"):  # a cohort: a frame may have a column of that name
        return as_admissions(data.admissions(poa=poa), icd_version=icd_version)
    if not isinstance(data, Iterable) or isinstance(data, Mapping):
        raise InputError(f"codes: expected a frame, or a list of codes for each admission; got {type(data).__name__}.")
    rows = list(data)
    if any(isinstance(row, str) for row in rows):
        raise InputError("codes: each admission needs a list of codes; got text in place of a list.")
    try:  # pandas writes a missing code, or a missing list, as NaN or NA
        lists = [list(row) if isinstance(row, Iterable) else row for row in rows]
        found = pa.array(lists, pa.list_(pa.string()), from_pandas=True)
    except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError, ValueError) as error:
        raise InputError(f"codes: each admission needs a list of strings; {ZEROS}.") from error
    layout, version = Layout("list", (CODES,)), _version_number(icd_version)
    return AdmissionsEncoder(layout, "codes", version, restore_zeros=restore_zeros)(pa.table({CODES: found}))


def _version_number(icd_version: int | str | None) -> int | None:
    """Return the ICD version of codes that are not in a table, where no column can hold it."""
    from mlci.codes.icd import check_version

    version, column = version_or_column(icd_version)
    if column is not None:
        raise InputError(f"icd_version: {column!r} names a column, but lists of codes have none; allowed are 9 and 10.")
    return None if version is None else check_version(version)


def as_table(data: Any) -> "pa.Table":
    """Turn a frame into an Arrow table.

    Args:
        data: a pandas, polars (lazy too) or Arrow frame.

    Returns:
        The table. A column with several kinds of values, or an object that is no frame, raises an `InputError`.

    >>> import pandas as pd
    >>> as_table(pd.DataFrame({"visit": [7, 8]})).to_pydict()
    {'visit': [7, 8]}
    """
    import narwhals as nw
    import pyarrow as pa

    try:
        frame = nw.from_native(data)
        return (frame.collect() if isinstance(frame, nw.LazyFrame) else frame).to_arrow()
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise InputError("the frame: a column holds values of several kinds; make it text.") from error
    except nw.exceptions.DuplicateError:
        raise InputError("the frame: has two columns of the same name; names must be unique.") from None
    except TypeError as error:
        raise InputError(f"a pandas, polars or Arrow frame is needed, not {type(data).__name__}.") from error


def version_or_column(icd_version: int | str | None) -> tuple[int | None, str | None]:
    """Decide whether `icd_version` is an ICD version, for all codes, or the name of a column that holds versions.

    Args:
        icd_version: 9, 10, their text (`10`, `ICD-10`, `icd9cm`), the name of a column, or None.

    Returns:
        The version and the column; at least one of the two is None.

    >>> version_or_column("ICD-10"), version_or_column("dxver"), version_or_column(None)
    ((10, None), (None, 'dxver'), (None, None))
    """
    if not isinstance(icd_version, str):
        return icd_version, None
    written = re.fullmatch(WRITTEN_VERSION, icd_version.strip().upper())
    if not written and not icd_version.isdigit():
        return None, icd_version
    return int(written[1] if written else icd_version), None
