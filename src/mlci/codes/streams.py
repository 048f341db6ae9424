"""Files and tables of admissions, some at a time: what `mlci score` reads, whatever its kind, layout and size.

In come a file (Parquet, CSV, Excel) or Arrow tables that were cut anywhere; out come batches of `Admissions`, each with
other columns of the same rows. `mlci.codes.layout` says which columns hold what, `mlci.codes._encoding` reads a table.
An admission keeps its place of first appearance: where rows of one admission do not stand together, they are sorted on
disk.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from mlci.base.errors import InputError
from mlci.base.files import scratch
from mlci.base.marks import count_marked
from mlci.base.tablefile import TableFile, open_table
from mlci.codes._encoding import ZEROS, AdmissionsEncoder, joined, present
from mlci.codes.admissions import Admissions, said_version
from mlci.codes.layout import Layout, find_layout
from mlci.codes.poa import ALL

if TYPE_CHECKING:
    import pyarrow as pa

BATCH = 131_072  # admissions held at once when a file is streamed, or eight times as many rows of one code each
HELD = 1 << 20  # identifiers that are compared in memory
SPAN = 1 << 26  # between whole numbers that have a mark each
SEEN = 1000  # rows that are looked at to tell a row per admission from a row per code
ROW, FIRST = "__row__", "__first__"  # columns that are added while rows are brought together
T = TypeVar("T")


def stream_rows(
    path: str | Path | TableFile,
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
        path: a file of any kind and layout that `mlci score` takes, or a table that is open.
        carry: columns to hand on, as far as the file has them.
        icd_version: 9 or 10 for the codes whose version the file does not say, or the column that says it.
        id: the column of admissions, where its name does not speak for itself.
        codes: the column or columns of codes, likewise.
        poa: all codes, only those present on admission, or (keep) all of them with their flags.
        **options: those of `stream_table`: `restore_zeros`, `batch`, `unused`, `on_doubt`.

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
    first = next((rows[:SEEN] for rows in file.read(layout.columns, rows=SEEN) if len(rows)), None)
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
    on_doubt: Callable[[str], None] | None = None,
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
        on_doubt: called with a sentence where something of the file is left out, and where each row is an admission and
            rows have the identifier of an earlier one.

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
            f"{file.where}: column {odd}, row {file.numbers[odd]}: the cell is a number; {ZEROS}; make the column "
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
    for doubt in filter(None, (file.doubt, layout.doubt)):
        if on_doubt:
            on_doubt(doubt)
    if on_doubt and not long:
        tables = _watched(tables, str(layout.id), file, on_doubt)
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
    """Return identifiers as numbers if all of them are, so that scores join with numbers; else 007 and 7 stay apart."""
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
    encode = AdmissionsEncoder(layout, where, icd_version, **options)
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
    """Return the one row that all rows of an admission must repeat."""
    import pyarrow.compute as pc

    group = joined(ids).dictionary_encode().indices.to_numpy()
    first = np.unique(group, return_index=True)[1]
    firsts = carried.take(first)
    for name in carried.column_names[:-1]:
        column = joined(carried[name])
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


def _watched(
    tables: Iterator["pa.Table"], id: str, file: TableFile, on_doubt: Callable[[str], None]
) -> Iterator["pa.Table"]:
    """Hand tables on, and tell how many identifiers came again: none if they ascend; else they are read once more."""
    import pyarrow as pa
    import pyarrow.compute as pc

    ordered, rows, last, ends = True, 0, None, []
    for table in tables:
        ids = joined(table[id])
        if pa.types.is_integer(ids.type):
            ends += [end for end in pc.min_max(ids).as_py().values() if end is not None]
        for before, after in ((last, ids[:1]), (ids[:-1], ids[1:])):
            ordered = ordered and (not before or pc.all(pc.less(before, after)).as_py() is not False)
        rows, last = rows + len(table), ids[-1:] if len(ids) else last
        yield table
    if ordered:
        return
    again = (joined(table[id]) for table in file.read([id]))
    near = ends and max(ends) - min(ends) < SPAN and max(ends) < 1 << 63
    many = rows - (count_marked(again, min(ends), max(ends)) if near else _distinct(again, rows))
    if many:
        twice = f"{many:,} of {rows:,} rows have the identifier of an earlier row"
        on_doubt(f"{twice}: each row counts as an admission of its own.")


def _distinct(parts: Iterator["pa.Array"], rows: int) -> int:
    """Count the distinct ones of so many identifiers; on disk where memory cannot hold them."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if rows <= HELD:
        return pc.count_distinct(pa.chunked_array(parts)).as_py()
    import duckdb

    batches = (pa.record_batch({"id": ids}) for ids in parts)
    first = next(batches)
    reader = pa.RecordBatchReader.from_batches(first.schema, chain([first], batches))
    with scratch() as folder, duckdb.connect(f"{folder}/rows.duckdb") as db:
        db.execute("SET memory_limit = '1GB'")
        db.register("reader", reader)
        return db.execute("SELECT count(*) FROM (SELECT DISTINCT * FROM reader)").fetchall()[0][0]


def _ascending(tables: Iterator["pa.Table"], id: str | None, file: TableFile) -> bool:
    """Return whether the admissions come in the order of their identifiers, so that each one's rows stand together."""
    import pyarrow as pa
    import pyarrow.compute as pc

    ordered, seen, last = True, 0, None
    for table in tables:
        ids = present(joined(table[str(id)]), id, file.where, seen + file.first_row)
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
