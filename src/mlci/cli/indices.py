"""`mlci indices`: Charlson, Elixhauser and other published indices of every admission of a file."""

import sys

import click

from mlci.cli._counting import counting
from mlci.cli._memory import spare_memory
from mlci.cli._options import check_ending, check_outputs, columns, counted, display_name, force, quiet

SMALLEST_COUNT = 10  # smaller counts of codes are not reported


def _console(width: int):
    """Return a console as wide as the terminal, or as a table needs in a file or pipe."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else width)


def _list(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    """Print the published indices and end."""
    if not value or ctx.resilient_parsing:
        return
    from rich.table import Column, Table

    from mlci.codes.family import family

    others = (Column(name, overflow="fold") for name in ("index", "edition", "ICD", "weights", "source"))
    table = Table(Column("name", no_wrap=True), *others, show_lines=True)
    for index in family().values():
        versions = " ".join(map(str, index.versions))
        table.add_row(index.name, index.title, index.edition, versions, " ".join(index.weights), index.source)
    _console(140).print(table)
    ctx.exit()


def _show(ctx: click.Context, _: click.Parameter, value: str | None) -> None:
    """Print the categories and weights of indices and end."""
    if value is None or ctx.resilient_parsing:
        return
    from rich.table import Table

    from mlci.codes.family import chosen, family

    for index in (family()[name] for name in chosen(value)):
        names = [name for name in index.weights if name != "count"]
        table = Table("flag", "category", *names, "not counted with", title=f"{index.title} ({index.name})")
        for category in index.categories:
            if category.words:
                weights = [str(category.weights[name]) for name in names]
                table.add_row(category.column, category.words, *weights, " ".join(category.yields_to))
        _console(130).print(table)
    ctx.exit()


@click.command(short_help="Compute Charlson, Elixhauser and other published indices.")
@click.argument("admissions", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.option(
    "-o", "--output", required=True, type=click.Path(), help="File of scores: .parquet, .csv, .xlsx, or - for CSV."
)
@columns
@click.option(
    "--index",
    multiple=True,
    default=["charlson,elixhauser"],
    show_default=True,
    metavar="NAMES",
    help="Indices to compute, separated by commas; see --list.",
)
@click.option(
    "--weights",
    multiple=True,
    help="Weights to use: charlson or quan, vw or swiss, count; see --list. May be repeated.",
)
@click.option(
    "--no-hierarchy", is_flag=True, help="Count the milder form of a disease even if the severe form is present."
)
@click.option(
    "--poa",
    type=click.Choice(["all", "only", "ahrq"]),
    help="Codes that count: all; only those present on admission; or as AHRQ does, where acute comorbidities must have"
    " been present on admission.  [all; with --look-back and flags: only]",
)
@click.option(
    "--principal",
    type=click.Choice(["listed", "count", "skip"]),
    default="listed",
    show_default=True,
    help="The first diagnosis: as each index defines it (ahrq skips it), always counted, or always skipped.",
)
@click.option(
    "--age", metavar="COLUMN", help="Also write Charlson scores with points for age, from this column of years."
)
@click.option(
    "--look-back",
    type=float,
    metavar="DAYS",
    help="Also use the codes of the patient's admissions in the last DAYS days.",
)
@click.option(
    "--subject",
    default="subject_id",
    show_default=True,
    metavar="COLUMN",
    help="The column that identifies patients, for --look-back.",
)
@click.option(
    "--admitted",
    default="admitted",
    show_default=True,
    metavar="COLUMN",
    help="The column of admission times, for --look-back and --audit.",
)
@click.option(
    "--carry",
    metavar="comorbidities|TABLE",
    help="Earlier codes that --look-back uses: those of comorbidities, or a table of codes and days.  [all]",
)
@click.option(
    "--audit",
    type=click.Path(dir_okay=False),
    help="Also write a list of codes that are not valid, or were not valid in their year (CSV, or - to print it).",
)
@click.option("--flags", is_flag=True, help="Also write a column for every category.")
@force
@quiet
@click.option(
    "--list",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_list,
    help="List the indices and their sources, and exit.",
)
@click.option(
    "--show",
    metavar="NAMES",
    is_eager=True,
    expose_value=False,
    callback=_show,
    help="Show the categories and weights of indices, and exit.",
)
def command(
    admissions, output, no_hierarchy, look_back, subject, admitted, carry, audit, flags, force, quiet, **options
):
    """Compute Charlson (cci_charlson), Elixhauser (eci_vw) and the sum of their z-scores (cci_eci).

    --index chooses other published indices; all are computed in one pass.

    ADMISSIONS is a cohort file, or a Parquet, CSV or Excel file. Its codes may be in columns DX1, DX2, ..., in one
    column of lists or texts, or one per row. - reads standard input.
    """
    check_outputs([output, audit], inputs=[admissions, *filter(None, [carry])], force=force, standard=True)
    check_ending(audit, ".csv")
    from functools import partial

    from mlci.base.errors import InputError
    from mlci.codes.carrying import read_carry
    from mlci.codes.lookback import LookBack
    from mlci.codes.scoring import write_scores
    from mlci.codes.years import ByYear
    from mlci.index._look_back import days_of_file

    if carry and look_back is None:
        raise click.UsageError("--carry needs --look-back DAYS.")
    if look_back is not None and (before := days_of_file(admissions)):
        raise InputError(f"{admissions}: was built with --look-back {before:g} already; leave out --look-back.")
    rule, by_year = read_carry(carry) if carry else None, ByYear(admitted) if audit else None
    spare_memory()
    with counting(quiet) as on_batch:
        done = write_scores(
            admissions,
            output,
            **options,
            hierarchy=not no_hierarchy,
            with_flags=flags,
            look_back=None if look_back is None else LookBack(look_back, subject, admitted, rule),
            by_year=by_year,
            on_guess=lambda guess: click.echo(f"{display_name(admissions)}: {guess}", err=True),
            on_batch=on_batch,
        )
    if audit:
        _write_audit(done.findings, by_year, audit, admissions)
    for found in done.audits:
        for sentence in found.warnings:
            click.echo(f"warning: {admissions}: {sentence}", err=True)
    for sentence in (*done.of_file, *done.unlisted):
        click.echo(f"warning: {admissions}: {sentence}", err=True)
    if quiet:
        return
    report = partial(click.echo, err=output == "-")
    report(
        f"{output}: {counted(done.admissions, 'admission')}, {done.without_codes:,} of them without codes (score 0)."
    )
    for found in done.audits:
        report(f"{found.share}.")
    if done.late or options["poa"] in ("only", "ahrq"):
        effect = {"only": " and do not count.", "ahrq": " and count only if they are chronic."}.get(
            options["poa"], " and do not count (--poa all counts them)."
        )
        report(f"{done.late:,} codes arose after admission{effect}")
    if done.combined is None:
        return
    base = "the training split" if done.split else "all admissions of this file, which has no split"
    parts = zip(done.combined.columns, done.combined.means, done.combined.deviations)
    moments = ", ".join(f"{name} mean {mean:.3f} SD {sd:.3f}" for name, mean, sd in parts)
    report(f"cci_eci: z-scores relative to {base} ({done.combined.admissions:,} admissions; {moments}).")


def _write_audit(findings, by_year, target: str, source: str) -> None:
    """Write one row per code and kind of finding; small counts are hidden."""
    import pyarrow as pa

    from mlci.base.tablewriter import writing
    from mlci.codes.audit import KINDS
    from mlci.codes.years import LAST, valid_words

    dated = ("year", "newer")
    columns = {
        "icd_version": [found.version for found in findings],
        "code": [found.code for found in findings],
        "recorded": [_count(found.count) for found in findings],
        "kind": [found.kind for found in findings],
        "words": [KINDS[found.kind] for found in findings],
        "valid": [valid_words(found.code, found.version) if found.kind in dated else "" for found in findings],
    }
    types = {name: pa.int8() if name == "icd_version" else pa.string() for name in columns}
    with writing(target, inputs=[source]) as write:
        write(pa.table(columns, pa.schema(list(types.items()))))
    for kind, words in KINDS.items():
        of_kind = [found for found in findings if found.kind == kind]
        if of_kind:
            recorded = _count(sum(found.count for found in of_kind))
            click.echo(f"audit: {recorded} codes ({len(of_kind):,} different): {words}.", err=True)
    if by_year.silent:
        click.echo(
            f"audit: {_count(by_year.silent)} of {by_year.counts.total():,} codes belong to "
            f"admissions without a date up to {LAST} (--admitted names the column); it is not known whether they were "
            "valid in their year.",
            err=True,
        )


def _count(count: int) -> str:
    """Return a count as text; a small one only as an upper bound."""
    return f"{count:,}" if count >= SMALLEST_COUNT else f"under {SMALLEST_COUNT}"
