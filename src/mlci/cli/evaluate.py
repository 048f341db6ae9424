"""`mlci evaluate`: files of scores and a cohort in, tables of metrics out."""

from pathlib import Path

import click

from mlci.cli._model import BANDWIDTH, MODEL
from mlci.cli._options import check_ending, check_outputs, force, published, quiet, survey
from mlci.cli._windows import Windows, windows

# The metrics that are printed, the most common first; the output file has all of them.
PRINTED = ("auroc", "risk_auroc", "deviance", "observed_expected", "slope", "dcorr", "mi", "nhsic")


@click.command(short_help="Evaluate scores against outcomes: AUROC, dCorr, MI, nHSIC, ... with intervals.")
@click.argument("scores", type=click.Path(path_type=Path), nargs=-1)
@click.argument("cohort", type=click.Path(path_type=Path))
@click.option(
    "-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="Table of metrics to write (CSV)."
)
@click.option("--split", default="test", show_default=True, help="Splits to evaluate, such as train,valid; or all.")
@click.option("--score", "columns", multiple=True, help="Score column; may be repeated.  [score, else all numeric]")
@click.option("--by", help="Also evaluate subgroups by these columns of the cohort, such as sex,age_band.")
@click.option(
    "--rivals/--no-rivals",
    default=True,
    show_default=True,
    help="Compare with age and sex, and with the Charlson and Elixhauser flags, refitted on the train split.",
)
@click.option("--missed", is_flag=True, help="Also list codes that add information about an outcome to the score.")
@click.option(
    "--look-back",
    type=Windows(),
    metavar="DAYS,...",
    help="Also compare look-back windows, such as 0,90,365,1825: published indices that use codes of earlier"
    " admissions.",
)
@published("charlson,elixhauser")
@click.option(
    "--carry",
    metavar="comorbidities|TABLE",
    help="With --look-back: the earlier codes to use, those of comorbidities or a table of codes and days.  [all]",
)
@click.option("--model", type=MODEL, help="With --look-back: also score each window with this index.")
@click.option("--fit", is_flag=True, help="With --look-back: also learn an index from each window.")
@click.option("--bounds", is_flag=True, help="Also treat every missing outcome as absent, and as present.")
@click.option("--numeric", metavar="COLUMNS", help="Also evaluate numeric outcomes in these columns: days,cost.")
@click.option(
    "--sigma", type=BANDWIDTH, help="Bandwidth of nHSIC, or a model file to take it from.  [chosen for each score]"
)
@click.option(
    "--resamples", type=click.IntRange(0), default=1000, show_default=True, help="Bootstrap resamples; 0: no intervals."
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of the resampling.")
@survey
@force
@quiet
def command(
    scores,
    cohort: Path,
    output: Path | None,
    split: str,
    columns,
    by: str | None,
    rivals: bool,
    missed: bool,
    bounds: bool,
    numeric: str | None,
    force: bool,
    quiet: bool,
    **options,
) -> None:
    """Evaluate any score against every outcome, on the admissions whose outcome is known.

    SCORES are Parquet, CSV or Excel files with admission_id and score columns. If there are several scores, each is
    compared with the first. Columns risk_<outcome> are evaluated for calibration, and with --numeric also columns
    expected_<number>. --look-back needs no SCORES.

    COHORT is a cohort file.

    With --weights, figures are estimates for the population that the sample represents; metrics without a weighted
    definition are left out. The main metrics are printed; -o writes all of them.
    """
    from mlci.cli._contest import contest, learned_from, missing, numbers, show_contest, show_missing, show_numbers
    from mlci.cli._missed import missed_codes
    from mlci.judging._carried import design_of, design_words
    from mlci.judging.evaluate import judge, subgroup

    windowing = {name: options.pop(name) for name in ("look_back", "index", "carry", "model", "fit")}
    survey_columns = {name: options.pop(name) for name in ("weights", "cluster", "strata")}
    _check_options(scores, weights=survey_columns["weights"], missed=missed, **windowing)
    endings = ("_look_back", "", "_differences", "_bounds", "_numeric", "_missed", "_rivals", "_increments")
    outputs = [output and output.with_name(f"{output.stem}{ending}{output.suffix}") for ending in endings]
    check_outputs(outputs, inputs=[*scores, cohort, *filter(None, [windowing["carry"]])], force=force)
    check_ending(output, ".csv")
    if windowing["look_back"]:
        resampling = {"resamples": options["resamples"], "seed": options["seed"]}
        _write(outputs[0], windows(cohort, **windowing, split=split, quiet=quiet, **resampling), quiet=quiet)
    if not scores:
        return
    judged, frames = _read(scores, cohort, split, columns, quiet=quiet)
    models, risks, expected = _by_model(frames, judged, columns)
    groups = {name: subgroup(judged, name) for name in by.split(",")} if by else None
    design = design_of(judged, **survey_columns)
    found = judge(models, judged, groups=design, risks=risks, by=groups, **options)
    if not quiet:
        if words := design_words(judged, **survey_columns):
            click.echo(f"{words[:1].upper()}{words[1:]}.")
        _print(found, intervals=options["resamples"] > 0, whole=output is not None)
    bounded = missing(models, risks, judged, design) if bounds else found.table[:0]
    if not quiet and len(bounded):
        show_missing(bounded)
    numeric_table = numbers(models, numeric.split(","), judged, design, expected) if numeric else found.table[:0]
    if not quiet and len(numeric_table):
        show_numbers(numeric_table)
    missed_table = missed_codes(models, judged, wanted=missed, quiet=quiet)
    rival_tables = ()
    if rivals:
        first, values = next(iter(models.items()))
        own = {"weights": survey_columns["weights"], "risks": risks.get(first, {})}
        rival_tables = contest(cohort, judged, frames[0][1], (first, values), design, **own)
        if not quiet:
            unit = "patients" if design.clusters < len(design) else "admissions"
            show_contest(*rival_tables, crossed=learned_from(judged), unit=unit)
    tables = (found.table, found.differences, bounded, numeric_table, missed_table, *rival_tables)
    for path, frame in zip(outputs[1:], tables):
        _write(path, frame, quiet=quiet)


def _check_options(scores, *, weights, missed, look_back, carry, model, fit, **_) -> None:
    """Raise a usage error for options that cannot be combined."""
    from mlci.index.ready import ready_made

    for path in scores:
        if path.suffix == ".safetensors" or (str(path) in ready_made() and not path.exists()):
            raise click.UsageError(
                f"{path} is a model, not a file of scores: `mlci score` writes its scores, `mlci report` evaluates it."
            )
    if not scores and not look_back:
        raise click.UsageError("SCORES are needed before COHORT (or --look-back DAYS,...).")
    if (carry or model or fit) and not look_back:
        raise click.UsageError(
            "--carry, --model and --fit need --look-back; to evaluate a model, first score the cohort (`mlci score`)."
        )
    if weights and (missed or look_back):
        raise click.UsageError("--missed and --look-back cannot be combined with --weights.")


def _write(path: Path | None, frame, *, quiet: bool) -> None:
    """Write a table unless it is empty, and report it."""
    from mlci.base.files import atomic

    if path is None or not len(frame):
        return
    with atomic(path) as temporary:
        frame.to_csv(temporary, index=False)
    if not quiet:
        click.echo(f"Written to {path}.")


def _read(scores, cohort: Path, split: str, columns, *, quiet: bool):
    """Return the admissions that have every score, and the table of each file."""
    from mlci.cli._judged import read_judged
    from mlci.judging.scores import match, read_scores

    judged = read_judged(cohort, split)
    size, frames = len(judged), []
    for path in scores:
        frame = read_scores(path, columns=columns, risks=True)
        before = len(judged)
        _, judged = match(frame, judged, where=str(path))
        frames.append((path, frame))
        if not quiet:
            click.echo(f"{path}: {len(judged):,} of {before:,} admissions have scores (split: {split}).")
    if not quiet and len(judged) < size:
        click.echo(f"Evaluated on {len(judged):,} of the {size:,} admissions of the split.")
    return judged, frames


def _by_model(frames, judged, columns) -> tuple[dict, dict, dict]:
    """Return the scores by model name, and the risks and expected numbers of the same file."""
    from mlci.judging.scores import EXPECTED, RISK, match, model_name

    models, risks, expected = {}, {}, {}
    for path, frame in frames:
        frame, _ = match(frame, judged, where=str(path))
        risk, number = (
            {c.removeprefix(start): frame[c].to_numpy() for c in frame if c.startswith(start) and c not in columns}
            for start in (RISK, EXPECTED)
        )
        others = {*(f"{RISK}{name}" for name in risk), *(f"{EXPECTED}{name}" for name in number)}
        score_columns = [c for c in frame if c not in others]
        for column in score_columns:
            name = model_name(path, str(column), alone=len(score_columns) == 1 and len(frames) > 1, taken=models)
            models[name] = frame[column].to_numpy()
            if column == "score":
                risks[name], expected[name] = risk, number
    return models, risks, expected


def _print(found, *, intervals: bool, whole: bool) -> None:
    """Print a table of each main metric: models as rows and outcomes as columns, or a line each if that is too wide."""
    from mlci.cli._tables import p_value, show
    from mlci.measures.registry import METRICS

    table = found.table if "by" in found.table else found.table.assign(by="", group="")
    titles = {name: metric.label for name, metric in METRICS.items()}
    for by, part in table.groupby("by", sort=False):
        seen = part.drop_duplicates(["group", "outcome"])
        counts = [[row.group, row.outcome, f"{row.n:,}", f"{row.positives:,}"] for row in seen.itertuples()]
        heads = [by, "outcome", "admissions", "positives"]
        start = 0 if by else 1
        show(
            f"By {by}; groups with fewer than 10 admissions with or without an outcome share a row"
            if by
            else "Evaluated on",
            heads[start:],
            [row[start:] for row in counts],
            left=2 - start,
        )
        if not by:
            _print_means(found)
        metrics = dict([*part.groupby("metric", sort=False)])
        for metric in (name for name in PRINTED if name in metrics):
            rows = metrics[metric]
            records = rows.to_dict("records")
            cells = {(row["group"], row["model"], row["outcome"]): _cell(row, gap="\n") for row in records}
            outcomes = list(dict.fromkeys(rows["outcome"]))
            lines = list(dict.fromkeys((row["group"], row["model"]) for row in records))
            body = [[*line[start:], *(cells.get((*line, outcome), "") for outcome in outcomes)] for line in lines]
            shown = intervals and bool(rows["low"].notna().any())
            title = f"{titles[metric]}{' (95 % intervals)' if shown else ''}"
            show(title, [by, "model", *outcomes][start:], body, left=2 - start)
    if found.interactions is not None and len(found.interactions):
        body = [
            [row.by, row.model, row.outcome, str(row.groups), p_value(row.level), p_value(row.slope)]
            for row in found.interactions.itertuples()
        ]
        title = "Do groups differ? p-values for the level and the slope of the calibration"
        show(title, ["by", "model", "outcome", "groups", "level", "slope"], body, left=3)
    if len(found.differences):
        heads = ["metric", "model", "outcome", "difference", "p"]
        body = [
            [titles[metric], row.model, row.outcome, _cell(row._asdict(), sign="+"), p_value(row.p)]
            for metric in PRINTED
            for row in found.differences[found.differences["metric"] == metric].itertuples()
        ]
        show(f"Differences from {found.differences['versus'].iloc[0]}", heads, body, left=3)
    if not whole:
        click.echo("These are the main metrics; -o FILE.csv writes all of them.")


def _print_means(found) -> None:
    """Print the means over outcomes, which are the headline of a comparison, if there are several outcomes."""
    from mlci.cli._tables import show
    from mlci.measures.registry import METRICS

    means = found.means()
    if found.table["outcome"].nunique() > 1:
        body = [
            [str(model), *("" if cell != cell else f"{cell:.4f}" for cell in row)] for model, *row in means.itertuples()
        ]
        show("Means over outcomes", ["model", *(METRICS[name].short for name in means)], body)


def _cell(row, *, gap: str = " ", sign: str = "") -> str:
    from mlci.cli._tables import figure, p_value

    if row["metric"] == "independence":
        return p_value(row["value"])
    return figure(row["value"], row["low"], row["high"], gap=gap, sign=sign)
