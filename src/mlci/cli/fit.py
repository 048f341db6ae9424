import click

from mlci.cli._options import check_output, cluster, force, quiet, weights


class _Recipe(click.Choice):
    """A recipe by its name of today, or, with a warning, by a former one."""

    def convert(self, value, param, ctx):
        from mlci.config import current_recipe

        return super().convert(current_recipe(value), param, ctx)


RECIPE = _Recipe(["table", "deep", "paper"])


def _kinds(context: click.Context, option: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    """Return COLUMN or COLUMN=KIND as pairs; a kind that nobody named is empty."""
    return {name: kind for name, _, kind in (column.partition("=") for column in given)}


def _told(context: click.Context, option: click.Parameter, texts: tuple[str, ...]) -> dict[str, str]:
    """Return the words of --about by their keys."""
    told = {key: words for key, _, words in (text.partition("=") for text in texts)}
    for key, words in told.items():
        if key not in ("data", "dates", "licence") or not words.strip():
            raise click.BadParameter(f"{key!r}: allowed is data=WORDS, dates=WORDS, licence=WORDS.", context, option)
    return told


@click.command("fit")
@click.argument("cohort", required=False, type=click.Path(exists=True, dir_okay=False))
@click.option("-o", "--output", type=click.Path(), help="The model file, e.g. model.safetensors.")
@click.option("--config", type=click.Path(exists=True, dir_okay=False), help="A TOML file that changes constants.")
@click.option("--seed", default=11, show_default=True, help="The same seed gives the same model, bit by bit.")
@click.option(
    "--recipe",
    type=RECIPE,
    default="table",
    show_default=True,
    help="A table of weights, networks (deep), or the paper's network.",
)
@click.option(
    "--outcome", "outcomes", multiple=True, help="Learn from this outcome alone; may be repeated. All if none."
)
@click.option("--anchor", help="The outcome that orients the score of deep and paper.  [default: mortality]")
@click.option(
    "--without-outcome-codes", is_flag=True, help="Ignore codes that tell the outcome, such as cardiac arrest."
)
@click.option(
    "--few-events", is_flag=True, help="Learn even from outcomes that fewer than 5 training admissions have, or lack."
)
@click.option("--device", default="cpu", show_default=True, help="cpu, cuda or cuda:N.")
@click.option(
    "--poa",
    type=click.Choice(["all", "only"]),
    help="Codes that count: all, or only those present on admission.  [all]",
)
@click.option(
    "--about",
    multiple=True,
    metavar="KEY=WORDS",
    callback=_told,
    help="What the model card says of the data: data=, dates=, licence=; may be repeated.",
)
@click.option(
    "--numeric",
    multiple=True,
    metavar="COLUMN[=KIND]",
    callback=_kinds,
    help="Learn from this number too: days, cost; KIND is poisson (from 0) or gaussian.  [by its values]",
)
@weights
@cluster
@click.option("--memory-map", is_flag=True, help="Keep the tokens on disk beside the output, not in memory.")
@click.option("--print-config", is_flag=True, help="Print the recipe's constants as TOML, to be edited, and end.")
@force
@quiet
def command(
    cohort,
    output,
    config,
    seed,
    recipe,
    outcomes,
    anchor,
    without_outcome_codes,
    poa,
    few_events,
    device,
    about,
    memory_map,
    print_config,
    force,
    quiet,
    **learned,
) -> None:
    """Learn an index from the train and valid splits of a COHORT file.

    An interrupted fit goes on where it stopped when the same command is given again; until then its state lies beside
    the output, in a file that begins with a dot.
    """
    import shutil
    from dataclasses import replace
    from pathlib import Path

    from mlci.config import RECIPES, read_config, toml_of

    settings = read_config(config, recipe=recipe) if config else RECIPES[recipe]()
    if print_config:
        click.echo(toml_of(settings))
        return
    if cohort is None or output is None:
        raise click.UsageError("COHORT and -o are needed (or --print-config).")
    target = Path(output)
    check_output(target, inputs=[cohort, *filter(None, [config])], force=force)
    if not quiet:
        click.echo(f"Learning from {cohort} by the recipe {recipe}.", err=True)
    if not quiet and (said := _through_torch(settings)):
        click.echo(said, err=True)
    asked = {"without_outcome_codes": without_outcome_codes, "poa": poa}
    settings = replace(settings, tokens=replace(settings.tokens, **{key: said for key, said in asked.items() if said}))

    from mlci.fitting._processes import joined
    from mlci.index._enough import in_words
    from mlci.index.learning import Asked, learn
    from mlci.index.modelcard import described

    checkpoint = target.with_name(f".{target.name}.checkpoint")
    folder = target.with_name(f".{target.name}.tokens") if memory_map else None
    with joined(device) as (device, group), _progress(quiet or group.rank > 0) as on_event:
        asked = Asked(recipe, settings, outcomes or None, anchor, seed, device, few_events)
        model = learn(asked, cohort, checkpoint=checkpoint, memory_map=folder, on_event=on_event, **learned)
        if group.rank:
            return
    described(model, about).save(target)
    checkpoint.unlink(missing_ok=True)
    if folder:
        shutil.rmtree(folder)
    if not quiet:
        click.echo(f"{target}: {_summary(model)}", err=True)
        for doubt in (*in_words(model.card), *_unasked(cohort, model)):
            click.echo(f"Note: {doubt}", err=True)


def _unasked(cohort: str, model) -> list[str]:
    """Return a note where the cohort has present-on-admission flags and `--poa` was not given."""
    from mlci.cohort import cohort_head

    if model.vocabulary.poa == "only" or "poa" not in cohort_head(cohort).table.column_names:
        return []
    return ["all codes counted, those too that arose after admission by their flags; --poa only leaves them out."]


def _through_torch(settings) -> str:
    """Return what a person who takes this index must know beforehand: whether scoring needs torch."""
    encoder = getattr(settings, "encoder", None)
    if encoder is None or encoder.name == "deepsets":
        return ""
    return f"The encoder {encoder.name} is scored through torch: who takes this index needs pip install 'mlci[deep]'."


def _summary(model) -> str:
    """Return what was fitted, in a few sentences."""
    card, cut = model.card, model.cutoff
    rare = sum(not many for many in model.vocabulary.support)
    found = {"from fewer than 10 admissions": rare, "of one person alone": card["tokens_of_one_patient"]}
    said = ", ".join(f"{many:,} {whose}" for whose, many in found.items() if many)
    few = f" ({said}: `min_admissions` leaves rare ones out)" if said else ""
    weights = ", ".join(f"{name} {weight:.2f}" for name, weight in card["weights"].items())
    present = " of codes present on admission" if model.vocabulary.poa == "only" else ""
    present += f", of the last {days:g} days too" if (days := card.get("look_back")) else ""
    elsewhere = "" if cut.held_out is None else f", {cut.held_out:.2f} on admissions that did not choose it"
    said = [
        f"{len(model.vocabulary.tokens):,} tokens{present}{few}, {card['admissions']['train']:,} training admissions"
        f"{_drawn_words(card)}, "
        f"{card['record']['summary']}; weights {weights}; "
        f"high severity from {cut.score:.3f} ({cut.share:.1%} of admissions, "
        f"certificate {cut.certificate:.2f}{elsewhere})."
    ]
    if card["in_sample"]:
        rare = ", ".join(card["in_sample"])
        said.append(
            f"Too few validation admissions for the risk of {rare}: it rests on training admissions too, and flatters."
        )
    return " ".join(said)


def _drawn_words(card) -> str:
    """Return how the training admissions were drawn, where that counted."""
    from mlci.index._survey import told

    said = told(card)
    return f" ({said})" if said else ""


def _progress(quiet: bool):
    """Return a context that yields what `fit` calls after each epoch: it shows a bar, or lines in a log, or nothing."""
    import contextlib
    import sys

    if quiet:
        return contextlib.nullcontext()
    return _bar() if sys.stderr.isatty() else contextlib.nullcontext(_plain)


def _plain(event) -> None:
    click.echo(f"{event.text}; {event.seconds:.0f} s, {event.eta:.0f} s left", err=True)


def _bar():
    import contextlib

    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
    from rich.table import Column

    @contextlib.contextmanager
    def shown():
        description = TextColumn("{task.description}", table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis"))
        columns = (
            description,
            BarColumn(20),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"),
        )
        with Progress(*columns, console=Console(stderr=True), expand=True) as display:
            task = display.add_task("reading", total=None, left="")

            def on_event(event) -> None:
                share = event.seconds / (event.seconds + event.eta) if event.seconds else 0
                display.update(task, description=event.text, total=1, completed=share, left=f"{event.eta:.0f} s left")

            yield on_event

    return shown()
