"""Export a table: as CSV with an R script, as a workbook with formulas, or as SQL.

Turn a model of the recipe `table` into files that compute the same numbers as `mlci score`; the suffix of the file name
chooses the form. By default an export has no row with fewer than 10 training admissions, so that it may leave the
hospital; such codes count by their prefix or category instead (`fold`).
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

LEAST = 10  # training admissions of every row that leaves a hospital
FORMS = (".csv", ".xlsx", ".sql")
PARTS = {"logistic": "risk", "poisson": "expected, log", "gaussian": "expected"}  # name of x + y * predictor


@dataclass(frozen=True)
class Folded:
    """The effect of leaving out the rows of rare codes."""

    rows: int  # left out
    of: int  # all rows
    unknown: int  # categories among the rows left out: their codes then count as unknown
    mean: float  # absolute weight of the rows left out, over outcomes
    largest: float

    def __str__(self) -> str:
        if not self.rows:
            return f"All {self.of:,} rows have at least {LEAST} training admissions behind them."
        return (
            f"{self.rows:,} of {self.of:,} rows have fewer than {LEAST} training admissions behind them and are left "
            f"out: such codes count by their prefix or category ({self.unknown:,} categories as unknown). This changes "
            f"their log-odds by {self.mean:.2f} on average and by {self.largest:.2f} at most; --all-rows keeps them, "
            f"for internal use."
        )


def fold(model: Model) -> tuple[Model, Folded]:
    """Leave out the rows with fewer than `LEAST` training admissions.

    Args:
        model: of the recipe `table`.

    Returns:
        The smaller model, and the effect of leaving the rows out.

    >>> from mlci.index.estimator import load
    >>> model, folded = fold(load("us2010").model_)
    >>> folded.rows, len(model.vocabulary.tokens) == folded.of
    (0, True)
    """
    vocabulary = model.vocabulary
    if not vocabulary.support:
        raise InputError(
            "the model file does not record the number of admissions behind each code; --all-rows exports every row, "
            "for internal use."
        )
    rows = np.flatnonzero(np.array(vocabulary.support) >= LEAST)
    if not len(rows):
        raise InputError(
            f"no code has at least {LEAST} training admissions behind it; --all-rows exports every row, for internal "
            "use."
        )
    removed = np.abs(np.delete(model.state["weights"][len(SPECIAL) :], rows, axis=0))
    rare = np.delete(np.array(vocabulary.tokens, dtype=object), rows)
    folded = Folded(
        rows=len(removed),
        of=len(vocabulary.tokens),
        unknown=sum(len(text) <= min(vocabulary.depths) for text in rare),
        mean=float(removed.mean()) if len(removed) else 0.0,
        largest=float(removed.max(initial=0)),
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
    """Write the model's table in the form given by the suffix of the file name.

    Args:
        model: of the recipe `table`.
        path: `.csv` (also writes the curves and an R script next to it), `.xlsx` (a workbook that scores) or `.sql`.
        dialect: of the SQL.
        table: the table with the columns admission_id, icd_version and code that the SQL view reads.
        all_rows: also export the rows of rare codes.

    Returns:
        Notes that the user should read before using the file, one sentence each.

    >>> import tempfile
    >>> from mlci.index.estimator import MLCI
    >>> index = MLCI().fit([["I50.9"], ["E11.9"]] * 40, {"mortality": [1, 0] * 40}, icd_version=10)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     notes = export(index.model_, f"{folder}/weights.csv")
    ...     sorted(file.name for file in Path(folder).iterdir())
    ['weights.R', 'weights.csv', 'weights_curves.csv']
    """
    path = Path(path)
    if path.suffix.lower() not in FORMS:
        raise InputError(f"{path}: an export is written as {', '.join(FORMS[:-1])} or {FORMS[-1]}.")
    if not isinstance(model.scorer, TableScorer):
        raise InputError("only models of the recipe table can be exported; `mlci fit --recipe table` makes one.")
    if model.vocabulary.primary:
        raise InputError("the table has separate rows for the first code of an admission; they cannot be exported.")
    if model.vocabulary.number_of_codes:
        raise InputError("the table has rows for the number of an admission's codes; they cannot be exported.")
    if dialect not in DIALECTS:
        raise InputError(f"dialect {dialect!r} is not known; allowed are {', '.join(DIALECTS)}.")
    if not table.replace("_", "").replace(".", "").isalnum():
        raise InputError(f"{table!r} is not a valid table name; letters, digits, _ and . are allowed.")
    notes = ["Rows of rare codes are included: for internal use only."]
    if not all_rows:
        model, folded = fold(model)
        notes = [str(folded)]
    if model.vocabulary.poa == "only":
        notes += ["The index was made for codes present on admission: give it only those."]
    if model.people:
        notes += ["Risks in this export depend on codes only; the .csv form lists what age and sex add to them."]
    if model.numbers and path.suffix.lower() == ".xlsx":
        names = ", ".join(model.numbers)
        raise InputError(f"{path}: a workbook cannot hold numeric outcomes ({names}); .csv and .sql can.")
    notes += [f"All codes of an admission count here; `mlci score` counts the first {model.vocabulary.max_codes} only."]
    if path.suffix.lower() == ".sql":
        about = [f"Severity scores from {table} (admission_id, icd_version, code): SELECT * FROM mlci_scores.", *notes]
        _write(path, lambda name: name.write_text(script(model, dialect=dialect, table=table, about=about), "utf-8"))
    elif path.suffix.lower() == ".xlsx":
        from mlci.index._workbook import write_workbook

        _write(path, lambda name: write_workbook(model, name, weights(model), about=notes))
    else:
        curves_path, script_path = path.with_name(f"{path.stem}_curves.csv"), path.with_suffix(".R")
        _write(path, lambda name: weights(model).to_csv(name, index=False))
        _write(curves_path, lambda name: curves(model).to_csv(name, index=False))
        program = files("mlci.index").joinpath("score.R").read_text("utf-8")
        _write(script_path, lambda name: name.write_text(program.replace("weights", path.stem), "utf-8"))
        notes.append(f"Also written: {curves_path.name} (log-odds to scores) and {script_path.name} (scores in R).")
    return notes


def _write(path: Path, write: Callable[[Path], object]) -> None:
    with atomic(path) as temporary:
        write(temporary)


def weights(model: Model) -> pd.DataFrame:
    """List the weights of a table.

    Args:
        model: of the recipe `table`.

    Returns:
        A frame with one row per code or code prefix: ICD version, title, number of training admissions, and the weight
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
    """List everything that turns log-odds into scores, percentiles and risks, as points x, y of a part and an outcome.

    Args:
        model: of the recipe `table`.

    Returns:
        A frame of part, outcome, x and y. The parts are:

        - `intercept`, and `unknown` (what unknown codes add);
        - `risk`: the log-odds of the risk are x + y * log-odds (for a numeric outcome `expected, log` or `expected`);
        - `score` and `percentile` (points of the curves), and `cutoff`;
        - `ignored` (prefixes of codes that do not count) and `depth` (lengths of the prefixes that count);
        - one part per age band and sex, for risks that depend on them, with their own shift and slope.

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
