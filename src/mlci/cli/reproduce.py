"""`mlci reproduce`: the paper's tables again, from a person's own copy of MIMIC."""

import click

from mlci.cli._options import quiet


@click.command("reproduce", short_help="Run the paper on your copy of MIMIC; our cells beside the paper's.")
@click.argument("dataset", metavar="mimic3|mimic4")
@click.argument("location")
@click.option("-o", "--output", required=True, type=click.Path(file_okay=False), help="Folder of cohort, runs, tables.")
@click.option("--models", default="", metavar="A,B", help="Models or families by name.  [all]")
@click.option("--seeds", default="11,101,1001", show_default=True)
@click.option("--jobs", type=click.IntRange(1), default=1, show_default=True, help="Runs at a time.")
@click.option("--epochs", type=click.IntRange(1), help="Of the models that learn in epochs.  [10, the paper's]")
@click.option("--device", default="cpu", show_default=True, help="Of the neural models: cpu, cuda or cuda:N.")
@click.option("--config", type=click.Path(exists=True, dir_okay=False), help="TOML: settings by model or family.")
@quiet
def command(dataset, location, output, models, seeds, jobs, epochs, device, config, quiet) -> None:
    """Build the cohort from the tables at LOCATION (a folder or a database URL), fit every model, diagnose the index,
    and print our figures beside the paper's, with the difference in standard deviations over seeds.

    Interrupt it and give the same command again: cohort and finished runs are kept.
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
    """Print our figures beside the paper's."""
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
