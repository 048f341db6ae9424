"""Admissions and their codes as every scorer takes them: dictionary-encoded, so each distinct code is looked at once.

In come lists of lists, frames (pandas, polars, Arrow), cohort files and any Parquet, CSV or Excel file with admissions
and codes; out comes `Admissions`, whole or in batches. `mlci.codes.layout` says which columns hold what. An admission
keeps its place of first appearance and its codes their recorded order; a missing code is no code; an admission without
codes stays. NumPy alone is imported at the top: a bare GPU machine trains too.
"""

import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from mlci.base.errors import InputError, kind_of
from mlci.base.files import scratch
from mlci.base.tablefile import TableFile, open_table
from mlci.codes.layout import CODES, Layout, find_layout
from mlci.codes.poa import ALL, late, read_flags

if TYPE_CHECKING:
    import pyarrow as pa

BATCH = 131_072  # admissions held at once when a file is streamed, or eight times as many rows of one code each
SEEN = 1000  # rows that are looked at to tell a row per admission from a row per code
NO_CODE = ("", "NA", "NAN", "NULL", "NONE", "UNKNOWN", "MISSING")  # once normalised
SEPARATORS = r"[\s,;|]+"
WRITTEN_VERSION = r"(?:ICD)?[-_ ]?0?(9|10)(?:\.0)?(?:[-_ ]?CM)?"  # in capitals
ROW, FIRST = "__row__", "__first__"  # columns that are added while rows are brought together
T = TypeVar("T")


@dataclass(frozen=True)
class Admissions:
    """Admission i has the codes `values[indices[offsets[i] : offsets[i + 1]]]`, in recorded order."""

    ids: np.ndarray  # one per admission
    values: np.ndarray  # distinct codes, normalised text
    versions: np.ndarray  # int8, ICD version of each of `values`: 9 or 10, 0 where nobody said
    indices: np.ndarray  # int32 into `values`, one per recorded code
    offsets: np.ndarray  # int64, one more than admissions
    short: int = 0  # recorded codes that were written with fewer than three digits before the dot
    poa: np.ndarray | None = None  # uint8, one per recorded code, as `mlci.codes.poa` has them; None: not read
    late: int = 0  # recorded codes that were left out because they arose after admission

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @cached_property
    def mentions(self) -> np.ndarray:
        """How often each of `values` is recorded.

        >>> Admissions.from_lists([["A", "B"], ["B"]]).mentions
        array([1, 2])
        """
        return np.bincount(self.indices, minlength=len(self.values))

    def count(self, flags: np.ndarray) -> np.ndarray:
        """Count, for each admission, those of its codes that are flagged; `flags` has one for each of `values`.

        Fast where flags are rare.

        >>> Admissions.from_lists([["A", "B", "A"], [], ["B"]]).count(np.array([True, False]))
        array([2, 0, 0])
        """
        places = np.flatnonzero(flags[self.indices]) if flags.any() else np.empty(0, dtype=np.intp)
        return np.bincount(np.searchsorted(self.offsets, places, side="right") - 1, minlength=len(self))

    def take(self, rows: np.ndarray) -> "Admissions":
        """Keep the admissions at the given positions, in their order.

        >>> Admissions.from_lists([["A", "B"], [], ["B"]]).take(np.array([2, 0])).offsets
        array([0, 1, 3])
        """
        lengths = np.diff(self.offsets)[rows]
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        places = np.arange(offsets[-1]) + np.repeat(self.offsets[rows] - offsets[:-1], lengths)
        poa = None if self.poa is None else self.poa[places]
        return replace(self, ids=self.ids[rows], indices=self.indices[places], offsets=offsets, poa=poa)

    def keep(self, flags: np.ndarray) -> "Admissions":
        """Keep the codes that are flagged, in all admissions; `flags` has one for each of `values`.

        >>> Admissions.from_lists([["A", "B"], ["B"]]).keep(np.array([True, False])).offsets
        array([0, 1, 1])
        """
        return self if flags.all() else self._where(flags[self.indices])

    def present(self) -> "Admissions":
        """Leave out the codes whose flags say that they arose after admission, and count them.

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
        offsets = np.concatenate([[0], np.cumsum(kept)])[self.offsets]
        poa = None if self.poa is None else self.poa[kept]
        return replace(self, indices=self.indices[kept], offsets=offsets, poa=poa)

    @classmethod
    def from_lists(cls, codes: Sequence[Sequence[str]], *, icd_version: int = 0) -> "Admissions":
        """Encode lists of codes that are already normalised.

        Args:
            codes: one list per admission; ids are their places.
            icd_version: 9 or 10 for every code, or 0 where nobody said.

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
        data: lists of codes, a pandas, polars or Arrow frame, a `Cohort`, or `Admissions`, which are given back.
        icd_version: 9 or 10 for the codes whose version the data do not say, or the name of the column that says it.
        id: the column of admissions in a frame, where its name does not speak for itself (`mlci.codes.layout`).
        codes: the column or columns of codes in a frame, likewise.
        restore_zeros: whether ICD-9 codes lost their leading zeros, which are put back.
        poa: all codes, or only those that the flags of a cohort or frame say were present on admission; plain lists
            hold no flags and are taken as they are.

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

    if isinstance(data, Admissions):
        if icd_version is None or data.versions.all():
            return data
        versions = np.where(data.versions == 0, np.int8(icd_version), data.versions)
        return replace(data, versions=versions)
    if hasattr(data, "admissions"):  # a cohort
        return as_admissions(data.admissions(poa=poa), icd_version=icd_version)
    if nw.dependencies.is_into_dataframe(data) or nw.dependencies.is_polars_lazyframe(data):
        table = as_table(data)
        number, column = said_version(icd_version)
        said = {"id": id, "codes": codes, "version": column, "needs_id": False, "poa": poa}
        layout = find_layout(table.column_names, "the frame", **said).seen(table)
        return _Encoder(layout, "the frame", number, restore_zeros=restore_zeros)(table)
    rows = list(data)
    if any(isinstance(row, str) for row in rows):
        raise InputError("codes: each admission needs a list of codes; got text in place of a list.")
    try:
        # pandas and NumPy write a missing code as NaN
        clean = [None if row is None else [None if code != code else code for code in row] for row in rows]
        found = pa.array(clean, pa.list_(pa.string()))
    except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError, ValueError) as error:
        raise InputError(f"codes: each admission needs a list of texts; {_ZEROS}.") from error
    number, _ = said_version(icd_version)
    return _Encoder(Layout("list", (CODES,)), "codes", number, restore_zeros=restore_zeros)(pa.table({CODES: found}))


def as_table(data: Any) -> "pa.Table":
    """Turn a frame into an Arrow table.

    Args:
        data: a pandas, polars (lazy too) or Arrow frame.

    Returns:
        The table; a column of several kinds of values, or another object than a frame, is an `InputError`.

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
    except TypeError as error:
        raise InputError(f"a pandas, polars or Arrow frame is needed, not {type(data).__name__}.") from error


def said_version(icd_version: int | str | None) -> tuple[int | None, str | None]:
    """Tell an ICD version that holds for all codes from the name of a column that says it.

    Args:
        icd_version: 9, 10, their text, the name of a column, or None.

    Returns:
        The version and the column; at least one of the two is None.

    >>> said_version("10"), said_version("dxver"), said_version(None)
    ((10, None), (None, 'dxver'), (None, None))
    """
    if isinstance(icd_version, str) and not icd_version.isdigit():
        return None, icd_version
    return (None if icd_version is None else int(icd_version)), None


def stream_rows(
    path: str | Path,
    *,
    carry: Sequence[str] = (),
    icd_version: int | str | None = None,
    id: str | None = None,
    codes: str | Sequence[str] | None = None,
    poa: str = ALL,
    **options: Any,
) -> Iterator[tuple[Admissions, "pa.Table"]]:
    """Read the admissions of a file in batches, with other columns of the same rows.

    Args:
        path: a file of any kind and layout that `mlci score` takes.
        carry: columns to hand on, as far as the file has them.
        icd_version: 9 or 10 for the codes whose version the file does not say, or the column that says it.
        id: the column of admissions, where its name does not speak for itself.
        codes: the column or columns of codes, likewise.
        poa: all codes, only those present on admission, or (keep) all of them with their flags.
        **options: those of `stream_table`: `restore_zeros`, `batch`, `unused`.

    Returns:
        An iterator over batches of admissions, each with a table of one row per admission: the carried columns, and
        the number of the admission's first row.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "visits.csv")
    ...     _ = file.write_text("visit_id,codes,ward\\n7,I50.9 N17.9,B2\\n8,E11.9,C1\\n")
    ...     [carried["ward"].to_pylist() for _, carried in stream_rows(file, carry=["ward"])]
    [['B2', 'C1']]
    """
    number, column = said_version(icd_version)
    with open_table(path) as file:
        layout = file_layout(file, id=id, codes=codes, version=column, poa=poa)
        carried = [name for name in carry if name in file.names]
        yield from ahead(stream_table(file, layout, carry=carried, icd_version=number, **options))


def file_layout(
    file: TableFile,
    *,
    id: str | None = None,
    codes: str | Sequence[str] | None = None,
    version: str | None = None,
    poa: str = ALL,
) -> Layout:
    """Find the layout of an opened file; its first rows show whether a row is an admission or a code.

    Args:
        file: as `open_table` opens it.
        id: the column of admissions, where its name does not speak for itself.
        codes: the column or columns of codes, likewise.
        version: the column of ICD versions, likewise.
        poa: which codes count, as `mlci.codes.poa` names it.

    Returns:
        The layout; a column that is named and missing is an `InputError`.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "visits.csv")
    ...     _ = file.write_text("visit_id,icd10\\n7,I50.9\\n7,N17.9\\n")
    ...     with open_table(file) as table:
    ...         file_layout(table).form  # admission 7 repeats
    'long'
    """
    layout = find_layout(file.names, file.where, id=id, codes=codes, version=version, poa=poa)
    if layout.form != "list":  # settled by the names alone
        return layout
    first = next((rows for rows in file.read(layout.columns, rows=SEEN) if len(rows)), None)
    return layout if first is None else layout.seen(first)


def stream_table(
    file: TableFile,
    layout: Layout,
    *,
    carry: Sequence[str] = (),
    icd_version: int | None = None,
    restore_zeros: bool = False,
    batch: int = BATCH,
    unused: bool = False,
) -> Iterator[tuple[Admissions, "pa.Table"]]:
    """Read the admissions of an opened file in batches.

    Args:
        file: as `open_table` opens it.
        layout: as `file_layout` finds it.
        carry: columns of the file to hand on.
        icd_version: 9 or 10 for the codes whose version the file does not say.
        restore_zeros: whether ICD-9 codes lost their leading zeros, which are put back.
        batch: admissions held at once.
        unused: let `values` hold codes that the batch does not have, so that several batches share one array.

    Returns:
        An iterator over batches of admissions, each with a table of one row per admission, as `stream_rows` gives it.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "visits.csv")
    ...     _ = file.write_text("visit_id,codes\\n7,I50.9 N17.9\\n8,E11.9\\n")
    ...     with open_table(file) as table:
    ...         [len(batch) for batch, _ in stream_table(table, file_layout(table))]
    [2]
    """
    odd = next((name for name in layout.codes if name in file.numbers), None)
    if odd and not restore_zeros:
        raise InputError(
            f"{file.where}: column {odd}, row {file.numbers[odd]}: the cell is a number; {_ZEROS}; make the column "
            "text, or say that zeros were lost (--restore-zeros)."
        )
    wanted = list(dict.fromkeys([*layout.columns, *carry]))
    long = layout.form == "long"
    many = 8 * batch if long else batch

    def read(columns: list[str]) -> Iterator["pa.Table"]:
        return _numbered(file.read(columns, repeated=layout.codes, rows=many), layout.id, whole)

    whole = file.first_row > 1 and _whole_numbers(file, layout.id)
    tables = read(wanted)
    if long and not _ascending(read([str(layout.id)]), layout.id, file):
        tables = _regroup(tables, layout, batch)
    yield from encode_tables(
        tables,
        layout,
        file.where,
        carry=carry,
        icd_version=icd_version,
        restore_zeros=restore_zeros,
        unused=unused,
        first_row=file.first_row,
    )


def _whole_numbers(file: TableFile, id: str | None) -> bool:
    """An identifier is a number if all of them are, and then scores join with numbers; else 007 and 7 stay apart."""
    import pyarrow.compute as pc

    return id is not None and all(
        pc.all(pc.match_substring_regex(table[id], r"^(0|-?[1-9]\d{0,17})$")).as_py() is not False
        for table in file.read([id])
    )


def _numbered(tables: Iterator["pa.Table"], id: str | None, whole: bool) -> Iterator["pa.Table"]:
    import pyarrow as pa

    for table in tables:
        if whole and id is not None and id in table.column_names:
            table = table.set_column(table.column_names.index(id), id, table[id].cast(pa.int64()))
        yield table


def encode_tables(
    tables: Iterator["pa.Table"],
    layout: Layout,
    where: str,
    *,
    carry: Sequence[str] = (),
    icd_version: int | None = None,
    restore_zeros: bool = False,
    unused: bool = False,
    first_row: int = 1,
) -> Iterator[tuple[Admissions, "pa.Table"]]:
    """Encode the admissions of tables that were cut anywhere, where the rows of each admission stand together.

    Args:
        tables: Arrow tables, one after the other.
        layout: which of their columns hold what.
        where: what messages call the tables: the name of a file, or "the frame".
        carry: columns to hand on.
        icd_version: 9 or 10 for the codes whose version the tables do not say.
        restore_zeros: whether ICD-9 codes lost their leading zeros, which are put back.
        unused: let `values` hold codes that the batch does not have, so that several batches share one array.
        first_row: the number of the first row, for messages.

    Returns:
        An iterator over batches of admissions, each with a table of one row per admission: the carried columns, and
        the number of the admission's first row (`ROW`).

    >>> import pyarrow as pa
    >>> rows = pa.table({"visit": [7, 7, 8], "code": ["I50.9", "N17.9", "E11.9"]})
    >>> layout = find_layout(rows.column_names, "rows", id="visit")
    >>> batches = encode_tables(iter([rows[:1], rows[1:]]), layout, "rows")
    >>> [batch.ids.tolist() for batch, _ in batches]  # the first table ends within admission 7
    [[7], [8]]
    """
    import pyarrow as pa

    options = {"restore_zeros": restore_zeros, "unused": unused, "first_row": first_row}
    encode = _Encoder(layout, where, icd_version, **options)
    whole = _whole(tables, str(layout.id)) if layout.form == "long" else tables
    for table in whole:
        if len(table):
            rows = (
                table[ROW].to_numpy() if ROW in table.column_names else np.arange(encode.rows, encode.rows + len(table))
            )
            admissions = encode(table)
            carried = table.select(list(carry)).append_column(ROW, pa.array(rows + first_row))
            if layout.form == "long":
                carried = _alike_rows(carried, table[str(layout.id)], where)
            yield admissions, carried


def _alike_rows(carried: "pa.Table", ids: "pa.ChunkedArray", where: str) -> "pa.Table":
    """The one row that all rows of an admission must repeat."""
    import pyarrow.compute as pc

    group = _joined(ids).dictionary_encode().indices.to_numpy()
    first = np.unique(group, return_index=True)[1]
    firsts = carried.take(first)
    for name in carried.column_names[:-1]:
        column = _joined(carried[name])
        again = column.take(np.asarray(first)[group])
        same = pc.if_else(pc.is_null(column), pc.is_null(again), pc.equal(column, again)).fill_null(False)
        if not pc.all(same).as_py() and len(same):
            row = carried[ROW][pc.index(same, False).as_py()]
            raise InputError(f"{where}: column {name}, row {row}: differs from an earlier row of the same admission.")
    return firsts


def ahead(items: Iterator[T]) -> Iterator[T]:
    """Make the next item in a thread while the last one is used: Arrow and NumPy let go of Python's lock.

    Args:
        items: an iterator that never gives None.

    Returns:
        An iterator over the same items.

    >>> list(ahead(iter("abc")))
    ['a', 'b', 'c']
    """
    with ThreadPoolExecutor(1) as pool:
        coming = pool.submit(next, items, None)
        while (item := coming.result()) is not None:
            coming = pool.submit(next, items, None)
            yield item


_ZEROS = "codes must be text, since numbers lose leading zeros (038.9 becomes 38.9)"


def _ascending(tables: Iterator["pa.Table"], id: str | None, file: TableFile) -> bool:
    """Whether the admissions come in the order of their identifiers, so that each one's rows stand together."""
    import pyarrow as pa
    import pyarrow.compute as pc

    ordered, seen, last = True, 0, None
    for table in tables:
        ids = _present(_joined(table[str(id)]), id, file.where, seen + file.first_row)
        seen += len(ids)
        ids = pa.concat_arrays([last, ids]) if last is not None else ids
        ordered = ordered and pc.all(pc.less_equal(ids[:-1], ids[1:])).as_py() is not False
        last = ids[-1:]
    return ordered


def _regroup(tables: Iterator["pa.Table"], layout: Layout, batch: int) -> Iterator["pa.Table"]:
    """Bring each admission's rows together, admissions by first appearance; sorts on disk what memory cannot hold."""
    import duckdb
    import pyarrow as pa

    (name,) = layout.codes

    def numbered() -> Iterator[pa.RecordBatch]:
        row = 0
        for table in tables:
            for rows in table.to_batches():
                code = rows[name].dictionary_decode() if pa.types.is_dictionary(rows[name].type) else rows[name]
                rows = rows.set_column(rows.schema.get_field_index(name), name, code)
                yield rows.append_column(ROW, pa.array(np.arange(row, row + len(rows))))
                row += len(rows)

    id = '"' + str(layout.id).replace('"', '""') + '"'
    batches = numbered()
    first = next(batches)
    reader = pa.RecordBatchReader.from_batches(first.schema, (rows for part in ([first], batches) for rows in part))
    with scratch() as folder, duckdb.connect(f"{folder}/rows.duckdb") as db:
        db.execute("SET memory_limit = '1GB'; SET preserve_insertion_order = false")
        db.register("reader", reader)
        db.execute("CREATE TABLE rows AS FROM reader")
        grouped = db.execute(
            f"SELECT rows.* FROM rows JOIN (SELECT {id}, min({ROW}) AS {FIRST} FROM rows GROUP BY ALL) "
            f"USING ({id}) ORDER BY {FIRST}, {ROW}"
        )
        for rows in grouped.to_arrow_reader(batch):
            yield pa.Table.from_batches([rows])


def _whole(tables: Iterator["pa.Table"], id: str) -> Iterator["pa.Table"]:
    """Cut batches between admissions: the last one of a batch waits for the rest of its rows."""
    import pyarrow as pa

    waiting = None
    for table in tables:
        table = pa.concat_tables([waiting, table]) if waiting is not None else table
        ids = table[id].to_numpy()
        earlier = np.flatnonzero(ids != ids[-1:])
        cut = earlier[-1] + 1 if len(earlier) else 0
        if cut:
            yield table[:cut]
        waiting = table[cut:]
    if waiting is not None:
        yield waiting


class _Encoder:
    """Tables of one layout to `Admissions`; remembers rows seen (to name one) and the last dictionary it cleaned."""

    def __init__(
        self,
        layout: Layout,
        where: str,
        icd_version: int | None,
        *,
        restore_zeros: bool = False,
        unused: bool = False,
        first_row: int = 1,
    ):
        from mlci.codes.icd import check_version

        self.layout, self.where, self.unused = layout, where, unused
        self.version = 0 if icd_version is None else check_version(icd_version)
        self.restore_zeros, self.first_row = restore_zeros, first_row
        self.rows = self.short = 0
        self.flags: np.ndarray | None = None  # of each recorded code of this table
        self.cleaned: tuple[Any, np.ndarray, np.ndarray | None, np.ndarray] | None = None
        self.merged: tuple[list[Any], Any, list[np.ndarray]] | None = None

    def __call__(self, table: "pa.Table") -> Admissions:
        ids, codes, versions, lengths = getattr(self, f"_{self.layout.form}")(table)
        self.rows += len(table)
        return self._pack(ids, codes, versions, lengths)

    def _list(self, table: "pa.Table") -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """One row per admission, its codes in a list or a text."""
        import pyarrow.compute as pc

        (name,) = self.layout.codes
        lists = self._as_lists(_joined(table[name]), name)
        lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy().astype(np.int64)
        codes = _encoded(self._text(lists.flatten(), name))
        codes = self._indices(codes.dictionary, _numbers(codes.indices))
        if self.layout.poa:
            self.flags = self._list_flags(table, lengths)
        versions = self._versions(table)
        return self._row_ids(table), codes, versions if _alike(versions) else np.repeat(versions, lengths), lengths

    def _wide(self, table: "pa.Table") -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """One row per admission, each code in a column of its own: one dictionary for all of them."""
        columns = [_encoded(self._text(_joined(table[name]), name)) for name in self.layout.codes]
        dictionary, moves = self._merge([column.dictionary for column in columns])
        places = np.zeros((len(columns), len(table)), dtype=np.int32)
        present = np.ones(places.shape, dtype=bool)
        for column, moved, place, held in zip(columns, moves, places, present):
            if len(moved):
                moved.take(_unmasked(column.indices), mode="clip", out=place)
            if column.null_count:
                held[:] = _truths(column.is_valid())
        lengths = present.sum(axis=0, dtype=np.int64)
        # Turned once, then taken row by row: an admission's codes keep the columns' order.
        flat = np.ascontiguousarray(places.T)[np.ascontiguousarray(present.T)]
        codes = self._indices(dictionary, flat)
        if self.layout.poa:
            flags = [self._read_flags(table, name) for name in self.layout.poa]
            self.flags = np.ascontiguousarray(np.array(flags, dtype=np.uint8).T)[np.ascontiguousarray(present.T)]
        versions = self._versions(table)
        return self._row_ids(table), codes, versions if _alike(versions) else np.repeat(versions, lengths), lengths

    def _merge(self, dictionaries: list["pa.Array"]) -> tuple["pa.Array", list[np.ndarray]]:
        """One dictionary in place of several, and where the entries of each stand in it; kept for the next batch."""
        import pyarrow as pa

        if self.merged and all(map(pa.Array.equals, dictionaries, self.merged[0])):
            return self.merged[1:]
        found = pa.concat_arrays([values.cast(pa.string()) for values in dictionaries]).dictionary_encode()
        ends = np.cumsum([len(values) for values in dictionaries])[:-1]
        self.merged = (dictionaries, found.dictionary, np.split(_numbers(found.indices), ends))
        return self.merged[1:]

    def _long(self, table: "pa.Table") -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """One row per code."""
        (name,) = self.layout.codes
        versions = self._versions(table)
        found = self._ids(table).dictionary_encode()
        ids, group = found.dictionary.to_numpy(zero_copy_only=False), found.indices.to_numpy()
        lengths = np.bincount(group, minlength=len(ids))
        codes = _encoded(self._text(_joined(table[name]), name))
        codes = self._indices(codes.dictionary, _numbers(codes.indices))
        self.flags = self._read_flags(table, self.layout.poa[0]) if self.layout.poa else None
        if (group[1:] < group[:-1]).any():
            order = np.argsort(group, kind="stable")
            codes, versions = codes[order], versions[order]
            self.flags = None if self.flags is None else self.flags[order]
        return ids, codes, versions, lengths

    def _row_ids(self, table: "pa.Table") -> np.ndarray:
        """The identifier of each row, or its number in a frame that has none."""
        if self.layout.id is None:
            return np.arange(self.rows, self.rows + len(table))
        return self._ids(table).to_numpy(zero_copy_only=False)

    def _pack(self, ids: np.ndarray, codes: np.ndarray, versions: np.ndarray, lengths: np.ndarray) -> Admissions:
        """Leave missing codes (-1) out, and tell apart the same text in two ICD versions (one per code, or one)."""
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        present, dropped, flags = codes >= 0, 0, self.flags
        if self.layout.only and flags is not None:
            dropped = int((late(flags) & present).sum())
            present &= ~late(flags)
        if not present.all():
            offsets = np.concatenate([[0], np.cumsum(present)])[offsets]
            versions = versions if _alike(versions) else versions[present]
            codes, flags = codes[present], None if flags is None else flags[present]
        said = {"short": self.short, "poa": None if self.layout.only else flags, "late": dropped}
        values = self.cleaned[1] if self.cleaned else np.empty(0, dtype=object)
        if _alike(versions):
            versions = versions[:1]
            if self.unused:
                return Admissions(ids, values, np.repeat(versions, len(values)), codes, offsets, **said)
        numbers, shift = np.array([0, 9, 10], dtype=np.int8), np.zeros(11, dtype=np.int32)
        shift[numbers] = np.arange(3) * len(values)
        combined = codes + shift[versions]
        used = np.zeros(3 * len(values), dtype=bool)
        used[combined] = True
        distinct = np.flatnonzero(used)
        return Admissions(
            ids=ids,
            values=values[distinct % max(len(values), 1)],
            versions=numbers[distinct // max(len(values), 1)],
            indices=(np.cumsum(used, dtype=np.int32) - np.int32(1))[combined],
            offsets=offsets,
            **said,
        )

    def _read_flags(self, table: "pa.Table", name: str) -> np.ndarray:
        """The flags of one column; none where a column of codes has no such column."""
        if not name:
            return np.zeros(len(table), dtype=np.uint8)
        return read_flags(_joined(table[name]), self.where, name, self.rows + self.first_row)

    def _list_flags(self, table: "pa.Table", lengths: np.ndarray) -> np.ndarray:
        """The flags of all codes, from lists beside theirs."""
        import pyarrow.compute as pc

        (name,) = self.layout.poa
        lists = self._as_lists(_joined(table[name]), name)
        many = pc.fill_null(pc.list_value_length(lists), 0).to_numpy()
        odd = np.flatnonzero((many != lengths) & (many > 0))
        if len(odd):
            row = self.rows + self.first_row + odd[0]
            raise InputError(
                f"{self.where}: column {name}, row {row}: has {many[odd[0]]} flags for {lengths[odd[0]]} codes; each "
                "code needs its own."
            )
        flags = np.zeros(lengths.sum(), dtype=np.uint8)
        flags[np.repeat(many > 0, lengths)] = read_flags(lists.flatten(), self.where, name, 1)
        return flags

    def _text(self, column: "pa.Array", name: str) -> "pa.Array":
        """A column of codes as text; numbers lost their zeros, and are text only where that was said."""
        import pyarrow as pa
        import pyarrow.compute as pc

        kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
        if _is_text(kind):
            return column
        if pa.types.is_null(kind) or 0 < column.null_count == len(column):
            return pa.nulls(len(column), pa.string())
        number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
        if not number or not self.restore_zeros:
            raise InputError(f"{self.where}: column {name}: the codes are of type {kind}; {_ZEROS}.")
        return pc.replace_substring_regex(column.cast(pa.string()), r"\.0$", "")

    def _indices(self, dictionary: "pa.Array", indices: np.ndarray) -> np.ndarray:
        """Each code's place among the distinct normalised ones (kept in `cleaned`), -1 where there is none."""
        import pyarrow as pa
        import pyarrow.compute as pc

        from mlci.codes import zeros
        from mlci.codes.icd import normalise_array

        if self.cleaned is None or not dictionary.equals(self.cleaned[0]):
            raw = dictionary.cast(pa.string())
            text = zeros.restored(raw) if self.restore_zeros else normalise_array(raw)
            found = pc.if_else(pc.is_in(text, pa.array(NO_CODE)), None, text).dictionary_encode()
            place = pc.fill_null(found.indices, -1).to_numpy()
            values = found.dictionary.to_numpy(zero_copy_only=False)
            moved = len(place) != len(values) or (place != np.arange(len(place))).any()
            # The last entry stands for null.
            short = np.append(~np.bool_(self.restore_zeros) & zeros.short(raw), False)
            self.cleaned = (dictionary, values, np.append(place, np.int32(-1)) if moved else None, short)
        place, short = self.cleaned[2:]
        self.short = int(short[indices].sum()) if short.any() else 0
        return indices if place is None else place[indices]

    def _as_lists(self, codes: "pa.Array", name: str) -> "pa.Array":
        import pyarrow as pa
        import pyarrow.compute as pc

        if pa.types.is_dictionary(codes.type):
            codes = codes.dictionary_decode()
        kind = codes.type
        if _is_text(kind) or pa.types.is_null(kind):
            return pc.split_pattern_regex(codes.cast(pa.string()), SEPARATORS)
        if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
            if not hasattr(kind, "value_type"):
                return self._as_lists(self._text(codes, name), name)
            codes = codes.cast(pa.list_(kind.value_type))
        return codes

    def _versions(self, table: "pa.Table") -> np.ndarray:
        """The version of each row: 9 or 10, or what was said for all where the row says nothing."""
        import pyarrow as pa
        import pyarrow.compute as pc

        name = self.layout.version
        if name is None:
            return np.full(len(table), self.version, dtype=np.int8)
        column = _joined(table[name])
        found = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
        numbers = []
        for value in found.dictionary.to_pylist():
            said = re.fullmatch(WRITTEN_VERSION, str(value).strip().upper())
            if value is not None and not said:
                row = self.rows + pc.index(column.cast(found.type.value_type), value).as_py() + self.first_row
                raise InputError(
                    f"{self.where}: column {name}, row {row}: {kind_of(value)} is no ICD version; allowed are 9 and "
                    "10, also as ICD9, ICD-10 or ICD-10-CM."
                )
            numbers.append(int(said[1]) if said else self.version)
        return np.array([*numbers, self.version], dtype=np.int8)[_numbers(found.indices)]

    def _ids(self, table: "pa.Table") -> "pa.Array":
        import pyarrow as pa

        name = str(self.layout.id)
        ids = _joined(table[name])
        ids = ids.dictionary_decode() if pa.types.is_dictionary(ids.type) else ids
        return _present(ids, name, self.where, self.rows + self.first_row)


def _alike(versions: np.ndarray) -> bool:
    return bool(len(versions)) and bool((versions == versions[0]).all())


def _unmasked(indices: "pa.Array") -> np.ndarray:
    """The whole numbers that an array holds, whatever stands where it is null."""
    import pyarrow as pa

    values = indices.buffers()[1]
    return pa.Array.from_buffers(indices.type, len(indices), [None, values], offset=indices.offset).to_numpy()


def _truths(flags: "pa.BooleanArray") -> np.ndarray:
    """0 and 1 of an array without nulls; ten times as fast as Arrow's own way."""
    octets = np.frombuffer(flags.buffers()[1], dtype=np.uint8)
    return np.unpackbits(octets, bitorder="little")[flags.offset : flags.offset + len(flags)]


def _encoded(codes: "pa.Array") -> "pa.DictionaryArray":
    import pyarrow as pa

    return codes if pa.types.is_dictionary(codes.type) else codes.dictionary_encode()


def _numbers(indices: "pa.Array") -> np.ndarray:
    """-1 for null."""
    return (indices.fill_null(-1) if indices.null_count else indices).to_numpy()


def _present(ids: "pa.Array", name: str | None, where: str, first_row: int) -> "pa.Array":
    import pyarrow.compute as pc

    if ids.null_count:
        row = first_row + pc.index(ids.is_null(), True).as_py()
        raise InputError(f"{where}: column {name}, row {row}: is empty; each row needs its admission.")
    return ids


def _joined(column: "pa.ChunkedArray") -> "pa.Array":
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _is_text(kind: "pa.DataType") -> bool:
    import pyarrow as pa

    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
