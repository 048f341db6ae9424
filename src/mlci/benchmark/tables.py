"""Make the paper's tables from the finished runs of a benchmark, as text, Markdown, LaTeX and CSV."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from mlci.base.grids import Grid, GridCell, RowGroup, files_of, power, write
from mlci.base.parquet import read_parquet
from mlci.benchmark import models as baselines
from mlci.benchmark.metrics import SKILLS
from mlci.benchmark.models import FAMILIES
from mlci.benchmark.runs import Run, read_metrics
from mlci.cohort import Cohort
from mlci.measures.registry import METRICS, benchmarked

PAPER = {
    "table1_dcorr": ("1", "dcorr", "Table 1. Distance correlation"),
    "table2_mi": ("2", "mi", "Table 2. Mutual information"),
    "table6_dcorr_all": ("6", "dcorr", "Table 6. Distance correlation, with every pooling and kernel"),
    "table7_mi_all": ("7", "mi", "Table 7. Mutual information, with every pooling and kernel"),
}
TABLES = PAPER | {
    name: ("", name, f"{metric.heading}: depends on {metric.depends}")
    for name, metric in benchmarked().items()
    if name not in {metric for _, metric, _ in PAPER.values()}
}
HEADLINE = ("auroc", *SKILLS, "dcorr", "mi")  # metrics in the table of means over outcomes
OWN = "Own scores"
RIVALS = "Refitted on the training split, one score per outcome"


def results(
    runs: Iterable[Run], own: Mapping[str, dict] | None = None, rivals: Mapping[str, dict] | None = None
) -> pd.DataFrame:
    """Collect the metrics of a benchmark.

    Args:
        runs: of a benchmark; unfinished ones are skipped.
        own: metrics of the user's own scores, by name (`own_metrics`).
        rivals: metrics of regressions, by name (`rival_metrics`).

    Returns:
        One row per value: family, model, title, seed, metric, outcome and value.

    >>> results([], {"ward": {"auroc": {"mortality": 0.8}}}).drop(columns="title").to_dict("records")
    [{'family': 'Own scores', 'model': 'ward', 'seed': 0, 'metric': 'auroc', 'outcome': 'mortality', 'value': 0.8}]
    """
    rows = []
    for run in runs:
        if run.status != "done":
            continue
        about = (FAMILIES[run.model.family], run.model.name, run.model.title, run.seed)
        rows.extend((*about, *cell) for cell in _cells(read_metrics(run.folder)["metrics"]))
    for family, found in ((OWN, own), (RIVALS, rivals)):
        for name, metrics in (found or {}).items():
            rows.extend((family, name, name, 0, *cell) for cell in _cells(metrics))
    return pd.DataFrame(rows, columns=["family", "model", "title", "seed", "metric", "outcome", "value"])


def test_scores(runs: Iterable[Run], cohort: Cohort) -> dict[str, dict[int, np.ndarray]]:
    """Read the test scores of every finished run.

    Args:
        runs: of a benchmark.
        cohort: of the runs.

    Returns:
        Name of the model → seed → scores.

    >>> from tempfile import TemporaryDirectory
    >>> from mlci.benchmark.runs import run_benchmark
    >>> codes, died = [["C78.0"], ["E11.9"], ["I50.9"]] * 5, [1, 0, 0] * 5
    >>> visits = pd.DataFrame({"visit_id": range(15), "codes": codes, "died": died})
    >>> cohort = Cohort.from_frame(visits.assign(split=["train", "valid", "test"] * 5), icd_version=10)
    >>> with TemporaryDirectory() as folder:
    ...     cohort.write(Path(folder, "cohort.parquet"))
    ...     runs = run_benchmark(Path(folder, "cohort.parquet"), folder, models=["charlson"])
    ...     test_scores(runs, cohort)
    {'charlson': {0: array([1., 1., 1., 1., 1.])}}
    """
    n, found = len(cohort.split("test")), {}
    for run in runs:
        if run.status == "done":
            column = read_parquet(run.folder / "scores.parquet")[run.model.name]
            found.setdefault(run.model.name, {})[run.seed] = column.to_numpy()[-n:]
    return found


def _cells(metrics: Mapping[str, Mapping[str, float | None]]) -> Iterable[tuple[str, str, float]]:
    for metric, values in metrics.items():
        for outcome, value in values.items():
            yield metric, outcome, np.nan if value is None else value


def summarise(frame: pd.DataFrame) -> pd.DataFrame:
    """Return means and standard deviations (n - 1) over seeds.

    Args:
        frame: from `results`; models and outcomes keep their order.

    >>> frame = pd.DataFrame({"seed": [1, 2], "value": [0.2, 0.4]})
    >>> frame = frame.assign(family="f", model="m", title="M", metric="dcorr", outcome="mortality")
    >>> summarise(frame)[["mean", "sd", "seeds"]].round(3).to_dict("records")
    [{'mean': 0.3, 'sd': 0.141, 'seeds': 2}]
    """
    keys = ["family", "model", "title", "metric", "outcome"]
    summary = frame.groupby(keys, sort=False)["value"].agg(["mean", "std", "count"]).reset_index()
    return summary.rename(columns={"std": "sd", "count": "seeds"})


def tables(frame: pd.DataFrame, notes: Sequence[str] = ()) -> list[Grid]:
    """Make the tables of a benchmark: means over outcomes, the paper's tables, and one per further metric.

    Args:
        frame: from `results`.
        notes: sentences below each table.

    Returns:
        The tables that have at least one row.

    >>> from mlci.base.grids import as_text
    >>> found = results([], {"ward": {"auroc": {"mortality": 0.8}}, "nurse": {"auroc": {"mortality": 0.7}}})
    >>> print(as_text(tables(found)[-1]))
    AUROC: depends on order alone
    <BLANKLINE>
    model    mortality (×10²)
    Own scores
      ward             80.00*
      nurse            70.00+
    <BLANKLINE>
    * best, + second.
    <BLANKLINE>
    """
    summary, reported = summarise(frame), baselines.paper_rows()
    built = [_headline(frame, notes)] if len(frame) else []
    for name, (number, metric, title) in TABLES.items():
        part = summary[summary["metric"] == metric]
        if number in ("1", "2"):  # the main tables omit models that the paper shows only in the wide tables
            part = part.loc[[number in reported.get(title, (0, [number]))[1] for title in part["title"]]]
            part = part[part["family"] != FAMILIES["ablation"]]
        if len(part):
            built.append(_table(name, title, part, metric, tuple(notes)))
    return built


def _headline(frame: pd.DataFrame, notes: Sequence[str] = ()) -> Grid:
    """Make the table of means over outcomes, with their SD over seeds, times 100.

    An outcome for which no model has a metric does not count; a model that lacks another one has no mean.
    """
    about = ["family", "model", "title"]
    known = frame[frame["metric"].isin(HEADLINE)].dropna(subset="value")
    runs = known.groupby([*about, "seed", "metric"], sort=False)["value"].agg(["mean", "count"])
    whole = runs.index.get_level_values("metric").map(known.groupby("metric")["outcome"].nunique())
    found = runs["mean"].where(runs["count"] == whole).groupby([*about, "metric"], sort=False)
    cells = found.agg(["mean", "std", "count"]).rename(columns={"std": "sd", "count": "seeds"})
    wide = cells["mean"].unstack("metric").reindex(columns=list(HEADLINE)).dropna(how="all")
    places = wide.round(12).rank(ascending=False, method="min")
    sections: dict[str, list[tuple[str, tuple[GridCell, ...]]]] = {}
    for key in wide.index:
        row = tuple(
            GridCell("") if np.isnan(wide.at[key, name]) else _cell(cells.loc[(*key, name)], 2, places.at[key, name])
            for name in HEADLINE
        )
        sections.setdefault(key[0], []).append((key[2], row))
    heads = ("model", *(f"{METRICS[name].short} ({power(2)})" for name in HEADLINE))
    groups = tuple(RowGroup(family, tuple(rows)) for family, rows in sections.items())
    return Grid("headline", "Means over outcomes, test split", heads, groups, tuple(notes))


def _table(name: str, title: str, part: pd.DataFrame, metric: str, notes: tuple[str, ...]) -> Grid:
    outcomes = tuple(part["outcome"].unique())
    wide = part.pivot(index="model", columns="outcome", values="mean").reindex(columns=outcomes)
    about = METRICS[metric]
    powers = {outcome: _power_of_ten(wide[outcome].to_numpy()) if about.unit else 2 for outcome in outcomes}
    places = wide.round(12).rank(ascending=about.better == "smaller", method="min")
    sections: dict[str, list[tuple[str, tuple[GridCell, ...]]]] = {}
    for model, cells in part.groupby("model", sort=False):
        found = {cell["outcome"]: cell for cell in cells.to_dict("records")}
        row = tuple(
            GridCell("")
            if np.isnan(wide.at[model, outcome])
            else _cell(found[outcome], powers[outcome], places.at[model, outcome])
            for outcome in outcomes
        )
        sections.setdefault(cells["family"].iloc[0], []).append((cells["title"].iloc[0], row))
    heads = ("model", *(f"{outcome} ({power(powers[outcome])})" for outcome in outcomes))
    return Grid(name, title, heads, tuple(RowGroup(family, tuple(rows)) for family, rows in sections.items()), notes)


def _cell(cell: Mapping, exponent: int, place: float) -> GridCell:
    """Return the mean, with its SD if there are several seeds; the best two places are marked."""
    spread = f" ± {cell['sd'] * 10**exponent:.2f}" if cell["seeds"] > 1 else ""
    return GridCell(f"{cell['mean'] * 10**exponent:.2f}{spread}", int(place) if place <= 2 else 0)


def _power_of_ten(values: np.ndarray) -> int:
    """Return the paper's scaling of a column of mutual information: its median has two digits before the point.

    >>> _power_of_ten(np.array([0.0021, 0.0034])), _power_of_ten(np.array([0.12]))
    (4, 2)
    """
    middle = float(np.nanmedian(values))
    return 2 if middle <= 0 else max(2, 1 - int(np.floor(np.log10(middle))))


def _costs(runs: Iterable[Run]) -> pd.DataFrame:
    """Return the costs of each finished run: seconds and the process's peak memory."""
    done = [(run, read_metrics(run.folder)) for run in runs if run.status == "done"]
    columns = ("device", "fit_seconds", "seconds", "cpu_seconds", "process_peak_mb")
    return pd.DataFrame(
        [(run.model.name, run.seed, *(facts.get(column) for column in columns)) for run, facts in done],
        columns=["model", "seed", *columns],
    )


def write_tables(directory: Path, made: Sequence[Grid], frame: pd.DataFrame, runs: Sequence[Run]) -> list[Path]:
    """Write each table as text, Markdown and LaTeX, and all results and costs as CSV.

    Args:
        directory: the folder of the benchmark; the files go into its subfolder `tables`.
        made: the tables.
        frame: from `results`.
        runs: of the benchmark.

    Returns:
        The files.

    >>> from tempfile import TemporaryDirectory
    >>> found = results([], {"ward": {"auroc": {"mortality": 0.8}}, "nurse": {"auroc": {"mortality": 0.7}}})
    >>> with TemporaryDirectory() as folder:
    ...     [path.name for path in write_tables(Path(folder), tables(found)[-1:], found, [])]
    ['auroc.txt', 'auroc.md', 'auroc.tex', 'results.csv', 'runs.csv', 'costs.csv']
    """
    folder = directory / "tables"
    folder.mkdir(parents=True, exist_ok=True)
    files = {name: text for table in made for name, text in files_of(table).items()}
    files["results.csv"] = summarise(frame).to_csv(index=False)
    files["runs.csv"] = frame.to_csv(index=False)
    files["costs.csv"] = _costs(runs).to_csv(index=False)
    return write(folder, files)
