"""`mlci cohort`: hospital tables in, a cohort file out; `--describe` prints a cohort's Table 1."""

from pathlib import Path

import click


@click.command(short_help="Build a cohort file from hospital tables, or describe one.")
@click.argument("words", nargs=-1, metavar="SOURCE LOCATION")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Cohort file to write (Parquet).")
@click.option(
    "--describe", type=click.Path(path_type=Path), metavar="COHORT", help="Print the Table 1 of a cohort file."
)
@click.option("--icd-version", type=click.Choice(["9", "10"]), help="ICD version of the cohort (mimic4: 10; omop: 10).")
@click.option(
    "--death-day-counts", is_flag=True, default=None, help="Count a death on the day of admission as a death."
)
@click.option(
    "--negative-stays", is_flag=True, default=None, help="Keep stays that end before they begin; length unknown."
)
@click.option("--schema", multiple=True, metavar="NAME", help="Database schema to search; may be repeated.")
@click.option("--prefix", metavar="TEXT", help="What table or file names begin with.")
@click.option(
    "--config", type=click.Path(path_type=Path), metavar="TOML", help="Columns and outcomes of own tables (tables)."
)
@click.option(
    "--not-stated",
    type=click.Choice(["non-home", "null"]),
    help="What a discharge status that is not stated says of non-home discharge (nhds).  [non-home]",
)
@click.option("--seed", type=click.IntRange(0), help="Which synthetic hospital.  [0]")
@click.option("--icd9-share", type=float, help="Share of a synthetic hospital's patients first coded in ICD-9.  [0]")
@click.option(
    "--as-mimic4",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Also write a synthetic hospital's raw tables, in the form of MIMIC-IV's.",
)
@click.option("--split-by", metavar="COLUMN", help="Column whose values stay together in one split.  [subject_id]")
@click.option("--proportions", metavar="A,B,C", help="Shares of train, valid and test.  [0.7,0.1,0.2]")
def command(words: tuple[str, ...], output: Path | None, describe: Path | None, **options) -> None:
    """Build a cohort: one row per admission, with its codes, outcomes and split.

    SOURCE is mimic3, mimic4, omop, nhds, tables or synthetic. LOCATION is a folder of CSV, CSV.gz or Parquet tables, or
    the URL of a database that holds them (postgres://..., duckdb://...).
    """
    from mlci.base.errors import InputError
    from mlci.base.files import check_writable
    from mlci.cohort import build_cohort, read_cohort

    if describe is not None:
        if words or output:
            raise click.UsageError("--describe takes a cohort file and nothing else.")
        _describe(read_cohort(describe))
        return
    if len(words) != 2 or output is None:
        raise click.UsageError("SOURCE, LOCATION and -o are needed (or --describe COHORT).")
    chosen = {name: value for name, value in options.items() if value not in (None, ())}
    if "icd_version" in chosen:
        chosen["icd_version"] = int(chosen["icd_version"])
    if "proportions" in chosen:
        try:
            chosen["proportions"] = [float(share) for share in chosen["proportions"].split(",")]
        except ValueError as error:
            raise InputError(
                f"--proportions {chosen['proportions']}: allowed are three numbers, as 0.7,0.1,0.2."
            ) from error
    check_writable(output, inputs=[words[1], *filter(None, [chosen.get("config")])])
    cohort = build_cohort(*words, **chosen)
    cohort.write(output)
    _attrition(cohort)
    click.echo(f"{output}: {len(cohort):,} admissions.")


def _attrition(cohort) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    table = Table(title="Attrition")
    table.add_column("rule")
    table.add_column("removed", justify="right")
    table.add_column("left", justify="right")
    for step in cohort.attrition:
        table.add_row(step.rule, f"{step.removed:,}", f"{step.left:,}")
    console.print(table)
    for note in cohort.notes:
        console.print(f"note: {note}", markup=False)


def _describe(cohort) -> None:
    from rich.console import Console
    from rich.table import Table

    from mlci.cohort import SPLITS

    parts = {"all": cohort, **{name: cohort.split(name) for name in SPLITS}}
    table = Table(title=f"{cohort.source}: {len(cohort):,} admissions")
    table.add_column("")
    for name in parts:
        table.add_column(name, justify="right")
    for label, cells in cohort.describe().items():
        table.add_row(label, *cells)
    Console(highlight=False).print(table)
    _attrition(cohort)
