"""`mlci recalibrate`: fit the risks of an index to another hospital, and keep its scores."""

import click

from mlci.cli._model import MODEL
from mlci.cli._options import check_ending, check_outputs, force, quiet


@click.command(short_help="Fit the risks of an index to your hospital; scores stay the same.")
@click.argument("model", type=MODEL)
@click.argument("cohort", type=click.Path(exists=True, dir_okay=False))
@click.option("-o", "--output", required=True, type=click.Path(), help="The model file to write.")
@click.option(
    "--update",
    type=click.Choice(["risks", "weights"]),
    default="risks",
    show_default=True,
    help="What to fit to the cohort: only the risks, or also the weights of the table.",
)
@click.option(
    "--page", type=click.Path(), help="Also write an HTML page: calibration before and after, on held-out patients."
)
@force
@quiet
def command(model, cohort, output, update, page, force, quiet) -> None:
    """Fit the risks, percentiles and cutoff of a MODEL to a COHORT. The weights and therefore the scores stay the same.

    With --update weights, the weights are updated too, only as far as the admissions support it, and outcomes that the
    model does not know get weights of their own.

    MODEL is a model file or a ready-made index, such as us2010. The train and valid splits are used for fitting, the
    test split for evaluation. Outcomes that the model does not know, such as death within 30 days, get a risk curve
    over the score. Outcomes with too few events keep their former risk.
    """
    check_outputs([output, page], inputs=[model, cohort], force=force)
    check_ending(page, ".html")
    import mlci
    from mlci.base.files import atomic
    from mlci.index._look_back import look_back_warnings
    from mlci.index._people import absence_warning, absent, of_data
    from mlci.index.model import load_model
    from mlci.index.recalibrate import EVENTS, moved_words, recalibrate

    data, former = mlci.read_cohort(cohort), load_model(model)
    lacking = absence_warning(former.people, absent(former.people, of_data(data, former.people, len(data))))
    for warning in (*look_back_warnings(former, data.look_back), *[lacking] * bool(lacking)):
        click.echo(f"mlci: warning: {warning}", err=True)
    done = recalibrate(former, data, update=update)
    done.model.save(output)
    if page:
        from mlci.showing.recalibrated import render

        with atomic(page) as temporary:
            temporary.write_text(render(former, done, data), "utf-8")
    if quiet:
        return
    click.echo(f"{output}: written.", err=True)
    if "updated" in done.model.card and update == "weights":
        click.echo(moved_words(done.model.card["updated"]), err=True)
    for name in done.kept:
        result = "its risk was kept" if name in done.model.outcomes else "the model has no risk of it"
        click.echo(f"{name}: {result}; fewer than {EVENTS} admissions have it, or do not have it.", err=True)
    for name in former.outcomes:
        if name not in done.model.outcomes and name not in done.kept:
            click.echo(f"{name}: its risk was read from the former score and is left out.", err=True)
    columns = {"expected_before": "before", "expected_after": "after", "observed": "observed"}
    for row in done.table.to_dict("records"):
        cells = ", ".join(f"{word} {row[key]:.1%}" for key, word in columns.items() if row[key] == row[key])
        losses, areas = (
            " to ".join(
                f"{value:.{digits}f}" for when in ("before", "after") if (value := row[f"{key}_{when}"]) == value
            )
            for key, digits in (("log_loss", 4), ("auroc", 3))
        )
        summary = f"mean risk {cells}; log-loss {losses or 'unknown'}, AUROC {areas or 'unknown'}"
        click.echo(f"{row['outcome']}: {summary} ({row['held_out']:,} held-out admissions).", err=True)
