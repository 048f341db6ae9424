"""CSV files of a size that memory holds, read by Arrow: a file is unpacked and parsed on several cores, and read once.

In come a file, its header and the wanted columns with their types; out comes an Arrow table of these. DuckDB unpacks
and parses a gzipped file on one core, and again for every query, but it takes more ways to write a number or a time,
and says what it refuses: whatever Arrow does not take as it is, and whatever is large, is left to it.
"""

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pc

PLAIN, PACKED = 1 << 30, 1 << 27  # bytes of the largest file, as it is and gzipped
BLOCK = 4 << 20  # bytes parsed at once
TYPES = {
    "int64": pa.int64(),
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
    if file.stat().st_size > (PACKED if is_packed(file) else PLAIN):
        return None
    options = pc.ConvertOptions(
        include_columns=list(kinds),
        column_types={name: TYPES[kind] for name, kind in kinds.items()},
        null_values=[""],
        strings_can_be_null=True,
    )
    try:
        with pa.input_stream(str(file), compression="gzip" if is_packed(file) else None) as stream:
            return pc.read_csv(stream, read_options=pc.ReadOptions(block_size=BLOCK), convert_options=options)
    except (pa.ArrowInvalid, pa.ArrowKeyError, OSError):  # odd, without a column, damaged: DuckDB reads it or says why
        return None
