import click

from mlci.cli._counting import counting
from mlci.cli._memory import spare_memory
from mlci.cli._model import MODEL
from mlci.cli._options import check_output, columns, force, quiet, shown


@click.command("score")
@click.argument("model", type=MODEL)
@click.argument("admissions", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.option("-o", "--output", required=True, type=click.Path(), help="Scores: .parquet, .csv, .xlsx, or - (CSV).")
@columns
@click.option(
    "--meds", metavar="OUTCOME", help="Write this outcome's risks as meds-evaluation reads them; from a cohort."
)
@click.option(
    "--strict",
    is_flag=True,
    help="No score where fewer than half of an admission's codes are understood; unknown codes do not count.",
)
@click.option(
    "--poa",
    type=click.Choice(["all", "only"]),
    help="Codes that count: all, or only those present on admission.  [what the model was made for]",
)
@force
@quiet
def command(model, admissions, output, meds, strict, poa, force, quiet, **named) -> None:
    """Score ADMISSIONS with a MODEL, streaming: any number of them in little memory.

    MODEL is a model file, or the name of a ready-made index (`mlci models`), such as us2010.

    ADMISSIONS is a cohort file, or any Parquet, CSV or Excel file with codes in columns DX1, DX2, ..., in a list or a
    text, or one row per code; - is standard input.
    """
    import time

    from mlci.index._looking import days_of_file
    from mlci.index._looking import doubt as looking
    from mlci.index.model import load_model
    from mlci.index.scoring import score_file

    start = time.perf_counter()
    check_output(output, inputs=[model, admissions], force=force)
    index = load_model(model)
    if meds:
        from mlci.cohort import read_cohort
        from mlci.index.meds import write_predictions

        written = write_predictions(index, read_cohort(admissions), meds, output)
        if not quiet:
            click.echo(f"{output}: predictions of {meds} for {written:,} admissions.", err=True)
        return
    if index.vocabulary.primary and not quiet:
        click.echo("The model takes the first code of an admission as its principal diagnosis: order counts.", err=True)
    if (poa or index.vocabulary.poa) != index.vocabulary.poa:
        from mlci.codes.poa import MADE_FOR

        click.echo(
            f"mlci: warning: the model was made for {MADE_FOR[index.vocabulary.poa]}, not for --poa {poa}.", err=True
        )
    spare_memory()
    with counting(quiet) as on_batch:
        options = {"on_batch": on_batch, "on_guess": lambda said: click.echo(f"{shown(admissions)}: {said}", err=True)}
        tally = score_file(index, admissions, output, strict=strict, poa=poa, **options, **named)
    if not quiet:
        seconds = time.perf_counter() - start
        click.echo(f"{output}: {tally.admissions:,} admissions in {seconds:.1f} s.", err=True)
    for doubt in (*tally.doubts(strict=strict), *looking(index, days_of_file(admissions))):
        click.echo(click.style(f"mlci: warning: {doubt}", fg="red", bold=True), err=True)
    if tally.few and not strict:
        click.echo("mlci: --strict writes no score for such admissions.", err=True)
