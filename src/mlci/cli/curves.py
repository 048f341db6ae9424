"""`mlci curves`: the paper's risk curves of scores in files, as figures and tables."""

from pathlib import Path

import click

from mlci.cli._options import check_folder, force, quiet, survey


@click.command(short_help="Risk curves of scores in files, as figures and tables.")
@click.argument("scores", type=click.Path(path_type=Path), nargs=-1, required=True)
@click.argument("cohort", type=click.Path(path_type=Path))
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path, file_okay=False), help="Folder; made.")
@click.option("--split", default="test", show_default=True, help="Splits to judge, as train,valid; all: every one.")
@click.option("--score", "columns", multiple=True, help="Score column; may be repeated.  [score, else all numeric]")
@click.option("--bins", type=click.IntRange(1), default=60, show_default=True, help="Of 10 admissions at least.")
@click.option("--name", help="The data set's name above the figures.  [the cohort's source]")
@click.option("--numeric", metavar="COLUMNS", help="Means of numbers as well, by columns of the cohort: days,cost.")
@survey
@force
@quiet
def command(
    scores, cohort: Path, output: Path, split: str, columns, bins: int, name, numeric, force: bool, quiet: bool, **drawn
) -> None:
    """Draw how often each outcome happens along a score: observed in quantile bins, and as a nondecreasing fit.

    SCORES are Parquet, CSV or Excel files with admission_id and score columns. A column that several files have is
    one index with several seeds: the first is drawn, and the change of the risk is told with its SD over all of them.
    Columns of different names are different indices. COHORT is a cohort file.
    """
    from mlci.cli._judged import read_judged
    from mlci.judging._carried import design_of, design_words
    from mlci.judging.scores import read_seeds
    from mlci.showing import curves as figures

    found, judged = read_seeds(scores, read_judged(cohort, split), columns=columns)
    check_folder(output, figures.file_names(list(found)), inputs=[*scores, cohort], force=force)
    design = design_of(judged, **drawn) if any(drawn.values()) else None
    numbers = numeric.split(",") if numeric else ()
    curves = figures.compute(found, judged, bins=bins, patients=design, numeric=numbers)
    written = figures.draw(curves, output, dataset=name or judged.source)
    if not quiet:
        if said := design_words(judged, **drawn):
            click.echo(f"{said[:1].upper()}{said[1:]}.")
        _print(curves)
        click.echo(f"Written to {output}: {len(written)} files, among them {figures.TABLE8}.md and summary.csv.")


def _print(curves) -> None:
    from mlci.base.names import label
    from mlci.cli._tables import show

    rows = [
        [model, label(trend.outcome), f"{trend.n:,}", f"{trend.positives:,}", trend.points, trend.verdict]
        for model, found in curves.items()
        for trend in (curve.trend for curve in found)
    ]
    heads = ["model", "outcome", "admissions", "positives", "change", "verdict"]
    show("Change of the isotonic risk (or mean), 5% to 95% of the way along the score", heads, rows, left=2)
