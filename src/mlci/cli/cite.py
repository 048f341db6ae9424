"""`mlci cite`: BibTeX of method and software, and a methods paragraph with a model's own numbers."""

import click


@click.command(short_help="How to cite the method, the software and a model.")
@click.argument("model", required=False)
def command(model: str | None) -> None:
    """Print BibTeX entries and, for a MODEL, a paragraph for the methods section.

    MODEL is a model file or the name of a ready-made index.
    """
    from mlci.index.citation import bibtex, methods

    if model is None:
        click.echo(bibtex())
        return
    from mlci.index.estimator import load

    described = methods(load(model).model_)  # first: of a model that cannot be read nothing is printed
    click.echo(f"{bibtex()}\n\n{described}")
