"""Write the tables that the SQL view reads: `mlci_weights` and, for DuckDB, `mlci_percentiles`, as text.

A row of `mlci_weights` is a code or a code prefix, and already includes the weights of its own prefixes. So each code
is looked up once, by its longest known prefix, and two codes have in common what the row of their longest common prefix
holds.
"""

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from heapq import heapreplace
from itertools import repeat

import numpy as np

from mlci.index.model import Model
from mlci.tokens import SPECIAL, UNK

Key = tuple[int, str]  # ICD version and a code prefix
STRANGE: Key = (0, "")  # the family of unknown codes
NOTHING, UNKNOWN, IGNORED = 0, 1, 2  # rows of weights for text without a code, unknown codes and ignored codes
FIRST = 10  # id of the first prefix; without the gap in the ids DuckDB does not look rows up by position
BITS = 127  # of DuckDB's largest integer type
CELLS, FAR = 16_384, 1e30  # score intervals by which DuckDB looks percentiles up; a bound beyond every score
NEAR = 1e-9  # tolerance at knots and the cutoff, because engines sum in any order


def number(value: float) -> str:
    """Return a 64-bit floating-point literal; without an exponent some engines would read a decimal."""
    return f"{value:.16e}"


def shorter(model: Model) -> list[str]:
    """Name the columns that hold the row of a code's first 3 characters, its first 4, and so on."""
    return [f"id{depth}" for depth in sorted(model.vocabulary.depths)[:-1]]


def weight_columns(model: Model, dialect: str) -> str:
    """Return the columns of the weights with their types."""
    outcomes = range(1, model.state["weights"].shape[1] + 1)
    columns = ["id INTEGER", "icd_version INTEGER", "code TEXT", *(f"{name} INTEGER" for name in shorter(model))]
    mark = ["mark HUGEINT"] if dialect == "duckdb" else []
    return ", ".join([*columns, *mark, *(f"w{k} DOUBLE" for k in outcomes)])


def weight_rows(model: Model, dialect: str) -> Iterator[str]:
    """Yield the rows of the weights, numbered in sort order, so that codes with a common prefix are neighbours.

    For DuckDB a row also has the bit of its family, which is its shortest known prefix.
    """
    vocabulary, weights, depths = model.vocabulary, model.state["weights"], sorted(model.vocabulary.depths)
    keys = list(zip(vocabulary.versions, vocabulary.tokens))
    own = dict(zip(keys, weights[len(SPECIAL) :]))
    ids = {key: place for place, key in enumerate(sorted(own), start=FIRST)}
    paths = {(version, code): _path(version, code, depths, ids) for version, code in ids}
    families: Counter[Key] = Counter({STRANGE: 1})
    for key, times in zip(keys, vocabulary.support or repeat(1)):
        families[paths[key][0]] += times
    bits = _bits(families) if dialect == "duckdb" else {}

    def row(place: int, version: int | str, code: str, known: list, family: Key | None, values: Iterable) -> str:
        mark = [f"1::HUGEINT << {bits[family]}" if family else "NULL"] if bits else []
        return f"({', '.join(map(str, [place, version, code, *known, *mark, *values]))})"

    none = ["NULL"] * (len(depths) - 1)
    yield row(NOTHING, "NULL", "''", none, None, ["NULL"] * weights.shape[1])
    yield row(UNKNOWN, "NULL", "''", none, STRANGE, map(number, weights[UNK]))
    yield row(IGNORED, "NULL", "''", none, None, [number(0)] * weights.shape[1])
    for (version, code), path in paths.items():
        known = [next((ids[key] for key in path[::-1] if len(key[1]) <= depth), "NULL") for depth in depths[:-1]]
        values = map(number, np.sum([own[key] for key in path], axis=0))
        yield row(ids[version, code], version, f"'{code}'", known, path[0], values)


def _path(version: int, code: str, depths: Sequence[int], known: Container[Key]) -> list[Key]:
    """List the known prefixes of a code, the shortest first, the code itself last."""
    prefixes = [(version, code[:depth]) for depth in depths if depth < len(code)]
    return [*(key for key in prefixes if key in known), (version, code)]


def _bits(families: Counter[Key]) -> dict[Key, int]:
    """Assign each family a bit, always the least used one, so that frequent families do not share theirs."""
    used, bits = [(0, bit) for bit in range(BITS)], {}
    for family, times in families.most_common():
        load, bits[family] = used[0]
        heapreplace(used, (load + times, bits[family]))
    return bits


def percentile_table(model: Model, name: str) -> str:
    """Write the statement that creates a table of percentiles: linear pieces, listed under every cell they touch.

    In DuckDB a lookup is faster than a CASE expression with a thousand branches.
    """
    low, high, scale = _range(model)

    def cell(score: float) -> int:
        return -1 if score < low else CELLS if score >= high else int((score - low) * scale)

    shares = np.linspace(0, 100, len(model.quantiles))
    begins, heights, slopes = zip((-FAR, shares[0], 0.0), *pieces(model.quantiles, shares))
    rows = ",\n".join(
        f"({cell(begin)}, {cell(end)}, {', '.join(map(number, (begin, end, height, slope)))})"
        for begin, end, height, slope in zip(begins, [*begins[1:], FAR], heights, slopes)
    )
    return (
        f"CREATE TABLE {name} AS SELECT CAST(UNNEST(RANGE(first, last + 1)) AS INTEGER) AS cell,\n"
        f"begins, ends, height, slope FROM (VALUES\n{rows}) AS pieces(first, last, begins, ends, height, slope)"
    )


def cell_of(model: Model, score: str) -> str:
    """Write the number of a score's cell: cells of equal width over the range, and one more on each side of it."""
    low, high, scale = _range(model)
    return (
        f"CASE WHEN {score} < {number(low)} THEN -1 WHEN {score} >= {number(high)} THEN {CELLS} "
        f"ELSE CAST(FLOOR(({score} - ({number(low)})) * {number(scale)}) AS INTEGER) END"
    )


def _range(model: Model) -> tuple[float, float, float]:
    """Return the range of the cells, and the number of cells per unit."""
    low, high = float(model.quantiles[0]), float(model.quantiles[-1])
    return low, high, CELLS / (high - low) if high > low else 1.0


def pieces(knots: np.ndarray, heights: np.ndarray) -> Iterator[tuple[float, float, float]]:
    """Yield the start of each linear piece, its height there and its slope; the last piece is constant."""
    for at in np.flatnonzero(np.diff(knots) > 0):
        yield knots[at], heights[at], (heights[at + 1] - heights[at]) / (knots[at + 1] - knots[at])
    yield knots[-1], heights[-1], 0.0
