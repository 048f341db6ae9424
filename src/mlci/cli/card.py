"""`mlci card`: an index as points to add up by hand."""

import click

from mlci.cli._model import MODEL
from mlci.cli._options import check_output, counted, force, quiet


@click.command("card", short_help="Write a card: an index as points to add up by hand.")
@click.argument("model", type=MODEL)
@click.argument("cohort", type=click.Path(exists=True, dir_okay=False))
@click.option("-o", "--output", required=True, type=click.Path(), help="The file to write: .html, .pdf or .csv.")
@click.option("--groups", type=click.IntRange(1), default=40, show_default=True, help="Maximum number of code groups.")
@click.option("--age/--no-age", default=None, help="Give points for age.  [if the model's risks use it]")
@click.option("--sex/--no-sex", default=None, help="Give points for sex.  [if the model's risks use it]")
@click.option(
    "--outcome-codes", is_flag=True, help="Also give points for codes that reveal an outcome, such as cardiac arrest."
)
@click.option("--name", help="Title of the card.  [the cohort's name]")
@click.option(
    "--split", default="test", show_default=True, help="The split on which the card is evaluated: test or valid."
)
@force
@quiet
def command(model, cohort, output, groups, age, sex, outcome_codes, name, split, force, quiet) -> None:
    """Write a points card in the style of Charlson: points for groups of codes, to add up by hand or on the page.

    The points are fitted on the train split of the COHORT file, to the order of MODEL's score and to the outcomes. The
    card shows how good it is, compared with the index itself, Charlson, Elixhauser, and age and sex.
    """
    check_output(output, inputs=[model, cohort], force=force)

    import mlci
    from mlci.showing.card import check_name, make_card, write
    from mlci.showing.card._words import loss

    check_name(output)

    people = {key: choice for key, choice in (("age", age), ("sex", sex)) if choice is not None}
    options = {"size": groups, "split": split, "name": name, "people": people, "outcome_codes": outcome_codes}
    card = make_card(mlci.load(model), mlci.read_cohort(cohort), **options)
    write(card, output)
    if not quiet:
        from mlci.cli._tables import show

        head, *rows = loss(card)
        show("How good the card is", head, rows)
        points = max((line.points for line in card.lines), default=0)
        size = f"{counted(len(card.lines), 'group')} of codes with up to {points} points each"
        click.echo(f"{output}: {size}; high severity from {counted(card.cutoff, 'point')}.", err=True)
