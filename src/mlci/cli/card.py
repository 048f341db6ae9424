"""`mlci card`: the index as points to add up by hand."""

import click

from mlci.cli._model import MODEL
from mlci.cli._options import check_output, force, quiet


@click.command("card")
@click.argument("model", type=MODEL)
@click.argument("cohort", type=click.Path(exists=True, dir_okay=False))
@click.option("-o", "--output", required=True, type=click.Path(), help="The card, as .html, .pdf or .csv.")
@click.option("--groups", type=click.IntRange(1), default=40, show_default=True, help="Code groups at most.")
@click.option("--age/--no-age", default=None, help="Points for age too.  [where the model's risks take it]")
@click.option("--sex/--no-sex", default=None, help="Points for sex too.  [where the model's risks take it]")
@click.option("--outcome-codes", is_flag=True, help="Points for codes that tell an outcome too, as cardiac arrest.")
@click.option("--name", help="What stands on top.  [the cohort's name]")
@click.option("--split", default="test", show_default=True, help="The split on which the card is judged.")
@force
@quiet
def command(model, cohort, output, groups, age, sex, outcome_codes, name, split, force, quiet) -> None:
    """Points for groups of codes, to be added up by hand or on a page that adds: a card in Charlson's manner.

    The points are fitted on the train split of the COHORT file, to the order of MODEL's score and to the outcomes
    themselves; how good the card is stands beside the index itself, Charlson, Elixhauser, and age and sex.
    """
    check_output(output, inputs=[model, cohort], force=force)

    import mlci
    from mlci.showing.card import make_card, write
    from mlci.showing.card._words import loss

    people = {key: wish for key, wish in (("age", age), ("sex", sex)) if wish is not None}
    options = {"size": groups, "split": split, "name": name, "people": people, "outcome_codes": outcome_codes}
    card = make_card(mlci.load(model), mlci.read_cohort(cohort), **options)
    write(card, output)
    if not quiet:
        from mlci.cli._tables import show

        head, *rows = loss(card)
        show("How good the card is", head, rows)
        points = max((line.points for line in card.lines), default=0)
        said = f"{len(card.lines)} groups, 1 to {points} points each; high severity from {card.cutoff} points."
        click.echo(f"{output}: {said}", err=True)
