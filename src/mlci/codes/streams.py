"""Read files of admissions in batches, whatever their kind, layout and size.

A file (Parquet, CSV, Excel), or a sequence of Arrow tables, becomes batches of `Admissions`, each with other columns of
the same rows. `mlci.codes.layout` finds which columns hold what, and `mlci.codes._encoding` reads each table.
Admissions are in the order of first appearance: if the rows of an admission are not next to each other, the table is
sorted on disk.
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
from mlci.codes._encoding import ROW, ZEROS, AdmissionsEncoder, check_ids, one_chunk
from mlci.codes.admissions import Admissions, version_or_column
from mlci.codes.layout import Layout, find_layout
from mlci.codes.poa import ALL

if TYPE_CHECKING:
    import pyarrow as pa

BATCH = 131_072  # admissions in memory at once, or eight times as many rows of one code each
IN_MEMORY = 1 << 20  # the most identifiers whose distinct values are counted in memory
SPAN = 1 << 26  # the widest range of whole numbers that are counted with a bit each
PEEKED = 1000  # the rows that decide between a row per admission and a row per code
FIRST = "__first__"  # a column that is added while rows are sorted
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
        carry: further columns to return, if the file has them.
        icd_version: 9 or 10 for codes whose version the file does not state, or the column that holds it.
        id: the column of admissions, if its name is not one that is recognised.
        codes: the column or columns of codes, if their names are not recognised.
        poa: `all` codes, `only` those present on admission, or (`keep`) all of them with their flags.
        **options: options of `stream_table`: `restore_zeros`, `batch`, `unused`, `on_doubt`.

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
    version, column = version_or_column(icd_version)
    with open_table(path) as file:
        layout = file_layout(file, id=id, codes=codes, version=column, poa=poa)
        carried = [name for name in carry if name in file.names]
        yield from ahead(stream_table(file, layout, carry=carried, icd_version=version, **options))


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
        id: the column of admissions, if its name is not one that is recognised.
        codes: the column or columns of codes, if their names are not recognised.
        version: the column of ICD versions, if its name is not recognised.
        poa: which codes count, a choice of `mlci.codes.poa`.

    Returns:
        The layout. A named column that is missing raises an `InputError`.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "visits.csv")
    ...     _ = file.write_text("visit_id,icd10\\n7,I50.9\\n7,N17.9\\n")
    ...     with open_table(file) as table:
    ...         file_layout(table).form  # admission 7 repeats
    'long'
    """
    layout = find_layout(file.names, file.where, id=id, codes=codes, version=version, poa=poa)
    if layout.form != "list":  # the names alone decide
        return layout
    first = next((rows[:PEEKED] for rows in _checked(file, layout, layout.columns, rows=PEEKED) if len(rows)), None)
    return layout if first is None else layout.settled(first)


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
        carry: further columns to return.
        icd_version: 9 or 10 for codes whose version the file does not state.
        restore_zeros: whether to restore leading zeros that ICD-9 codes have lost.
        batch: the number of admissions in memory at once.
        unused: let `values` hold codes that the batch does not have, so that several batches share one array.
        on_doubt: called with a sentence if a part of the file is not read, if each row is an admission but some rows
            repeat an identifier, and if the file states another version than `icd_version`.

    Returns:
        An iterator over batches of admissions, each with a table of one row per admission, as in `stream_rows`.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "visits.csv")
    ...     _ = file.write_text("visit_id,codes\\n7,I50.9 N17.9\\n8,E11.9\\n")
    ...     with open_table(file) as table:
    ...         [len(batch) for batch, _ in stream_table(table, file_layout(table))]
    [2]
    """
    dated = next((name for name in layout.codes if name in file.dates), None)
    if dated:
        raise InputError(
            f"{file.where}: column {dated}, row {file.dates[dated]}: the cell is a date; a code is needed."
        )
    numeric = next((name for name in layout.codes if name in file.numbers), None)
    if numeric and not restore_zeros:
        raise InputError(
            f"{file.where}: column {numeric}, row {file.numbers[numeric]}: the cell is a number; {ZEROS}; make the "
            "column text, or restore the zeros (--restore-zeros)."
        )
    wanted = list(dict.fromkeys([*layout.columns, *carry]))
    file.check_exact(wanted)
    long = layout.form == "long"
    many = 8 * batch if long else batch
    whole_ids = file.first_row > 1 and _ids_are_whole_numbers(file, layout.id)

    def read(columns: list[str]) -> Iterator["pa.Table"]:
        tables = _checked(file, layout, columns, rows=many)
        return _with_whole_ids(tables, str(layout.id)) if whole_ids else tables

    tables = read(wanted)
    if long and not _ascending(read([str(layout.id)]), layout.id, file):
        tables = _regroup(tables, layout, batch)
    for doubt in filter(None, (file.doubt, layout.doubt)):
        if on_doubt:
            on_doubt(doubt)
    if on_doubt and not long:
        tables = _report_repeats(tables, str(layout.id), file, on_doubt)
    overruled = False
    for admissions, carried in encode_tables(
        tables,
        layout,
        file.where,
        carry=carry,
        icd_version=icd_version,
        restore_zeros=restore_zeros,
        unused=unused,
        row_number=file.row_number,
    ):
        overruled |= icd_version is not None and bool((admissions.versions != icd_version).any())
        yield admissions, carried
    if on_doubt and overruled:
        on_doubt(
            f"column {layout.version} states the ICD version of the codes, and --icd-version {icd_version} "
            "(icd_version= in Python) counts only where it is empty."
        )


def _checked(file: TableFile, layout: Layout, columns: list[str], *, rows: int) -> Iterator["pa.Table"]:
    """Read columns of a file; refuse identifiers of a type that Arrow cannot compare (lists, UUIDs, all null)."""
    import pyarrow as pa

    for table in file.read(columns, repeated=layout.codes, rows=rows):
        if layout.id in table.column_names:
            kind = table.schema.field(layout.id).type
            if pa.types.is_nested(kind) or pa.types.is_null(kind) or isinstance(kind, pa.BaseExtensionType):
                check_ids(one_chunk(table[layout.id]), layout.id, file.where, file.row_number)
        yield table


def _ids_are_whole_numbers(file: TableFile, id: str | None) -> bool:
    """Return whether all identifiers are whole numbers as text; if not, 007 and 7 stay two identifiers."""
    import pyarrow.compute as pc

    return id is not None and all(
        pc.all(pc.match_substring_regex(table[id], r"^(0|-?[1-9]\d{0,17})$")).as_py() is not False
        for table in file.read([id])
    )


def _with_whole_ids(tables: Iterator["pa.Table"], id: str) -> Iterator["pa.Table"]:
    """Turn identifiers into whole numbers, so that scores can be joined with numbers."""
    import pyarrow as pa

    for table in tables:
        if id in table.column_names:
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
    row_number: Callable[[Any], Any] = lambda place: place + 1,
) -> Iterator[tuple[Admissions, "pa.Table"]]:
    """Encode the admissions of consecutive tables, in which the rows of each admission are next to each other.

    Args:
        tables: Arrow tables; an admission may begin in one and end in the next.
        layout: which of their columns hold what.
        where: the tables' name in messages: the name of a file, or "the frame".
        carry: further columns to return.
        icd_version: 9 or 10 for codes whose version the tables do not state.
        restore_zeros: whether to restore leading zeros that ICD-9 codes have lost.
        unused: let `values` hold codes that the batch does not have, so that several batches share one array.
        row_number: gives the number of a row in messages, from its position among all rows.

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

    encode = AdmissionsEncoder(
        layout, where, icd_version, restore_zeros=restore_zeros, unused=unused, row_number=row_number
    )
    for table in _cut_between_admissions(tables, str(layout.id)) if layout.form == "long" else tables:
        if len(table):
            moved = ROW in table.column_names
            places = table[ROW].to_numpy() if moved else np.arange(encode.rows, encode.rows + len(table))
            admissions = encode(table)
            carried = table.select(list(carry)).append_column(ROW, pa.array(row_number(places)))
            if layout.form == "long":
                carried = _one_row_each(carried, table[str(layout.id)], where)
            yield admissions, carried


def _one_row_each(carried: "pa.Table", ids: "pa.ChunkedArray", where: str) -> "pa.Table":
    """Return one row per admission; refuse rows of an admission that differ."""
    import pyarrow as pa
    import pyarrow.compute as pc

    group = one_chunk(ids).dictionary_encode().indices.to_numpy()
    first = np.unique(group, return_index=True)[1]
    firsts = carried.take(first)
    for name in carried.column_names[:-1]:
        column = one_chunk(carried[name])
        again = column.take(np.asarray(first)[group])
        if pa.types.is_nested(column.type):  # Arrow cannot compare lists and structs
            same = pa.array([value == first for value, first in zip(column.to_pylist(), again.to_pylist())])
        else:
            missing = pc.is_null(column, nan_is_null=True)
            same = pc.if_else(missing, pc.is_null(again, nan_is_null=True), pc.equal(column, again)).fill_null(False)
        if not pc.all(same).as_py() and len(same):
            row = carried[ROW][pc.index(same, False).as_py()]
            raise InputError(f"{where}: column {name}, row {row}: differs from an earlier row of the same admission.")
    return firsts


def ahead(items: Iterator[T]) -> Iterator[T]:
    """Make the next item in a thread while the caller uses the last one: Arrow and NumPy release the GIL.

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


def _report_repeats(
    tables: Iterator["pa.Table"], id: str, file: TableFile, on_doubt: Callable[[str], None]
) -> Iterator["pa.Table"]:
    """Yield the tables, then report how many rows repeat an identifier.

    Identifiers that ascend have no repeats; others are read a second time and counted.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    ordered, rows, last, ends = True, 0, None, []
    for table in tables:
        ids = one_chunk(table[id])
        if pa.types.is_integer(ids.type):
            ends += [end for end in pc.min_max(ids).as_py().values() if end is not None]
        for before, after in ((last, ids[:1]), (ids[:-1], ids[1:])):
            ordered = ordered and (not before or pc.all(pc.less(before, after)).as_py() is not False)
        rows, last = rows + len(table), ids[-1:] if len(ids) else last
        yield table
    if ordered:
        return
    ids_again = (one_chunk(table[id]) for table in file.read([id]))
    narrow = ends and max(ends) - min(ends) < SPAN and max(ends) < 1 << 63
    distinct = count_marked(ids_again, min(ends), max(ends)) if narrow else _count_distinct(ids_again, rows)
    if rows > distinct:
        repeated = f"{rows - distinct:,} of {rows:,} rows have the identifier of an earlier row"
        on_doubt(f"{repeated}: each row counts as an admission of its own.")


def _count_distinct(parts: Iterator["pa.Array"], rows: int) -> int:
    """Count the distinct values of `rows` identifiers; on disk if there are too many for memory."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if rows <= IN_MEMORY:
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
    """Return whether the identifiers ascend, so that the rows of each admission are next to each other."""
    import pyarrow as pa
    import pyarrow.compute as pc

    ordered, rows, last = True, 0, None
    for table in tables:
        ids = check_ids(
            one_chunk(table[str(id)]), id, file.where, lambda place, rows=rows: file.row_number(rows + place)
        )
        rows += len(ids)
        ids = pa.concat_arrays([last, ids]) if last is not None else ids
        ordered = ordered and pc.all(pc.less_equal(ids[:-1], ids[1:])).as_py() is not False
        last = ids[-1:]
    return ordered


def _regroup(tables: Iterator["pa.Table"], layout: Layout, batch: int) -> Iterator["pa.Table"]:
    """Sort rows by admission, in the order of first appearance; on disk if memory cannot hold them."""
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


def _cut_between_admissions(tables: Iterator["pa.Table"], id: str) -> Iterator["pa.Table"]:
    """Move the last admission of each batch to the next batch, which may have more of its rows."""
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
