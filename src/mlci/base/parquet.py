"""Read and write Parquet with checksums, so that a flipped bit in a page raises an error."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlci.base.errors import InputError, name_of, reading

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

WRITTEN = {"write_page_checksum": True}  # options of every Parquet writer
KIND = "a Parquet file"
MOST_CELL, FEW_BYTES = 1_000, 16 << 20  # most characters per cell, on average, in a column chunk of more bytes

WEIGHTS = "outcome_weights"  # metadata key in a file of scores: the weights of outcomes behind its cutoff


def write_parquet(table: "pa.Table", path: str | Path, **options: Any) -> None:
    """Write a table, each page with its checksum.

    Args:
        table: an Arrow table.
        path: the file to write.
        **options: those of `pyarrow.parquet.write_table`.

    >>> import tempfile
    >>> import pyarrow as pa
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_parquet(pa.table({"visit": [7, 8]}), f"{folder}/visits.parquet")
    ...     read_parquet(f"{folder}/visits.parquet").to_pydict()
    {'visit': [7, 8]}
    """
    import pyarrow.parquet as pq

    pq.write_table(table, path, **WRITTEN, **options)


def read_parquet(path: str | Path) -> "pa.Table":
    """Read a table whole, and verify its checksums.

    Args:
        path: the file. A damaged file, or one with two columns of the same name, raises an `InputError`.

    Returns:
        An Arrow table.

    >>> read_parquet(__file__)
    Traceback (most recent call last):
    mlci.base.errors.InputError: ...: is not a Parquet file that can be read: it is damaged, or of another kind.
    """
    with open_parquet(path) as file, reading(path, KIND):
        return file.read()


def open_parquet(path: str | Path, **options: Any) -> "pq.ParquetFile":
    """Open a file to be read in parts; checksums are verified as each part is read.

    Args:
        path: the file. Two columns of the same name, or cells that are too long for memory, raise an `InputError`.
        **options: options of `pyarrow.parquet.ParquetFile`.

    Returns:
        The open file.

    >>> import tempfile
    >>> import pyarrow as pa
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_parquet(pa.table({"visit": [7, 8]}), f"{folder}/visits.parquet")
    ...     with open_parquet(f"{folder}/visits.parquet") as file:
    ...         file.metadata.num_rows
    2
    """
    import pyarrow.parquet as pq

    with reading(path, KIND):
        file = pq.ParquetFile(path, page_checksum_verification=True, **options)
        names = file.schema_arrow.names
        swollen = _swollen(file.metadata)
    if swollen is not None:
        file.close()
        raise _too_long(path, swollen)
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        file.close()
        raise InputError(f"{name_of(path)}: has the column {name_of(twice)} twice; each needs a name of its own.")
    return file


def plain(table: "pa.Table", where: str, names: Sequence[str]) -> "pa.Table":
    """Decode dictionary-encoded columns to plain text, after refusing texts that are too long.

    Args:
        table: an Arrow table.
        where: its name in messages.
        names: the columns to decode.

    Returns:
        The table. A text of more than `MOST_CELL` characters in any dictionary raises an `InputError`.

    >>> import pyarrow as pa
    >>> encoded = pa.table({"code": pa.array(["I509", "I509"]).dictionary_encode()})
    >>> plain(encoded, "visits.parquet", ["code"]).schema.field("code").type
    DataType(string)
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    for place, name in enumerate(table.column_names):
        for chunk in table[name].chunks:
            values = chunk.values if pa.types.is_list(chunk.type) else chunk
            if pa.types.is_dictionary(values.type) and len(values.dictionary):
                longest = pc.max(pc.binary_length(values.dictionary)).as_py() or 0
                if longest > MOST_CELL:
                    raise _too_long(where, name)
        if name in names and pa.types.is_dictionary(table[name].type):
            text = pa.chunked_array([chunk.dictionary_decode() for chunk in table[name].chunks])
            table = table.set_column(place, name, text)
    return table


def _too_long(where: str | Path, name: str) -> InputError:
    return InputError(f"{name_of(where)}: column {name_of(name)}: holds cells of more than {MOST_CELL:,} characters.")


def _swollen(metadata: "pq.FileMetaData") -> str | None:
    """Return the first column with cells so long that they may fill the memory: a small file can hold gigabytes."""
    for group in range(metadata.num_row_groups):
        for place in range(metadata.num_columns):
            chunk = metadata.row_group(group).column(place)
            if chunk.total_uncompressed_size > max(FEW_BYTES, MOST_CELL * chunk.num_values):
                return chunk.path_in_schema
    return None
