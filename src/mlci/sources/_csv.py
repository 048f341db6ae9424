"""CSV files of a size that memory holds, read by Arrow: a file is unpacked and parsed on several cores, and read once.

In come a file, its header and the wanted columns with their types; out comes an Arrow table of these. DuckDB unpacks
and parses a gzipped file on one core, and again for every query, but it takes more ways to write a number or a time,
and says what it refuses: whatever Arrow does not take as it is, and whatever is large, is left to it. It does not look
at a gzipped file's checksum, nor at where the file ends: that is done here.
"""

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pc

from mlci.base.errors import InputError

PLAIN, PACKED = 1 << 30, 1 << 27  # bytes of the largest file, as it is and gzipped
BLOCK = 4 << 20  # bytes parsed at once
TYPES = {  # but for whole numbers
    "float64": pa.float64(),
    "string": pa.string(),
    "timestamp": pa.timestamp("us"),
    "date": pa.date32(),
}


def is_packed(file: Path) -> bool:
    """Return whether a file is gzipped, by its name.

    >>> is_packed(Path("icustays.CSV.GZ"))
    True
    """
    return file.name.lower().endswith(".gz")


def read(file: Path, kinds: Mapping[str, str]) -> pa.Table | None:
    """Read these columns of a file, each of its Ibis type; None where Arrow does not take them, or the file is large.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder, "stays.csv")
    ...     _ = file.write_text("hadm_id,ward\\n7,A\\n8,\\n")
    ...     print(read(file, {"ward": "string", "hadm_id": "int64"}).to_pylist(), read(file, {"ward": "int64"}))
    [{'ward': 'A', 'hadm_id': 7}, {'ward': None, 'hadm_id': 8}] None
    """
    packed = is_packed(file)
    if file.stat().st_size <= (PACKED if packed else PLAIN):
        for whole in (pa.int32(), pa.int64()):  # half the memory, for most files
            try:
                return _read(file, {name: whole if kind == "int64" else TYPES[kind] for name, kind in kinds.items()})
            except (pa.ArrowInvalid, pa.ArrowKeyError):  # odd, or without a column: DuckDB reads it or says why
                pass
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


def check_whole(file: Path) -> None:
    """Refuse a gzipped file that was cut short or changed: DuckDB would take its beginning for the whole.

    >>> import gzip
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder, "stays.csv.gz")
    ...     _ = file.write_bytes(gzip.compress(b"hadm_id,ward")[:-1])
    ...     check_whole(file)
    Traceback (most recent call last):
    mlci.base.errors.InputError: ...stays.csv.gz: is not a whole gzip file: it was cut short or changed; copy it anew.
    """
    try:
        with pa.input_stream(str(file), compression="gzip") as stream:
            while stream.read(BLOCK):
                pass
    except OSError:
        raise InputError(f"{file}: is not a whole gzip file: it was cut short or changed; copy it anew.") from None
