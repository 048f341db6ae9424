"""Read CSV files that fit in memory with Arrow, which uses several cores and reads a file only once.

DuckDB decompresses and parses a gzipped file on one core, and again for every query. But it accepts more forms of
numbers and times, and its errors name what it refuses. So large files, and files that Arrow does not accept, are left
to DuckDB. DuckDB does not check the checksum and the end of a gzipped file; `check_whole` does.
"""

import gzip
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pc

from mlci.base.errors import InputError

PLAIN, PACKED = 1 << 30, 1 << 27  # bytes of the largest file that Arrow reads, plain and gzipped
BLOCK = 4 << 20  # bytes parsed at once
TYPES = {  # for whole numbers see `read`
    "float64": pa.float64(),
    "string": pa.string(),
    "timestamp": pa.timestamp("us"),
    "date": pa.date32(),
}


def is_packed(file: Path) -> bool:
    """Return whether a file is gzipped, judged by its name.

    >>> is_packed(Path("icustays.CSV.GZ"))
    True
    """
    return file.name.lower().endswith(".gz")


def read(file: Path, kinds: Mapping[str, str]) -> pa.Table | None:
    """Read columns of a file with their Ibis types; None if Arrow does not accept them, or the file is large.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder, "stays.csv")
    ...     _ = file.write_text("hadm_id,ward\\n7,A\\n8,\\n")
    ...     print(read(file, {"ward": "string", "hadm_id": "int64"}).to_pylist(), read(file, {"ward": "int64"}))
    [{'ward': 'A', 'hadm_id': 7}, {'ward': None, 'hadm_id': 8}] None
    """
    packed = is_packed(file)
    if file.stat().st_size <= (PACKED if packed else PLAIN):
        for whole in (pa.int32(), pa.int64()):  # int32 is enough for most files and takes half the memory
            try:
                return _read(file, {name: whole if kind == "int64" else TYPES[kind] for name, kind in kinds.items()})
            except (pa.ArrowInvalid, pa.ArrowKeyError) as error:
                if "UTF8" in str(error):  # which DuckDB may not survive
                    raise _not_utf8(file) from None
                # Odd values, or a missing column: DuckDB reads it or says why.
            except OSError:  # damaged
                break
    if packed:
        check_whole(file)
    return None


def _read(file: Path, types: Mapping[str, pa.DataType]) -> pa.Table:
    options = pc.ConvertOptions(
        include_columns=list(types), column_types=types, null_values=[""], strings_can_be_null=True
    )
    with pa.input_stream(str(file), compression="gzip" if is_packed(file) else None) as stream:
        return pc.read_csv(stream, read_options=pc.ReadOptions(block_size=BLOCK), convert_options=options)


def _not_utf8(file: Path) -> InputError:
    """Return the error of a file with text in another encoding; it names the first such row."""
    row = 1
    with (gzip.open if is_packed(file) else open)(file, "rb") as lines:
        for line in lines:
            try:
                line.decode()
            except UnicodeDecodeError:
                break
            row += 1
    return InputError(f"{file}: row {row}: is not UTF-8; save the table as CSV UTF-8.")


def check_whole(file: Path) -> None:
    """Refuse a gzipped file that was truncated or changed: DuckDB would read its beginning as the whole file.

    >>> import gzip
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder, "stays.csv.gz")
    ...     _ = file.write_bytes(gzip.compress(b"hadm_id,ward")[:-1])
    ...     check_whole(file)
    Traceback (most recent call last):
    mlci.base.errors.InputError: ...stays.csv.gz: is not a whole gzip file: it was cut short or changed; copy it again.
    """
    try:
        with pa.input_stream(str(file), compression="gzip") as stream:
            while stream.read(BLOCK):
                pass
    except OSError:
        raise InputError(f"{file}: is not a whole gzip file: it was cut short or changed; copy it again.") from None
