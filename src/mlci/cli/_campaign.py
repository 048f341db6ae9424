"""What `mlci benchmark` and `mlci reproduce` share: reading seeds, showing progress, drawing figures."""

import click


def numbers(seeds: str) -> tuple[int, ...]:
    """Return the different seeds of a comma-separated list.

    >>> numbers("11,101")
    (11, 101)
    """
    from contextlib import suppress

    from mlci.base.errors import InputError

    with suppress(ValueError):
        found = tuple(int(seed) for seed in seeds.split(","))
        if min(found) >= 0 and len({*found}) == len(found):
            return found
    raise InputError(f"seeds: '{seeds}' is not a list of different whole numbers from 0, such as 11,101,1001.")


def draw(folder, cohort, runs, own=None) -> None:
    """Draw dot plots of the metrics, and risk curves of the family `mlci`, or of all models if it has no runs."""
    from mlci.benchmark import tables
    from mlci.benchmark.reproduce import TITLES
    from mlci.cohort import read_cohort
    from mlci.showing import curves, plots

    table = read_cohort(cohort)
    scores = tables.test_scores(runs, table)
    ours = {run.model.name for run in runs if run.model.family == "mlci"} & scores.keys()
    drawn = {name: list(seeds.values()) for name, seeds in scores.items() if name in (ours or scores)}
    if drawn:
        title = TITLES.get(table.source, table.source)
        curves.draw(curves.compute(drawn, table.split("test")), folder / "curves", dataset=title)
    summary = tables.summarise(tables.results(runs, own))
    summary["model"] = summary["title"]
    summary["value"] = summary["mean"]
    spread = summary["sd"].fillna(0)
    summary["low"], summary["high"] = summary["mean"] - spread, summary["mean"] + spread
    for metric in summary["metric"].unique():
        plots.save(plots.benchmark(summary, metric), folder / "tables" / f"{metric}.svg")


def watch(quiet: bool, jobs: int):
    """Return a context manager that shows progress: a live table on a terminal, lines in a log, or nothing.

    It yields a callback that takes all runs and is called on every change, or None if `quiet`.
    """
    import contextlib
    import sys

    if quiet:
        return contextlib.nullcontext()
    return _live_table(jobs) if sys.stderr.isatty() else contextlib.nullcontext(_log_lines())


def _log_lines():
    printed: set = set()

    def on_change(runs) -> None:
        for run in runs:
            key = (run.model.name, run.seed, run.status)
            if run.status != "left" and key not in printed:
                printed.add(key)
                seconds = "" if run.seconds is None else f" ({run.seconds:.1f} s)"
                message = f": {run.message}" if run.message else ""
                click.echo(f"{run.model.name}, seed {run.seed}: {run.status}{seconds}{message}", err=True)

    return on_change


def _live_table(jobs: int):
    import contextlib
    import time

    from rich.live import Live
    from rich.table import Table

    from mlci.benchmark.runs import remaining
    from mlci.cli._tables import plain_console

    state: list = []

    def cell(run) -> str:
        if run.status == "running":
            return f"running {time.monotonic() - run.started:.0f} s"
        return f"{run.status}{'' if run.seconds is None else f' {run.seconds:.0f} s'} {run.message}".strip()

    def picture():
        left = remaining(state, jobs) if state else None
        done = sum(run.status == "done" for run in state)
        when = "" if left is None else f", about {left / 60:.0f} min left"
        table = Table("model", "runs", title=f"{done} of {len(state)} runs done{when}", title_justify="left")
        for name in dict.fromkeys(run.model.name for run in state):
            runs = [run for run in state if run.model.name == name]
            table.add_row(name, "; ".join(f"{run.seed}: {cell(run)}" for run in runs))
        return table

    @contextlib.contextmanager
    def shown():
        with Live(get_renderable=picture, console=plain_console(stderr=True), refresh_per_second=2, transient=True):

            def on_change(runs) -> None:
                state[:] = runs

            yield on_change

    return shown()
