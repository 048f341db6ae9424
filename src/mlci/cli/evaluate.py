"""`mlci evaluate`: scores in files against the outcomes of a cohort."""

from pathlib import Path

import click

from mlci.cli._model import BANDWIDTH, MODEL
from mlci.cli._options import check_output, force, published, quiet, survey
from mlci.cli._windows import Windows, windows


@click.command(short_help="dCorr, MI, nHSIC, AUROC, ... of scores in files, with intervals.")
@click.argument("scores", type=click.Path(path_type=Path), nargs=-1)
@click.argument("cohort", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="Table of metrics (CSV).")
@click.option("--split", default="test", show_default=True, help="Splits to judge, as train,valid; all: every one.")
@click.option("--score", "columns", multiple=True, help="Score column; may be repeated.  [score, else all numeric]")
@click.option("--by", help="Subgroups as well, by columns of the cohort: sex,age_band.")
@click.option(
    "--rivals/--no-rivals",
    default=True,
    show_default=True,
    help="Beside age and sex, and the flags of Charlson and Elixhauser, refitted on the split train.",
)
@click.option("--missed", is_flag=True, help="Also the codes that say more of an outcome than the score does.")
@click.option(
    "--look-back",
    type=Windows(),
    metavar="DAYS,...",
    help="Also how long to look back: published indices with the codes of earlier admissions, as 0,90,365,1825.",
)
@published("charlson,elixhauser")
@click.option(
    "--carry",
    metavar="comorbidities|TABLE",
    help="With --look-back, which codes: of comorbidities, or by a table of code and days.",
)
@click.option("--model", type=MODEL, help="With --look-back, an index that is scored by each window's codes too.")
@click.option("--fit", is_flag=True, help="With --look-back, also an index that is learned anew from each window.")
@click.option("--bounds", is_flag=True, help="Also with every missing outcome taken as absent, and as present.")
@click.option("--numeric", metavar="COLUMNS", help="Numeric outcomes as well, by columns of the cohort: days,cost.")
@click.option(
    "--sigma", type=BANDWIDTH, help="nHSIC's bandwidth, or a model file: the trained one.  [each score's own]"
)
@click.option(
    "--resamples", type=click.IntRange(0), default=1000, show_default=True, help="For spreads; 0: no intervals."
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of the resampling.")
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
    """Judge any score against every outcome, on the admissions whose outcome is known.

    SCORES are Parquet, CSV or Excel files with admission_id and score columns; of several scores each is compared
    with the first. Columns risk_<outcome> are judged for calibration, expected_<number> with --numeric. COHORT is a
    cohort file; --look-back needs no SCORES. With --weights figures are those of the population that a sample stands
    for; what has no weighted definition is left out.
    """
    from mlci.cli._contest import contest, learned_from, missing, numbers, show_contest, show_missing, show_numbers
    from mlci.cli._missed import missed_codes
    from mlci.judging._carried import design_of, design_words
    from mlci.judging.evaluate import judge, subgroup

    looking = {name: options.pop(name) for name in ("look_back", "index", "carry", "model", "fit")}
    drawn = {name: options.pop(name) for name in ("weights", "cluster", "strata")}
    _check_asked(scores, weights=drawn["weights"], missed=missed, numeric=numeric, **looking)
    endings = ("_look_back", "", "_differences", "_bounds", "_numeric", "_missed", "_rivals", "_increments")
    outputs = [output and output.with_name(f"{output.stem}{ending}{output.suffix}") for ending in endings]
    for path in filter(None, outputs):
        check_output(path, inputs=[*scores, cohort], force=force)
    if looking["look_back"]:
        resampling = {"resamples": options["resamples"], "seed": options["seed"]}
        _write(outputs[0], windows(cohort, **looking, split=split, quiet=quiet, **resampling), quiet=quiet)
    if not scores:
        return
    judged, frames = _read(scores, cohort, split, columns, quiet=quiet)
    models, risks, expected = _named(frames, judged, columns)
    groups = {name: subgroup(judged, name) for name in by.split(",")} if by else None
    design = design_of(judged, **drawn)
    found = judge(models, judged, groups=design, risks=risks, by=groups, **options)
    if not quiet:
        if said := design_words(judged, **drawn):
            click.echo(f"{said[:1].upper()}{said[1:]}.")
        _print(found, intervals=options["resamples"] > 0)
    moved = missing(models, risks, judged, design) if bounds else found.table[:0]
    if not quiet and len(moved):
        show_missing(moved)
    counted = numbers(models, numeric.split(","), judged, design, expected) if numeric else found.table[:0]
    if not quiet and len(counted):
        show_numbers(counted)
    beside = ()
    left = missed_codes(models, judged, wanted=missed, quiet=quiet)
    if rivals:
        first, values = next(iter(models.items()))
        own = {"weights": drawn["weights"], "risks": risks.get(first, {})}
        beside = contest(cohort, judged, frames[0][1], (first, values), design, **own)
        if not quiet:
            who = "patients" if design.clusters < len(design) else "admissions"
            show_contest(*beside, crossed=learned_from(judged), who=who)
    for path, frame in zip(outputs[1:], (found.table, found.differences, moved, counted, left, *beside)):
        _write(path, frame, quiet=quiet)


def _check_asked(scores, *, weights, missed, numeric, look_back, carry, model, fit, **_) -> None:
    """Refuse what does not go together."""
    from mlci.index.ready import ready_made

    for path in scores:
        if path.suffix == ".safetensors" or (str(path) in ready_made() and not path.exists()):
            raise click.UsageError(f"{path} is a model: `mlci score` writes its scores, `mlci report` judges it whole.")
    if not scores and not look_back:
        raise click.UsageError("SCORES are needed before COHORT (or --look-back DAYS,...).")
    if (carry or model or fit) and not look_back:
        raise click.UsageError("--carry, --model and --fit go with --look-back; SCORES are what `mlci score` writes.")
    if weights and (missed or look_back):
        raise click.UsageError("--missed and --look-back take no --weights; leave them out.")


def _write(path: Path | None, frame, *, quiet: bool) -> None:
    """Write a table that has rows, and say so."""
    from mlci.base.files import atomic

    if path is None or not len(frame):
        return
    with atomic(path) as temporary:
        frame.to_csv(temporary, index=False)
    if not quiet:
        click.echo(f"Written to {path}.")


def _read(scores, cohort: Path, split: str, columns, *, quiet: bool):
    """Return the admissions that have every score, and the scores of each file."""
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
        click.echo(f"Judged on {len(judged):,} of the split's {size:,} admissions.")
    return judged, frames


def _named(frames, judged, columns) -> tuple[dict, dict, dict]:
    """Return the scores by a name of their own, and the risks and expected numbers that came with them."""
    from mlci.judging.scores import EXPECTED, RISK, match

    models, risks, expected = {}, {}, {}
    for path, frame in frames:
        frame, _ = match(frame, judged, where=str(path))
        risk, number = (
            {c.removeprefix(start): frame[c].to_numpy() for c in frame if c.startswith(start) and c not in columns}
            for start in (RISK, EXPECTED)
        )
        beside = {*(f"{RISK}{name}" for name in risk), *(f"{EXPECTED}{name}" for name in number)}
        plain = [c for c in frame if c not in beside]
        for column in plain:
            name = path.stem if column == "score" or (len(plain) == 1 and len(frames) > 1) else str(column)
            name = name if name not in models else f"{path.stem}:{column}"
            models[name] = frame[column].to_numpy()
            if column == "score":
                risks[name], expected[name] = risk, number
    return models, risks, expected


def _print(found, *, intervals: bool) -> None:
    """Print one block per metric: models down and outcomes across where that fits, else a line for each."""
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
            f"By {by}; groups of fewer than 10 with or without an outcome share a row" if by else "Judged on",
            heads[start:],
            [row[start:] for row in counts],
            left=2 - start,
        )
        for metric, rows in part.groupby("metric", sort=False):
            records = rows.to_dict("records")
            cells = {(row["group"], row["model"], row["outcome"]): _cell(row, gap="\n") for row in records}
            outcomes = list(dict.fromkeys(rows["outcome"]))
            lines = list(dict.fromkeys((row["group"], row["model"]) for row in records))
            body = [[*line[start:], *(cells.get((*line, outcome), "") for outcome in outcomes)] for line in lines]
            shown = intervals and bool(rows["low"].notna().any())
            title = f"{titles.get(str(metric), metric)}{' (95 % intervals)' if shown else ''}"
            show(title, [by, "model", *outcomes][start:], body, left=2 - start)
    if found.interactions is not None and len(found.interactions):
        body = [
            [row.by, row.model, row.outcome, str(row.groups), p_value(row.level), p_value(row.slope)]
            for row in found.interactions.itertuples()
        ]
        show("Do groups differ? p-values", ["by", "model", "outcome", "groups", "level", "slope"], body, left=3)
    means = found.means()
    if table["outcome"].nunique() > 1:
        body = [
            [str(model), *("" if cell != cell else f"{cell:.4f}" for cell in row)] for model, *row in means.itertuples()
        ]
        show("Means over outcomes", ["model", *(METRICS[name].short for name in means)], body)
    if len(found.differences):
        heads = ["model", "outcome", "metric", "difference", "p"]
        body = [
            [row.model, row.outcome, titles.get(row.metric, row.metric), _cell(row._asdict(), sign="+"), p_value(row.p)]
            for row in found.differences.itertuples()
        ]
        show(f"Differences from {found.differences['versus'].iloc[0]}", heads, body, left=3)


def _cell(row, *, gap: str = " ", sign: str = "") -> str:
    from mlci.cli._tables import figure, p_value

    if row["metric"] == "independence":
        return p_value(row["value"])
    return figure(row["value"], row["low"], row["high"], gap=gap, sign=sign)
