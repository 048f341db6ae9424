"""The paper's tables of a benchmark: finished runs in; text, Markdown, LaTeX and CSV out."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd

from mlci.base.files import atomic
from mlci.base.parquet import read_parquet
from mlci.benchmark import models as baselines
from mlci.benchmark.models import FAMILIES
from mlci.benchmark.runs import Run, read_metrics
from mlci.cohort import Cohort
from mlci.measures.registry import METRICS, benchmarked

PAPER = {
    "table1_dcorr": ("1", "dcorr", "Table 1. Distance correlation"),
    "table2_mi": ("2", "mi", "Table 2. Mutual information"),
    "table4_dcorr_all": ("4", "dcorr", "Table 4. Distance correlation, with every pooling and kernel"),
    "table5_mi_all": ("5", "mi", "Table 5. Mutual information, with every pooling and kernel"),
}
TABLES = PAPER | {
    name: ("4", name, f"{metric.heading}: depends on {metric.depends}")
    for name, metric in benchmarked().items()
    if name not in {metric for _, metric, _ in PAPER.values()}
}
OWN = "Own scores"


@dataclass(frozen=True)
class Cell:
    mean: float
    sd: float | None  # over seeds, n - 1; None for one run
    place: int = 0  # 1: best of the column, 2: second

    def text(self, power: int) -> str:
        scaled = f"{self.mean * 10**power:.2f}"
        return scaled if self.sd is None else f"{scaled} ± {self.sd * 10**power:.2f}"


@dataclass(frozen=True)
class Table:
    """Models down, outcomes across; `powers` are the columns' scaling by ten."""

    name: str
    title: str
    outcomes: tuple[str, ...]
    powers: tuple[int, ...]
    rows: tuple[tuple[str, str, tuple[Cell, ...]], ...]  # family, model, cells
    notes: tuple[str, ...] = field(default=())

    def groups(self) -> list[tuple[str, list[tuple[str, tuple[Cell, ...]]]]]:
        """The rows of each family, in order."""
        found: dict[str, list[tuple[str, tuple[Cell, ...]]]] = {}
        for family, model, cells in self.rows:
            found.setdefault(family, []).append((model, cells))
        return list(found.items())


def results(runs: Iterable[Run], own: Mapping[str, dict] | None = None) -> pd.DataFrame:
    """Every finished run's metrics, one row each: family, model, title, seed, metric, outcome, value."""
    rows = []
    for run in runs:
        if run.status != "done":
            continue
        about = (FAMILIES[run.model.family], run.model.name, run.model.title, run.seed)
        rows.extend((*about, *cell) for cell in _cells(read_metrics(run.folder)["metrics"]))
    for name, metrics in (own or {}).items():
        rows.extend((OWN, name, name, 0, *cell) for cell in _cells(metrics))
    return pd.DataFrame(rows, columns=["family", "model", "title", "seed", "metric", "outcome", "value"])


def test_scores(runs: Iterable[Run], cohort: Cohort) -> dict[str, dict[int, np.ndarray]]:
    """The scores of the test split of every finished run: by the model's name, then by seed."""
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
    """Mean and standard deviation (n - 1) over seeds; order of models and outcomes as they came."""
    keys = ["family", "model", "title", "metric", "outcome"]
    summary = frame.groupby(keys, sort=False)["value"].agg(["mean", "std", "count"]).reset_index()
    return summary.rename(columns={"std": "sd", "count": "seeds"})


def tables(frame: pd.DataFrame, notes: Sequence[str] = ()) -> list[Table]:
    """The paper's tables of a benchmark's results, and their order-only companions."""
    summary, reported = summarise(frame), baselines.paper_rows()
    built = []
    for name, (number, metric, title) in TABLES.items():
        part = summary[summary["metric"] == metric]
        if number in "12":  # the main tables leave out what the paper shows in the wide ones only
            part = part[[number in reported.get(title, (0, [number]))[1] for title in part["title"]]]
            part = part[part["family"] != FAMILIES["ablation"]]
        if len(part):
            built.append(_table(name, title, part, metric, tuple(notes)))
    return built


def _table(name: str, title: str, part: pd.DataFrame, metric: str, notes: tuple[str, ...]) -> Table:
    outcomes = tuple(part["outcome"].unique())
    wide = part.pivot(index="model", columns="outcome", values="mean").reindex(columns=outcomes)
    about = METRICS[metric]
    powers = tuple(power_of_ten(wide[outcome].to_numpy()) if about.unit else 2 for outcome in outcomes)
    places = wide.round(12).rank(ascending=about.better == "smaller", method="min")
    rows = []
    for model, cells in part.groupby("model", sort=False):
        found = {cell["outcome"]: cell for cell in cells.to_dict("records")}
        made = tuple(
            Cell(
                float(found[outcome]["mean"]),
                float(found[outcome]["sd"]) if found[outcome]["seeds"] > 1 else None,
                int(place) if (place := places.at[model, outcome]) in (1, 2) else 0,
            )
            for outcome in outcomes
        )
        rows.append((cells["family"].iloc[0], cells["title"].iloc[0], made))
    return Table(name, title, outcomes, powers, tuple(rows), notes)


def power_of_ten(values: np.ndarray) -> int:
    """The paper's scaling of a column of mutual information: the middle cell has two digits before the point."""
    middle = float(np.nanmedian(values))
    return 2 if middle <= 0 else max(2, 1 - int(np.floor(np.log10(middle))))


def as_text(table: Table) -> str:
    """Plain text; * marks the best of a column, + the second."""
    marks = {0: " ", 1: "*", 2: "+"}
    head = ["", *(f"{outcome} (x10^{power})" for outcome, power in zip(table.outcomes, table.powers))]
    lines: list[list[str]] = []
    for family, rows in table.groups():
        lines.append([family])
        for model, cells in rows:
            texts = (cell.text(power) + marks[cell.place] for cell, power in zip(cells, table.powers))
            lines.append([f"  {model}", *texts])
    widths = [max(len(line[k]) for line in [head, *lines] if len(line) > k and len(line) > 1) for k in range(len(head))]
    shown = [
        line[0]
        if len(line) == 1
        else "  ".join([line[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(line[1:], widths[1:]))])
        for line in [head, *lines]
    ]
    return "\n".join([table.title, "", *(line.rstrip() for line in shown), "", "* best, + second.", *table.notes, ""])


def as_markdown(table: Table) -> str:
    marks = {0: "{}", 1: "**{}**", 2: "<u>{}</u>"}
    head = ["model", *(f"{outcome} (×10^{power})" for outcome, power in zip(table.outcomes, table.powers))]
    lines = [f"**{table.title}**", "", _bar(head), _bar(["---", *["---:"] * len(table.outcomes)])]
    for family, rows in table.groups():
        lines.append(_bar([f"*{family}*", *[""] * len(table.outcomes)]))
        for model, cells in rows:
            texts = (marks[cell.place].format(cell.text(power)) for cell, power in zip(cells, table.powers))
            lines.append(_bar([model, *texts]))
    return "\n".join([*lines, "", *table.notes, ""])


def _bar(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def as_latex(table: Table) -> str:
    """A booktabs table as in the paper."""
    marks = {0: "{}", 1: r"\textbf{{{}}}", 2: r"\underline{{{}}}"}

    def escape(text: str) -> str:
        return text.replace("&", r"\&").replace("_", r"\_").replace("%", r"\%").replace("+", "{+}")

    columns = [rf"{escape(name)} ($\times 10^{{{power}}}$)" for name, power in zip(table.outcomes, table.powers)]
    lines = [
        r"\begin{table}",
        rf"\caption{{{escape(table.title)}}}",
        rf"\begin{{tabular}}{{l{'c' * len(columns)}}}",
        r"\toprule",
        f"Baseline & {' & '.join(columns)} \\\\",
    ]
    for family, rows in table.groups():
        lines += [r"\midrule", rf"\multicolumn{{{len(columns) + 1}}}{{l}}{{\textit{{{escape(family)}}}}} \\"]
        for model, cells in rows:
            texts = [
                marks[cell.place].format(cell.text(power).replace("±", r"$\pm$"))
                for cell, power in zip(cells, table.powers)
            ]
            lines.append(f"{escape(model)} & {' & '.join(texts)} \\\\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", r"\end{table}", ""])


def costs(runs: Iterable[Run]) -> pd.DataFrame:
    """What each finished run took: seconds and the process's peak memory."""
    done = [(run, read_metrics(run.folder)) for run in runs if run.status == "done"]
    columns = ("device", "fit_seconds", "seconds", "cpu_seconds", "process_peak_mb")
    return pd.DataFrame(
        [(run.model.name, run.seed, *(facts.get(column) for column in columns)) for run, facts in done],
        columns=["model", "seed", *columns],
    )


def write_tables(directory: Path, made: Sequence[Table], frame: pd.DataFrame, runs: Sequence[Run]) -> list[Path]:
    """Each table as text, Markdown and LaTeX; all results and the costs as CSV."""
    folder = directory / "tables"
    folder.mkdir(parents=True, exist_ok=True)
    files = {
        f"{table.name}.{ending}": form(table)
        for table in made
        for ending, form in (("txt", as_text), ("md", as_markdown), ("tex", as_latex))
    }
    files["results.csv"] = summarise(frame).to_csv(index=False)
    files["runs.csv"] = frame.to_csv(index=False)
    files["costs.csv"] = costs(runs).to_csv(index=False)
    for name, text in files.items():
        with atomic(folder / name) as temporary:
            temporary.write_text(text)
    return [folder / name for name in files]
