import click


@click.command("score")
@click.argument("model", type=click.Path(exists=True, dir_okay=False))
@click.argument("admissions", type=click.Path(exists=True, dir_okay=False))
@click.option("-o", "--output", required=True, type=click.Path(), help="scores.parquet or scores.csv.")
@click.option("--icd-version", type=int, help="9 or 10, for codes of which the file does not say it.")
@click.option("--quiet", is_flag=True, help="Print warnings alone.")
def command(model, admissions, output, icd_version, quiet) -> None:
    """Score ADMISSIONS with a MODEL file, streaming: any number of them in little memory.

    ADMISSIONS is a cohort file, or any Parquet or CSV with admission_id and codes: a list column `codes`, or one row
    per code (admission_id, code, icd_version).
    """
    import sys
    import time

    from mlci.base.files import check_writable
    from mlci.index.model import load_model, score_file

    start, clear = time.perf_counter(), "\r\x1b[K" if sys.stderr.isatty() else ""

    def on_batch(written: int) -> None:
        if clear and not quiet:
            rate = written / (time.perf_counter() - start)
            click.echo(f"{clear}{written:,} admissions, {rate:,.0f} a second", err=True, nl=False)

    check_writable(output, inputs=[model, admissions])
    index = load_model(model)
    if index.vocabulary.primary and not quiet:
        click.echo("The model takes the first code of an admission as its principal diagnosis: order counts.", err=True)
    tally = score_file(index, admissions, output, icd_version=icd_version, on_batch=on_batch)
    if not quiet:
        seconds = time.perf_counter() - start
        click.echo(f"{clear}{output}: {tally.admissions:,} admissions in {seconds:.1f} s.", err=True)
    for doubt in tally.doubts():
        click.echo(f"mlci: warning: {doubt}", err=True)
