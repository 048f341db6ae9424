"""`mlci curves`: the risk curves of the paper for scores in files, as figures and tables."""

from pathlib import Path

import click

from mlci.cli._options import check_folder, force, quiet, survey


@click.command(short_help="Draw risk curves of scores, as figures and tables.")
@click.argument("scores", type=click.Path(path_type=Path), nargs=-1, required=True)
@click.argument("cohort", type=click.Path(path_type=Path))
@click.option(
    "-o", "--output", required=True, type=click.Path(path_type=Path, file_okay=False), help="Folder to write."
)
@click.option("--split", default="test", show_default=True, help="Splits to use, such as train,valid; or all.")
@click.option("--score", "columns", multiple=True, help="Score column; may be repeated.  [score, else all numeric]")
@click.option(
    "--bins",
    type=click.IntRange(1),
    default=60,
    show_default=True,
    help="Number of bins, of at least 10 admissions each.",
)
@click.option("--name", help="Name of the data set, shown above the figures.  [the cohort's source]")
@click.option("--numeric", metavar="COLUMNS", help="Also draw the means of these columns of the cohort: days,cost.")
@survey
@force
@quiet
def command(
    scores, cohort: Path, output: Path, split: str, columns, bins: int, name, numeric, force: bool, quiet: bool, **drawn
) -> None:
    """Draw the risk of each outcome along a score: observed in quantile bins, and as a nondecreasing fit.

    SCORES are Parquet, CSV or Excel files with admission_id and score columns. If several files have the same score
    column, they are taken as one index with several seeds: the first is drawn, and the change in risk is reported with
    its SD over all of them. Columns with different names are different indices.

    COHORT is a cohort file.
    """
    from mlci.cli._judged import read_judged, tell_unscored
    from mlci.judging._carried import design_of, design_words
    from mlci.judging.scores import read_seeds
    from mlci.showing import curves as figures

    admissions = read_judged(cohort, split)
    found, judged = read_seeds(scores, admissions, columns=columns)
    check_folder(output, figures.file_names(list(found)), inputs=[*scores, cohort], force=force)
    design = design_of(judged, **drawn) if any(drawn.values()) else None
    numbers = numeric.split(",") if numeric else ()
    curves = figures.compute(found, judged, bins=bins, patients=design, numeric=numbers)
    written = figures.draw(curves, output, dataset=name or judged.source)
    if not quiet:
        tell_unscored(len(judged), len(admissions), split)
        if words := design_words(judged, **drawn):
            click.echo(f"{words[:1].upper()}{words[1:]}.")
        _print(curves)
        click.echo(f"Written to {output}: {len(written)} files, including {figures.TABLE8}.md and summary.csv.")


def _print(curves) -> None:
    from mlci.base.names import label
    from mlci.cli._tables import show

    rows = [
        [model, label(trend.outcome), f"{trend.n:,}", f"{trend.positives:,}", trend.points, trend.verdict]
        for model, found in curves.items()
        for trend in (curve.trend for curve in found)
    ]
    heads = ["model", "outcome", "admissions", "positives", "change", "verdict"]
    show("Change in the isotonic risk (or mean) between the 5% and the 95% quantile of the score", heads, rows, left=2)
