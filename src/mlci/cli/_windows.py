"""`mlci evaluate --look-back`: compare look-back windows, on the terminal."""

from pathlib import Path

import click

HEADS = {"auroc": "AUROC", "dcorr": "dCorr"}


class Windows(click.ParamType):
    """Numbers of days, separated by commas."""

    name = "days"

    def convert(self, value, param, ctx) -> list[float]:
        if isinstance(value, list):
            return value
        try:
            return [float(part) for part in value.split(",")]
        except ValueError:
            self.fail(f"{value!r} is not a list of days separated by commas, such as 0,90,365.", param, ctx)


def windows(
    cohort: Path,
    look_back: list[float],
    *,
    index: str,
    carry: str | None,
    split: str,
    model: str | None,
    fit: bool,
    quiet: bool,
    **options,
):
    """Return the table of windows for published indices, for a model, and for an index learned from each window."""
    from mlci.cli._judged import tell_rare
    from mlci.cli._learned import given, learned
    from mlci.cohort import SPLITS, read_cohort
    from mlci.judging._changes import published
    from mlci.judging.windows import compare_windows

    whole = read_cohort(cohort)
    indices = published(index)
    indices |= {Path(model).stem: given(model)} if model else {}
    indices |= {"MLCI, learned": learned(options["seed"])} if fit else {}
    chosen = SPLITS if split == "all" else split.split(",")
    table = compare_windows(whole, indices, look_back, carry=carry, split=chosen, **options)
    if not quiet and len(table):
        for metric, title in HEADS.items():
            _show(title, table[table["metric"] == metric])
        for window, part in table.groupby("days", sort=False):
            observed, carrying = part[["observed", "carrying"]].iloc[0]
            click.echo(
                f"{window:g} days: {observed:.0%} of the admissions were observed that long, "
                f"{carrying:.0%} have an earlier code."
            )
        for note in table.attrs["notes"]:
            click.echo(f"{note[:1].upper()}{note[1:]}")
    if not quiet:
        tell_rare(whole.outcomes, table)
    return table


def _show(title: str, table) -> None:
    from mlci.cli._tables import show

    windows = table["days"].unique()
    rows = [
        [index, outcome, *(cell(row, first=row["days"] == windows[0]) for row in part.to_dict("records"))]
        for (index, outcome), part in table.groupby(["index", "outcome"], sort=False)
    ]
    heads = ["index", "outcome", *(f"{days:g} days" for days in windows)]
    show(f"{title} by look-back window; below it, the change from {windows[0]:g} days", heads, rows, left=2)


def cell(row: dict, *, first: bool) -> str:
    """Return a figure with its interval and, unless it is the first, its change from the first on a second line."""
    from mlci.cli._tables import figure

    found = figure(row["value"], row["low"], row["high"], digits=3)
    change = figure(row["change"], row["change_low"], row["change_high"], digits=3, sign="+")
    return found if first else f"{found}\n{change}"
