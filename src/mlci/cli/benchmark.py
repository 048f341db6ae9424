"""`mlci benchmark`: fit every model of the paper on one cohort, and make the tables of the paper."""

import click

from mlci.cli._options import check_output, quiet


@click.command("benchmark", short_help="Fit every model of the paper on a cohort, and print its tables.")
@click.argument("cohort", required=False, type=click.Path(exists=True, dir_okay=False))
@click.option("-o", "--output", type=click.Path(file_okay=False), help="Folder for runs and tables; may exist.")
@click.option("--models", default="", metavar="A,B", help="Models or families to fit.  [all]")
@click.option("--seeds", default="11,101,1001", show_default=True, help="Seeds, for models that depend on one.")
@click.option("--jobs", type=click.IntRange(1), default=1, show_default=True, help="Number of parallel runs.")
@click.option("--epochs", type=click.IntRange(1), help="Epochs, for models that are trained in epochs.  [10]")
@click.option("--anchor", default="mortality", show_default=True, help="Outcome that anchors and orients nHSIC models.")
@click.option("--device", default="cpu", show_default=True, help="Device of the neural models: cpu, cuda or cuda:N.")
@click.option("--scores", multiple=True, metavar="NAME=FILE", help="Add your own score to the tables; may be repeated.")
@click.option(
    "--import", "imported", type=click.Path(exists=True, dir_okay=False), metavar="NPZ", help="Import finished runs."
)
@click.option(
    "--list",
    "listing",
    is_flag=True,
    help="List the models, their families and where the paper reports them, and exit.",
)
@click.option(
    "--config", type=click.Path(exists=True, dir_okay=False), help="TOML file of settings by model or family."
)
@quiet
def command(cohort, output, models, seeds, jobs, scores, imported, listing, config, quiet, **options) -> None:
    """Fit every model on the train and valid splits of a COHORT file, and compare them on its test split.

    If the command is interrupted, run it again: finished runs are kept.
    """
    if listing:
        return _show_models()
    if cohort is None or output is None:
        raise click.UsageError("COHORT and -o are needed (or --list).")
    from pathlib import Path

    from mlci.base.errors import InputError
    from mlci.benchmark import diagnostics, tables
    from mlci.benchmark import runs as benchmark
    from mlci.benchmark.changes import read_changes
    from mlci.benchmark.metrics import rival_metrics
    from mlci.cli._campaign import draw, numbers, watch
    from mlci.cli._tables import show_grid
    from mlci.cohort import read_cohort

    names = [name for name in models.split(",") if name]
    changes = read_changes(config) if config else {}
    settings = benchmark.Settings(numbers(seeds), **options, changes=changes)  # epochs, anchor, device
    for there in Path(output, "tables").glob("*.*"):  # files that will be rewritten; runs are kept
        check_output(there, inputs=[cohort, *(word.partition("=")[2] for word in scores)])
    own = _read_own(scores, cohort)
    if imported:
        benchmark.import_runs(imported, cohort, output)
    with watch(quiet, jobs) as on_change:
        runs = benchmark.run_benchmark(cohort, output, models=names, settings=settings, jobs=jobs, on_change=on_change)
    frame = tables.results(runs, own, rival_metrics(read_cohort(cohort)))
    notes = [f"{run.model.title}: skipped, {run.message}." for run in runs if run.status == "skipped"]
    diagnosed, silent = diagnostics.diagnose(runs, read_cohort(cohort))
    made = [*tables.tables(frame, [*notes, *silent]), *diagnostics.tables(diagnosed)]
    tables.write_tables(Path(output), made, frame, runs)
    draw(Path(output), cohort, runs, own)
    if not quiet:
        for table in made:
            show_grid(table)
    failed = [run.message for run in runs if run.status == "failed"]
    if failed:
        raise InputError(f"{len(failed)} of {len(runs)} runs failed; the first: {failed[0]}")
    return None


def _read_own(scores, cohort) -> dict[str, dict]:
    """Return the metrics of the user's own scores, by name."""
    from mlci.base.errors import InputError
    from mlci.benchmark.metrics import own_metrics
    from mlci.cohort import read_cohort

    found = {}
    for word in scores:
        name, _, path = word.partition("=")
        if not name or not path:
            raise InputError(f"scores: '{word}' is not NAME=FILE.")
        found |= own_metrics(name, path, read_cohort(cohort))
    return found


def _show_models() -> None:
    """Print every model, its family and where the paper reports it."""
    from rich.console import Console
    from rich.table import Table

    from mlci.benchmark import models as baselines

    table = Table()
    table.add_column("model", no_wrap=True)
    for head in ("family", "paper's row", "paper's tables"):
        table.add_column(head)
    for model in baselines.discover().values():
        reported = baselines.paper_rows().get(model.title)
        missing = f" (skipped: needs {model.missing})" if model.missing else ""
        table.add_row(model.name, model.family, model.title + missing, ", ".join(reported[1]) if reported else "none")
    Console().print(table)
