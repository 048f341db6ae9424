"""`mlci card`: the index as points to add up by hand."""

import click

from mlci.cli._model import MODEL
from mlci.cli._options import check_output, force, quiet


@click.command("card")
@click.argument("model", type=MODEL)
@click.argument("cohort", type=click.Path(exists=True, dir_okay=False))
@click.option("-o", "--output", required=True, type=click.Path(), help="The card, as .html, .pdf (one page) or .csv.")
@click.option("--groups", type=click.IntRange(1), default=40, show_default=True, help="Code groups at most.")
@click.option("--split", default="test", show_default=True, help="The split on which the card is judged.")
@force
@quiet
def command(model, cohort, output, groups, split, force, quiet) -> None:
    """Points for groups of codes, to be added up by hand: a card in Charlson's manner that follows MODEL's score.

    The points are fitted on the train split of the COHORT file; the loss is shown beside the index itself, Charlson and
    Elixhauser.
    """
    check_output(output, inputs=[model, cohort], force=force)

    import mlci
    from mlci.showing.card import make_card

    card = make_card(mlci.load(model), mlci.read_cohort(cohort), size=groups, split=split)
    card.write(output)
    if not quiet:
        from mlci.cli._tables import show

        rows = []
        for row in card.loss.to_dict("records"):
            cells = [f"{row[f'dcorr {name}']:.3f} {row[f'auroc {name}']:.3f}" for name in card.outcomes]
            rows.append([str(row["model"]), f"{row['rank correlation']:.2f}", *cells])
        show("What the card loses", ["", "rank corr.", *(f"{name}\ndCorr AUROC" for name in card.outcomes)], rows)
        click.echo(f"{output}: {len(card.lines)} groups, 1 to {card.lines[0].points} points each.", err=True)
