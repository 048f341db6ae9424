"""`mlci models`: list the ready-made indices, print a model card, or unpack a ready-made index with its documents."""

import click

from mlci.cli._options import check_folder, force


@click.command(short_help="List the ready-made indices, or print the model card of any index.")
@click.argument("model", required=False)
@click.option(
    "-o",
    "--output",
    type=click.Path(),
    help="Folder for the model file, its model card, and for us2010 weights and report.",
)
@force
def command(model: str | None, output: str | None, force: bool) -> None:
    """List the indices that come with the package: the data each was learned from, and its AUROC on held-out data.

    With a MODEL (a file or the name of a ready-made index), print its model card: data, dates, outcomes, counts,
    quality, limits, licence. With -o, write the model file and the card to a folder; for us2010, also its table of
    weights and its report.
    """
    from mlci.index.ready import model_path

    if model is None:
        if output:
            raise click.UsageError("-o needs a MODEL: mlci models us2010 -o FOLDER.")
        _list()
        return
    from mlci.index.model import load_model
    from mlci.index.modelcard import model_card

    path = model_path(model)
    card = model_card(load_model(path), path.stem)
    if output is None:
        click.echo(card, nl=False)
        return
    from mlci.index.ready import DOCUMENTS, unpack

    check_folder(output, [path.name, *DOCUMENTS], inputs=[path], force=force)

    for written in unpack(path, card, output):
        click.echo(str(written))


def _list() -> None:
    from mlci.base.names import words
    from mlci.index.model import load_model
    from mlci.index.ready import judged, ready_made

    for name, path in ready_made().items():
        model = load_model(path)
        learned = model.card["admissions"].get("train", 0)
        versions = " and ".join(f"ICD-{version}" for version in model.icd_versions)
        click.echo(f"{name}: {versions}; {len(model.vocabulary.tokens):,} codes and code prefixes.")
        click.echo(f"  Learned from {model.card['source']}, {learned:,} admissions.")
        if model.vocabulary.ignored:
            click.echo("  Without codes that reveal an outcome, such as cardiac arrest.")
        rows = {(row["model"], row["outcome"]): row for row in judged(name) if row["metric"] == "auroc"}
        for outcome in model.outcomes:
            if row := rows.get(("risk", outcome)):
                value, low, high = (float(row[key]) for key in ("value", "low", "high"))
                click.echo(f"  AUROC of the risk of {words(outcome)}: {value:.3f} ({low:.3f} to {high:.3f}).")
        more = "; -o FOLDER also writes weights and report" if path.with_suffix(".zip").exists() else ""
        click.echo(f"  `mlci models {name}` prints its model card{more}.")
