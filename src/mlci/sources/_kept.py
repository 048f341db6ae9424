"""The stored DuckDB SQL of the queries of MIMIC's files, which take longer to compile with Ibis than to run.

`data/mimic.sql` holds each query below a line with its name. The expressions in `mimic3` and `mimic4` define the
queries: `tests/sources/test_kept.py` compiles them, compares the result, and says how to write the file again.
"""

from functools import cache
from pathlib import Path

FILE = Path(__file__).parent / "data" / "mimic.sql"
MARK = "-- "


@cache
def _queries() -> dict[str, str]:
    parts = FILE.read_text("utf-8").split(f"\n{MARK}")[1:]  # without the header
    return {name: query.strip() for name, _, query in (part.partition("\n") for part in parts)}


def kept(name: str) -> str:
    """Return the query with this name.

    >>> kept("mimic4: number of diagnoses").startswith("SELECT COUNT(*)")
    True
    """
    return _queries()[name]
