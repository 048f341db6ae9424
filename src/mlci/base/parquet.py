"""Parquet with checksums: a flipped bit in a page that was written here is an error, never another number."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlci.base.errors import InputError, name_of, reading

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

WRITTEN = {"write_page_checksum": True}  # for whatever writes page by page
KIND = "a Parquet file"


def write_parquet(table: "pa.Table", path: str | Path, **options: Any) -> None:
    """Write a table, each page with its checksum."""
    import pyarrow.parquet as pq

    pq.write_table(table, path, **WRITTEN, **options)


def read_parquet(path: str | Path) -> "pa.Table":
    """Read a table whole; checksums are verified, and no column may come twice."""
    with open_parquet(path) as file, reading(path, KIND):
        return file.read()


def open_parquet(path: str | Path, **options: Any) -> "pq.ParquetFile":
    """Open a file to be read in parts; what reads them verifies the checksums."""
    import pyarrow.parquet as pq

    with reading(path, KIND):
        file = pq.ParquetFile(path, page_checksum_verification=True, **options)
        names = file.schema_arrow.names
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        file.close()
        raise InputError(f"{name_of(path)}: has the column {name_of(twice)} twice; each needs a name of its own.")
    return file
