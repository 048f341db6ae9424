"""Reproduce the paper on a copy of MIMIC: cohort, models, diagnostics and curves, compared with the paper's figures.

Turn the tables of MIMIC into a benchmark folder, and into frames that compare our figures with the paper's: scores,
diagnostics, curves and data.
"""

import csv
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import numpy as np
import pandas as pd

from mlci.base.errors import InputError
from mlci.base.grids import Grid, write
from mlci.benchmark import _sizes, diagnostics, tables
from mlci.benchmark import models as baselines
from mlci.benchmark.diagnostics import Diagnosed
from mlci.benchmark.runs import Run, Settings, run_benchmark
from mlci.cohort import build_cohort, read_cohort

TITLES = {"mimic3": "MIMIC-III", "mimic4": "MIMIC-IV"}
COMPARED = ("scores", "diagnostics", "curves", "data")
SOURCE = "source.json"
SAMPLE = {"mimic4": 5000, "mimic3": 11909}  # admissions of the paper's diagnostics
INDEX = "paper"  # the model of diagnostics and curves


@dataclass(frozen=True)
class Reproduction:
    """The runs of a benchmark on MIMIC, and frames that compare our figures with the paper's."""

    runs: list[Run]
    tables: list[Grid]
    scores: pd.DataFrame  # by model, metric and outcome
    diagnostics: pd.DataFrame  # by quantity, outcome and seed
    curves: pd.DataFrame  # by outcome
    data: pd.DataFrame  # counts of source, cohort and splits
    remarks: tuple[str, ...]  # to read before comparing


def reproduce(
    dataset: str,
    location: str | Path,
    directory: str | Path,
    *,
    models: Sequence[str] = (),
    settings: Settings | None = None,
    jobs: int = 1,
    on_change: Callable[[list[Run]], None] | None = None,
) -> Reproduction:
    """Build a cohort of MIMIC, benchmark the models on it, and compare our figures with the paper's.

    Args:
        dataset: mimic3 or mimic4.
        location: a folder with the tables, or a database URL.
        directory: the output folder; a cohort and runs that exist there are reused.
        models: names of models or families; by default all.
        settings: seeds, epochs, anchor and device.
        jobs: number of runs at a time.
        on_change: called with all runs when one of them starts or ends.

    Returns:
        The runs, the paper's tables with our figures, and the comparisons.

    >>> reproduce("mimic5", "tables", "runs")
    Traceback (most recent call last):
    mlci.base.errors.InputError: dataset: 'mimic5' is not known; allowed are mimic3, mimic4.
    """
    if dataset not in TITLES:
        raise InputError(f"dataset: '{dataset}' is not known; allowed are {', '.join(TITLES)}.")
    baselines.choose(models)
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "cohort.parquet"
    if not path.exists():
        # By the paper's rule, a stay that ends before it begins is not longer than 7 days.
        built = build_cohort(dataset, str(location), negative_stays="short")
        totals = import_module(f"mlci.sources.{dataset}").totals(str(location))
        write(directory, {SOURCE: json.dumps(totals, indent=1)})
        built.write(path)
    cohort = read_cohort(path)
    if cohort.source != dataset:
        raise InputError(f"{path}: is a cohort from {cohort.source}, not from {dataset}; choose another folder.")
    runs = run_benchmark(path, directory, models=models, settings=settings, jobs=jobs, on_change=on_change)
    frame = tables.results(runs)
    diagnosed, undiagnosed = diagnostics.diagnose(runs, cohort, sample=SAMPLE[dataset])
    notes = [f"{run.model.title}: {run.status}, {run.message}" for run in runs if run.message]
    ours, paper = _sizes.counts_of(cohort, _source(directory)), paper_figures(dataset)
    made = [_sizes.as_grid(_sizes.beside(ours, paper)), *tables.tables(frame, notes)]
    made += diagnostics.tables(diagnosed, paper=_paper_row(dataset))
    tables.write_tables(directory, made, frame, runs)
    found = Reproduction(
        runs=runs,
        tables=made,
        scores=_compare_scores(frame, dataset),
        diagnostics=_compare_diagnostics(diagnosed.get(INDEX), dataset),
        curves=_compare_curves(diagnosed.get(INDEX), dataset),
        data=_sizes.beside(ours, paper),
        remarks=(_sizes.remark(ours, paper), *cohort.notes, *_failures(runs), *undiagnosed),
    )
    files = {f"beside_paper_{name}.csv": getattr(found, name).to_csv(index=False) for name in COMPARED}
    write(directory / "tables", files | {"remarks.txt": "\n".join([*found.remarks, ""])})
    return found


def paper_diagnostics(dataset: str) -> pd.DataFrame:
    """Return the paper's figures other than dCorr and MI.

    Args:
        dataset: mimic3 or mimic4.

    Returns:
        One row per figure: table, quantity, outcome, value and sd.

    >>> paper_diagnostics("mimic3").columns.tolist()
    ['table', 'quantity', 'outcome', 'value', 'sd']
    """
    lines = (Path(baselines.__file__).parent / "data" / "paper_diagnostics.csv").read_text("utf-8").splitlines()
    frame = pd.DataFrame(row for row in csv.DictReader(lines) if row["dataset"] == dataset)
    return frame.assign(value=pd.to_numeric(frame["value"]), sd=pd.to_numeric(frame["sd"])).drop(columns="dataset")


def beside(ours: pd.DataFrame, paper: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """Compare our figures with the paper's.

    Args:
        ours: columns `keys`, mean and sd.
        paper: columns `keys`, value and sd.
        keys: the columns that identify a figure.

    Returns:
        `ours` with the paper's figure, the difference, and `in_sds`, the difference in units of its standard deviation:
        the root of the sum of both variances over seeds. If neither side has an SD, it is NaN.

    >>> ours = pd.DataFrame({"outcome": ["mortality"], "mean": [0.31], "sd": [0.03]})
    >>> paper = pd.DataFrame({"outcome": ["mortality"], "value": [0.36], "sd": [0.04]})
    >>> round(float(beside(ours, paper, ["outcome"])["in_sds"].iloc[0]), 2)
    -1.0
    """
    theirs = paper.rename(columns={"value": "paper", "sd": "paper_sd"})[[*keys, "paper", "paper_sd"]]
    joined = ours[[*keys, "mean", "sd"]].merge(theirs, on=keys, how="left")
    mean, sd, value, paper_sd = (joined[name].to_numpy(float) for name in ("mean", "sd", "paper", "paper_sd"))
    deviation = np.hypot(np.nan_to_num(sd), np.nan_to_num(paper_sd))
    in_sds = (mean - value) / np.where(deviation > 0, deviation, np.nan)
    return joined.assign(difference=mean - value, in_sds=in_sds)


def _compare_scores(frame: pd.DataFrame, dataset: str) -> pd.DataFrame:
    """Compare dCorr and MI of every model, unscaled, with the paper's."""
    cells = [cell for cell in baselines.paper_scores() if cell["dataset"] == dataset]
    paper = pd.DataFrame(cells).rename(columns={"model": "title"})
    for name in ("value", "sd"):
        paper[name] = [float(cell[name] or "nan") / 10 ** int(cell["power"]) for cell in cells]
    ours = tables.summarise(frame)
    return beside(ours.loc[ours["metric"].isin(["dcorr", "mi"])], paper, ["title", "metric", "outcome"])


def _paper_row(dataset: str) -> dict[str, dict]:
    """Return the paper's own row of Tables 3, 4, 5 and 8."""
    rows = paper_diagnostics(dataset).to_dict("records")
    changes = {row["outcome"]: (row["value"], row["sd"]) for row in rows if row["quantity"] == "delta"}
    printed = {(row["quantity"], row["outcome"]): row["value"] for row in rows if row["table"].startswith("tab:")}
    figures = {key: value for key, value in printed.items() if key[0] != "delta"}
    return {f"the paper, {TITLES[dataset]}": {"figures": figures, "changes": changes}}


def _compare_diagnostics(found: Diagnosed | None, dataset: str) -> pd.DataFrame:
    """Compare the figures of the three diagnostic tables for each seed with the paper's."""
    figures = found.figures if found else {}
    rows = [(*key, seed, value) for seed, values in figures.items() for key, value in values.items()]
    ours = pd.DataFrame(rows, columns=["quantity", "outcome", "seed", "value"])
    paper = paper_diagnostics(dataset).rename(columns={"value": "paper"})[["quantity", "outcome", "paper"]]
    joined = ours.merge(paper, on=["quantity", "outcome"], how="left")
    return joined.assign(difference=joined["value"] - joined["paper"])


def _compare_curves(found: Diagnosed | None, dataset: str) -> pd.DataFrame:
    """Compare the rise of the isotonic risk from the 5th to the 95th percentile of the score with the paper's."""
    rows = [("delta", trend.outcome, trend.mean, trend.sd, trend.verdict) for trend in (found.trends if found else ())]
    ours = pd.DataFrame(rows, columns=["quantity", "outcome", "mean", "sd", "verdict"])
    joined = beside(ours, paper_diagnostics(dataset), ["quantity", "outcome"])
    return joined.assign(verdict=ours["verdict"])


def paper_figures(dataset: str) -> dict[str, float]:
    """Return the paper's counts of its data.

    Args:
        dataset: mimic3 or mimic4.

    >>> int(paper_figures("mimic4")["train"])
    178178
    """
    rows = paper_diagnostics(dataset).to_dict("records")
    return {row["quantity"]: row["value"] for row in rows if row["table"] in ("splits", "data")}


def _source(directory: Path) -> dict[str, int]:
    """Return the totals of the source from the time when the cohort was built; empty if unknown."""
    path = directory / SOURCE
    return json.loads(path.read_text("utf-8")) if path.exists() else {}


def _failures(runs: Sequence[Run]) -> list[str]:
    return [f"{run.model.name}, seed {run.seed}: {run.status}: {run.message}" for run in runs if run.message]
