"""`mlci evaluate`: scores in files against the outcomes of a cohort."""

from pathlib import Path

import click


@click.command(short_help="dCorr, MI, nHSIC, AUROC, ... of scores in files, with intervals.")
@click.argument("scores", type=click.Path(path_type=Path), nargs=-1, required=True)
@click.argument("cohort", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="Table of metrics (CSV).")
@click.option("--split", default="test", show_default=True, help="Splits to judge, as train,valid; all: every one.")
@click.option("--score", "columns", multiple=True, help="Score column; may be repeated.  [score, else all numeric]")
@click.option("--by", help="Subgroups as well, by columns of the cohort: sex,age_band.")
@click.option("--sigma", type=click.FloatRange(0, min_open=True), help="nHSIC's bandwidth.  [each score's own]")
@click.option(
    "--resamples", type=click.IntRange(0), default=1000, show_default=True, help="Of patients; 0: no intervals."
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of the resampling.")
@click.option("--quiet", is_flag=True, help="Print nothing but errors.")
def command(
    scores, cohort: Path, output: Path | None, split: str, columns, by: str | None, quiet: bool, **options
) -> None:
    """Judge any score against every outcome, on the admissions whose outcome is known.

    SCORES are Parquet or CSV files with admission_id and one or more score columns; of several scores each is compared
    with the first. Columns risk_<outcome> are judged for calibration. COHORT is a cohort file.
    """
    from mlci.base.errors import InputError
    from mlci.base.files import atomic, check_writable
    from mlci.cohort import read_cohort
    from mlci.judging.evaluate import judge, subgroup
    from mlci.judging.scores import RISK, match, read_scores

    beside = output and output.with_name(f"{output.stem}_differences{output.suffix}")
    for path in (output, beside):
        if path is not None:
            check_writable(path, inputs=[*scores, cohort])
    judged = read_cohort(cohort)
    if split != "all":
        judged = judged.split(*split.split(","))
    if not len(judged):
        raise InputError(f"{cohort}: has no admission in the split {split}; try --split all.")
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
    models, risks = {}, {}
    for path, frame in frames:
        frame, _ = match(frame, judged, where=str(path))
        risk = {c.removeprefix(RISK): frame[c].to_numpy() for c in frame if c.startswith(RISK) and c not in columns}
        plain = [c for c in frame if c.removeprefix(RISK) not in risk or not c.startswith(RISK)]
        for column in plain:
            name = path.stem if column == "score" or (len(plain) == 1 and len(frames) > 1) else str(column)
            name = name if name not in models else f"{path.stem}:{column}"
            models[name] = frame[column].to_numpy()
            if column == "score":
                risks[name] = risk
    groups = {name: subgroup(judged, name) for name in by.split(",")} if by else None
    found = judge(models, judged, risks=risks, by=groups, **options)
    if not quiet:
        _print(found)
    for path, frame in ((output, found.table), (beside, found.differences)):
        if path is not None and len(frame):
            with atomic(path) as temporary:
                frame.to_csv(temporary, index=False)
            if not quiet:
                click.echo(f"Written to {path}.")


def _print(found) -> None:
    import sys

    from rich.console import Console
    from rich.table import Table

    from mlci.measures.registry import METRICS

    console = Console(highlight=False, width=None if sys.stdout.isatty() else 200)
    table = found.table if "by" in found.table else found.table.assign(by="", group="")
    shown = {name: metric.short for name, metric in METRICS.items() if (table["metric"] == name).any()}
    for by, part in table.groupby("by", sort=False):
        title = f"By {by}" if by else "Scores and outcomes (95 % intervals by resampled patients)"
        drawn = Table(title=title, title_justify="left")
        heads = ["model", *(["group"] if by else []), "outcome"]
        for name in heads:
            drawn.add_column(name)
        for name in ("n", "positives", *shown.values()):
            drawn.add_column(name, justify="right")
        keys = ["group", "model", "outcome"]
        for _, rows in part.groupby(keys, sort=False):
            one = rows.iloc[0]
            cells = rows.set_index("metric")
            figures = [_cell(cells.loc[name]) if name in cells.index else "" for name in shown]
            drawn.add_row(*(one[head] for head in heads), f"{one['n']:,}", f"{one['positives']:,}", *figures)
        console.print(drawn)
    if len(found.differences):
        drawn = Table(title=f"Differences from {found.differences['versus'].iloc[0]}", title_justify="left")
        for name in ("model", "outcome", "metric", "difference", "p"):
            drawn.add_column(name, justify="left" if name in ("model", "outcome", "metric") else "right")
        for row in found.differences.itertuples():
            drawn.add_row(
                row.model, row.outcome, METRICS[row.metric].short, _cell(row._asdict(), " ", "+"), f"{row.p:.3f}"
            )
        console.print(drawn)


def _cell(row, gap: str = "\n", sign: str = "") -> str:
    if row["value"] != row["value"]:
        return "–"
    between = "" if row["low"] != row["low"] else f"{gap}({row['low']:{sign}.3f} to {row['high']:{sign}.3f})"
    return f"{row['value']:{sign}.4f}{between}"
