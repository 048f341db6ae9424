import sys

import click

from mlci.cli._counting import counting
from mlci.cli._memory import spare_memory
from mlci.cli._options import check_output, columns, force, quiet, shown

FEWEST = 10  # recorded codes of one kind whose number is told


def _console(width: int):
    """Return a console as wide as the terminal, or as a table needs in a file or pipe."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else width)


def _list(ctx: click.Context, _: click.Parameter, value: bool) -> None:
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
    if value is None or ctx.resilient_parsing:
        return
    from rich.table import Table

    from mlci.codes.family import chosen, family

    for index in (family()[name] for name in chosen(value)):
        names = [name for name in index.weights if name != "count"]
        table = Table("flag", "category", *names, "dropped beside", title=f"{index.title} ({index.name})")
        for category in index.categories:
            if category.words:
                weights = [str(category.weights[name]) for name in names]
                table.add_row(category.column, category.words, *weights, " ".join(category.yields_to))
        _console(130).print(table)
    ctx.exit()


@click.command(short_help="Charlson, Elixhauser and other published indices for every admission.")
@click.argument("admissions", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.option("-o", "--output", required=True, type=click.Path(), help="Scores: .parquet, .csv, .xlsx, or - (CSV).")
@columns
@click.option(
    "--index",
    multiple=True,
    default=["charlson,elixhauser"],
    show_default=True,
    metavar="NAMES",
    help="Indices of --list, with commas between.",
)
@click.option("--weights", multiple=True, help="charlson or quan; vw or swiss; count; see --list. May be repeated.")
@click.option("--no-hierarchy", is_flag=True, help="Count a milder form even beside its severer one.")
@click.option(
    "--poa",
    type=click.Choice(["all", "only", "ahrq"]),
    help="Codes that count: all; only those present on admission; ahrq: as AHRQ, acute comorbidities if present."
    "  [all; with --look-back only, where there are flags]",
)
@click.option(
    "--principal",
    type=click.Choice(["listed", "count", "skip"]),
    default="listed",
    show_default=True,
    help="Whether the first diagnosis counts: as each list says (ahrq skips it); always; never.",
)
@click.option("--age", metavar="COLUMN", help="Charlson scores with points for age too, from this column of years.")
@click.option("--look-back", type=float, metavar="DAYS", help="Earlier admissions of a patient count too.")
@click.option("--subject", default="subject_id", show_default=True, metavar="COLUMN", help="Patients, for --look-back.")
@click.option(
    "--admitted",
    default="admitted",
    show_default=True,
    metavar="COLUMN",
    help="When it began, likewise, and for --audit.",
)
@click.option(
    "--carry",
    metavar="comorbidities|TABLE",
    help="Which codes --look-back carries: of comorbidities, or by a table of code and days.  [all]",
)
@click.option(
    "--audit",
    type=click.Path(dir_okay=False),
    help="Also write which codes are no codes as they stand, or were none in their year (CSV, or -).",
)
@click.option("--flags", is_flag=True, help="Write a column for every category too.")
@force
@quiet
@click.option(
    "--list",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_list,
    help="List the indices and their sources.",
)
@click.option(
    "--show", metavar="NAMES", is_eager=True, expose_value=False, callback=_show, help="Show categories and weights."
)
def command(admissions, output, no_hierarchy, look_back, subject, admitted, carry, audit, flags, force, quiet, **named):
    """Charlson (cci_charlson), Elixhauser (eci_vw) and their sum of z-scores (cci_eci) for every admission.

    --index names other published indices; all of them are computed in one pass.

    ADMISSIONS is a cohort file, or any Parquet, CSV or Excel file with codes in columns DX1, DX2, ..., in a list or a
    text, or one row per code; - is standard input.
    """
    for path in filter(None, (output, audit)):
        check_output(path, inputs=[admissions], force=force)
    from functools import partial

    from mlci.base.errors import InputError
    from mlci.codes.carrying import read_carry
    from mlci.codes.lookback import LookBack
    from mlci.codes.scoring import write_scores
    from mlci.codes.years import ByYear
    from mlci.index._looking import days_of_file

    if carry and look_back is None:
        raise click.UsageError("--carry says which codes --look-back carries; say how far.")
    if look_back is not None and (before := days_of_file(admissions)):
        raise InputError(f"{admissions}: looks back {before:g} days already; leave out --look-back.")
    rule, by_year = read_carry(carry) if carry else None, ByYear(admitted) if audit else None
    spare_memory()
    with counting(quiet) as on_batch:
        done = write_scores(
            admissions,
            output,
            **named,
            hierarchy=not no_hierarchy,
            with_flags=flags,
            look_back=None if look_back is None else LookBack(look_back, subject, admitted, rule),
            by_year=by_year,
            on_guess=lambda said: click.echo(f"{shown(admissions)}: {said}", err=True),
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
    say = partial(click.echo, err=output == "-")
    say(f"{output}: {done.admissions:,} admissions, {done.without_codes:,} of them without codes (score 0).")
    for found in done.audits:
        say(f"{found.share}.")
    if done.late or named["poa"] in ("only", "ahrq"):
        how = {"only": ".", "ahrq": ", and count if chronic."}.get(
            named["poa"], " and do not count (--poa all counts them)."
        )
        say(f"{done.late:,} codes arose after admission{how}")
    if done.combined is None:
        return
    base = "the training split" if done.split else "all admissions of this file, which has no split"
    parts = zip(done.combined.columns, done.combined.means, done.combined.deviations)
    moments = ", ".join(f"{name} mean {mean:.3f} SD {sd:.3f}" for name, mean, sd in parts)
    say(f"cci_eci: z-scores by {base} ({done.combined.admissions:,}: {moments}).")


def _write_audit(findings, by_year, target: str, source: str) -> None:
    """Write one row per code and kind; how often a rare one came is not told."""
    import pyarrow as pa

    from mlci.base.tablefile import writing
    from mlci.codes.audit import KINDS
    from mlci.codes.years import LAST, valid_words

    dated = ("year", "newer")
    columns = {
        "icd_version": [found.version for found in findings],
        "code": [found.code for found in findings],
        "recorded": [_told(found.count) for found in findings],
        "kind": [found.kind for found in findings],
        "words": [KINDS[found.kind] for found in findings],
        "valid": [valid_words(found.code, found.version) if found.kind in dated else "" for found in findings],
    }
    types = {name: pa.int8() if name == "icd_version" else pa.string() for name in columns}
    with writing(target, inputs=[source]) as write:
        write(pa.table(columns, pa.schema(list(types.items()))))
    for kind, words in KINDS.items():
        some = [found for found in findings if found.kind == kind]
        if some:
            many = _told(sum(found.count for found in some))
            click.echo(f"audit: {many} codes ({len(some):,} different): {words}.", err=True)
    if by_year.silent:
        click.echo(
            f"audit: {_told(by_year.silent)} of {by_year.counts.total():,} codes are of "
            f"admissions without a date up to {LAST} (--admitted names the column); whether they were valid in their "
            "year is not known.",
            err=True,
        )


def _told(count: int) -> str:
    return f"{count:,}" if count >= FEWEST else f"under {FEWEST}"
