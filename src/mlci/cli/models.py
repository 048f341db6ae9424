"""`mlci models`: the ready-made indices."""

import click


@click.command(short_help="The ready-made indices: nothing to train.")
def command() -> None:
    """List the indices that come with the package: what each was learned from, and how it did on cases kept apart."""
    from mlci.base.names import words
    from mlci.index.model import load_model
    from mlci.index.ready import judged, ready_made

    for name, path in ready_made().items():
        model = load_model(path)
        learned = model.card["admissions"].get("train", 0)
        versions = " and ".join(f"ICD-{version}" for version in model.icd_versions)
        click.echo(f"{name}: {versions}; {len(model.vocabulary.tokens):,} codes and beginnings of codes.")
        click.echo(f"  Learned from {model.card['source']}, {learned:,} admissions.")
        if model.vocabulary.ignored:
            click.echo("  Without codes that tell the outcome, such as cardiac arrest.")
        rows = {(row["model"], row["outcome"]): row for row in judged(name) if row["metric"] == "auroc"}
        for outcome in model.outcomes:
            if row := rows.get(("risk", outcome)):
                value, low, high = (float(row[key]) for key in ("value", "low", "high"))
                click.echo(f"  AUROC of the risk of {words(outcome)}: {value:.3f} ({low:.3f} to {high:.3f}).")
