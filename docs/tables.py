"""Write the tables of docs/benchmarks.md from the runs of `mlci benchmark`, and beside it every run and every setting.

    python docs/tables.py nhds.parquet runs docs/nhds [--import runs.npz ...] [--epoch cpu.npz]

The page's table between the marks of the folder's name is replaced; models that the folder knows from before and that
are not among the runs stay as they are. Where the cohort knows the true severity, each score's rank correlation with it
joins the table, and the severity itself as the score that none can beat. `--epoch` takes runs of one epoch on the
processor (`gpu_models.py run --device cpu --epochs 1`): their times stand for the whole.
"""

import argparse
import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

from mlci.benchmark import models as baselines
from mlci.benchmark import runs as benchmark
from mlci.benchmark import tables
from mlci.benchmark.metrics import measure
from mlci.benchmark.runs import Run, Settings
from mlci.cohort import Cohort, read_cohort
from mlci.judging.theory import best_spacing

PAGE = Path(__file__).parent / "benchmarks.md"
TRUTH = "true_severity"
MEANS = {
    "auroc": "mean AUROC",
    "deviance": "mean deviance explained, %",
    "nagelkerke": "mean Nagelkerke's R², %",
    "brier_skill": "mean Brier skill, %",
}
COLUMNS = ("dcorr", "mi", "rank_dcorr", "auroc")


def truth(cohort: Cohort, runs: list[Run]) -> pd.DataFrame:
    """The rank correlation of each run's score with the true severity; and the metrics of the severity itself, as it is
    and in the spacing that suits distance correlation best, found on the training split.
    """
    test, train = cohort.split("test"), cohort.split("train")
    severity = pd.Series(test.column(TRUTH))
    spacing = best_spacing(train.column(TRUTH), train.labels())
    ideal = {"True severity": severity.to_numpy(), "True severity, best spaced": spacing.apply(severity)}
    scores = [(run.model.name, run.model.title, run.seed, score_of(run)[-len(test) :]) for run in runs]
    scores += [(title, title, 0, score) for title, score in ideal.items()]
    valid = cohort.split("valid")
    known = {"True severity": valid.column(TRUTH), "True severity, best spaced": spacing.apply(valid.column(TRUTH))}
    own = {
        title: measure(score, test, learned=(np.asarray(known[title], dtype=float), valid))
        for title, score in ideal.items()
    }
    frame = tables.results([], own)
    rows = [
        ("", name, title, seed, "spearman", TRUTH, severity.corr(pd.Series(score), method="spearman"))
        for name, title, seed, score in scores
    ]
    return pd.concat([pd.DataFrame(rows, columns=frame.columns), frame])


def former(folder: Path, settings: dict, fresh: set[str]) -> pd.DataFrame:
    """What the folder holds of models that are not run anew."""
    frame = pd.read_csv(folder / "runs.csv")
    frame = frame[frame["model"].isin(set(settings) - fresh)]
    titles = {name: facts["model"]["title"] for name, facts in settings.items()}
    return frame.assign(title=frame["model"].map(titles), family="")


def score_of(run: Run) -> np.ndarray:
    return pq.read_table(run.folder / "scores.parquet")[run.model.name].to_numpy()


def overview(frame: pd.DataFrame) -> str:
    """A line for each model: means over outcomes with their SD over seeds, then the means over seeds by outcome."""
    heads = ["model", *MEANS.values(), "dCorr", "MI (nats)", "dCorr of ranks", "AUROC", "sum of squared dCorr"]
    known = (frame["metric"] == "spearman").any()
    heads += ["Spearman with severity"] if known else []
    lines = [
        f"| {' | '.join(heads)} |",
        "|---" + "|---:" * len(MEANS) + "|---" * 4 + "|---:" * (len(heads) - 5 - len(MEANS)) + "|",
    ]
    for title, part in frame.groupby("title", sort=False):
        wide = {
            metric: 100 * one.pivot(index="seed", columns="outcome", values="value")
            for metric, one in part.groupby("metric")
        }
        order = list(part[part["metric"] == "dcorr"]["outcome"].unique())
        cells = [with_spread(wide[metric][order].mean(axis=1)) for metric in MEANS]
        cells += [numbers(wide[metric][order].mean(), 2 if metric == "mi" else 1) for metric in COLUMNS]
        if len(wide["dcorr"]) > 1:
            cells[len(MEANS)] += f" ({numbers(wide['dcorr'][order].std(), 1)})"
        cells.append(f"{(wide['dcorr'] / 100).pow(2).sum(axis=1).mean():.3f}")
        if known:
            cells.append(with_spread(wide["spearman"][TRUTH]))
        few = f" (seeds {', '.join(map(str, wide['dcorr'].index))})" if len(wide["dcorr"]) == 2 else ""
        lines.append(f"| {title}{few} | {' | '.join(cells)} |")
    return "\n".join(lines)


def with_spread(values: pd.Series) -> str:
    return f"{values.mean():.1f}" + (f" ({values.std():.1f})" if len(values) > 1 else "")


def numbers(values, digits: int) -> str:
    return " ".join(f"{value:.{digits}f}" for value in values)


def times(runs: list[Run], epoch: str) -> str:
    """Processor minutes of a run on one core; of neural models as many times one epoch's as a run has epochs."""
    with np.load(epoch, allow_pickle=False) as archive:
        once = json.loads(str(archive["facts"]))["runs"].values()
    minutes = {one["model"]["name"]: one["cost"]["cpu_seconds"] / one["model"]["epochs"] / 6 for one in once}
    peak = max(one["cost"]["process_peak_mb"] for one in once) / 1024
    lines = ["| model | processor minutes | seconds on an H200, up to 16 runs at once |", "|---|---:|---:|"]
    total = {}
    for title in dict.fromkeys(run.model.title for run in runs):
        mine = [run for run in runs if run.model.title == title]
        costs = [benchmark.read_metrics(run.folder) for run in mine]
        there = [cost["seconds"] for cost in costs if cost["device"] != "cpu"]
        here = [cost["cpu_seconds"] / 60 for cost in costs if cost["device"] == "cpu"]
        spent = np.mean(here) if here else minutes[mine[0].model.name]
        total.setdefault(mine[0].model.family in ("clinical", "classical"), []).append(spent)
        lines.append(f"| {title} | {spent:.2f} | {f'{min(there):.0f} - {max(there):.0f}' if there else ''} |")
    lines.append(f"| *clinical and classical together* | {sum(total[True]):.1f} | |")
    lines.append(f"| *neural together, one seed* | {sum(total[False]):.0f} | |")
    return "\n".join([*lines, "", f"Peak memory of the process that ran all neural models: {peak:.2f} GB."])


def place(name: str, text: str) -> None:
    """Replace what stands on the page between the marks of this name."""
    marks = f"<!-- {name} -->", f"<!-- end of {name} -->"
    page, found = re.subn(f"(?s){marks[0]}.*{marks[1]}", lambda _: f"{marks[0]}\n{text}\n{marks[1]}", PAGE.read_text())
    if not found:
        raise SystemExit(f"{PAGE}: has no marks {' and '.join(marks)}")
    PAGE.write_text(page)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cohort")
    parser.add_argument("runs", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--import", dest="imported", action="append", default=[])
    parser.add_argument("--epoch")
    words = parser.parse_args()
    for path in words.imported:
        benchmark.import_runs(path, words.cohort, words.runs)
    cohort = read_cohort(words.cohort)
    runs = [run for run in benchmark.plan(words.runs, baselines.choose(), Settings()) if run.status == "done"]
    frame, settings = tables.results(runs), {}
    if TRUTH in cohort.table.column_names:
        frame = pd.concat([frame, truth(cohort, runs)])
    words.folder.mkdir(exist_ok=True)
    if (words.folder / "models.json").exists():
        settings = json.loads((words.folder / "models.json").read_text())
        frame = pd.concat([former(words.folder, settings, set(frame["model"])), frame])
    order = {name: place for place, name in enumerate(baselines.discover())}
    frame = frame.sort_values("model", key=lambda name: name.map(order).fillna(len(order)), kind="stable")
    kept = frame[["model", "seed", "outcome", "metric", "value"]].sort_values(["model", "seed"], kind="stable")
    kept.to_csv(words.folder / "runs.csv", index=False, float_format="%.6f")
    for run in runs:
        settings[run.model.name] = json.loads((run.folder / "config.json").read_text())
        del settings[run.model.name]["seed"]
    (words.folder / "models.json").write_text(json.dumps(dict(sorted(settings.items())), indent=1) + "\n")
    place(words.folder.name, overview(frame))
    if words.epoch:
        place(f"times of {words.folder.name}", times(runs, words.epoch))


if __name__ == "__main__":
    main()
