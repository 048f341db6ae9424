"""`mlci cite`: BibTeX entries of the method and the software, and a methods paragraph about a model."""

import click


@click.command(short_help="Show how to cite the method, the software and a model.")
@click.argument("model", required=False)
def command(model: str | None) -> None:
    """Print BibTeX entries and, for a MODEL, a paragraph for the methods section with its figures.

    MODEL is a model file or the name of a ready-made index.
    """
    from mlci.index.citation import bibtex, methods

    if model is None:
        click.echo(bibtex())
        return
    from mlci.index.estimator import load

    described = methods(load(model).model_)  # before any output, in case the model cannot be read
    click.echo(f"{bibtex()}\n\n{described}")
