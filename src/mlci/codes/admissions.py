"""Admissions and their codes as every scorer takes them: dictionary-encoded, so each distinct code is looked at once.

In come lists of lists, frames (pandas, polars, Arrow), cohort files and any Parquet or CSV with `admission_id` and
codes; out comes `Admissions`, whole or in batches. Two layouts are understood: one row per admission with its `codes`
(a list, or text separated by blanks, commas, semicolons or bars), or one row per `code`. An admission keeps its place
of first appearance and its codes their recorded order; a missing code is no code; an admission without codes stays.
NumPy alone is imported at the top: a bare GPU machine trains too.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from mlci.base.errors import InputError
from mlci.base.files import scratch

if TYPE_CHECKING:
    import pyarrow as pa

BATCH = 131_072  # admissions held at once when a file is streamed, or eight times as many rows of one code each
MISSING = ["", "NA", "N/A", "NaN", "nan", "NULL", "null", "None", "#N/A"]
SEPARATORS = r"[\s,;|]+"
T = TypeVar("T")


@dataclass(frozen=True)
class Admissions:
    """Admission i has the codes `values[indices[offsets[i] : offsets[i + 1]]]`, in recorded order."""

    ids: np.ndarray  # one per admission
    values: np.ndarray  # distinct codes, normalised text
    versions: np.ndarray  # int8, ICD version of each of `values`: 9 or 10, 0 where nobody said
    indices: np.ndarray  # int32 into `values`, one per recorded code
    offsets: np.ndarray  # int64, one more than admissions

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @classmethod
    def from_lists(cls, codes: Sequence[Sequence[str]], *, icd_version: int = 0) -> "Admissions":
        """Lists of codes that are already normalised."""
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


def as_admissions(data: Any, *, icd_version: int | None = None) -> Admissions:
    """Whatever holds admissions in memory; `icd_version` is meant for the codes whose version the data do not say."""
    import narwhals as nw
    import pyarrow as pa

    if isinstance(data, Admissions):
        if icd_version is None or data.versions.all():
            return data
        versions = np.where(data.versions == 0, np.int8(icd_version), data.versions)
        return Admissions(data.ids, data.values, versions, data.indices, data.offsets)
    if hasattr(data, "admissions"):  # a cohort
        return as_admissions(data.admissions(), icd_version=icd_version)
    if nw.dependencies.is_into_dataframe(data):
        try:
            table = nw.from_native(data, eager_only=True).to_arrow()
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise InputError(f"the frame: a column holds values of several kinds ({error}).") from error
        return _Encoder("the frame", icd_version)(table)
    rows = list(data)
    if any(isinstance(row, str) for row in rows):
        raise InputError("codes: each admission needs a list of codes; got text in place of a list.")
    # pandas and NumPy write a missing code as NaN
    clean = [None if row is None else [None if code != code else code for code in row] for row in rows]
    try:
        codes = pa.array(clean, pa.list_(pa.string()))
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        odd = next(code for row in clean for code in row or [] if code is not None and not isinstance(code, str))
        raise InputError(f"codes: {odd!r} is not text; {_ZEROS}.") from error
    return _Encoder("codes", icd_version)(pa.table({"codes": codes}))


def stream_admissions(
    path: str | Path, *, icd_version: int | None = None, batch: int = BATCH, unused: bool = False
) -> Iterator[Admissions]:
    """The admissions of a file, some at a time and each whole, in memory that does not grow with the file."""
    for admissions, _ in stream_rows(path, icd_version=icd_version, batch=batch, unused=unused):
        yield admissions


def stream_rows(
    path: str | Path,
    *,
    carry: Sequence[str] = (),
    icd_version: int | None = None,
    batch: int = BATCH,
    unused: bool = False,
) -> Iterator[tuple[Admissions, "pa.Table"]]:
    """As `stream_admissions`, with those of the columns `carry` that a file of one row per admission has.

    With `unused`, `values` may hold codes that the batch does not have: it is then one array for several batches.
    """
    read, names = (_open_csv if _is_csv(path) else _open_parquet)(path, batch)
    layout = layout_of(names, str(path))
    wanted = [name for name in ("admission_id", layout, "icd_version") if name in names]
    carried = [name for name in carry if name in names] if layout == "codes" else []
    if layout == "codes":
        tables = read(list(dict.fromkeys([*wanted, *carried])))
    elif _ascending(read(["admission_id"]), str(path)):
        tables = read(wanted)
    else:
        tables = _regroup(read(wanted), batch)
    yield from ahead(encode_tables(tables, layout, str(path), carry=carried, icd_version=icd_version, unused=unused))


def encode_tables(
    tables: Iterator["pa.Table"],
    layout: str,
    where: str,
    *,
    carry: Sequence[str] = (),
    icd_version: int | None = None,
    unused: bool = False,
) -> Iterator[tuple[Admissions, "pa.Table"]]:
    """Admissions of tables that were cut anywhere, if the rows of each one stand together; the columns `carry` too."""
    encode = _Encoder(where, icd_version, unused=unused)
    whole = tables if layout == "codes" else _whole(tables)
    return ((encode(table), table.select(list(carry))) for table in whole if len(table))


def ahead(items: Iterator[T]) -> Iterator[T]:
    """The same items, the next made in a thread while the last is used (Arrow and NumPy let go of Python's lock)."""
    with ThreadPoolExecutor(1) as pool:
        coming = pool.submit(next, items, None)
        while (item := coming.result()) is not None:
            coming = pool.submit(next, items, None)
            yield item


_ZEROS = "codes must be text, since numbers lose leading zeros (038.9 becomes 38.9)"


def _is_csv(path: str | Path) -> bool:
    return bool(re.search(r"\.(csv|tsv|txt)(\.(gz|bz2|zst))?$", str(path).lower()))


def layout_of(names: Sequence[str], where: str) -> str:
    """`codes` (one row per admission) or `code` (one row per code)."""
    if "codes" in names:
        return "codes"
    missing = next((name for name in ("code", "admission_id") if name not in names), None)
    if missing:
        raise InputError(
            f"{where}: lacks the column {'codes' if missing == 'code' else missing}; needed are admission_id and codes "
            f"(a list), or one row per admission_id and code; found are {', '.join(names) or 'none'}."
        )
    return "code"


Reader = Callable[[list[str]], Iterator["pa.Table"]]


def _open_parquet(path: str | Path, batch: int) -> tuple[Reader, list[str]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            leaves = [file.schema.column(i).path for i in range(len(file.schema))]
            names = file.schema_arrow.names
            text = [leaf for leaf in leaves if leaf.split(".")[0] in ("code", "codes")]
            size = batch if "codes" in names else 8 * batch
    except pa.ArrowInvalid as error:
        raise InputError(f"{path}: is neither Parquet nor named .csv, .csv.gz or .tsv.") from error

    def read(columns: list[str]) -> Iterator[pa.Table]:
        # Parquet stores each distinct code once per row group: take its dictionary rather than build our own. (A batch
        # across row groups would have two of them, which Arrow cannot hold inside a list.)
        with pq.ParquetFile(path, read_dictionary=text) as file:
            for group in range(file.num_row_groups):
                for rows in file.iter_batches(size, row_groups=[group], columns=columns):
                    yield pa.Table.from_batches([rows])

    return read, names


def _open_csv(path: str | Path, batch: int) -> tuple[Reader, list[str]]:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.csv as csv

    with pa.input_stream(str(path)) as stream:
        header = stream.read(1 << 16).split(b"\n")[0]
    delimiter = max(b",;\t", key=header.count)
    text = {name: pa.string() for name in ("admission_id", "code", "codes", "icd_version", "split")}

    def blocks(columns: list[str]) -> Iterator[pa.Table]:
        try:
            with pa.input_stream(str(path)) as stream:
                reader = csv.open_csv(
                    stream,
                    read_options=csv.ReadOptions(block_size=16 * batch + 2 * len(header)),
                    parse_options=csv.ParseOptions(delimiter=chr(delimiter), newlines_in_values=True),
                    convert_options=csv.ConvertOptions(
                        column_types=text, include_columns=columns, null_values=MISSING, strings_can_be_null=True
                    ),
                )
                yield reader.schema.empty_table()  # so that a table without rows still has its columns
                yield from (pa.Table.from_batches([rows]) for rows in reader)
        except pa.ArrowInvalid as error:
            reason = str(error).splitlines()[0].removesuffix(".")
            raise InputError(f"{path}: is not a CSV table in UTF-8 ({reason}).") from error

    def read(columns: list[str]) -> Iterator[pa.Table]:
        for table in blocks(columns):
            if whole_numbers and "admission_id" in columns:
                at = columns.index("admission_id")
                table = table.set_column(at, "admission_id", table["admission_id"].cast(pa.int64()))
            yield table

    names = next(blocks([])).column_names
    # An identifier is a number if all of them are, and then scores join with numbers; else 007 and 7 stay apart.
    whole_numbers = "admission_id" in names and all(
        pc.all(pc.match_substring_regex(table["admission_id"], r"^(0|-?[1-9]\d{0,17})$")).as_py() is not False
        for table in blocks(["admission_id"])
    )
    return read, names


def _ascending(tables: Iterator["pa.Table"], where: str) -> bool:
    """Whether the admissions come in the order of their identifiers, so that each one's rows stand together."""
    import pyarrow as pa
    import pyarrow.compute as pc

    ordered, seen, last = True, 0, None
    for table in tables:
        ids = _present(_one(table["admission_id"]), where, seen)
        seen += len(ids)
        ids = pa.concat_arrays([last, ids]) if last is not None else ids
        ordered = ordered and pc.all(pc.less_equal(ids[:-1], ids[1:])).as_py() is not False
        last = ids[-1:]
    return ordered


def _regroup(tables: Iterator["pa.Table"], batch: int) -> Iterator["pa.Table"]:
    """Bring each admission's rows together, admissions by first appearance; sorts on disk what memory cannot hold."""
    import duckdb
    import pyarrow as pa

    def numbered() -> Iterator[pa.RecordBatch]:
        row = 0
        for table in tables:
            for rows in table.to_batches():
                code = rows["code"].dictionary_decode() if pa.types.is_dictionary(rows["code"].type) else rows["code"]
                rows = rows.set_column(rows.schema.get_field_index("code"), "code", code)
                yield rows.append_column("row", pa.array(np.arange(row, row + len(rows))))
                row += len(rows)

    batches = numbered()
    first = next(batches)
    reader = pa.RecordBatchReader.from_batches(first.schema, (rows for part in ([first], batches) for rows in part))
    with scratch() as folder, duckdb.connect(f"{folder}/rows.duckdb") as db:
        db.execute("SET memory_limit = '1GB'; SET preserve_insertion_order = false")
        db.register("reader", reader)
        db.execute("CREATE TABLE rows AS FROM reader")
        grouped = db.execute(
            "SELECT rows.* EXCLUDE row FROM rows JOIN (SELECT admission_id, min(row) AS first FROM rows GROUP BY ALL) "
            "USING (admission_id) ORDER BY first, row"
        )
        for rows in grouped.to_arrow_reader(batch):
            yield pa.Table.from_batches([rows])


def _whole(tables: Iterator["pa.Table"]) -> Iterator["pa.Table"]:
    """Cut batches between admissions: the last one of a batch waits for the rest of its rows."""
    import pyarrow as pa

    waiting = None
    for table in tables:
        table = pa.concat_tables([waiting, table]) if waiting is not None else table
        ids = table["admission_id"].to_numpy()
        earlier = np.flatnonzero(ids != ids[-1:])
        cut = earlier[-1] + 1 if len(earlier) else 0
        if cut:
            yield table[:cut]
        waiting = table[cut:]
    if waiting is not None:
        yield waiting


class _Encoder:
    """Tables of either layout to `Admissions`; remembers rows seen (to name one) and the last dictionary it cleaned."""

    def __init__(self, where: str, icd_version: int | None, *, unused: bool = False):
        from mlci.codes.icd import check_version

        self.where, self.unused = where, unused
        self.version = 0 if icd_version is None else check_version(icd_version)
        self.rows = 0
        self.cleaned: tuple[Any, np.ndarray, np.ndarray | None] | None = None

    def __call__(self, table: "pa.Table") -> Admissions:
        import pyarrow.compute as pc

        layout = layout_of(table.column_names, self.where)
        column = _one(table[layout])
        versions = self._versions(table)
        if layout == "codes":
            lists = self._as_lists(column)
            lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy().astype(np.int64)
            ids = self._ids(table).to_numpy(zero_copy_only=False) if "admission_id" in table.column_names else None
            ids = np.arange(self.rows, self.rows + len(table)) if ids is None else ids
            codes = self._indices(lists.flatten())
            versions = versions if _alike(versions) else np.repeat(versions, lengths)
        else:
            found = self._ids(table).dictionary_encode()
            ids, group = found.dictionary.to_numpy(zero_copy_only=False), found.indices.to_numpy()
            lengths = np.bincount(group, minlength=len(ids))
            codes = self._indices(column)
            if (group[1:] < group[:-1]).any():
                order = np.argsort(group, kind="stable")
                codes, versions = codes[order], versions[order]
        self.rows += len(table)
        return self._pack(ids, codes, versions, lengths)

    def _pack(self, ids: np.ndarray, codes: np.ndarray, versions: np.ndarray, lengths: np.ndarray) -> Admissions:
        """Leave missing codes (-1) out, and tell apart the same text in two ICD versions (one per code, or one)."""
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        present = codes >= 0
        if not present.all():
            offsets = np.concatenate([[0], np.cumsum(present)])[offsets]
            versions = versions if _alike(versions) else versions[present]
            codes = codes[present]
        values = self.cleaned[1] if self.cleaned else np.empty(0, dtype=object)
        if _alike(versions):
            versions = versions[:1]
            if self.unused:
                return Admissions(ids, values, np.repeat(versions, len(values)), codes, offsets)
        numbers, shift = np.array([0, 9, 10], dtype=np.int8), np.zeros(11, dtype=np.int32)
        shift[numbers] = np.arange(3) * len(values)
        both = codes + shift[versions]
        used = np.zeros(3 * len(values), dtype=bool)
        used[both] = True
        distinct = np.flatnonzero(used)
        return Admissions(
            ids=ids,
            values=values[distinct % max(len(values), 1)],
            versions=numbers[distinct // max(len(values), 1)],
            indices=(np.cumsum(used, dtype=np.int32) - np.int32(1))[both],
            offsets=offsets,
        )

    def _indices(self, codes: "pa.Array") -> np.ndarray:
        """Each code's place among the distinct normalised ones (kept in `cleaned`), -1 where there is none."""
        import pyarrow as pa
        import pyarrow.compute as pc

        from mlci.codes.icd import normalise_array

        if not pa.types.is_dictionary(codes.type):
            codes = codes.dictionary_encode()
        kind = codes.type.value_type
        if not (_is_text(kind) or pa.types.is_null(kind)):
            raise InputError(f"{self.where}: the codes are of type {kind}; {_ZEROS}.")
        if self.cleaned is None or not codes.dictionary.equals(self.cleaned[0]):
            text = normalise_array(codes.dictionary.cast(pa.string()))
            found = pc.if_else(pc.equal(text, ""), None, text).dictionary_encode()
            place = pc.fill_null(found.indices, -1).to_numpy()
            values = found.dictionary.to_numpy(zero_copy_only=False)
            moved = len(place) != len(values) or (place != np.arange(len(place))).any()
            # The last entry stands for null.
            self.cleaned = (codes.dictionary, values, np.append(place, np.int32(-1)) if moved else None)
        place, indices = self.cleaned[2], _numbers(codes.indices)
        return indices if place is None else place[indices]

    def _as_lists(self, codes: "pa.Array") -> "pa.Array":
        import pyarrow as pa
        import pyarrow.compute as pc

        if pa.types.is_dictionary(codes.type):
            codes = codes.dictionary_decode()
        kind = codes.type
        if _is_text(kind) or pa.types.is_null(kind):
            return pc.split_pattern_regex(codes.cast(pa.string()), SEPARATORS)
        if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
            if not hasattr(kind, "value_type"):
                raise InputError(f"{self.where}: the codes are of type {kind}; {_ZEROS}.")
            codes = codes.cast(pa.list_(kind.value_type))
        return codes

    def _versions(self, table: "pa.Table") -> np.ndarray:
        """The version of each row: 9 or 10, or what was said for all where the row says nothing."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if "icd_version" not in table.column_names:
            return np.full(len(table), self.version, dtype=np.int8)
        column = _one(table["icd_version"])
        found = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
        numbers = []
        for value in found.dictionary.to_pylist():
            said = re.fullmatch(r"(?:ICD)?[-_ ]?0?(9|10)(?:\.0)?(?:[-_ ]?CM)?", str(value).strip().upper())
            if value is not None and not said:
                row = self.rows + pc.index(column.cast(found.type.value_type), value).as_py() + 1
                raise InputError(
                    f"{self.where}: column icd_version, row {row}: {value!r} is no ICD version; allowed are 9 and 10."
                )
            numbers.append(int(said[1]) if said else self.version)
        return np.array([*numbers, self.version], dtype=np.int8)[_numbers(found.indices)]

    def _ids(self, table: "pa.Table") -> "pa.Array":
        import pyarrow as pa

        ids = _one(table["admission_id"])
        return _present(ids.dictionary_decode() if pa.types.is_dictionary(ids.type) else ids, self.where, self.rows)


def _alike(versions: np.ndarray) -> bool:
    return bool(len(versions)) and bool((versions == versions[0]).all())


def _numbers(indices: "pa.Array") -> np.ndarray:
    """-1 for null."""
    return (indices.fill_null(-1) if indices.null_count else indices).to_numpy()


def _present(ids: "pa.Array", where: str, before: int) -> "pa.Array":
    import pyarrow.compute as pc

    if ids.null_count:
        row = before + pc.index(ids.is_null(), True).as_py() + 1
        raise InputError(f"{where}: column admission_id, row {row}: is empty; each row needs its admission.")
    return ids


def _one(column: "pa.ChunkedArray") -> "pa.Array":
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _is_text(kind: "pa.DataType") -> bool:
    import pyarrow as pa

    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
