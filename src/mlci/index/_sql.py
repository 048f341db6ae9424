"""A table as SQL: statements that make a view of scores where the diagnoses lie.

In comes a model that holds a table; out come the text of its tables and of the view `mlci_scores`, from a table
(admission_id, icd_version, code) to the columns of `mlci score`. The query is written once and put into each engine's
own words by sqlglot. Codes are looked up and summed by admission. Of two codes that are neighbours in the alphabet what
they share was then counted twice, and is taken off again: few admissions have any of it.
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
HOLDS = ("duckdb", "postgres", "sqlite")  # a common table expression is made once if one says so
STREAMED = ("recorded", "log_odds", "scored")  # DuckDB passes these on row by row; held, they would fill the memory
WEIGHTS, PERCENTILES, VIEW, ROWS = "mlci_weights", "mlci_percentiles", "mlci_scores", 500


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

    yield f"DROP VIEW IF EXISTS {VIEW}"
    yield f"DROP TABLE IF EXISTS {WEIGHTS}"
    yield written(f"CREATE TABLE {WEIGHTS} ({weight_columns(model, dialect)})")
    rows = list(weight_rows(model, dialect))
    for start in range(0, len(rows), ROWS):
        yield f"INSERT INTO {WEIGHTS} VALUES\n" + ",\n".join(rows[start : start + ROWS])
    if dialect == "duckdb":
        yield f"DROP TABLE IF EXISTS {PERCENTILES}"
        yield percentile_table(model, PERCENTILES)
    yield written(_view(model, table, dialect))


def _view(model: Model, table: str, dialect: str) -> str:
    """Write the view: codes looked up and summed by admission, what neighbours share counted once."""
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
    """Return the risk of a predictor, or the expected number."""
    return {"poisson": f"EXP({predictor})", "gaussian": predictor}.get(kind, f"1 / (1 + EXP(-({predictor})))")


def _lookup(model: Model, table: str) -> str:
    """Write the steps that give each distinct code the row of its longest known beginning."""
    vocabulary, depths = model.vocabulary, sorted(model.vocabulary.depths)
    versions, places = set(vocabulary.versions), range(len(depths))
    said = f"COALESCE(icd_version, {0 if len(versions) > 1 else max(versions)})" if any(versions) else "0"
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
    return f"""recorded AS (SELECT admission_id, {said} AS icd_version, code AS written FROM {table}),
distinct_codes AS MATERIALIZED (SELECT DISTINCT icd_version, written FROM recorded WHERE NOT written IS NULL),
spelled AS (SELECT icd_version, written, {_clean("written")} AS code FROM distinct_codes),
parts AS (
  SELECT icd_version, written, {", ".join(parts)},
    CASE WHEN code = '' THEN {NOTHING} WHEN {_ignored(model)} THEN {IGNORED} ELSE {UNKNOWN} END AS otherwise
  FROM spelled
),
lookup AS MATERIALIZED (SELECT p.icd_version, p.written, COALESCE({ids}, p.otherwise) AS id FROM parts AS p {joins})"""


def _suspects(model: Model, dialect: str) -> tuple[str, str, str]:
    """Write aggregates of an admission, a step, and joins that leave out rows which share nothing.

    Every family has one of 127 bits. An admission with as many bits as codes has no two codes of a family; else the
    bits that an even number of its codes have tell which, unless there are three of a kind.
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
    """Return the expression of the percentile, and the join that it needs, where it does."""
    if dialect != "duckdb":
        return steps("score", model.quantiles, np.linspace(0, 100, len(model.quantiles))), ""
    score = f"score + {number(NEAR)}"
    return (
        "height + slope * (score - begins)",
        f" JOIN {PERCENTILES} ON cell = {cell_of(model, f'({score})')} AND {score} >= begins AND {score} < ends",
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


def lines(x: str, knots: np.ndarray, heights: np.ndarray) -> str:
    """Return a piecewise-linear curve whose end slopes go on; most admissions lie in its first pieces."""
    slopes = np.diff(heights) / np.diff(knots)
    texts = [f"{number(h - slope * k)} + {number(slope)} * {x}" for k, h, slope in zip(knots, heights, slopes)]
    cases = "".join(f"WHEN {x} < {number(knot)} THEN {text} " for knot, text in zip(knots[1:-1], texts))
    return f"CASE {cases}ELSE {texts[-1]} END" if cases else texts[-1]


def steps(x: str, knots: Sequence[float] | np.ndarray, heights: Sequence[float] | np.ndarray) -> str:
    """Return what is linear between knots and constant beyond the ends, as `numpy.interp`."""
    knots, heights = np.asarray(knots, dtype=float), np.asarray(heights, dtype=float)
    parts = list(pieces(knots, heights))
    texts = [f"{number(height)} + {number(slope)} * ({x} - ({number(begin)}))" for begin, height, slope in parts]
    return _chosen(x, [begin - NEAR for begin, _, _ in parts], [number(heights[0]), *texts])


def _chosen(x: str, knots: Sequence[float] | np.ndarray, texts: Sequence[str]) -> str:
    """Choose the text of the piece that x lies in, a half of them at a time; all but the first begin at a knot."""
    if len(texts) == 1:
        return texts[0]
    half = len(texts) // 2
    below, above = _chosen(x, knots[: half - 1], texts[:half]), _chosen(x, knots[half:], texts[half:])
    return f"CASE WHEN {x} < {number(knots[half - 1])} THEN {below} ELSE {above} END"


def _curve(x: str, curve: Isotonic | Smooth) -> str:
    """Return the risk along the score."""
    if isinstance(curve, Isotonic):
        return steps(x, curve.score, curve.risk)
    logit = lines(x, curve.score, curve.logit)
    low, high = (number(1 / (1 + np.exp(-end))) for end in (-FLOOR, FLOOR))
    return (
        f"CASE WHEN {logit} < {number(-FLOOR)} THEN {low} WHEN {logit} > {number(FLOOR)} THEN {high} "
        f"ELSE 1 / (1 + EXP(-({logit}))) END"
    )
