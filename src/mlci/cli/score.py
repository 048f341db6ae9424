"""`mlci score`: a model and a file of admissions in, a file of scores out."""

import click

from mlci.cli._counting import counting
from mlci.cli._memory import spare_memory
from mlci.cli._model import MODEL
from mlci.cli._options import check_output, columns, counted, display_name, force, quiet


@click.command("score", short_help="Score a file of admissions with a model.")
@click.argument("model", type=MODEL)
@click.argument("admissions", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.option(
    "-o", "--output", required=True, type=click.Path(), help="File of scores: .parquet, .csv, .xlsx, or - for CSV."
)
@columns
@click.option(
    "--meds",
    metavar="OUTCOME",
    help="Write the risks of this outcome in the format of meds-evaluation; ADMISSIONS must be a cohort.",
)
@click.option(
    "--strict",
    is_flag=True,
    help="Write no score if there are no codes, or fewer than half of them are understood; ignore unknown codes.",
)
@click.option(
    "--poa",
    type=click.Choice(["all", "only"]),
    help="Count all codes, or only those present on admission.  [as the model was made]",
)
@force
@quiet
def command(model, admissions, output, meds, strict, poa, force, quiet, **column_options) -> None:
    """Score ADMISSIONS with a MODEL. Files of any size are streamed, so memory use stays small.

    MODEL is a model file, or the name of a ready-made index (`mlci models`), such as us2010.

    ADMISSIONS is a cohort file, or a Parquet, CSV or Excel file. Its codes may be in columns DX1, DX2, ..., in one
    column of lists or texts, or one per row. - reads standard input.
    """
    import time

    from mlci.index._look_back import days_of_file, look_back_warnings
    from mlci.index.model import load_model
    from mlci.index.scoring import score_file

    start = time.perf_counter()
    check_output(output, inputs=[model, admissions], force=force, standard=True)
    index = load_model(model)
    if meds:
        from mlci.cohort import read_cohort
        from mlci.index.meds import write_predictions

        written = write_predictions(index, read_cohort(admissions), meds, output)
        if not quiet:
            click.echo(f"{output}: predictions of {meds} for {counted(written, 'admission')}.", err=True)
        return
    if index.vocabulary.primary and not quiet:
        click.echo(
            "The model takes the first code of each admission as its principal diagnosis, so order matters.", err=True
        )
    if (poa or index.vocabulary.poa) != index.vocabulary.poa:
        from mlci.codes.poa import MADE_FOR

        click.echo(
            f"mlci: warning: the model was made for {MADE_FOR[index.vocabulary.poa]}, not for --poa {poa}.", err=True
        )
    spare_memory()
    with counting(quiet) as on_batch:
        tally = score_file(
            index,
            admissions,
            output,
            strict=strict,
            poa=poa,
            on_batch=on_batch,
            on_guess=lambda guess: click.echo(f"{display_name(admissions)}: {guess}", err=True),
            **column_options,
        )
    if not quiet:
        seconds = time.perf_counter() - start
        empty = f", {tally.empty:,} of them without codes," if tally.empty else ""
        click.echo(f"{output}: {counted(tally.admissions, 'admission')}{empty} in {seconds:.1f} s.", err=True)
    for doubt in (*tally.warnings(strict=strict), *look_back_warnings(index, days_of_file(admissions))):
        click.echo(click.style(f"mlci: warning: {doubt}", fg="red", bold=True), err=True)
    if tally.few and not strict:
        click.echo("mlci: --strict writes no score if fewer than half of the codes are understood.", err=True)
