"""The risk-curve figures of the paper for any index on any cohort, and the tables behind them.

Turn the scores of one or more indices, an array for each seed, and the outcomes of the same admissions into a folder:

- per index two figures (binned, isotonic) with a panel for each outcome, as SVG, PDF and PNG;
- the points of these figures as CSV;
- the change in each risk with its standard deviation over seeds (Table 8 of the paper), in several formats.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from mlci.base.grids import files_of, write
from mlci.cohort import Cohort
from mlci.judging.curves import BINS, RiskCurve, mean_curves, risk_curves
from mlci.judging.numbers import numeric_column
from mlci.judging.paper_tables import changes, curve_table
from mlci.showing import plots

KINDS: tuple[Literal["binned", "isotonic"], ...] = ("binned", "isotonic")
ENDINGS = ("svg", "pdf", "png")
TABLES = ("binned.csv", "isotonic.csv", "summary.csv")
TABLE8 = "table8_risk_curves"
Curves = dict[str, tuple[RiskCurve, ...]]


def file_names(models: Sequence[str]) -> list[str]:
    """Return the names of all files that `draw` writes for these `models`.

    >>> file_names(["CCI+ECI (scalar)"])[:2]
    ['CCI+ECI_scalar_binned.svg', 'CCI+ECI_scalar_binned.pdf']
    """
    pictures = [f"{_stem(model)}_{kind}.{ending}" for model in models for kind in KINDS for ending in ENDINGS]
    return [*pictures, *TABLES, *(f"{TABLE8}.{ending}" for ending in ("txt", "md", "tex"))]


def compute(
    scores: Mapping[str, Sequence],
    cohort: Cohort,
    *,
    bins: int = BINS,
    patients: Any = None,
    numeric: Sequence[str] = (),
) -> Curves:
    """Return each index's curves on the admissions of a cohort.

    Args:
        scores: by index, an array of scores for each seed, in the cohort's order; the first is drawn.
        cohort: the admissions that are judged.
        bins: quantile bins of the unconstrained curves.
        patients: the patient of each admission, or a `Design` with weights; None: admissions are independent.
        numeric: numeric columns of the cohort whose means are drawn too.

    >>> import mlci
    >>> visits = pd.DataFrame({"visit_id": range(40), "codes": [["I50.9"]] * 40, "died": [0] * 20 + [1] * 20})
    >>> found = compute({"age": [range(40)]}, mlci.Cohort.from_frame(visits, icd_version=10))
    >>> [curve.trend.points for curve in found["age"]]
    ['100.0 points']
    """
    outcomes, names = cohort.labels(), list(cohort.outcomes)
    columns = {name: numeric_column(cohort, name) for name in numeric}
    options: dict[str, Any] = {"bins": bins, "patients": patients}
    return {
        model: (*risk_curves(seeds, outcomes, names, **options), *mean_curves(seeds, columns, **options))
        for model, seeds in scores.items()
    }


def draw(curves: Curves, folder: Path, *, dataset: str = "") -> list[Path]:
    """Write the figures and tables.

    Args:
        curves: as `compute` returns them.
        folder: the folder to write, made if it does not exist.
        dataset: the name of the data set in the titles.

    Returns:
        The files.

    >>> import mlci
    >>> from tempfile import TemporaryDirectory
    >>> visits = pd.DataFrame({"visit_id": range(40), "codes": [["I50.9"]] * 40, "died": [0] * 20 + [1] * 20})
    >>> found = compute({"age": [range(40)]}, mlci.Cohort.from_frame(visits, icd_version=10))
    >>> with TemporaryDirectory() as folder:
    ...     draw(found, Path(folder))[0].name
    'age_binned.svg'
    """
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for model, found in curves.items():
        for kind in KINDS:
            figure = plots.risk_curves(found, kind, title=f"{dataset or 'Risk along the score'}: {model}, {kind}")
            for ending in ENDINGS:
                written.append(folder / f"{_stem(model)}_{kind}.{ending}")
                plots.save(figure, written[-1])
    risks = {model: [curve.trend for curve in found if curve.trend.level is None] for model, found in curves.items()}
    table = curve_table({model: changes(trends) for model, trends in risks.items()})
    texts = {name: frame.to_csv(index=False) for name, frame in frames(curves).items()}
    return [*written, *write(folder, texts | files_of(table))]


def frames(curves: Curves) -> dict[str, pd.DataFrame]:
    """Return the points of the figures of `curves`, and the change of each risk, as tables by file name.

    >>> import mlci
    >>> visits = pd.DataFrame({"visit_id": range(40), "codes": [["I50.9"]] * 40, "died": [0] * 20 + [1] * 20})
    >>> found = compute({"age": [range(40)]}, mlci.Cohort.from_frame(visits, icd_version=10))
    >>> frames(found)["summary.csv"][["model", "change", "verdict"]].to_dict("records")
    [{'model': 'age', 'change': 1.0, 'verdict': 'increasing'}]
    """
    drawn = [(model, curve) for model, found in curves.items() for curve in found]

    def stacked(columns: Sequence[str], values) -> pd.DataFrame:
        parts = []
        for model, curve in drawn:
            part = pd.DataFrame(dict(zip(columns, values(curve))))
            parts.append(part.assign(model=model, outcome=curve.trend.outcome)[["model", "outcome", *columns]])
        return pd.concat(parts, ignore_index=True)

    rates = ("score", "risk", "low", "high", "n")
    trends = [(model, curve.trend) for model, curve in drawn]
    return {
        "binned.csv": stacked(rates, lambda curve: [getattr(curve.rates, name) for name in rates]),
        "isotonic.csv": stacked(("score", "risk"), lambda curve: [curve.grid, curve.fit(curve.grid)]),
        "summary.csv": pd.DataFrame(
            {"model": model, "outcome": trend.outcome, "n": trend.n, "positives": trend.positives}
            | {"seeds": len(trend.deltas), "change": trend.mean, "sd": trend.sd, "verdict": trend.verdict}
            for model, trend in trends
        ),
    }


def _stem(model: str) -> str:
    return re.sub(r"[^\w.+-]+", "_", model).strip("_") or "score"
