"""`mlci export`: the weight table of a model, for a spreadsheet, R or any SQL engine."""

import click

from mlci.cli._model import MODEL
from mlci.cli._options import check_output, force, quiet


@click.command("export", short_help="Export the weight table for a spreadsheet, R or SQL.")
@click.argument("model", type=MODEL)
@click.option("-o", "--output", required=True, type=click.Path(), help="The file to write: .csv, .xlsx or .sql.")
@click.option(
    "--dialect", default="duckdb", show_default=True, help="SQL dialect: duckdb, postgres, spark, bigquery, ..."
)
@click.option(
    "--table",
    default="diagnoses",
    show_default=True,
    help="The table that the SQL reads, with columns admission_id, icd_version and code.",
)
@click.option(
    "--all-rows", is_flag=True, help="Include codes of fewer than 10 training admissions; only for internal use."
)
@force
@quiet
def command(model, output, dialect, table, all_rows, force, quiet) -> None:
    """Write the table of a MODEL of the recipe table: a weight for each code and outcome, and the curves of the score.

    MODEL is a model file, or the name of a ready-made index (`mlci models`).

    The ending of the output chooses the format. .csv writes the table together with the curves and an R script. .xlsx
    writes a workbook that scores the codes typed into it. .sql writes a view, mlci_scores, for a database that holds
    the diagnoses.
    """
    check_output(output, inputs=[model], force=force)
    from mlci.index.export import export
    from mlci.index.model import load_model

    notes = export(load_model(model), output, dialect=dialect, table=table, all_rows=all_rows)
    if not quiet:
        click.echo(f"{output}: written.", err=True)
        for note in notes:
            click.echo(note, err=True)
