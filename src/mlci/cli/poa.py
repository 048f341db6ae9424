"""`mlci poa`: how each index changes if only codes present on admission count."""

from pathlib import Path

import click

from mlci.cli._options import check_ending, check_output, force, published, quiet

HEADS = {
    "auroc": "AUROC",
    "dcorr": "dCorr",
    "o_e": "O/E (observed / expected events)",
    "o_e_later": "O/E of admissions with codes that arose later",
}


@click.command(short_help="Compare indices with and without codes that arose after admission.")
@click.argument("cohort", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="Table to write (CSV).")
@published("charlson,elixhauser,ahrq,gagne,hfrs")
@click.option("--no-fit", is_flag=True, help="Compare only published indices; do not learn one.")
@click.option(
    "--grade",
    type=click.Choice(["tells", "complication", "possible"]),
    default="complication",
    show_default=True,
    help="Codes to leave out because they reveal an outcome: from this grade of certainty on.",
)
@click.option(
    "--resamples", type=click.IntRange(0), default=200, show_default=True, help="Bootstrap resamples; 0: no intervals."
)
@click.option(
    "--seed", type=click.IntRange(0), default=11, show_default=True, help="Seed of the fit and the resampling."
)
@force
@quiet
def command(
    cohort: Path, output: Path | None, index: str, no_fit: bool, grade, resamples, seed, force: bool, quiet: bool
) -> None:
    """Compute each index from all codes, from those present on admission, and without codes that reveal an outcome.

    COHORT is a cohort file with present-on-admission flags (column `poa`). The learned index is fitted on its train
    split by the recipe table. All indices are evaluated on its test split; differences are paired.
    """
    from mlci.base.errors import InputError
    from mlci.base.files import atomic
    from mlci.cli._judged import naming, tell_rare
    from mlci.cli._learned import learned
    from mlci.cohort import read_cohort
    from mlci.judging._changes import LEAST
    from mlci.judging._changes import published as scores_of
    from mlci.judging.present import compare_codes

    if output is not None:
        check_output(output, inputs=[cohort], force=force)
        check_ending(output, ".csv")

    indices = scores_of(index) | ({} if no_fit else {"MLCI": learned(seed)})
    flagged = read_cohort(cohort)
    if "poa" not in flagged.table.column_names:
        raise InputError(
            f"{cohort}: has no present-on-admission flags; `mlci cohort` keeps them if the source has some."
        )
    with naming(cohort):
        table = compare_codes(flagged, indices, grade=grade, resamples=resamples, seed=seed)
    if not len(table):
        raise InputError(
            f"{cohort}: no outcome has {LEAST} admissions with it and {LEAST} without it in the split test."
        )
    if output is not None:
        with atomic(output, inputs=[cohort]) as temporary:
            table.to_csv(temporary, index=False)
    if not quiet:
        for metric, title in HEADS.items():
            _show(title, table[table["metric"] == metric])
        tell_rare(flagged.outcomes, table)


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
