"""`mlci compare`: hospitals, wards or years by observed and expected events; a page or a table out."""

from pathlib import Path

import click

from mlci.cli._options import check_output, force, quiet

MOST, VERDICT = 60, 5  # groups that a terminal shows in full, and the column that says what they are


@click.command(short_help="Hospitals compared: observed and expected events, funnel, ranks.")
@click.argument("cohort", type=click.Path(path_type=Path))
@click.argument("scores", type=click.Path(path_type=Path), nargs=-1, required=True)
@click.option("--by", metavar="COLUMN", help="What tells groups: hospital, ward, year, age_band.")
@click.option("--treatment", metavar="COLUMN", help="Instead of groups, two treatments: their effect, by each score.")
@click.option("--outcome", required=True, help="The outcome to count, as mortality.")
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="Page (.html) or table (.csv).")
@click.option("--score", "columns", multiple=True, help="Score column; may be repeated.  [score, else all numeric]")
@click.option("--adjust", metavar="A,B", help="Columns beside the score: age,sex.  [none; with --treatment these]")
@click.option("--weights", metavar="COLUMN", help="Survey weights.")
@click.option(
    "--overdispersion",
    type=click.Choice(["additive", "multiplicative", "shmi", "none"]),
    default="additive",
    show_default=True,
    help="Room that the funnel makes for usual differences between groups, if there are ten.",
)
@click.option("--split", default="all", show_default=True, help="Splits to compare, as test; all: every one.")
@click.option("--resamples", type=click.IntRange(0), default=200, show_default=True, help="Of patients, for ranks.")
@click.option("--suppress", is_flag=True, help="Hide counts below 10, and what they could be told from.")
@force
@quiet
def command(cohort, scores, output, by, treatment, columns, adjust, split, suppress, force, quiet, **options) -> None:
    """Compare groups of admissions: observed events beside those that each score leads to expect.

    COHORT is a cohort file, SCORES are Parquet, CSV or Excel files with admission_id and score columns. Each score
    is recalibrated within the cohort, and no group has a say in what is expected of it. With several scores, the page
    shows what the choice of index changes. With --treatment, two groups are made alike by weights from the score, and
    the effect on the outcome is told unadjusted and adjusted by each score.
    """
    import shlex
    import sys

    from mlci.base.errors import InputError
    from mlci.base.files import atomic
    from mlci.cli._judged import read_judged
    from mlci.judging.scores import read_models

    if (by is None) == (treatment is None):
        raise click.UsageError("either --by or --treatment is needed.")
    if output is not None:
        if output.suffix.lower() not in (".html", ".csv"):
            raise InputError(f"{output}: is neither a page (.html) nor a table (.csv).")
        check_output(output, inputs=[*scores, cohort], force=force)
    models, judged = read_models(scores, read_judged(cohort, split), columns=columns)
    options |= {"adjust": adjust.split(",") if adjust else None, "suppress": suppress}
    found, table = _treated(judged, models, treatment, options) if treatment else _grouped(judged, models, by, options)
    if not quiet:
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
    """Refuse groups of fewer than ten, whether or not they should be suppressed."""
    from mlci.judging.balance import balance

    chosen = {name: options[name] for name in ("outcome", "adjust", "weights")}
    found = balance(judged, models, treatment=treatment, **chosen)
    return found, found.effects


def _print_effects(found) -> None:
    from mlci.cli._tables import show
    from mlci.judging._carried import why_left_out

    heads, rows = found.cells()
    show(f"Effect of {found.treatment} = {found.treated} on {found.outcome}", heads, rows, left=3)
    shown = [[row[0], *(f"{value:+.3f}" for value in row[1:])] for row in found.differences.itertuples(index=False)]
    show("Standardised differences, before weighting and after", list(found.differences), shown)
    if found.left_out:
        why = why_left_out("treatment", found.weighted_by)
        click.echo(f"{found.left_out:,} admissions are left out: {why}.")


def _print(found) -> None:
    from mlci.cli._tables import show
    from mlci.judging._carried import why_left_out

    heads, rows = found.cells()
    for model in found.models["model"]:
        part = [row[1:] for row in rows if row[0] == model]
        if len(part) > MOST:
            every, part = len(part), [row for row in part if row[VERDICT] in ("low", "high")]
            click.echo(f"By {model}, {len(part):,} of {every:,} groups lie beyond the 99.8% limits.")
        if part:
            show(f"{found.outcome} by {found.by}, adjusted by {model}", heads[1:], part)
    for row in found.changes.itertuples():
        click.echo(
            f"{row.model} and {row.versus}: {row.other_verdict} of {row.groups} groups have another verdict, "
            f"{row.far:.0%} move ten ranks or more."
        )
    coders = found.coding.loc[found.coding["verdict"] == "many", "group"]
    if len(coders):
        click.echo(f"More codes per admission than expected: {', '.join(map(str, coders))}.")
    if found.left_out:
        click.echo(f"{found.left_out:,} admissions are left out: {why_left_out('group', found.weighted_by)}.")
