"""`mlci fit`: a cohort file in, a model file out."""

import click

from mlci.cli._options import check_output, cluster, force, quiet, weights


class _Recipe(click.Choice):
    """A recipe by its current name, or, with a warning, by a former one."""

    def convert(self, value, param, ctx):
        from mlci.config import current_recipe

        return super().convert(current_recipe(value), param, ctx)


RECIPE = _Recipe(["table", "deep", "paper"])


def _numeric_kinds(context: click.Context, option: click.Parameter, columns: tuple[str, ...]) -> dict[str, str]:
    """Return each COLUMN or COLUMN=KIND as a pair; a kind that is not given is empty."""
    return {name: kind for name, _, kind in (column.partition("=") for column in columns)}


def _about(context: click.Context, option: click.Parameter, texts: tuple[str, ...]) -> dict[str, str]:
    """Return the texts of --about by their keys, checked before the fit."""
    about = {key: text for key, _, text in (pair.partition("=") for pair in texts)}
    if about:
        from mlci.index.modelcard import check_about

        check_about(about)
    return about


@click.command("fit", short_help="Learn an index from a cohort file.")
@click.argument("cohort", required=False, type=click.Path(exists=True, dir_okay=False))
@click.option("-o", "--output", type=click.Path(), help="The model file to write, such as model.safetensors.")
@click.option(
    "--config", type=click.Path(exists=True, dir_okay=False), help="TOML file of settings; see --print-config."
)
@click.option(
    "--seed",
    type=click.IntRange(0),
    default=11,
    show_default=True,
    help="On a CPU, the same seed gives a bit-for-bit identical model.",
)
@click.option(
    "--recipe",
    type=RECIPE,
    default="table",
    show_default=True,
    help="A table of weights (table), neural networks (deep), or the network of the paper (paper).",
)
@click.option(
    "--outcome", "outcomes", multiple=True, help="Learn only from this outcome; may be repeated.  [all outcomes]"
)
@click.option("--anchor", help="Recipes deep and paper: the outcome that orients the score.  [mortality]")
@click.option(
    "--without-outcome-codes", is_flag=True, help="Ignore codes that reveal an outcome, such as cardiac arrest."
)
@click.option(
    "--few-events",
    is_flag=True,
    help="Allow outcomes that fewer than 5 training admissions have, or do not have.",
)
@click.option("--device", default="cpu", show_default=True, help="cpu, cuda or cuda:N.")
@click.option(
    "--poa",
    type=click.Choice(["all", "only"]),
    help="Learn from all codes, or only from those present on admission.  [all]",
)
@click.option(
    "--about",
    multiple=True,
    metavar="KEY=TEXT",
    callback=_about,
    help="Text about the data for the model card: data=, dates= or licence=; may be repeated.",
)
@click.option(
    "--numeric",
    multiple=True,
    metavar="COLUMN[=KIND]",
    callback=_numeric_kinds,
    help="Also learn from a numeric outcome, such as days or cost; KIND is poisson (values from 0) or gaussian."
    "  [by its values]",
)
@weights
@cluster
@click.option("--memory-map", is_flag=True, help="Keep the tokens on disk next to the output, not in memory.")
@click.option("--print-config", is_flag=True, help="Print the settings of the recipe as TOML, and exit.")
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
    **data_options,
) -> None:
    """Learn an index from the train and valid splits of a COHORT file.

    If a fit is interrupted, the same command continues where it stopped. Until then its state is kept next to the
    output, in a hidden file whose name begins with a dot.
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
        click.echo(f"Learning from {cohort} with the recipe {recipe}.", err=True)
    if not quiet and (note := _needs_torch(settings)):
        click.echo(note, err=True)
    changes = {"without_outcome_codes": without_outcome_codes, "poa": poa}
    tokens = replace(settings.tokens, **{key: value for key, value in changes.items() if value})
    settings = replace(settings, tokens=tokens)

    from mlci.fitting._processes import joined
    from mlci.index.learning import FitSettings, learn
    from mlci.index.modelcard import described

    checkpoint = target.with_name(f".{target.name}.checkpoint")
    folder = target.with_name(f".{target.name}.tokens") if memory_map else None
    with joined(device) as (device, group), _progress(quiet or group.rank > 0) as on_event:
        asked = FitSettings(recipe, settings, outcomes or None, anchor, seed, device, few_events)
        model = learn(asked, cohort, checkpoint=checkpoint, memory_map=folder, on_event=on_event, **data_options)
        if group.rank:
            return
    described(model, about).save(target)
    checkpoint.unlink(missing_ok=True)
    if folder:
        shutil.rmtree(folder)
    if not quiet:
        _print_summary(target, model, cohort)


def _print_summary(target, model, cohort: str) -> None:
    """Print what was fitted, and notes on outcomes and codes."""
    from mlci.index._few_events import outcome_notes

    click.echo(f"{target}: {_summary(model)}", err=True)
    for note in (*outcome_notes(model.card), *_poa_note(cohort, model)):
        click.echo(f"Note: {note}", err=True)


def _poa_note(cohort: str, model) -> list[str]:
    """Return a note if the cohort has present-on-admission flags and `--poa` was not given."""
    from mlci.cohort import cohort_head

    if model.vocabulary.poa == "only" or "poa" not in cohort_head(cohort).table.column_names:
        return []
    return ["the index also uses codes flagged as arising after admission; --poa only leaves them out."]


def _needs_torch(settings) -> str:
    """Return a note if scoring with this index will need torch, else an empty text."""
    encoder = getattr(settings, "encoder", None)
    if encoder is None or encoder.name == "deepsets":
        return ""
    return f"The encoder {encoder.name} needs torch for scoring: users of this index must pip install 'mlci[deep]'."


def _summary(model) -> str:
    """Return a few sentences about the fitted model."""
    card, cut = model.card, model.cutoff
    rare = sum(not support for support in model.vocabulary.support)
    counts = {"from fewer than 10 admissions": rare, "from a single patient": card["tokens_of_one_patient"]}
    counted = ", ".join(f"{count:,} {source}" for source, count in counts.items() if count)
    few = f" ({counted}; `min_admissions` leaves rare tokens out)" if counted else ""
    weights = ", ".join(f"{name} {weight:.2f}" for name, weight in card["weights"].items())
    kind = " of codes present on admission" if model.vocabulary.poa == "only" else ""
    kind += f", including codes of the last {days:g} days" if (days := card.get("look_back")) else ""
    held_out = "" if cut.held_out is None else f", {cut.held_out:.2f} on admissions not used to choose it"
    sentences = [
        f"{len(model.vocabulary.tokens):,} tokens{kind}{few}, {card['admissions']['train']:,} training admissions"
        f"{_survey_note(card)}, "
        f"{card['record']['summary']}; weights {weights}; "
        f"high severity from {cut.score:z.3f} ({cut.share:.1%} of admissions, "
        f"certificate {cut.certificate:.2f}{held_out})."
    ]
    if card["in_sample"]:
        sentences.append(
            f"There were too few validation admissions for the risk of {', '.join(card['in_sample'])}: its figures are "
            "partly from training admissions and look too good."
        )
    return " ".join(sentences)


def _survey_note(card) -> str:
    """Return how the training admissions were sampled, if that was taken into account."""
    from mlci.index._survey import survey_words

    design = survey_words(card)
    return f" ({design})" if design else ""


def _progress(quiet: bool):
    """Return a context manager that yields the callback of `learn`: it shows a bar, writes log lines, or is None."""
    import contextlib
    import sys

    if quiet:
        return contextlib.nullcontext()
    return _bar() if sys.stderr.isatty() else contextlib.nullcontext(_log_line)


def _log_line(event) -> None:
    click.echo(f"{event.text}; {event.seconds:.0f} s, {event.eta:.0f} s left", err=True)


def _bar():
    import contextlib

    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
    from rich.table import Column

    @contextlib.contextmanager
    def shown():
        column = Column(ratio=1, no_wrap=True, overflow="ellipsis")
        description = TextColumn("{task.description}", markup=False, table_column=column)
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
