"""The tables that the SQL of a table reads: weights and, on DuckDB, percentiles, as rows of text.

In comes a model that holds a table; out come the columns and the rows of `mlci_weights` and `mlci_percentiles`. What
can be reckoned once is reckoned here: a row of weights holds all that a code adds whose longest known beginning it is,
so that a code is looked up once, and two codes share what the row of their longest common beginning holds.
"""

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from heapq import heapreplace
from itertools import repeat

import numpy as np

from mlci.index.model import Model
from mlci.tokens import SPECIAL, UNK

Key = tuple[int, str]  # ICD version and a beginning of codes
STRANGE: Key = (0, "")  # the family of unknown codes
NOTHING, UNKNOWN, IGNORED = 0, 1, 2  # rows of weights for what is no code, no known code, not to be counted
FIRST = 10  # the first beginning's: where no number is left out, DuckDB does not look rows up by their place
BITS = 127  # of the largest whole number that DuckDB has
CELLS, FAR = 16_384, 1e30  # cells of scores that DuckDB looks percentiles up in; beyond every score
NEAR = 1e-9  # engines sum in any order: a score so little below a knot, or the cutoff, is on it


def number(value: float) -> str:
    """Return a literal of 64 bits: with an exponent, or some engines would read a decimal."""
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
    """Yield the rows of the weights, numbered in the order of the alphabet.

    Codes that share a beginning are neighbours by it. On DuckDB a row has the bit of its family, which is its shortest
    known beginning.
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
    """List the known beginnings of a code, the shortest first, itself last."""
    beginnings = [(version, code[:depth]) for depth in depths if depth < len(code)]
    return [*(key for key in beginnings if key in known), (version, code)]


def _bits(families: Counter[Key]) -> dict[Key, int]:
    """Give each family one of the bits, the least used one, so that frequent families have theirs for themselves."""
    used, bits = [(0, bit) for bit in range(BITS)], {}
    for family, times in families.most_common():
        load, bits[family] = used[0]
        heapreplace(used, (load + times, bits[family]))
    return bits


def percentile_table(model: Model, name: str) -> str:
    """Write the statement that makes a table of percentiles: linear pieces, in all cells of scores that they touch.

    DuckDB looks a row up faster than it evaluates a thousand cases.
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
    """Write the number of a score's cell: their range is cut into even ones, and one lies on each side of it."""
    low, high, scale = _range(model)
    return (
        f"CASE WHEN {score} < {number(low)} THEN -1 WHEN {score} >= {number(high)} THEN {CELLS} "
        f"ELSE CAST(FLOOR(({score} - ({number(low)})) * {number(scale)}) AS INTEGER) END"
    )


def _range(model: Model) -> tuple[float, float, float]:
    """Return where cells begin and end, and how many lie in a unit."""
    low, high = float(model.quantiles[0]), float(model.quantiles[-1])
    return low, high, CELLS / (high - low) if high > low else 1.0


def pieces(knots: np.ndarray, heights: np.ndarray) -> Iterator[tuple[float, float, float]]:
    """Yield where each linear piece begins, its height there and its slope; the last goes on level."""
    for at in np.flatnonzero(np.diff(knots) > 0):
        yield knots[at], heights[at], (heights[at + 1] - heights[at]) / (knots[at + 1] - knots[at])
    yield knots[-1], heights[-1], 0.0
