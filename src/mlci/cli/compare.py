"""`mlci compare`: compare hospitals, wards or years by observed and expected events, as a page or a table."""

from pathlib import Path

import click

from mlci.cli._options import check_output, force, quiet

MAX_GROUPS = 60  # with more, the terminal shows only groups beyond the limits
VERDICT = 5  # place of the verdict in a row of `Comparison.cells`


@click.command(short_help="Compare hospitals: observed and expected events, funnel plot, ranks.")
@click.argument("cohort", type=click.Path(path_type=Path))
@click.argument("scores", type=click.Path(path_type=Path), nargs=-1, required=True)
@click.option("--by", metavar="COLUMN", help="The column of groups, such as hospital, ward, year or age_band.")
@click.option(
    "--treatment", metavar="COLUMN", help="Instead of groups, compare two treatments; a column with two values."
)
@click.option("--outcome", required=True, help="The outcome to count, such as mortality.")
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="Page (.html) or table (.csv).")
@click.option("--score", "columns", multiple=True, help="Score column; may be repeated.  [score, else all numeric]")
@click.option(
    "--adjust",
    metavar="A,B",
    help="Columns to adjust for besides the score, such as age,sex.  [none; with --treatment: age,sex]",
)
@click.option("--weights", metavar="COLUMN", help="The column of survey weights.")
@click.option(
    "--overdispersion",
    type=click.Choice(["additive", "multiplicative", "shmi", "none"]),
    default="additive",
    show_default=True,
    help="Allowance of the funnel limits for usual differences between groups, if there are at least ten.",
)
@click.option("--split", default="all", show_default=True, help="Splits to compare, such as test; or all.")
@click.option(
    "--resamples",
    type=click.IntRange(0),
    default=200,
    show_default=True,
    help="Bootstrap resamples of patients, for the intervals of ranks.",
)
@click.option("--suppress", is_flag=True, help="Hide counts below 10, and figures from which they could be derived.")
@force
@quiet
def command(cohort, scores, output, by, treatment, columns, adjust, split, suppress, force, quiet, **options) -> None:
    """Compare groups of admissions: observed events, and the events expected from each score.

    COHORT is a cohort file. SCORES are Parquet, CSV or Excel files with admission_id and score columns. Each score is
    recalibrated within the cohort; the expected events of a group are computed without that group. With several
    scores, the page shows what the choice of index changes.

    With --treatment, two treatment groups are weighted to be alike, and the effect on the outcome is reported
    unadjusted and adjusted by each score.
    """
    import shlex
    import sys

    from mlci.base.errors import InputError
    from mlci.base.files import atomic
    from mlci.cli._judged import naming, read_judged, tell_unscored
    from mlci.judging.scores import read_models

    if (by is None) == (treatment is None):
        raise click.UsageError("give either --by or --treatment.")
    if output is not None:
        if output.suffix.lower() not in (".html", ".csv"):
            raise InputError(f"{output}: the name must end in .html (a page) or .csv (a table).")
        check_output(output, inputs=[*scores, cohort], force=force)
    admissions = read_judged(cohort, split)
    models, judged = read_models(scores, admissions, columns=columns)
    options |= {"adjust": adjust.split(",") if adjust else None, "suppress": suppress}
    with naming(cohort):
        if treatment:
            found, table = _treated(judged, models, treatment, options)
        else:
            found, table = _grouped(judged, models, by, options)
    if not quiet:
        tell_unscored(len(judged), len(admissions), split)
        _print_effects(found) if treatment else _print(found)
    if output is None:
        return
    with atomic(output) as temporary:
        if output.suffix.lower() == ".csv":
            from mlci.base.spreadsheets import defused

            words = table.select_dtypes(exclude="number")
            table.assign(**{name: defused(words[name]) for name in words}).to_csv(temporary, index=False)
        else:
            from mlci.showing.compare import build

            page = build(found, command=shlex.join(["mlci", *sys.argv[1:]]))
            temporary.write_text(page, encoding="utf-8")
    if not quiet:
        click.echo(f"Written to {output}.")


def _grouped(judged, models, by: str, options: dict):
    from mlci.judging.compare import compare

    suppress, adjust = options.pop("suppress"), options.pop("adjust") or ()
    found = compare(judged, models, by=by, adjust=adjust, **options)
    found = found.suppressed() if suppress else found
    return found, found.table


def _treated(judged, models, treatment: str, options: dict):
    """Compare two treatments, without `--suppress`: groups of fewer than ten are an error anyway."""
    from mlci.judging.balance import balance

    chosen = {name: options[name] for name in ("outcome", "adjust", "weights")}
    found = balance(judged, models, treatment=treatment, **chosen)
    return found, found.effects


def _print_effects(found) -> None:
    from mlci.cli._tables import show
    from mlci.judging._carried import left_out_words

    heads, rows = found.cells()
    show(f"Effect of {found.treatment} = {found.treated} on {found.outcome}", heads, rows, left=3)
    shown = [[row[0], *(f"{value:+z.3f}" for value in row[1:])] for row in found.differences.itertuples(index=False)]
    show("Standardised differences, before weighting and after", list(found.differences), shown)
    if found.left_out:
        click.echo(left_out_words(found.left_out, "treatment", found.weighted_by))


def _print(found) -> None:
    from mlci.cli._tables import show
    from mlci.judging._carried import left_out_words

    heads, rows = found.cells()
    for model in found.models["model"]:
        part = [row[1:] for row in rows if row[0] == model]
        if len(part) > MAX_GROUPS:
            total, part = len(part), [row for row in part if row[VERDICT] in ("low", "high")]
            click.echo(f"Adjusted by {model}, {len(part):,} of {total:,} groups lie beyond the 99.8% limits.")
        if part:
            show(f"{found.outcome} by {found.by}, adjusted by {model}", heads[1:], part)
    for row in found.changes[found.changes["groups"] > 0].itertuples():
        click.echo(
            f"{row.model} and {row.versus}: {row.other_verdict} of {row.groups} groups have a different verdict, "
            f"{row.far:.0%} move ten ranks or more."
        )
    coders = found.coding.loc[found.coding["verdict"] == "many", "group"]
    if len(coders):
        click.echo(f"More codes per admission than expected: {', '.join(map(str, coders))}.")
    if found.left_out:
        click.echo(left_out_words(found.left_out, "group", found.weighted_by))
