"""`mlci cohort`: hospital tables in, a cohort file out; `--describe` prints Table 1 of a cohort."""

from pathlib import Path
from typing import Any

import click

from mlci.cli._options import check_output, counted, force, quiet

BUILD_OPTIONS = ("config", "split_by", "proportions", "look_back", "carry", "wash_out")  # not passed to the source


@click.command(short_help="Build a cohort file from hospital tables, or describe one.")
@click.argument("words", nargs=-1, metavar="SOURCE LOCATION")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="The cohort file to write (Parquet).")
@click.option(
    "--describe", type=click.Path(path_type=Path), metavar="COHORT", help="Print Table 1 of a cohort file, and exit."
)
@click.option(
    "--icd-version",
    metavar="9|10|COLUMN",
    help="ICD version of the admissions to take (mimic4, omop, meds), or of codes for which the file states none, or"
    " the column that holds it (file).  [10; file: guessed]",
)
@click.option("--id", metavar="COLUMN", help="The column that identifies admissions (file).  [guessed]")
@click.option("--subject", metavar="COLUMN", help="The column that identifies patients (file).  [guessed]")
@click.option("--codes", metavar="COLUMNS", help="Code columns: 'DX*', or names separated by commas (file).  [guessed]")
@click.option(
    "--outcome",
    "outcomes",
    multiple=True,
    metavar="NAME=RULE",
    help="Outcome and its rule: mortality=expired, mortality=status:DEAD,EXPIRED or long_stay=los>7; may be repeated"
    " (file).  [guessed]",
)
@click.option("--age", metavar="COLUMN", help="The column of age in years, or of age bands (file).  [guessed]")
@click.option(
    "--sex", metavar="COLUMN", help="The column of sex: F and M, female and male, or 1 and 2 (file).  [guessed]"
)
@click.option("--visits", metavar="A,B", help="Visit concepts to include, or all (omop).  [inpatient visits]")
@click.option("--icu-sites", metavar="A,B", help="Names of further care sites to count as intensive care (omop).")
@click.option(
    "--event",
    "events",
    multiple=True,
    metavar="KIND=TEXT",
    help="Prefix of the codes of an event; may be repeated (meds).",
)
@click.option("--admitted", metavar="COLUMN", help="The column of admission times, for --look-back (file).  [guessed]")
@click.option(
    "--look-back",
    type=float,
    metavar="DAYS",
    help="Also use the codes of the patient's admissions in the last DAYS days.",
)
@click.option(
    "--carry",
    metavar="comorbidities|TABLE",
    help="Earlier codes that --look-back uses: those of comorbidities, or a table of codes and days.  [all]",
)
@click.option(
    "--wash-out", is_flag=True, help="Leave out admissions within --look-back days of the patient's first admission."
)
@click.option("--split", metavar="COLUMN", help="The column that holds train, valid or test (file).")
@click.option("--keep", multiple=True, metavar="COLUMN", help="Copy a column into the cohort; may be repeated (file).")
@click.option(
    "--restore-zeros",
    is_flag=True,
    help="Restore leading zeros that the codes have lost: 38.9 becomes 038.9, 8 becomes 008.",
)
@click.option("--dry-run", is_flag=True, help="Show how the first rows are read, and write nothing (file).")
@click.option(
    "--death-day-counts", is_flag=True, default=None, help="Count a death on the day of admission as a death."
)
@click.option(
    "--negative-stays", is_flag=True, default=None, help="Keep stays that end before they begin, with unknown length."
)
@click.option("--schema", multiple=True, metavar="NAME", help="Database schema to search; may be repeated.")
@click.option("--prefix", metavar="TEXT", help="Prefix of the table or file names.")
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    metavar="TOML",
    help="File that names columns and outcomes (tables, file).",
)
@click.option(
    "--not-stated",
    type=click.Choice(["non-home", "null"]),
    help="Non-home discharge where the discharge status is not stated: yes (non-home) or unknown (null) (nhds)."
    "  [non-home]",
)
@click.option("--seed", type=click.IntRange(0), help="Seed of the synthetic hospital.  [0]")
@click.option("--icd9-share", type=float, help="Share of synthetic patients first coded in ICD-9.  [0]")
@click.option(
    "--later-share",
    type=float,
    help="Share of severity that arises after admission, in codes flagged as such (synthetic).  [0]",
)
@click.option("--hospitals", type=int, help="Make several hospitals of known quality, not one (synthetic).")
@click.option(
    "--as-mimic4",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Also write the raw tables of the synthetic hospital in the format of MIMIC-IV (synthetic).",
)
@click.option("--split-by", metavar="COLUMN", help="Keep rows with the same value in one split.  [subject_id]")
@click.option("--proportions", metavar="A,B,C", help="Shares of train, valid and test.  [0.7,0.1,0.2]")
@force
@quiet
def command(
    words: tuple[str, ...], output: Path | None, describe: Path | None, dry_run, force, quiet, **options
) -> None:
    """Build a cohort file: one row per admission, with its codes, outcomes and split.

    SOURCE is file, mimic3, mimic4, omop, meds, nhds, tables or synthetic. Options that apply to one source name it in
    brackets.

    LOCATION is a folder of CSV, CSV.gz or Parquet tables, or the URL of a database (postgres://..., duckdb://...). For
    the source file, it is one CSV, Parquet or Excel table (- for standard input) with a row per admission or per code;
    for synthetic, it is the number of admissions.
    """
    from mlci.base.errors import InputError, address
    from mlci.base.tablefile import is_sheet

    if describe is not None:
        if words or output:
            raise click.UsageError("--describe takes only a cohort file, no SOURCE, LOCATION or -o.")
        from mlci.cohort import read_cohort

        _print_description(read_cohort(describe))
        return
    if len(words) != 2 or (output is None and not dry_run):
        raise click.UsageError("SOURCE, LOCATION and -o are needed (or --describe COHORT).")
    source, location = words
    chosen = {name: value for name, value in options.items() if value not in (None, (), False)}
    if str(chosen.get("icd_version", "")).isdigit():
        chosen["icd_version"] = int(chosen["icd_version"])
    if "outcomes" in chosen:
        chosen["outcomes"] = _rules(chosen["outcomes"])
    if "events" in chosen:
        chosen["prefixes"] = dict(word.partition("=")[::2] for word in chosen.pop("events"))
    if "proportions" in chosen:
        try:
            chosen["proportions"] = [float(share) for share in chosen["proportions"].split(",")]
        except ValueError as error:
            raise InputError(
                f"--proportions {chosen['proportions']}: give three numbers, such as 0.7,0.1,0.2."
            ) from error
    if dry_run:
        if source != "file":
            raise click.UsageError("--dry-run works only with the source file.")
        _dry_run(location, output or "cohort.parquet", chosen)
        return
    assert output is not None  # as asked above
    if is_sheet(output):
        raise InputError(f"{output}: a cohort file is written as Parquet; name it .parquet.")
    check_output(output, inputs=[location, *filter(None, map(chosen.get, ("config", "carry")))], force=force)
    if source == "file" and not quiet:
        others = _others(chosen)
        chosen["tell"] = lambda meaning: _print_guesses(meaning, location, output, others)
    if not quiet:  # before the imports below, which take a second
        click.echo(f"Reading {address(location) if '://' in location else location} ({source}) ...", err=True)
    from importlib import import_module

    from mlci.base.threads import threads
    from mlci.cohort import build_cohort

    cohort = build_cohort(source, location, **chosen)
    with threads(1) as meanwhile:
        if not quiet:
            meanwhile.submit(import_module, "rich.table")  # for the attrition table
        cohort.write(output)
    if not quiet:
        _print_attrition(cohort)
        click.echo(f"{output}: {counted(len(cohort), 'admission')}.")


def _rules(words) -> dict[str, str]:
    """Return several `NAME=RULE` as a dictionary."""
    from mlci.base.errors import InputError

    found = {}
    for word in words:
        name, sign, rule = word.partition("=")
        if not sign or not name.strip() or not rule.strip() or name.strip().endswith((">", "<")):
            raise InputError(f"--outcome {word!r}: is not NAME=RULE, such as mortality=expired or long_stay=los>7.")
        if name.strip() in found:
            raise InputError(f"--outcome {name.strip()}: is given twice; each outcome has one rule.")
        found[name.strip()] = rule.strip()
    return found


def _others(chosen: dict) -> dict[str, Any]:
    """Return the given options that do not concern the table's columns, as they are written on the command line."""
    given = {name: chosen[name] for name in (*BUILD_OPTIONS, "restore_zeros") if name in chosen and name != "config"}
    if "proportions" in given:
        given["proportions"] = ",".join(f"{share:g}" for share in given["proportions"])
    return given


def _print_guesses(meaning, location: str, output, others: dict[str, Any]) -> None:
    """Print which columns were guessed, and the command that names them explicitly."""
    if not meaning.guessed:
        return
    options = {**meaning.options, "outcomes": ", ".join(f"{name} = {text}" for name, text in meaning.texts.items())}
    guesses = "; ".join(f"{name}: {options[name]}" for name in meaning.guessed if options.get(name))
    click.echo(f"Guessed from column names: {guesses}.")
    click.echo(f"To choose them yourself:\n  {meaning.command(location, str(output), others)}")
    click.echo("or, with --config FILE.toml:\n" + "\n".join(f"  {line}" for line in meaning.toml().splitlines()))


def _dry_run(location: str, output, chosen: dict) -> None:
    """Print how the first rows of a file are read."""
    from mlci.sources import file

    others, restore = _others(chosen), {"restore_zeros": chosen.pop("restore_zeros", False)}
    options = {name: value for name, value in chosen.items() if name not in BUILD_OPTIONS}
    with file.opened(location) as table:
        meaning = file.understand(table, options, chosen.get("config"))
        rows = file.preview(table, meaning, **restore)
    _print_guesses(meaning, location, output, others)
    for row in rows.to_pylist():
        codes = row.pop("codes")
        facts = ", ".join(f"{name} {'unknown' if value is None else value}" for name, value in row.items())
        click.echo(f"- {facts}; {counted(len(codes), 'code')}: {' '.join(codes[:8])}{' ...' if len(codes) > 8 else ''}")
    click.echo("Nothing was written.")


def _print_attrition(cohort) -> None:
    from rich.table import Table

    from mlci.cli._tables import plain_console

    console = plain_console()
    table = Table(title="Attrition")
    table.add_column("rule", overflow="fold")
    table.add_column("removed", justify="right")
    table.add_column("left", justify="right")
    for step in cohort.attrition:
        table.add_row(step.rule, f"{step.removed:,}", f"{step.left:,}")
    console.print(table)
    for note in cohort.notes:
        console.print(f"note: {note}")


def _print_description(cohort) -> None:
    """Print Table 1 and the attrition of a cohort."""
    from rich.table import Table

    from mlci.cli._tables import plain_console
    from mlci.cohort import SPLITS

    parts = {"all": cohort, **{name: cohort.split(name) for name in SPLITS}}
    table = Table(title=f"{cohort.source}: {len(cohort):,} admissions")
    table.add_column("", overflow="fold")
    for name in parts:
        table.add_column(name, justify="right", overflow="fold")
    for label, cells in cohort.describe().items():
        table.add_row(label, *cells)
    plain_console().print(table)
    _print_attrition(cohort)
