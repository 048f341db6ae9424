"""The SQL that Ibis makes, for DuckDB, of what is asked of MIMIC's files: kept, as to make it takes longer than to ask.

`data/mimic.sql` holds it, each query below a line with its name. The expressions of `mimic3` and `mimic4` are what is
meant: `tests/sources/test_kept.py` compiles them, compares, and says how to write the file anew.
"""

from functools import cache
from pathlib import Path

FILE = Path(__file__).parent / "data" / "mimic.sql"
MARK = "-- "


@cache
def _queries() -> dict[str, str]:
    parts = FILE.read_text("utf-8").split(f"\n{MARK}")[1:]  # before the first: who made it
    return {name: query.strip() for name, _, query in (part.partition("\n") for part in parts)}


def kept(name: str) -> str:
    """Return the query of a name.

    >>> kept("mimic4: number of diagnoses").startswith("SELECT COUNT(*)")
    True
    """
    return _queries()[name]
