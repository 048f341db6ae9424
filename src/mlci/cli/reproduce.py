"""`mlci reproduce`: reproduce the tables of the paper from the user's copy of MIMIC."""

import click

from mlci.cli._options import quiet


@click.command("reproduce", short_help="Reproduce the paper on your copy of MIMIC.")
@click.argument("dataset", metavar="mimic3|mimic4")
@click.argument("location")
@click.option(
    "-o", "--output", required=True, type=click.Path(file_okay=False), help="Folder for cohort, runs and tables."
)
@click.option("--models", default="", metavar="A,B", help="Models or families to fit.  [all]")
@click.option("--seeds", default="11,101,1001", show_default=True, help="Seeds, for models that depend on one.")
@click.option("--jobs", type=click.IntRange(1), default=1, show_default=True, help="Number of parallel runs.")
@click.option("--epochs", type=click.IntRange(1), help="Epochs, for models that are trained in epochs.  [10]")
@click.option("--device", default="cpu", show_default=True, help="Device of the neural models: cpu, cuda or cuda:N.")
@click.option(
    "--config", type=click.Path(exists=True, dir_okay=False), help="TOML file of settings by model or family."
)
@quiet
def command(dataset, location, output, models, seeds, jobs, epochs, device, config, quiet) -> None:
    """Reproduce the paper: build the cohort, fit every model, diagnose the index, and compare with the paper's figures.

    LOCATION is a folder or the URL of a database with the tables of MIMIC. Differences from the paper are also given in
    standard deviations over seeds.

    If the command is interrupted, run it again: the cohort and finished runs are kept.
    """
    from pathlib import Path

    from mlci.benchmark.changes import read_changes
    from mlci.benchmark.reproduce import reproduce
    from mlci.benchmark.runs import Settings
    from mlci.cli._campaign import draw, numbers, watch

    changes = read_changes(config) if config else {}
    settings = Settings(seeds=numbers(seeds), epochs=epochs, device=device, changes=changes)
    names = [name for name in models.split(",") if name]
    with watch(quiet, jobs) as on_change:
        found = reproduce(dataset, location, output, models=names, settings=settings, jobs=jobs, on_change=on_change)
    draw(Path(output), Path(output) / "cohort.parquet", found.runs)
    if not quiet:
        _show(found)


def _show(found) -> None:
    """Print our figures next to the paper's."""
    from rich.console import Console
    from rich.text import Text

    from mlci.cli._tables import show as show_table
    from mlci.cli._tables import show_grid

    console = Console()
    for remark in found.remarks:
        console.print(Text(remark, "bold"))
    parts = {
        "Distance correlation": (found.scores[found.scores["metric"] == "dcorr"], ["title", "outcome"], 100),
        "Mutual information": (found.scores[found.scores["metric"] == "mi"], ["title", "outcome"], 100),
        "Rise of the risk curves": (found.curves, ["outcome"], 1),
    }
    for title, (frame, keys, scale) in parts.items():
        rows = []
        for row in frame.to_dict("records"):
            ours = _cell(row["mean"], row["sd"], scale)
            paper = _cell(row["paper"], row["paper_sd"], scale)
            difference, sds = _cell(row["difference"], None, scale), _cell(row["in_sds"], None, 1)
            rows.append([*(str(row[key]) for key in keys), ours, paper, difference, sds])
        heads = [*keys, "ours", "paper", "difference", "in SDs"]
        show_table(title + (" (x 100)" if scale == 100 else ""), heads, rows, left=len(keys))
    for table in found.tables:
        if table.name.startswith(("data", "table3", "table4", "table5", "table8")):
            show_grid(table)


def _cell(value, sd, scale: int) -> str:
    """Write a figure with its deviation; nothing for NaN."""
    if value != value:
        return ""
    digits = 2 if scale == 100 else 3
    text = f"{value * scale:.{digits}f}"
    return text if sd is None or sd != sd else f"{text} ± {sd * scale:.{digits}f}"
