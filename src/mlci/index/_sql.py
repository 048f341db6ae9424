"""Write a table as SQL: statements that create a view of scores in the database that holds the diagnoses.

Turn a model of the recipe `table` into the SQL of its tables and of the view `mlci_scores`. The view reads a table
(admission_id, icd_version, code) and has the columns of `mlci score`. The query is written once, and sqlglot translates
it into each dialect.

The view looks up each code's weights, which include those of its prefixes, and sums them by admission. A prefix that
two codes of an admission share is then counted twice. Such codes are neighbours in sort order, so the view finds the
shared prefix of each pair of neighbours and subtracts its weights. Few admissions have any.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from mlci.index._sql_tables import (
    IGNORED,
    NEAR,
    NOTHING,
    UNKNOWN,
    cell_of,
    number,
    percentile_table,
    pieces,
    shorter,
    weight_columns,
    weight_rows,
)
from mlci.index.model import Model
from mlci.judging.kept import FLOOR, Isotonic, Smooth

DIALECTS = ("duckdb", "postgres", "spark", "bigquery", "snowflake", "sqlite")
MATERIALIZES = ("duckdb", "postgres", "sqlite")  # dialects with AS MATERIALIZED for common table expressions
STREAMED = ("recorded", "log_odds", "scored")  # not materialised in DuckDB: they would fill the memory
WEIGHTS, PERCENTILES, VIEW, ROWS = "mlci_weights", "mlci_percentiles", "mlci_scores", 500


def script(model: Model, *, dialect: str, table: str = "diagnoses", about: Sequence[str] = ()) -> str:
    """Return the whole script, with the lines `about` as comments at its top."""
    return "".join(f"-- {line}\n" for line in about) + "".join(
        f"{statement};\n" for statement in statements(model, dialect, table)
    )


def statements(model: Model, dialect: str, table: str = "diagnoses") -> Iterator[str]:
    """Yield the statements in order, without semicolons."""
    import sqlglot
    from sqlglot import exp

    def translated(text: str) -> str:
        tree = sqlglot.parse_one(text, read="duckdb")
        for part in tree.find_all(exp.CTE):
            if dialect not in MATERIALIZES:
                part.set("materialized", None)
            elif dialect == "duckdb" and part.alias in STREAMED:
                part.set("materialized", False)
        return tree.sql(dialect=dialect, pretty=True)

    yield f"DROP VIEW IF EXISTS {VIEW}"
    yield f"DROP TABLE IF EXISTS {WEIGHTS}"
    yield translated(f"CREATE TABLE {WEIGHTS} ({weight_columns(model, dialect)})")
    rows = list(weight_rows(model, dialect))
    for start in range(0, len(rows), ROWS):
        yield f"INSERT INTO {WEIGHTS} VALUES\n" + ",\n".join(rows[start : start + ROWS])
    if dialect == "duckdb":
        yield f"DROP TABLE IF EXISTS {PERCENTILES}"
        yield percentile_table(model, PERCENTILES)
    yield translated(_view(model, table, dialect))


def _view(model: Model, table: str, dialect: str) -> str:
    """Write the view: weights summed by admission, with prefixes that neighbouring codes share counted once."""
    outcomes, ids = range(1, model.state["weights"].shape[1] + 1), ["id", *reversed(shorter(model))]
    names = model.learned[: len(outcomes) - len(model.numbers)]
    own = [f"risk_{name}" for name in names] + [f"expected_{name}" for name in model.numbers]
    risks = ", ".join(
        f'{_mean(model.numbers.get(name, ""), f"{number(shift)} + {number(slope)} * l{k}")} AS "{column}"'
        for k, name, column, (shift, slope) in zip(outcomes, model.learned, own, model.state["calibration"])
    )
    score = " + ".join(
        lines(f"l{k}", knots, heights)
        for k, knots, heights in zip(outcomes, model.state["knots"], model.state["heights"])
    )
    more = "".join(
        f', {_curve("score", curve)} AS "risk_{name}"' for name, curve in model.curves.items() if name not in names
    )
    percentile, near = _percentile(model, dialect)
    marks, suspects, doubtful = _suspects(model, dialect)
    return f"""
CREATE VIEW {VIEW} AS WITH
{_lookup(model, table)},
coded AS MATERIALIZED (
  SELECT r.admission_id, COALESCE(l.id, {NOTHING}) AS id
  FROM recorded AS r LEFT JOIN lookup AS l ON l.icd_version = r.icd_version AND l.written = r.written
),
whole AS MATERIALIZED (
  SELECT c.admission_id, COUNT(w.w1) AS codes, COUNT(w.icd_version) AS known, {marks}
    {", ".join(f"SUM(w.w{k}) AS w{k}" for k in outcomes)}
  FROM coded AS c JOIN {WEIGHTS} AS w ON w.id = c.id GROUP BY c.admission_id
),
{suspects}
neighbours AS (
  SELECT c.admission_id, c.id, LAG(c.id) OVER (PARTITION BY c.admission_id ORDER BY c.id) AS before
  FROM coded AS c {doubtful}
),
shared AS (
  SELECT n.admission_id, CASE {" ".join(f"WHEN w.{name} = b.{name} THEN w.{name}" for name in ids)} END AS id
  FROM neighbours AS n JOIN {WEIGHTS} AS w ON w.id = n.id JOIN {WEIGHTS} AS b ON b.id = n.before
),
excess AS (
  SELECT s.admission_id, {", ".join(f"SUM(w.w{k}) AS w{k}" for k in outcomes)}
  FROM shared AS s JOIN {WEIGHTS} AS w ON w.id = s.id GROUP BY s.admission_id
),
log_odds AS MATERIALIZED (
  SELECT w.admission_id, w.codes, w.known, {
        ", ".join(
            f"{number(start)} + COALESCE(w.w{k}, 0) - COALESCE(x.w{k}, 0) AS l{k}"
            for k, start in zip(outcomes, model.state["intercepts"])
        )
    }
  FROM whole AS w LEFT JOIN excess AS x ON x.admission_id = w.admission_id
),
scored AS MATERIALIZED (SELECT admission_id, codes, known, {score} AS score, {risks} FROM log_odds)
SELECT admission_id, score, {percentile} AS percentile,
  {", ".join(f'"{column}"' for column in own)}{more},
  score >= {number(model.cutoff.score - NEAR)} AS high_severity,
  CASE WHEN codes > 0 THEN (codes - known) * 1e0 / codes END AS unknown_share
FROM scored{near}"""


def _mean(kind: str, predictor: str) -> str:
    """Return the inverse link of a linear predictor: the risk, or the expected value of a numeric outcome."""
    return {"poisson": f"EXP({predictor})", "gaussian": predictor}.get(kind, f"1 / (1 + EXP(-({predictor})))")


def _lookup(model: Model, table: str) -> str:
    """Write the steps that map each distinct code to the row of its longest known prefix."""
    vocabulary, depths = model.vocabulary, sorted(model.vocabulary.depths)
    versions, places = set(vocabulary.versions), range(len(depths))
    version = f"COALESCE(icd_version, {0 if len(versions) > 1 else max(versions)})" if any(versions) else "0"
    counted = f" AND NOT ({_ignored(model)})" if vocabulary.ignored else ""
    parts = [
        f"CASE WHEN LENGTH(code) > {before}{counted} THEN SUBSTR(code, 1, {depth}) END AS t{place}"
        for place, (before, depth) in enumerate(zip([0, *depths], depths))
    ]
    joins = " ".join(
        f"LEFT JOIN {WEIGHTS} AS m{place} ON m{place}.icd_version = p.icd_version AND m{place}.code = p.t{place}"
        for place in places
    )
    ids = ", ".join(f"m{place}.id" for place in reversed(places))
    return f"""recorded AS (SELECT admission_id, {version} AS icd_version, code AS written FROM {table}),
distinct_codes AS MATERIALIZED (SELECT DISTINCT icd_version, written FROM recorded WHERE NOT written IS NULL),
spelled AS (SELECT icd_version, written, {_clean("written")} AS code FROM distinct_codes),
parts AS (
  SELECT icd_version, written, {", ".join(parts)},
    CASE WHEN code = '' THEN {NOTHING} WHEN {_ignored(model)} THEN {IGNORED} ELSE {UNKNOWN} END AS otherwise
  FROM spelled
),
lookup AS MATERIALIZED (SELECT p.icd_version, p.written, COALESCE({ids}, p.otherwise) AS id FROM parts AS p {joins})"""


def _suspects(model: Model, dialect: str) -> tuple[str, str, str]:
    """Return the aggregates, the step and the joins that skip codes which cannot share a prefix (DuckDB only).

    Every family of codes is assigned one of 127 bits. An admission with as many distinct bits as codes has no two codes
    of one family. Otherwise the bits that occur an even number of times identify the candidates; if a bit may occur
    three times or more, all bits of the admission are candidates.
    """
    if dialect != "duckdb":
        return "", "", ""
    ignored, marks = model.vocabulary.ignored, "marks" if model.vocabulary.ignored else "codes"
    return (
        f"{'COUNT(w.mark) AS marks, ' if ignored else ''}BIT_OR(w.mark) AS any_mark, BIT_XOR(w.mark) AS odd_mark,",
        f"""suspects AS MATERIALIZED (
  SELECT admission_id, CASE
    WHEN {marks} - BIT_COUNT(any_mark) > BIT_COUNT(any_mark - odd_mark) THEN any_mark ELSE any_mark - odd_mark
  END AS doubtful
  FROM whole WHERE {marks} > BIT_COUNT(any_mark)
),""",
        f"JOIN suspects AS s ON s.admission_id = c.admission_id JOIN {WEIGHTS} AS w ON w.id = c.id "
        "WHERE (w.mark & s.doubtful) <> 0",
    )


def _percentile(model: Model, dialect: str) -> tuple[str, str]:
    """Return the expression of the percentile and the join that it needs (empty except in DuckDB)."""
    if dialect != "duckdb":
        return steps("score", model.quantiles, np.linspace(0, 100, len(model.quantiles))), ""
    score = f"score + {number(NEAR)}"
    return (
        "height + slope * (score - begins)",
        f" JOIN {PERCENTILES} ON cell = {cell_of(model, f'({score})')} AND {score} >= begins AND {score} < ends",
    )


def _clean(column: str) -> str:
    """Normalise a code: upper case without dots, dashes and spaces. More would not work in every engine."""
    text = f"UPPER({column})"
    for junk in (".", "-", " "):
        text = f"REPLACE({text}, '{junk}', '')"
    return text


def _ignored(model: Model) -> str:
    """Return the condition under which a code is ignored."""
    rules = [text.split(":") for text in model.vocabulary.ignored]
    return (
        " OR ".join(f"(icd_version = {version} AND code LIKE '{beginning}%')" for version, beginning in rules)
        or "1 = 0"
    )


def lines(x: str, knots: np.ndarray, heights: np.ndarray) -> str:
    """Return a piecewise-linear curve, extrapolated linearly; its first pieces hold most admissions."""
    slopes = np.diff(heights) / np.diff(knots)
    texts = [f"{number(h - slope * k)} + {number(slope)} * {x}" for k, h, slope in zip(knots, heights, slopes)]
    cases = "".join(f"WHEN {x} < {number(knot)} THEN {text} " for knot, text in zip(knots[1:-1], texts))
    return f"CASE {cases}ELSE {texts[-1]} END" if cases else texts[-1]


def steps(x: str, knots: Sequence[float] | np.ndarray, heights: Sequence[float] | np.ndarray) -> str:
    """Return a curve that is linear between knots and constant beyond the ends, like `numpy.interp`."""
    knots, heights = np.asarray(knots, dtype=float), np.asarray(heights, dtype=float)
    parts = list(pieces(knots, heights))
    texts = [f"{number(height)} + {number(slope)} * ({x} - ({number(begin)}))" for begin, height, slope in parts]
    return _chosen(x, [begin - NEAR for begin, _, _ in parts], [number(heights[0]), *texts])


def _chosen(x: str, knots: Sequence[float] | np.ndarray, texts: Sequence[str]) -> str:
    """Choose the piece that contains x, by bisection in nested CASE expressions; all but the first start at a knot."""
    if len(texts) == 1:
        return texts[0]
    half = len(texts) // 2
    below, above = _chosen(x, knots[: half - 1], texts[:half]), _chosen(x, knots[half:], texts[half:])
    return f"CASE WHEN {x} < {number(knots[half - 1])} THEN {below} ELSE {above} END"


def _curve(x: str, curve: Isotonic | Smooth) -> str:
    """Return a risk curve as a function of the score."""
    if isinstance(curve, Isotonic):
        return steps(x, curve.score, curve.risk)
    logit = lines(x, curve.score, curve.logit)
    low, high = (number(1 / (1 + np.exp(-end))) for end in (-FLOOR, FLOOR))
    return (
        f"CASE WHEN {logit} < {number(-FLOOR)} THEN {low} WHEN {logit} > {number(FLOOR)} THEN {high} "
        f"ELSE 1 / (1 + EXP(-({logit}))) END"
    )
