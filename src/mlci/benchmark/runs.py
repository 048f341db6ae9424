"""Run a benchmark: fit, score and evaluate every model with every seed on one cohort, each run in a folder of its own.

A run is a folder `DIR/<model>/<seed>/` with its config, the fitted model, the scores of the splits valid and test, the
metrics of test, and the file DONE, which is written last. Runs with DONE are kept; others are repeated.
`mlci.benchmark.tables` makes tables of the runs.
"""

import hashlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import mlci
from mlci.base.children import Children
from mlci.base.errors import InputError, sentence
from mlci.base.files import atomic
from mlci.base.parquet import write_parquet
from mlci.benchmark import models as baselines
from mlci.benchmark._imported import read_archive
from mlci.benchmark._kept import keep
from mlci.benchmark.changes import changed
from mlci.benchmark.metrics import measure
from mlci.benchmark.models import Baseline, Parts
from mlci.cohort import Cohort, read_cohort
from mlci.config import TokenConfig
from mlci.fitting import Split
from mlci.fitting._processes import check_device

SEEDS = (11, 101, 1001)
MODEL = "model.safetensors"


@dataclass
class Run:
    """One model with one seed, and its status."""

    model: Baseline
    seed: int
    folder: Path
    status: str = "left"  # left, running, done, failed, skipped
    started: float = 0.0
    seconds: float | None = None
    message: str = ""


@dataclass(frozen=True)
class Settings:
    """The settings of a benchmark; `epochs` and `anchor` apply to the models that have them.

    `changes` are further settings of models, by name or family (`mlci.benchmark.changes`).
    """

    seeds: tuple[int, ...] = SEEDS
    epochs: int | None = None
    anchor: str = "mortality"
    device: str = "cpu"
    changes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def adapt(self, model: Baseline) -> Baseline:
        """Return a model with these settings, as far as they apply to it.

        >>> Settings(epochs=3).adapt(baselines.discover()["paper"]).epochs
        3
        """
        names = {field.name for field in fields(model)}
        common = {"epochs": self.epochs, "anchor": self.anchor}
        model = replace(model, **{name: value for name, value in common.items() if name in names and value is not None})
        return changed(model, self.changes)


def fingerprint(parts: Mapping[str, Split]) -> str:
    """Return a digest of a cohort's outcomes and of its codes as the paper's models read them; the same everywhere.

    Args:
        parts: the three splits of the cohort (`mlci.benchmark.models.parts`).

    >>> import pandas as pd
    >>> visits = pd.DataFrame({"visit_id": range(60), "codes": [["C78.0"], ["E11.9"]] * 30, "died": [1, 0] * 30})
    >>> here, there = (Cohort.from_frame(rows, icd_version=10) for rows in (visits, visits[::-1]))
    >>> fingerprint(baselines.parts(here)) == fingerprint(baselines.parts(there))  # the order of rows does not matter
    True
    """
    digest = hashlib.sha256()
    for name in ("train", "valid", "test"):
        part = parts[name]
        digest.update(json.dumps([name, part.names, part.vocabulary_size]).encode())
        digest.update(part.tokens.ids.astype("<i4").tobytes())
        digest.update(part.tokens.offsets.astype("<i8").tobytes())
        # NaN is unequal to itself, so outcomes are encoded as bytes: no, yes and unknown.
        digest.update(np.nan_to_num(part.outcomes, nan=2).astype(np.int8).tobytes())
    return digest.hexdigest()


def _recorded(parts: Mapping[str, Split]) -> str:
    """Return a digest of what `fingerprint` leaves out and some models read: whole codes, and patients."""
    digest = hashlib.sha256()
    for part in parts.values():
        admissions = part.admissions
        assert admissions is not None
        digest.update(json.dumps(admissions.values.tolist()).encode())
        for array in (admissions.versions, admissions.indices, admissions.offsets, part.subjects):
            digest.update(np.asarray(array).tobytes())
    return digest.hexdigest()


def plan(directory: Path, models: Iterable[Baseline], settings: Settings) -> list[Run]:
    """List the runs of a benchmark, with the status of each.

    Args:
        directory: the folder of the benchmark.
        models: to run. A model with a fixed seed has one run; a model whose library is missing is skipped.
        settings: seeds, epochs and anchor.

    Returns:
        One run per model and seed.

    >>> runs = plan(Path("runs"), baselines.choose(["charlson", "paper"]), Settings(seeds=(11, 101)))
    >>> [(run.model.name, run.seed, run.status) for run in runs]
    [('charlson', 0, 'left'), ('paper', 11, 'left'), ('paper', 101, 'left')]
    """
    runs = []
    for model in map(settings.adapt, models):
        for seed in settings.seeds if model.seed is None else (model.seed,):
            run = Run(model, seed, directory / model.name / str(seed))
            if (run.folder / "DONE").exists():
                _check_config(run)
                run.status, run.seconds = "done", read_metrics(run.folder)["seconds"]
            elif model.missing:
                run.status, run.message = "skipped", f"needs {model.missing}"
            runs.append(run)
    return runs


def _check_config(run: Run) -> None:
    """Raise an error if a finished run has other settings."""
    found = json.loads((run.folder / "config.json").read_text("utf-8"))["model"]
    wanted = json.loads(json.dumps(asdict(run.model)))
    for name in wanted.keys() - {"title", "family", "needs"}:
        before = found.get(name, "" if name == "constants" else None)  # absent in runs of older versions
        if before != wanted[name]:
            difference = f"{name} is {before}, not {wanted[name]}"
            raise InputError(
                f"{run.folder}: is a run with other settings ({difference}); remove it or choose another folder."
            )


def run_benchmark(
    cohort: str | Path,
    directory: str | Path,
    *,
    models: Sequence[str] = (),
    settings: Settings | None = None,
    jobs: int = 1,
    on_change: Callable[[list[Run]], None] | None = None,
) -> list[Run]:
    """Fit, score and evaluate models on a cohort with several seeds; finished runs are kept.

    Args:
        cohort: a cohort file.
        directory: the folder of the runs.
        models: names of models or families; by default all.
        settings: seeds, epochs, anchor, device and further settings of models.
        jobs: number of runs at a time. With 1, they run in this process, otherwise each in a process of its own.
        on_change: called with all runs when one of them starts or ends.

    Returns:
        The runs; a failed run has a message.

    >>> from tempfile import TemporaryDirectory
    >>> import pandas as pd
    >>> visits = pd.DataFrame({"visit_id": range(60), "codes": [["C78.0"], ["E11.9"]] * 30, "died": [1, 0] * 30})
    >>> with TemporaryDirectory() as folder:
    ...     Cohort.from_frame(visits, icd_version=10).write(Path(folder, "cohort.parquet"))
    ...     [run] = run_benchmark(Path(folder, "cohort.parquet"), folder, models=["charlson"])
    ...     run.status, read_metrics(run.folder)["metrics"]["auroc"]  # a metastasis has more points than diabetes
    ('done', {'mortality': 1.0})
    """
    settings, directory = settings or Settings(), Path(directory)
    notify = on_change or (lambda runs: None)
    chosen = baselines.choose(models)
    table = read_cohort(cohort)
    if any(field.name == "anchor" for model in chosen for field in fields(model)):
        _check_anchor(table, settings.anchor)
    check_device(settings.device)
    views = cache(partial(baselines.parts, table))
    _claim(directory, table, views(TokenConfig()))
    runs = plan(directory, chosen, settings)
    notify(runs)

    children = Children()

    def work(batch: list[Run]) -> None:
        for run in batch:
            run.status, run.started = "running", time.monotonic()
        notify(runs)
        try:
            if jobs == 1:
                _execute(batch, views(batch[0].model.tokens), table, device=settings.device)
            else:
                threads = max(1, (os.cpu_count() or 1) // jobs)
                _in_process(batch[0], cohort, directory, settings, threads=threads, children=children)
            for run in batch:
                run.status, run.seconds = "done", read_metrics(run.folder)["seconds"]
        except InputError as error:
            for run in batch:
                run.status, run.message = "failed", str(error)
        notify(runs)

    left = [run for run in runs if run.status == "left"]
    if jobs == 1:
        by_job = {(run.model, run.seed): run for run in left}
        for model, seeds in baselines.at_once(by_job, settings.device):
            work([by_job[model, seed] for seed in seeds])
    else:
        with ThreadPoolExecutor(jobs) as pool, children:
            try:
                list(pool.map(work, [[run] for run in left]))
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
    return runs


def _check_anchor(cohort: Cohort, anchor: str) -> None:
    if anchor not in cohort.outcomes:
        known = ", ".join(cohort.outcomes)
        raise InputError(
            f"the cohort has no outcome {anchor!r} to anchor the neural models; --anchor takes one of {known}."
        )


def _claim(directory: Path, cohort: Cohort, parts: Mapping[str, Split]) -> None:
    """Record the cohort in the folder; raise an error if it holds the runs of another cohort."""
    path, digest, recorded = directory / "cohort.json", fingerprint(parts), _recorded(parts)
    if path.exists():
        found = json.loads(path.read_text("utf-8"))
        if found["digest"] != digest or found.get("recorded", recorded) != recorded:  # absent in older folders
            raise InputError(
                f"{directory}: holds runs of another cohort ({found['source']}, {found['admissions']['train']:,} "
                "training admissions, other codes, patients or outcomes); choose another folder."
            )
        return
    directory.mkdir(parents=True, exist_ok=True)
    facts = {
        "digest": digest,
        "recorded": recorded,
        "source": cohort.source,
        "outcomes": cohort.outcomes,
        "admissions": {name: len(part) for name, part in parts.items()},
        "vocabulary": parts["train"].vocabulary_size,
        "version": mlci.__version__,
    }
    _write_json(path, facts)


def _execute(runs: Sequence[Run], parts: Parts, cohort: Cohort, *, device: str = "cpu") -> None:
    """Fit a model with the seeds of these runs; score and evaluate each; write DONE last."""
    results = baselines.run(runs[0].model, [run.seed for run in runs], parts, device=device)
    for run, result in zip(runs, results):
        run.folder.mkdir(parents=True, exist_ok=True)
        keep(run.folder / MODEL, run.model, run.seed, result, parts, cohort)
        _finish(run, result.scores, result.cost, cohort)


def _finish(run: Run, scores: Mapping[str, np.ndarray], cost: Mapping[str, object], cohort: Cohort) -> None:
    """Write the files of a run: config, scores, metrics and DONE."""
    run.folder.mkdir(parents=True, exist_ok=True)
    splits = {name: cohort.split(name) for name in ("valid", "test")}
    for name, split in splits.items():
        if len(split) != len(scores[name]) or not np.isfinite(scores[name]).all():
            raise InputError(f"{run.model.name}, seed {run.seed}: {name} needs {len(split)} finite scores.")
    _write_json(run.folder / "config.json", {"model": asdict(run.model), "seed": run.seed, "version": mlci.__version__})
    ids = pa.concat_arrays([split.table["admission_id"].combine_chunks() for split in splits.values()])
    table = pa.table({"admission_id": ids, run.model.name: np.concatenate([scores[name] for name in splits])})
    with atomic(run.folder / "scores.parquet") as temporary:
        write_parquet(table, temporary)
    metrics = measure(scores["test"], splits["test"], learned=(scores["valid"], splits["valid"]))
    _write_json(run.folder / "metrics.json", {**cost, "metrics": metrics})
    with atomic(run.folder / "DONE") as temporary:
        temporary.touch()


def import_runs(path: str | Path, cohort: str | Path, directory: str | Path) -> list[Run]:
    """Import runs that were computed on another machine.

    Args:
        path: scores per model and seed, written by `benchmarks/gpu_models.py`.
        cohort: the cohort file that they belong to.
        directory: the folder of the runs.

    Returns:
        The runs, all of them done.

    >>> from tempfile import TemporaryDirectory
    >>> import pandas as pd
    >>> visits = pd.DataFrame({"visit_id": range(60), "codes": [["C78.0"], ["E11.9"]] * 30, "died": [1, 0] * 30})
    >>> with TemporaryDirectory() as folder:
    ...     Cohort.from_frame(visits, icd_version=10).write(Path(folder, "cohort.parquet"))
    ...     splits = baselines.parts(read_cohort(Path(folder, "cohort.parquet")))
    ...     run = {"model": asdict(baselines.discover()["charlson"]), "seed": 0, "cost": {"seconds": 0.1}}
    ...     scores = {f"a/{name}": np.arange(float(len(splits[name]))) for name in ("valid", "test")}
    ...     facts = json.dumps({"digest": fingerprint(splits), "runs": {"a": run}})
    ...     np.savez(Path(folder, "runs.npz"), facts=facts, **scores)
    ...     [run] = import_runs(Path(folder, "runs.npz"), Path(folder, "cohort.parquet"), folder)
    >>> run.model.name, run.status
    ('charlson', 'done')
    """
    directory, table = Path(directory), read_cohort(cohort)
    parts = baselines.parts(table)
    found = list(read_archive(path, digest=fingerprint(parts), admissions=len(table)))
    _claim(directory, table, parts)
    runs = []
    for entry in found:
        folder = directory / entry.model.name / str(entry.seed)
        run = Run(entry.model, entry.seed, folder, status="done", seconds=entry.cost["seconds"])
        _finish(run, entry.scores, entry.cost, table)
        runs.append(run)
    return runs


def _in_process(
    run: Run, cohort: str | Path, directory: Path, settings: Settings, *, threads: int, children: Children
) -> None:
    words = {"cohort": str(cohort), "directory": str(directory), "model": run.model.name, "seed": run.seed}
    program = "import json, sys; from mlci.benchmark.runs import _run_alone; _run_alone(**json.loads(sys.argv[1]))"
    text = json.dumps({**words, "settings": asdict(settings)})
    code, last = children.run(program, text, env={"OMP_NUM_THREADS": str(threads)})
    if code:
        raise InputError(f"{run.model.name}, seed {run.seed}: {last}")


def _run_alone(*, cohort: str, directory: str, model: str, seed: int, settings: dict) -> None:
    """Do one run, in a process of its own."""
    settings["seeds"] = (seed,)
    try:
        [run] = plan(Path(directory), baselines.choose([model]), Settings(**settings))
        table = read_cohort(cohort)
        _execute([run], baselines.parts(table, run.model.tokens), table, device=settings["device"])
    except Exception as error:  # the parent process reports this message
        sys.exit(sentence(error) or f"internal error ({type(error).__name__})")


def remaining(runs: Sequence[Run], jobs: int = 1) -> float | None:
    """Estimate the remaining time from the finished runs of the same model, or else family, or else of all.

    Args:
        runs: all runs of a benchmark.
        jobs: number of runs at a time.

    Returns:
        The seconds; None while no run is finished.

    >>> [knn] = baselines.choose(["knn"])
    >>> done, left = Run(knn, 1, Path("1"), status="done", seconds=30.0), Run(knn, 2, Path("2"))
    >>> remaining([done, left])
    30.0
    """
    done = [run for run in runs if run.seconds is not None]

    def expected(run: Run) -> float | None:
        for alike in (
            [other for other in done if other.model.name == run.model.name],
            [other for other in done if other.model.family == run.model.family],
            done,
        ):
            if alike:
                return float(np.mean([other.seconds or 0.0 for other in alike]))
        return None

    total = 0.0
    for run in runs:
        if run.status not in ("left", "running"):
            continue
        seconds = expected(run)
        if seconds is None:
            return None
        spent = time.monotonic() - run.started if run.status == "running" else 0.0
        total += max(seconds - spent, 0.0)
    return total / jobs


def read_metrics(folder: Path) -> dict:
    """Return the costs (`seconds` and others) and the `metrics` of a finished run.

    Args:
        folder: of the run.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, "metrics.json").write_text('{"seconds": 1.5, "metrics": {"auroc": {"mortality": 0.8}}}')
    ...     read_metrics(Path(folder))["metrics"]["auroc"]
    {'mortality': 0.8}
    """
    return json.loads((folder / "metrics.json").read_text("utf-8"))


def _write_json(path: Path, content: object) -> None:
    with atomic(path) as temporary:
        temporary.write_text(json.dumps(content, indent=1, allow_nan=False), "utf-8")
