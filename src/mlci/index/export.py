"""A table on its way out: as CSV with an R script, as a workbook with formulas, as SQL.

In come a model that holds a table and a file name whose ending says the form; out come files that give the same
numbers as `mlci score`. What leaves a hospital has no row behind which fewer than 10 training admissions stand: such
codes count there by their prefix or category (`fold`).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path

import numpy as np
import pandas as pd

from mlci.base.errors import InputError
from mlci.base.files import atomic
from mlci.codes.icd import VERSIONS, title
from mlci.fitting._people import ROWS as PEOPLE
from mlci.index._sql import DIALECTS, script
from mlci.index._table import TableScorer
from mlci.index.model import Model
from mlci.tokens import SPECIAL, UNK

LEAST = 10  # training admissions behind every row that leaves a hospital
FORMS = (".csv", ".xlsx", ".sql")
PARTS = {"logistic": "risk", "poisson": "expected, log", "gaussian": "expected"}  # what x + y * predictor is


@dataclass(frozen=True)
class Folded:
    """What leaving out the rows of rare codes changes."""

    rows: int  # that are left out
    of: int
    unknown: int  # of these, categories: their codes then count as unknown
    mean: float  # absolute weight of a row left out, over outcomes
    largest: float

    def __str__(self) -> str:
        if not self.rows:
            return f"All {self.of:,} rows have at least {LEAST} training admissions behind them."
        return (
            f"{self.rows:,} of {self.of:,} rows have fewer than {LEAST} training admissions behind them and are left "
            f"out: such codes count by their prefix or category ({self.unknown:,} categories by nothing). That changes "
            f"their log-odds by {self.mean:.2f} on average and by {self.largest:.2f} at most; --all-rows keeps them, "
            f"for use inside."
        )


def fold(model: Model) -> tuple[Model, Folded]:
    """Leave out the rows behind which fewer than `LEAST` training admissions stand.

    Args:
        model: one that holds a table.

    Returns:
        The smaller model, and what leaving the rows out changes.

    >>> from mlci.index.estimator import load
    >>> model, folded = fold(load("us2010").model_)
    >>> folded.rows, len(model.vocabulary.tokens) == folded.of
    (0, True)
    """
    vocabulary = model.vocabulary
    if not vocabulary.support:
        raise InputError(
            "the model file does not say how many admissions stand behind each code; --all-rows exports every one, for "
            "use inside."
        )
    rows = np.flatnonzero(np.array(vocabulary.support) >= LEAST)
    if not len(rows):
        raise InputError(
            f"no code has at least {LEAST} training admissions behind it; --all-rows exports every one, for use inside."
        )
    gone = np.abs(np.delete(model.state["weights"][len(SPECIAL) :], rows, axis=0))
    rare = np.delete(np.array(vocabulary.tokens, dtype=object), rows)
    folded = Folded(
        rows=len(gone),
        of=len(vocabulary.tokens),
        unknown=sum(len(text) <= min(vocabulary.depths) for text in rare),
        mean=float(gone.mean()) if len(gone) else 0.0,
        largest=float(gone.max(initial=0)),
    )
    kept = replace(
        vocabulary,
        **{name: tuple(getattr(vocabulary, name)[row] for row in rows) for name in ("tokens", "versions", "support")},
    )
    weights = model.state["weights"][np.concatenate([np.arange(len(SPECIAL)), rows + len(SPECIAL)])]
    return replace(model, vocabulary=kept, state={**model.state, "weights": weights}), folded


def export(
    model: Model, path: str | Path, *, dialect: str = "duckdb", table: str = "diagnoses", all_rows: bool = False
) -> list[str]:
    """Write the model's table in the form that the file's name asks for.

    Args:
        model: one that holds a table.
        path: `.csv` (with the curves and an R script beside it), `.xlsx` (a workbook that scores) or `.sql`.
        dialect: of the SQL.
        table: the SQL view reads admission_id, icd_version and code from it.
        all_rows: keep the rows of rare codes too.

    Returns:
        Sentences that a person should read before the file is used.

    >>> import tempfile
    >>> from mlci.index.estimator import MLCI
    >>> index = MLCI().fit([["I50.9"], ["E11.9"]] * 40, {"mortality": [1, 0] * 40}, icd_version=10)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     said = export(index.model_, f"{folder}/weights.csv")
    ...     sorted(file.name for file in Path(folder).iterdir())
    ['weights.R', 'weights.csv', 'weights_curves.csv']
    """
    path = Path(path)
    if path.suffix.lower() not in FORMS:
        raise InputError(f"{path}: a table is written as {', '.join(FORMS[:-1])} or {FORMS[-1]}.")
    if not isinstance(model.scorer, TableScorer):
        raise InputError("only a table can be exported; `mlci fit --recipe table` makes one.")
    if model.vocabulary.primary:
        raise InputError("the table gives the first code of an admission rows of its own, which no export knows.")
    if model.vocabulary.number_of_codes:
        raise InputError("the table gives the number of an admission's codes rows of its own, which no export knows.")
    if dialect not in DIALECTS:
        raise InputError(f"dialect {dialect!r} is not known; allowed are {', '.join(DIALECTS)}.")
    if not table.replace("_", "").replace(".", "").isalnum():
        raise InputError(f"{table!r} is no name of a table; letters, digits, _ and . are allowed.")
    said = ["Rows of rare codes are included: keep this file inside."]
    if not all_rows:
        model, folded = fold(model)
        said = [str(folded)]
    if model.vocabulary.poa == "only":
        said += ["The index was made for codes present on admission: give it those alone."]
    if model.people:
        said += ["Risks here are those by codes alone; what age and sex add to them is listed in the .csv form."]
    if model.numbers and path.suffix.lower() == ".xlsx":
        told = ", ".join(model.numbers)
        raise InputError(f"{path}: a workbook knows no outcomes that are numbers ({told}); .csv and .sql do.")
    said += [f"Codes of an admission beyond {model.vocabulary.max_codes} count here, while `mlci score` stops there."]
    if path.suffix.lower() == ".sql":
        about = [f"Severity scores from {table} (admission_id, icd_version, code): SELECT * FROM mlci_scores.", *said]
        _write(path, lambda name: name.write_text(script(model, dialect=dialect, table=table, about=about)))
    elif path.suffix.lower() == ".xlsx":
        from mlci.index._workbook import write_workbook

        _write(path, lambda name: write_workbook(model, name, weights(model), about=said))
    else:
        beside = [path.with_name(f"{path.stem}_curves.csv"), path.with_suffix(".R")]
        _write(path, lambda name: weights(model).to_csv(name, index=False))
        _write(beside[0], lambda name: curves(model).to_csv(name, index=False))
        program = files("mlci.index").joinpath("score.R").read_text()
        _write(beside[1], lambda name: name.write_text(program.replace("weights", path.stem)))
        said.append(f"Beside it: {beside[0].name} (what makes scores of log-odds) and {beside[1].name} (scores in R).")
    return said


def _write(path: Path, write: Callable[[Path], object]) -> None:
    with atomic(path) as temporary:
        write(temporary)


def weights(model: Model) -> pd.DataFrame:
    """List the weights of a table.

    Args:
        model: one that holds a table.

    Returns:
        A frame with one row per code or beginning of codes: ICD version, title, admissions behind it, and the weight
        for each outcome.

    >>> from mlci.index.estimator import load
    >>> weights(load("us2010").model_).columns[:5].tolist()
    ['icd_version', 'code', 'title', 'admissions', 'mortality']
    """
    vocabulary = model.vocabulary
    frame = pd.DataFrame(model.state["weights"][len(SPECIAL) :], columns=model.learned)
    head = {
        "icd_version": vocabulary.versions,
        "code": vocabulary.tokens,
        "title": [
            title(text, version) or "" if version in VERSIONS else ""
            for version, text in zip(vocabulary.versions, vocabulary.tokens)
        ],
        "admissions": [f"{least}+" if least else f"under {LEAST}" for least in vocabulary.support]
        or [""] * len(vocabulary.tokens),
    }
    return pd.concat([pd.DataFrame(head), frame], axis=1)


def curves(model: Model) -> pd.DataFrame:
    """List all that makes scores, percentiles and risks of log-odds, as points x, y of a part and an outcome.

    Args:
        model: one that holds a table.

    Returns:
        A frame of part, outcome, x and y. Parts are `intercept`, `unknown` (what unknown codes add), `risk` (x + y *
        log-odds is the log-odds of the risk; of a number `expected, log` or `expected`), `score` (points of the curve),
        `percentile` (points), `cutoff`, `ignored` (beginnings of codes that count as not recorded), `depth` (lengths of
        the beginnings that count), and what bands of age and sexes add to risks that take them, with the shift and
        slope that then hold.

    >>> from mlci.index.estimator import load
    >>> frame = curves(load("us2010").model_)
    >>> frame.loc[frame["part"] == "intercept", "outcome"].tolist()
    ['mortality', 'non_home_discharge', 'long_stay', 'critical_care']
    """
    state, rows = model.state, []
    for place, name in enumerate(model.learned):
        rows.append(("intercept", name, 0.0, state["intercepts"][place]))
        rows.append(("unknown", name, 0.0, state["weights"][UNK, place]))
        rows.append((PARTS[model.numbers.get(name, "logistic")], name, *state["calibration"][place]))
        rows += [("score", name, *point) for point in zip(state["knots"][place], state["heights"][place])]
    shares = np.linspace(0, 100, len(model.quantiles))
    rows += [("percentile", "", *point) for point in zip(model.quantiles, shares)]
    rows += [("ignored", text, 0.0, 0.0) for text in model.vocabulary.ignored]
    rows += [("depth", "", depth, depth) for depth in sorted(model.vocabulary.depths)]
    for row, values in zip(PEOPLE, state["people"][2:]) if "people" in state else ():
        rows += [(row, name, 0.0, value) for name, value in zip(model.outcomes, values)]
    if "people" in state:
        rows += [("risk, with age and sex", name, *pair) for name, pair in zip(model.outcomes, state["people"][:2].T)]
    rows.append(("cutoff", "", model.cutoff.score, model.cutoff.score))
    return pd.DataFrame(rows, columns=["part", "outcome", "x", "y"])
