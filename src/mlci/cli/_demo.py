"""The steps of `mlci demo`: cohort, fit, scores, evaluation and report, each a file in one folder.

A step whose file exists is skipped, so a stopped demo continues and a finished one returns at once.
"""

import json
import time
from collections.abc import Callable
from pathlib import Path

import mlci
from mlci.base.errors import InputError
from mlci.base.files import atomic

ADMISSIONS, SEED = 20_000, 11
PROGRESS_SECONDS = 3.0  # between progress lines of a fit
COHORT, MODEL, SCORES, METRICS, REPORT = (
    *("cohort.parquet", "model.safetensors", "scores.parquet", "metrics.csv"),
    "report.html",
)


def run(folder: Path, *, admissions: int = ADMISSIONS, seed: int = SEED, say: Callable[[str], None] = print) -> Path:
    """Run the missing steps of the demo in `folder`, and return the path of the report."""
    wanted = {"version": mlci.__version__, "admissions": admissions, "seed": seed}
    settings = folder / "demo.json"
    if not folder.parent.is_dir():
        raise InputError(f"{folder}: the folder {folder.parent} does not exist.")
    folder.mkdir(exist_ok=True)
    if settings.exists():
        if json.loads(settings.read_text("utf-8")) != wanted:
            raise InputError(
                f"{folder}: contains a demo with other settings ({settings.read_text('utf-8')}); choose another folder."
            )
    elif any(folder.iterdir()):
        raise InputError(f"{folder}: is not empty and contains no demo; choose another folder.")
    else:
        with atomic(settings) as temporary:
            temporary.write_text(json.dumps(wanted), "utf-8")
    if (folder / REPORT).exists():
        say(f"The demo is already complete; to run it again, delete {folder}.")
        return folder / REPORT

    steps = {COHORT: _cohort, MODEL: _fit, SCORES: _score, METRICS: _evaluate, REPORT: _report}
    for number, (name, step) in enumerate(steps.items(), start=1):
        if (folder / name).exists():
            say(f"{number}/{len(steps)} {name} exists already.")
            continue
        start = time.perf_counter()
        with atomic(folder / name) as temporary:
            summary = step(folder, temporary, say=say, **wanted)
        say(f"{number}/{len(steps)} {name}: {summary} ({time.perf_counter() - start:.0f} s)")
    return folder / REPORT


def _cohort(folder: Path, target: Path, *, admissions: int, seed: int, **_) -> str:
    from mlci.cohort import build_cohort

    cohort = build_cohort("synthetic", admissions, seed=seed)
    cohort.write(target)
    return f"{len(cohort):,} admissions of a synthetic hospital, {len(cohort.outcomes)} outcomes"


def _fit(folder: Path, target: Path, *, seed: int, say: Callable[[str], None], **_) -> str:
    from mlci.cohort import read_cohort
    from mlci.index.estimator import MLCI

    last_shown = 0.0

    def show_progress(event) -> None:
        nonlocal last_shown
        if event.seconds >= last_shown + PROGRESS_SECONDS:
            last_shown = event.seconds
            say(f"    {event.text}; about {event.eta:.0f} s left")

    checkpoint = folder / ".fit"
    index = MLCI(seed=seed).fit(read_cohort(folder / COHORT), checkpoint=checkpoint, on_event=show_progress)
    index.save(target)
    checkpoint.unlink(missing_ok=True)
    return f"an index learned from {index.model_.card['admissions']['train']:,} of these admissions"


def _score(folder: Path, target: Path, **_) -> str:
    import pyarrow as pa

    from mlci.base.parquet import write_parquet
    from mlci.cohort import read_cohort
    from mlci.index.estimator import load

    frame = load(folder / MODEL).table(read_cohort(folder / COHORT))
    write_parquet(pa.Table.from_pandas(frame, preserve_index=False), target)
    return f"a score for each admission, {frame['high_severity'].mean():.1%} with high severity"


def _evaluate(folder: Path, target: Path, **_) -> str:
    from mlci.cohort import read_cohort
    from mlci.judging.evaluate import evaluate
    from mlci.judging.scores import match, read_scores

    test = read_cohort(folder / COHORT).split("test")
    values, test = match(read_scores(folder / SCORES), test)
    frame = evaluate({"MLCI": values["score"].to_numpy()}, test, resamples=200)
    frame.to_csv(target, index=False)
    auroc = frame[frame["metric"] == "auroc"]["value"]
    return f"AUROC {auroc.min():.2f} to {auroc.max():.2f} on {len(test):,} test admissions"


def _report(folder: Path, target: Path, **_) -> str:
    from mlci.cohort import read_cohort
    from mlci.index.model import load_model
    from mlci.showing.report import build

    command = f"mlci report {MODEL} {COHORT} -o {REPORT}"
    page = build(load_model(folder / MODEL), read_cohort(folder / COHORT), command=command)
    target.write_text(page, encoding="utf-8")
    return f"{len(page.encode()) / 1e6:.1f} MB"
