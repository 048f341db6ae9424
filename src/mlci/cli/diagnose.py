"""`mlci diagnose`: the tables and laws of the theory, for scores in a file and the outcomes of a cohort."""

from collections.abc import Sequence
from pathlib import Path

import click

from mlci.cli._model import BANDWIDTH
from mlci.cli._options import check_folder, force, quiet

RECORD = "diagnosis.json"
TITLES = {
    "rank_one": "Do the outcomes share one direction? (J, J1: the objective and its part along that direction)",
    "thresholds": "Best cuts: j_v for the shared direction v, j_J for all outcomes (high severity: this score or more)",
    "outcomes": "Each outcome: dependence on the score, best single cut (rho2), best of any monotone score (monotone)",
}


@click.command(short_help="Diagnose scores: shared direction of outcomes, cutoffs, certificates.")
@click.argument("scores", type=click.Path(path_type=Path))
@click.argument("cohort", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path, file_okay=False), help="Folder for CSV and JSON files.")
@click.option("--column", multiple=True, help="Score column; may be repeated.  [score, else every numeric column]")
@click.option("--split", default="test", show_default=True, help="Splits to evaluate, such as train,valid; or all.")
@click.option("--outcome", "outcomes", multiple=True, help="Outcome to include; may be repeated.  [all]")
@click.option(
    "--weights",
    metavar="A=2,B=1|MODEL|equal",
    help="Weights of the outcomes.  [those of the fit, if SCORES holds them, else equal]",
)
@click.option("--sigma", type=BANDWIDTH, help="Bandwidth, or a model file to take it from.  [median difference]")
@click.option("--floor", type=click.FloatRange(0), help="Floor of the kernel's norm; 0: none.  [exact: 1e-4; paper: 0]")
@click.option(
    "--protocol",
    type=click.Choice(["exact", "paper"]),
    default="exact",
    show_default=True,
    help="exact: use every admission; paper: use the authors' subsample, scaling and bandwidth.",
)
@click.option("--sample", type=click.IntRange(2), help="Number of admissions to sample.  [exact: all; paper: 5000]")
@click.option(
    "--seed", type=click.IntRange(0), default=12345, show_default=True, help="Seed of the sample and of the noise."
)
@click.option("--check", is_flag=True, help="Check each lemma of the paper on these data.")
@click.option(
    "--noise",
    type=click.FloatRange(0, min_open=True),
    metavar="SD",
    help="Check the effect of noise on the score, with this standard deviation.",
)
@force
@quiet
def command(scores: Path, cohort: Path, output: Path | None, column, split: str, outcomes, **options) -> None:
    """Check whether scores can serve several outcomes at once, and where their cutoff is.

    SCORES is a Parquet, CSV or Excel file with admission_id and score columns. COHORT is a cohort file.

    Prints how far the outcomes share one direction, the best cuts of each score with their certificates, and the best
    cut for each outcome. With --check, also prints whether each inequality of the paper holds here, and by how much.
    """
    from mlci.base.errors import InputError
    from mlci.cli._judged import read_judged
    from mlci.judging import theory
    from mlci.judging.scores import match, read_scores

    quiet, force = options.pop("quiet"), options.pop("force")
    noise, checked = options.pop("noise"), options.pop("check")
    if options["protocol"] == "paper" and options["sigma"] is not None:
        raise click.UsageError("--sigma cannot be combined with --protocol paper, which has its own bandwidth.")
    if output is not None:
        names = [*(f"{title}.csv" for title in (*TITLES, "checks")), RECORD]
        check_folder(output, names, inputs=[scores, cohort], force=force)
    judged = read_judged(cohort, split)
    for name in outcomes:
        if name not in judged.outcomes:
            raise InputError(f"{cohort}: has no outcome {name}; allowed are {', '.join(judged.outcomes)}.")
    names = list(outcomes or judged.outcomes)
    options["weights"] = _weights(options["weights"], names, scores)
    size = len(judged)
    values, judged = match(read_scores(scores, columns=column), judged, where=str(scores))
    if not quiet:
        click.echo(f"{len(values):,} of the cohort's {size:,} admissions (split: {split}) have scores in {scores}.")
    labels = judged.labels(*names)
    found = {name: theory.diagnose(values[name].to_numpy(), labels, names, **options) for name in values}
    laws = {}
    if checked or noise is not None:
        laws = {name: theory.check(values[name].to_numpy(), labels, names, noise=noise, **options) for name in values}
    tables = _tables(found, laws)
    if not quiet:
        _print_all(found, tables)
    if output is not None:
        _write(output, found, tables)
        if not quiet:
            click.echo(f"Written to {output}: {', '.join(f'{title}.csv' for title in tables)}, {RECORD}.")


def _weights(text: str | None, names: Sequence[str], scores: Path) -> list[float] | None:
    """Return the weights of the outcomes, in their order, or None for equal weights.

    `text` may give weights (others are 1), name a model, or be None. In that case the weights come from the file of
    scores, if `mlci score` wrote them there, so that both commands choose the same cut.
    """
    from mlci.base.errors import InputError
    from mlci.judging.scores import read_weights

    if text is None:
        stored = [read_weights(scores).get(name, 0.0) for name in names]
        return stored if all(stored) else None
    if text == "equal":
        return None
    if "=" not in text:
        from mlci.index.model import load_model

        given = load_model(text).card.get("weights")
        if given is None:
            raise InputError(f"{text}: has no outcome weights; give them as {names[0]}=2.")
        return [float(given.get(name, 0.0)) for name in names]
    weights = dict.fromkeys(names, 1.0)
    for word in text.split(","):
        name, _, value = word.partition("=")
        if name not in weights:
            raise InputError(f"weights: '{name}' is not an outcome here; allowed are {', '.join(names)}.")
        try:
            weights[name] = float(value)
        except ValueError:
            raise InputError(f"weights: '{word}' is not OUTCOME=NUMBER.") from None
    return list(weights.values())


def _tables(found, laws) -> dict:
    """Return the three tables for all scores, and the table of checked laws if there are any."""
    import pandas as pd

    tables = {}
    for title in TITLES:
        parts = [diagnosis.tables()[title].assign(model=name) for name, diagnosis in found.items()]
        frame = pd.concat(parts, ignore_index=True)
        tables[title] = frame[["model", *frame.columns.drop("model")]]
    if laws:
        rows = [(name, law.law, law.left, law.relation, law.right, law.verdict) for name in laws for law in laws[name]]
        tables["checks"] = pd.DataFrame(rows, columns=["model", "law", "left", "relation", "right", "verdict"])
    return tables


def _print_all(found, tables) -> None:
    """Print the tables, and the notes needed to read them."""
    from mlci.cli._tables import show

    for title, words in TITLES.items():
        _print(words, tables[title])
    for line in dict.fromkeys(diagnosis.flooring for diagnosis in found.values()):
        click.echo(line)
    for diagnosis in list(found.values())[:1]:
        weights = ", ".join(f"{name} {weight:g}" for name, weight in zip(diagnosis.outcomes, diagnosis.weights))
        click.echo(f"Weights of the outcomes: {weights}.")
    for outcome, why in {k: v for diagnosis in found.values() for k, v in diagnosis.left_out.items()}.items():
        click.echo(f"{outcome} was left out: {why}.")
    for name, diagnosis in found.items():
        if not diagnosis.shared.threshold.rising:
            click.echo(f"{name}: outcomes are rarer above its best cut, not more frequent; the score may be reversed.")
    if "checks" in tables:
        rows = [
            [
                row.model,
                row.law,
                f"{row.left:.4g} {row.relation} {row.right:.4g}" if row.left == row.left else "–",
                row.verdict,
            ]
            for row in tables["checks"].itertuples()  # a side is NaN if the law does not apply
        ]
        show("The laws of the paper on these data", ["model", "law", "here", "verdict"], rows, left=4)


def _write(output: Path, found, tables) -> None:
    import json

    from mlci.base.files import atomic

    output.mkdir(exist_ok=True)
    for title, frame in tables.items():
        with atomic(output / f"{title}.csv") as temporary:
            frame.to_csv(temporary, index=False)
    with atomic(output / RECORD) as temporary:
        record = {name: diagnosis.to_dict() for name, diagnosis in found.items()}
        temporary.write_text(json.dumps(record, indent=1), "utf-8")


def _print(title: str, frame) -> None:
    from mlci.cli._tables import show

    singular = [name for name in frame if name.startswith("sigma_")]
    if singular:
        values = ["(" + ", ".join(f"{value:.2f}" for value in row) + ")" for row in frame[singular].to_numpy()]
        frame = frame.drop(columns=singular)
        frame.insert(2, f"sigma 1:{len(singular)}", values)
    rows = [[_text(name, value) for name, value in zip(frame, row)] for row in frame.itertuples(index=False)]
    show(title, list(frame), rows, left=sum(name in ("model", "objective", "outcome") for name in frame))


def _text(name: str, value) -> str:
    if isinstance(value, str):
        return value
    if name == "share":
        return f"{value:.2%}"
    if name in ("n", "j", "tail", "positives"):
        return f"{int(value):,}"
    return {True: "yes", False: "no"}[value] if name == "rising" else f"{value:.4g}"
