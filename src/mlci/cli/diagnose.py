"""`mlci diagnose`: the theory's tables for scores in a file, against a cohort's outcomes."""

from pathlib import Path

import click

from mlci.cli._options import check_folder, force

RECORD = "diagnosis.json"
TITLES = {
    "rank_one": "Do the outcomes share one direction? (J, J1: floored objective and its part along that direction)",
    "thresholds": "Best cuts: j_v for the shared direction v, j_J for all outcomes (high severity: this score or more)",
    "outcomes": "Each outcome: dependence on the score, best single cut (rho2), best of any monotone score (monotone)",
}


@click.command(short_help="Theory diagnostics and cutoffs of scores in a file.")
@click.argument("scores", type=click.Path(path_type=Path))
@click.argument("cohort", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path, file_okay=False), help="Folder for CSV and JSON.")
@click.option("--column", multiple=True, help="Score column; may be repeated.  [score, else every numeric column]")
@click.option("--split", default="test", show_default=True, help="Splits to judge, as train,valid; all: every one.")
@click.option("--outcome", "outcomes", multiple=True, help="Outcome to include; may be repeated.  [all]")
@click.option("--sigma", type=click.FloatRange(0, min_open=True), help="Bandwidth.  [median of score differences]")
@click.option(
    "--protocol",
    type=click.Choice(["exact", "paper"]),
    default="exact",
    show_default=True,
    help="exact: every admission; paper: the authors' subsample, scaling and bandwidth.",
)
@click.option("--sample", type=click.IntRange(2), help="Admissions drawn at random.  [exact: all; paper: 5000]")
@click.option("--seed", type=int, default=12345, show_default=True, help="Of the draw.")
@force
def command(scores: Path, cohort: Path, output: Path | None, column, split: str, outcomes, force, **options) -> None:
    """Can these scores serve several outcomes at once, and where lies their cutoff?

    SCORES is a Parquet or CSV file with admission_id and one or more score columns, COHORT a cohort file. Prints how
    far the outcomes share one direction, the best cuts of each score with their certificates, and each outcome's own.
    """
    import json

    import pandas as pd

    from mlci.base.errors import InputError
    from mlci.base.files import atomic
    from mlci.cohort import read_cohort
    from mlci.judging import theory
    from mlci.judging.scores import match, read_scores

    if options["protocol"] == "paper" and options["sigma"] is not None:
        raise click.UsageError("--sigma does not go with --protocol paper, which takes its own.")
    if output is not None:
        check_folder(output, [*(f"{title}.csv" for title in TITLES), RECORD], inputs=[scores, cohort], force=force)
    judged = read_cohort(cohort)
    for name in outcomes:
        if name not in judged.outcomes:
            raise InputError(f"{cohort}: has no outcome {name}; allowed are {', '.join(judged.outcomes)}.")
    names = list(outcomes or judged.outcomes)
    if split != "all":
        judged = judged.split(*split.split(","))
    if not len(judged):
        raise InputError(f"{cohort}: has no admission in the split {split}; try --split all.")
    size = len(judged)
    values, judged = match(read_scores(scores, columns=column), judged, where=str(scores))
    click.echo(f"{len(values):,} of the cohort's {size:,} admissions (split: {split}) have scores in {scores}.")
    labels = judged.labels(*names)
    found = {name: theory.diagnose(values[name].to_numpy(), labels, names, **options) for name in values}
    tables = {}
    for title in TITLES:
        parts = [diagnosis.tables()[title].assign(model=name) for name, diagnosis in found.items()]
        frame = pd.concat(parts, ignore_index=True)
        tables[title] = frame[["model", *frame.columns.drop("model")]]
        _print(TITLES[title], tables[title])
    for outcome, why in {k: v for diagnosis in found.values() for k, v in diagnosis.left_out.items()}.items():
        click.echo(f"{outcome} was left out: {why}.")
    for name, diagnosis in found.items():
        if not diagnosis.shared.threshold.rising:
            click.echo(f"{name}: beyond its best cut the outcomes are rarer, not commoner; it may be turned around.")
    if output is not None:
        for title, frame in tables.items():
            with atomic(output / f"{title}.csv", inputs=[scores, cohort]) as temporary:
                frame.to_csv(temporary, index=False)
        with atomic(output / RECORD, inputs=[scores, cohort]) as temporary:
            temporary.write_text(json.dumps({name: diagnosis.to_dict() for name, diagnosis in found.items()}, indent=1))
        click.echo(f"Written to {output}: {', '.join(f'{title}.csv' for title in tables)}, {RECORD}.")


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
