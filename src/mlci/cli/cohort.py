"""`mlci cohort`: hospital tables in, a cohort file out; `--describe` prints a cohort's Table 1."""

from pathlib import Path

import click

from mlci.cli._options import check_output, force, quiet

BUILDING = ("config", "split_by", "proportions", "look_back", "carry", "wash_out")  # options that a source does not see


@click.command(short_help="Build a cohort file from hospital tables, or describe one.")
@click.argument("words", nargs=-1, metavar="SOURCE LOCATION")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Cohort file to write (Parquet).")
@click.option(
    "--describe", type=click.Path(path_type=Path), metavar="COHORT", help="Print the Table 1 of a cohort file."
)
@click.option(
    "--icd-version", metavar="9|10|COLUMN", help="ICD version of the codes; file: or the column that says it."
)
@click.option("--id", metavar="COLUMN", help="The column that tells admissions (file).  [guessed]")
@click.option("--subject", metavar="COLUMN", help="The column that tells patients (file).  [guessed]")
@click.option("--codes", metavar="COLUMNS", help="Columns of codes: 'DX*', or names with commas (file).  [guessed]")
@click.option(
    "--outcome",
    "outcomes",
    multiple=True,
    metavar="NAME=RULE",
    help="mortality=expired, mortality=status:DEAD,EXPIRED or long_stay=los>7; may be repeated (file).  [guessed]",
)
@click.option("--age", metavar="COLUMN", help="Years, or bands of years (file).  [guessed]")
@click.option("--sex", metavar="COLUMN", help="F and M, female and male, or 1 and 2 (file).  [guessed]")
@click.option("--visits", metavar="A,B", help="Visit concepts that count; all: every one (omop).  [inpatient ones]")
@click.option("--icu-sites", metavar="A,B", help="Care sites that count as intensive care too, by name (omop).")
@click.option(
    "--event",
    "events",
    multiple=True,
    metavar="KIND=TEXT",
    help="What codes of an event begin with; repeatable (meds).",
)
@click.option("--admitted", metavar="COLUMN", help="When the admission began, for --look-back (file).  [guessed]")
@click.option("--look-back", type=float, metavar="DAYS", help="Codes of a patient's earlier admissions count too.")
@click.option(
    "--carry",
    metavar="comorbidities|TABLE",
    help="Which codes --look-back carries: of comorbidities, or by a table of code and days.  [all]",
)
@click.option("--wash-out", is_flag=True, help="Leave out admissions less than --look-back after the patient's first.")
@click.option("--split", metavar="COLUMN", help="The column that holds train, valid or test (file).")
@click.option("--keep", multiple=True, metavar="COLUMN", help="Carry a column along; may be repeated (file).")
@click.option("--restore-zeros", is_flag=True, help="The codes lost leading zeros: 38.9 is 038.9, 8 is 008.")
@click.option("--dry-run", is_flag=True, help="Show how the first rows are understood and write nothing (file).")
@click.option(
    "--death-day-counts", is_flag=True, default=None, help="Count a death on the day of admission as a death."
)
@click.option(
    "--negative-stays", is_flag=True, default=None, help="Keep stays that end before they begin; length unknown."
)
@click.option("--schema", multiple=True, metavar="NAME", help="Database schema to search; may be repeated.")
@click.option("--prefix", metavar="TEXT", help="What table or file names begin with.")
@click.option("--config", type=click.Path(path_type=Path), metavar="TOML", help="Columns and outcomes (tables, file).")
@click.option(
    "--not-stated",
    type=click.Choice(["non-home", "null"]),
    help="What a discharge status that is not stated says of non-home discharge (nhds).  [non-home]",
)
@click.option("--seed", type=click.IntRange(0), help="Which synthetic hospital.  [0]")
@click.option("--icd9-share", type=float, help="Share of a synthetic hospital's patients first coded in ICD-9.  [0]")
@click.option(
    "--later-share",
    type=float,
    help="Share of severity that arises after admission, in codes flagged so (synthetic).  [0]",
)
@click.option("--hospitals", type=int, help="Many synthetic hospitals of known quality, not one (synthetic).")
@click.option(
    "--as-mimic4",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Also write a synthetic hospital's raw tables, in the form of MIMIC-IV's.",
)
@click.option("--split-by", metavar="COLUMN", help="Column whose values stay together in one split.  [subject_id]")
@click.option("--proportions", metavar="A,B,C", help="Shares of train, valid and test.  [0.7,0.1,0.2]")
@force
@quiet
def command(
    words: tuple[str, ...], output: Path | None, describe: Path | None, dry_run, force, quiet, **options
) -> None:
    """Build a cohort: one row per admission, with its codes, outcomes and split.

    SOURCE is file, mimic3, mimic4, omop, meds, nhds, tables or synthetic. LOCATION is a folder of CSV, CSV.gz or
    Parquet tables, or the URL of a database that holds them (postgres://..., duckdb://...); of file, one CSV, Parquet
    or Excel table (- for standard input) with a row per admission or per code.
    """
    from mlci.base.errors import InputError, address

    if describe is not None:
        if words or output:
            raise click.UsageError("--describe takes a cohort file and nothing else.")
        from mlci.cohort import read_cohort

        _describe(read_cohort(describe))
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
                f"--proportions {chosen['proportions']}: allowed are three numbers, as 0.7,0.1,0.2."
            ) from error
    if dry_run:
        if source != "file":
            raise click.UsageError("--dry-run is for the source file.")
        _dry_run(location, chosen)
        return
    assert output is not None  # as asked above
    check_output(output, inputs=[location, *filter(None, [chosen.get("config")])], force=force)
    if source == "file" and not quiet:
        chosen["tell"] = lambda meaning: _tell(meaning, location, output)
    if not quiet:  # within the first second: what comes next loads an engine
        click.echo(f"Reading {address(location) if '://' in location else location} ({source}) ...", err=True)
    from importlib import import_module

    from mlci.base.threads import threads
    from mlci.cohort import build_cohort

    cohort = build_cohort(source, location, **chosen)
    with threads(1) as meanwhile:
        if not quiet:
            meanwhile.submit(import_module, "rich.table")  # which shows the attrition
        cohort.write(output)
    if not quiet:
        _attrition(cohort)
        click.echo(f"{output}: {len(cohort):,} admissions.")


def _rules(words) -> dict[str, str]:
    """Return several `NAME=RULE` as a dictionary."""
    from mlci.base.errors import InputError

    found = {}
    for word in words:
        name, sign, rule = word.partition("=")
        if not sign or not name.strip() or not rule.strip() or name.strip().endswith((">", "<")):
            raise InputError(f"--outcome {word!r}: is not NAME=RULE, as mortality=expired or long_stay=los>7.")
        found[name.strip()] = rule.strip()
    return found


def _tell(meaning, location: str, output) -> None:
    """Print what was guessed, and what to edit if it is wrong."""
    if not meaning.guessed:
        return
    options = {**meaning.options, "outcomes": ", ".join(f"{name} = {text}" for name, text in meaning.texts.items())}
    said = "; ".join(f"{name}: {options[name]}" for name in meaning.guessed if options.get(name))
    click.echo(f"Guessed by name: {said}.\nTo say it yourself:\n  {meaning.command(location, str(output))}")
    click.echo("or, with --config FILE.toml:\n" + "\n".join(f"  {line}" for line in meaning.toml().splitlines()))


def _dry_run(location: str, chosen: dict) -> None:
    from mlci.sources import file

    restore = {"restore_zeros": chosen.pop("restore_zeros", False)}
    said = {name: value for name, value in chosen.items() if name not in BUILDING}
    with file.opened(location) as table:
        meaning = file.understand(table, said, chosen.get("config"))
        rows = file.preview(table, meaning, **restore)
    _tell(meaning, location, "cohort.parquet")
    for row in rows.to_pylist():
        codes = row.pop("codes")
        facts = ", ".join(f"{name} {'not known' if value is None else value}" for name, value in row.items())
        click.echo(f"- {facts}; {len(codes)} codes: {' '.join(codes[:8])}{' ...' if len(codes) > 8 else ''}")
    click.echo("Nothing was written.")


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
