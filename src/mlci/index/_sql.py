"""A table as SQL: statements that make a view of scores where the diagnoses lie.

In comes a model that holds a table; out come the text of a table of weights and of the view `mlci_scores`, from a table
(admission_id, icd_version, code) to the columns of `mlci score`. The query is written once and put into each engine's
own words by sqlglot. Weights are summed over all recorded codes; what codes of one family share was then counted twice
or more, and is taken off again: few admissions have any of it, so that hardly anything is grouped by token.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from mlci.index.model import Model
from mlci.judging.kept import FLOOR, Isotonic, Smooth
from mlci.tokens import UNK

DIALECTS = ("duckdb", "postgres", "spark", "bigquery", "snowflake", "sqlite")
HOLDS = ("duckdb", "postgres", "sqlite")  # a common table expression is made once if one says so
STREAMED = ("recorded", "log_odds", "scored")  # DuckDB passes these on row by row; held, they would fill the memory
NEAR = 1e-9  # engines sum in any order: a score so little below a knot, or the cutoff, is on it
CELLS, FAR = 4096, 1e30  # cells of scores that DuckDB looks percentiles up in; beyond every score
WEIGHTS, VIEW, ROWS = "mlci_weights", "mlci_scores", 500


def script(model: Model, *, dialect: str, table: str = "diagnoses", about: Sequence[str] = ()) -> str:
    """Return the whole script; `about` are lines of comment at its top."""
    return "".join(f"-- {line}\n" for line in about) + "".join(
        f"{statement};\n" for statement in statements(model, dialect, table)
    )


def statements(model: Model, dialect: str, table: str = "diagnoses") -> Iterator[str]:
    """Yield one after the other, without semicolons."""
    import sqlglot
    from sqlglot import exp

    def written(text: str) -> str:
        tree = sqlglot.parse_one(text, read="duckdb")
        for part in tree.find_all(exp.CTE):
            if dialect not in HOLDS:
                part.set("materialized", None)
            elif dialect == "duckdb" and part.alias in STREAMED:
                part.set("materialized", False)
        return tree.sql(dialect=dialect, pretty=True)

    outcomes = range(1, model.state["weights"].shape[1] + 1)
    columns = ", ".join(f"w{k} DOUBLE" for k in outcomes)
    yield f"DROP VIEW IF EXISTS {VIEW}"
    yield f"DROP TABLE IF EXISTS {WEIGHTS}"
    yield written(f"CREATE TABLE {WEIGHTS} (id INTEGER, icd_version INTEGER, code TEXT, {columns})")
    names = [(0, ""), *zip(model.vocabulary.versions, model.vocabulary.tokens)]
    rows = [
        f"({number}, {version}, '{code}', {', '.join(map(_number, weights))})"
        for number, ((version, code), weights) in enumerate(zip(names, model.state["weights"][UNK:]), start=UNK)
    ]
    for start in range(0, len(rows), ROWS):
        yield f"INSERT INTO {WEIGHTS} VALUES\n" + ",\n".join(rows[start : start + ROWS])
    yield written(_view(model, table, dialect))


def _number(value: float) -> str:
    """Return a literal of 64 bits: with an exponent, or some engines would read a decimal."""
    return f"{value:.16e}"


def _view(model: Model, table: str, dialect: str) -> str:
    """Write the view: each distinct code looked up, summed by admission, tokens that codes share counted once."""
    outcomes, places = range(1, model.state["weights"].shape[1] + 1), range(len(model.vocabulary.depths))
    names = model.learned[: len(outcomes) - len(model.numbers)]
    own = [f"risk_{name}" for name in names] + [f"expected_{name}" for name in model.numbers]
    risks = ", ".join(
        f'{_mean(model.numbers.get(name, ""), f"{_number(shift)} + {_number(slope)} * l{k}")} AS "{column}"'
        for k, name, column, (shift, slope) in zip(outcomes, model.learned, own, model.state["calibration"])
    )
    score = " + ".join(
        hinges(f"l{k}", knots, heights)
        for k, knots, heights in zip(outcomes, model.state["knots"], model.state["heights"])
    )
    more = "".join(
        f', {_curve("score", curve)} AS "risk_{name}"' for name, curve in model.curves.items() if name not in names
    )
    percentile, pieces, near = _percentile(model, dialect)
    marks, suspects, join, alike = _suspects(model, dialect)
    return f"""
CREATE VIEW {VIEW} AS WITH
{_lookup(model, table, dialect)},
whole AS MATERIALIZED (
  SELECT r.admission_id, COUNT(l.s1) AS codes, COUNT(l.unknown) AS unknown, {marks}
    {", ".join(f"SUM(l.s{k}) AS s{k}" for k in outcomes)}
  FROM recorded AS r LEFT JOIN lookup AS l ON l.icd_version = r.icd_version AND l.written = r.written
  GROUP BY r.admission_id
),
{suspects}
brought AS MATERIALIZED (
  SELECT r.admission_id, l.family{"".join(f", l.id{place}" for place in places[1:])}
  FROM recorded AS r {join} JOIN lookup AS l ON l.icd_version = r.icd_version AND l.written = r.written
  WHERE {alike}
),
kin AS (
  SELECT admission_id, family, COUNT(*) - 1 AS times
  FROM brought GROUP BY admission_id, family HAVING COUNT(*) > 1
),
{_again(places)},
excess AS (
  SELECT a.admission_id, {", ".join(f"SUM(a.times * w.w{k}) AS e{k}" for k in outcomes)}
  FROM again AS a JOIN {WEIGHTS} AS w ON w.id = a.id GROUP BY a.admission_id
),
log_odds AS MATERIALIZED (
  SELECT w.admission_id, w.codes, w.unknown, {
        ", ".join(
            f"{_number(start)} + COALESCE(w.s{k}, 0) - COALESCE(x.e{k}, 0) AS l{k}"
            for k, start in zip(outcomes, model.state["intercepts"])
        )
    }
  FROM whole AS w LEFT JOIN excess AS x ON x.admission_id = w.admission_id
),
scored AS MATERIALIZED (SELECT admission_id, codes, unknown, {score} AS score, {risks} FROM log_odds){pieces}
SELECT admission_id, score, {percentile} AS percentile,
  {", ".join(f'"{column}"' for column in own)}{more},
  score >= {_number(model.cutoff.score - NEAR)} AS high_severity,
  CASE WHEN codes > 0 THEN unknown * 1e0 / codes END AS unknown_share
FROM scored{near}"""


def _mean(kind: str, predictor: str) -> str:
    """Return the risk of a predictor, or the expected number."""
    return {"poisson": f"EXP({predictor})", "gaussian": predictor}.get(kind, f"1 / (1 + EXP(-({predictor})))")


def _lookup(model: Model, table: str, dialect: str) -> str:
    """Write the steps that give each distinct code its tokens (id0, ...) and what they add to log-odds (s1, ...)."""
    vocabulary, outcomes = model.vocabulary, range(1, model.state["weights"].shape[1] + 1)
    depths = sorted(vocabulary.depths)
    versions = set(vocabulary.versions)
    said = f"COALESCE(icd_version, {0 if len(versions) > 1 else max(versions)})" if any(versions) else "0"
    parts = [
        f"CASE WHEN LENGTH(code) > {before} THEN SUBSTR(code, 1, {depth}) END AS t{place}"
        for place, (before, depth) in enumerate(zip([0, *depths], depths))
    ]
    places = range(len(depths))
    joins = " ".join(
        f"LEFT JOIN {WEIGHTS} AS m{place} ON m{place}.icd_version = p.icd_version AND m{place}.code = p.t{place}"
        for place in places
    )
    nowhere = " AND ".join(f"m{place}.id IS NULL" for place in places)
    lookups = ", ".join(f"m{place}.id AS id{place}" for place in places)
    sums = ", ".join(f"{' + '.join(f'COALESCE(m{place}.w{k}, 0)' for place in places)} AS s{k}" for k in outcomes)
    unknown = ", ".join(f"{_number(weight)} AS s{k}" for k, weight in zip(outcomes, model.state["weights"][UNK]))
    family = ", ".join(f"id{place}" for place in places)
    # One bit for each family, see `_suspects`.
    mark = "CAST(1 AS HUGEINT) << CAST({} % 127 AS INTEGER) AS mark, " if dialect == "duckdb" else ""
    return f"""recorded AS (SELECT admission_id, {said} AS icd_version, code AS written FROM {table}),
distinct_codes AS MATERIALIZED (SELECT DISTINCT icd_version, written FROM recorded WHERE NOT written IS NULL),
spelled AS (SELECT icd_version, written, {_clean("written")} AS code FROM distinct_codes),
counting AS (SELECT icd_version, written, code FROM spelled WHERE code <> '' AND NOT ({_ignored(model)})),
parts AS (SELECT icd_version, written, {", ".join(parts)} FROM counting),
known AS MATERIALIZED (
  SELECT p.icd_version, p.written, {lookups}, {sums} FROM parts AS p {joins} WHERE NOT ({nowhere})
),
lookup AS MATERIALIZED (
  SELECT icd_version, written, NULL AS unknown, COALESCE({family}) AS family,
    {mark.format(f"COALESCE({family})")}{family}, {", ".join(f"s{k}" for k in outcomes)} FROM known
  UNION ALL
  SELECT c.icd_version, c.written, 1 AS unknown, {UNK} AS family, {mark.format(UNK)}{UNK} AS id0,
    {"".join(f"NULL AS id{place}, " for place in places[1:])}{unknown}
  FROM counting AS c LEFT JOIN known AS k ON k.icd_version = c.icd_version AND k.written = c.written
  WHERE k.written IS NULL
  UNION ALL
  SELECT icd_version, written, 1 AS unknown, NULL AS family, {"NULL AS mark, " if mark else ""}
    {"".join(f"NULL AS id{place}, " for place in places)}{", ".join(f"0 AS s{k}" for k in outcomes)}
  FROM spelled WHERE code <> '' AND ({_ignored(model)})
)"""


def _again(places: range) -> str:
    """Return the steps that count how often too often each token came in: first its family, then what is longer."""
    family = "SELECT admission_id, family AS id, times FROM kin"
    if len(places) == 1:
        return f"again AS ({family})"
    longer = " UNION ALL ".join(
        f"SELECT admission_id, id{k} AS id FROM shared WHERE id{k} <> family" for k in places[1:]
    )
    return f"""shared AS (
  SELECT b.admission_id, b.family, {", ".join(f"b.id{place}" for place in places[1:])}
  FROM brought AS b JOIN kin AS k ON k.admission_id = b.admission_id AND k.family = b.family
),
again AS (
  {family}
  UNION ALL
  SELECT admission_id, id, COUNT(*) - 1 AS times FROM ({longer}) AS u GROUP BY admission_id, id HAVING COUNT(*) > 1
)"""


def _suspects(model: Model, dialect: str) -> tuple[str, str, str, str]:
    """Write aggregates of an admission, a step, a join and a condition that leave out rows which share nothing.

    Every family has one of 127 bits. An admission with as many bits as codes has no two codes of a family; else the
    bits that an even number of its codes have tell which, unless there are three of a kind.
    """
    if dialect != "duckdb":
        return "", "", "", "NOT l.family IS NULL"
    ignored, marks = model.vocabulary.ignored, "marks" if model.vocabulary.ignored else "codes"
    return (
        f"{'COUNT(l.mark) AS marks, ' if ignored else ''}BIT_OR(l.mark) AS any_mark, BIT_XOR(l.mark) AS odd_mark,",
        f"""suspects AS MATERIALIZED (
  SELECT admission_id, CASE
    WHEN {marks} - BIT_COUNT(any_mark) > BIT_COUNT(any_mark - odd_mark) THEN any_mark ELSE any_mark - odd_mark
  END AS doubtful
  FROM whole WHERE {marks} > BIT_COUNT(any_mark)
),""",
        "JOIN suspects AS s ON s.admission_id = r.admission_id",
        "(l.mark & s.doubtful) <> 0",
    )


def _percentile(model: Model, dialect: str) -> tuple[str, str, str]:
    """Return the expression of the percentile, and the step and the join that it needs, where it does."""
    shares = np.linspace(0, 100, len(model.quantiles))
    if dialect != "duckdb":
        return steps("score", model.quantiles, shares), "", ""
    # DuckDB looks a row up faster than it evaluates a thousand cases: the range of scores is cut into even cells, and
    # a piece stands in each of the cells that it touches.
    begins, heights, slopes = zip((-FAR, shares[0], 0.0), *_pieces(model.quantiles, shares))
    rows = ", ".join(f"({', '.join(map(_number, row))})" for row in zip(begins, [*begins[1:], FAR], heights, slopes))
    low, high = model.quantiles[0], model.quantiles[-1]
    scale = CELLS / (high - low) if high > low else 1.0

    def cell(score: str) -> str:
        place = f"({score} - ({_number(low)})) * {_number(scale)}"
        return f"CAST(FLOOR(LEAST(GREATEST({place}, -1e0), {_number(CELLS)})) AS INTEGER)"

    return (
        "height + slope * (score - begins)",
        f""", pieces(begins, ends, height, slope) AS (VALUES {rows}),
cells AS MATERIALIZED (
  SELECT begins, ends, height, slope, UNNEST(RANGE({cell("begins")}, {cell("ends")} + 1)) AS cell FROM pieces
)""",
        f""" JOIN cells ON cells.cell = {cell(f"(score + {_number(NEAR)})")}
  AND score + {_number(NEAR)} >= begins AND score + {_number(NEAR)} < ends""",
    )


def _clean(column: str) -> str:
    """Write a code in capitals without dots, dashes and blanks: all that every engine can do."""
    text = f"UPPER({column})"
    for junk in (".", "-", " "):
        text = f"REPLACE({text}, '{junk}', '')"
    return text


def _ignored(model: Model) -> str:
    """Return whether a code counts as not recorded."""
    rules = [text.split(":") for text in model.vocabulary.ignored]
    return (
        " OR ".join(f"(icd_version = {version} AND code LIKE '{beginning}%')" for version, beginning in rules)
        or "1 = 0"
    )


def hinges(x: str, knots: np.ndarray, heights: np.ndarray) -> str:
    """Return a piecewise-linear curve whose end slopes go on: a line, and a change of slope at each inner knot.

    A change c at k adds c * max(x - k, 0), which is half of c * (x - k) + c * |x - k|: no case to tell apart.
    """
    slopes = np.diff(heights) / np.diff(knots)
    changes, inner = np.diff(slopes) / 2, knots[1:-1]
    slope = slopes[0] + changes.sum()
    start = heights[0] - slopes[0] * knots[0] - (changes * inner).sum()
    bends = [f"{_number(change)} * ABS({x} - ({_number(knot)}))" for knot, change in zip(inner, changes) if change]
    return " + ".join([f"{_number(start)} + {_number(slope)} * {x}", *bends])


def _curve(x: str, curve: Isotonic | Smooth) -> str:
    """Return the risk along the score."""
    if isinstance(curve, Isotonic):
        return steps(x, curve.score, curve.risk)
    logit = hinges(x, curve.score, curve.logit)
    low, high = (_number(1 / (1 + np.exp(-end))) for end in (-FLOOR, FLOOR))
    return (
        f"CASE WHEN {logit} < {_number(-FLOOR)} THEN {low} WHEN {logit} > {_number(FLOOR)} THEN {high} "
        f"ELSE 1 / (1 + EXP(-({logit}))) END"
    )


def _pieces(knots: np.ndarray, heights: np.ndarray) -> Iterator[tuple[float, float, float]]:
    """Yield where each linear piece begins, its height there and its slope; the last goes on level."""
    for at in np.flatnonzero(np.diff(knots) > 0):
        yield knots[at], heights[at], (heights[at + 1] - heights[at]) / (knots[at + 1] - knots[at])
    yield knots[-1], heights[-1], 0.0


def steps(x: str, knots: Sequence[float] | np.ndarray, heights: Sequence[float] | np.ndarray) -> str:
    """Interpolate as `numpy.interp`: linear between knots, constant beyond, halves chosen until one piece is left."""
    knots, heights = np.asarray(knots, dtype=float), np.asarray(heights, dtype=float)
    pieces = np.flatnonzero(np.diff(knots) > 0).tolist()

    def chosen(first: int, last: int) -> str:
        if last - first == 1:
            at = pieces[first]
            slope = (heights[at + 1] - heights[at]) / (knots[at + 1] - knots[at])
            height, knot = float(heights[at]), float(knots[at])
            return f"{_number(height)} + {_number(float(slope))} * ({x} - ({_number(knot)}))"
        middle = (first + last) // 2
        return (
            f"CASE WHEN {x} < {_number(float(knots[pieces[middle]]) - NEAR)} THEN {chosen(first, middle)} "
            f"ELSE {chosen(middle, last)} END"
        )

    inner = chosen(0, len(pieces)) if len(pieces) else _number(heights[-1])
    return (
        f"CASE WHEN {x} < {_number(knots[0] - NEAR)} THEN {_number(heights[0])} "
        f"WHEN {x} >= {_number(knots[-1] - NEAR)} THEN {_number(heights[-1])} ELSE {inner} END"
    )
