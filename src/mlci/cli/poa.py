"""`mlci poa`: what present-on-admission flags cost or save, index by index."""

from pathlib import Path

import click

from mlci.cli._options import check_output, force, published, quiet

HEADS = {"auroc": "AUROC", "dcorr": "dCorr", "o_e": "O/E", "o_e_later": "O/E where something arose later"}


@click.command(short_help="What present-on-admission flags cost or save, index by index.")
@click.argument("cohort", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="The table (CSV).")
@published("charlson,elixhauser,ahrq,gagne,hfrs")
@click.option("--no-fit", is_flag=True, help="Published indices alone; learn none.")
@click.option(
    "--grade",
    type=click.Choice(["tells", "complication", "possible"]),
    default="complication",
    show_default=True,
    help="Codes that tell an outcome: left out from this grade on.",
)
@click.option("--resamples", type=click.IntRange(0), default=200, show_default=True, help="0: no intervals.")
@click.option("--seed", type=int, default=11, show_default=True, help="Of the fit and the resampling.")
@force
@quiet
def command(
    cohort: Path, output: Path | None, index: str, no_fit: bool, grade, resamples, seed, force: bool, quiet: bool
) -> None:
    """Make each index of all codes, of those present on admission and of those that tell no outcome; judge all three.

    COHORT is a cohort file with flags (`poa`). Indices are made on its training split (the learned one by the recipe
    table) and judged on its test split; differences are paired.
    """
    from mlci.base.files import atomic
    from mlci.cli._learned import learned
    from mlci.cohort import read_cohort
    from mlci.judging._changes import published as scores_of
    from mlci.judging.present import compare_codes

    if output is not None:
        check_output(output, inputs=[cohort], force=force)

    indices = scores_of(index) | ({} if no_fit else {"MLCI": learned(seed)})
    table = compare_codes(read_cohort(cohort), indices, grade=grade, resamples=resamples, seed=seed)
    if output is not None:
        with atomic(output, inputs=[cohort]) as temporary:
            table.to_csv(temporary, index=False)
    if not quiet:
        for metric, title in HEADS.items():
            _show(title, table[table["metric"] == metric])


def _show(title: str, table) -> None:
    from mlci.cli._tables import show
    from mlci.cli._windows import cell

    rows = []
    for (index, outcome), part in table.groupby(["index", "outcome"], sort=False):
        cells = []
        for row in part.to_dict("records"):
            cells.append(cell(row, first=row["codes"] == "all codes"))
        rows.append([index, outcome, *cells])
    if rows:
        show(
            f"{title}; below it, the change from all codes",
            ["index", "outcome", *table["codes"].unique()],
            rows,
            left=2,
        )
