"""`mlci export`: the table of a model for a spreadsheet, R or any SQL engine."""

import click

from mlci.cli._model import MODEL
from mlci.cli._options import check_output, force, quiet


@click.command("export")
@click.argument("model", type=MODEL)
@click.option("-o", "--output", required=True, type=click.Path(), help="weights.csv, weights.xlsx or score.sql.")
@click.option("--dialect", default="duckdb", show_default=True, help="Of SQL: duckdb, postgres, spark, bigquery, ...")
@click.option("--table", default="diagnoses", show_default=True, help="SQL reads admission_id, icd_version, code here.")
@click.option("--all-rows", is_flag=True, help="Keep codes of fewer than 10 training admissions: for use inside.")
@force
@quiet
def command(model, output, dialect, table, all_rows, force, quiet) -> None:
    """Write the table of a MODEL: a weight for each code and outcome, and the curves that make a score of them.

    MODEL is a model file, or the name of a ready-made index (`mlci models`). The output's name says the form. CSV comes
    with the curves and an R script; a workbook scores what is typed into it; SQL makes the view mlci_scores where the
    diagnoses lie.
    """
    check_output(output, inputs=[model], force=force)
    from mlci.index.export import export
    from mlci.index.model import load_model

    said = export(load_model(model), output, dialect=dialect, table=table, all_rows=all_rows)
    if not quiet:
        click.echo(f"{output}: written.", err=True)
        for line in said:
            click.echo(line, err=True)
