"""Figures of groups compared: hospitals, and who was treated how."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator

from mlci.showing._colours import BLUE, GREEN, GREY, VERMILION
from mlci.showing.plots._style import COLOURS, COUNT, INK, LONGEST, MARKS, panel, room, styled

if TYPE_CHECKING:
    import pandas as pd


@styled
def funnel(points: "pd.DataFrame", limits: "pd.DataFrame", *, most: int = 12) -> Figure:
    """Draw ratios of observed to expected events over the number of expected events, with funnel limits.

    Args:
        points: the rows `of` a model of a comparison; those that are ranked are drawn.
        limits: the funnel limits of the comparison. Columns that begin with exact are the limits of chance alone, drawn
            faintly if the others allow for usual differences.
        most: maximum number of outliers that are named.

    Returns:
        The figure.

    >>> import pandas as pd
    >>> point = {"group": "North", "effective": 40.0, "ratio": 1.2, "verdict": "as expected", "ranked": True}
    >>> line = {"effective": [10, 90], "low95": 0.5, "high95": 1.5, "low998": 0.3, "high998": 1.8}
    >>> funnel(pd.DataFrame([point]), pd.DataFrame(line)).axes[0].get_ylabel()
    'Observed / expected'
    """
    points = points[points["ranked"]]
    figure, axis = panel((5.6, 3.8), left=0.6)
    for column in [name for name in limits if name.startswith("exact")]:
        axis.plot(limits["effective"], limits[column], color=GREY, lw=0.7, ls=":")
    for level, dash in (("95", "--"), ("998", "-")):
        for side in ("low", "high"):
            text = f"{'95' if level == '95' else '99.8'}% limits" if side == "low" else None
            axis.plot(limits["effective"], limits[f"{side}{level}"], color=GREY, lw=1.1, ls=dash, label=text)
    axis.axhline(1, color=INK, lw=0.8)
    for verdict, colour, mark in (("as expected", BLUE, "o"), ("high", VERMILION, "^"), ("low", GREEN, "v")):
        part = points[points["verdict"] == verdict]
        axis.plot(part["effective"], part["ratio"], mark, ms=4.5, color=colour, label=verdict, ls="none")
    out = points[points["verdict"].isin(["low", "high"])]
    for row in out.reindex(np.abs(out["ratio"] - 1).sort_values(ascending=False).index).head(most).itertuples():
        axis.annotate(str(row.group)[:24], (row.effective, row.ratio), (4, 4), textcoords="offset points", fontsize=7)
    usual = np.interp(np.median(points["effective"]), limits["effective"], limits["high998"])
    top = max(float(points["ratio"].max()), 1.3, float(usual))
    axis.set(
        xlabel="Expected events (Poisson count of the same precision)",
        ylabel="Observed / expected",
        ylim=(0, 1.08 * top),
    )
    axis.set_xscale("log")
    round_numbers = np.array([digit * 10.0**power for power in range(8) for digit in (1, 2, 5)])
    low, high = axis.get_xlim()
    shown = ((round_numbers >= low) & (round_numbers <= high)).sum()
    axis.xaxis.set_major_locator(FixedLocator(round_numbers.tolist()) if shown > 1 else MaxNLocator(4))
    axis.xaxis.set_major_formatter(COUNT)
    axis.xaxis.set_minor_locator(NullLocator())
    axis.legend(loc="lower left", bbox_to_anchor=(0, 1), borderaxespad=0.3, fontsize=7, ncols=5)
    return figure


@styled
def caterpillar(names: Sequence[str], points: "pd.DataFrame", *, labelled: int = 70) -> Figure:
    """Draw ratios with their intervals and the shrunken ratios, one line per group in the order given.

    Args:
        names: of the groups.
        points: a row for each, with ratio, low, high, shrunk and verdict.
        labelled: if there are more groups than this, lines are thin and only outliers are named.

    Returns:
        The figure.

    >>> import pandas as pd
    >>> point = {"ratio": 1.2, "low": 0.8, "high": 1.7, "shrunk": 1.1, "verdict": "as expected"}
    >>> caterpillar(["North"], pd.DataFrame([point])).axes[0].get_yticklabels()[0].get_text()
    'North'
    """
    many = len(names) > labelled
    names = [name if len(name) <= LONGEST // 2 else name[: LONGEST // 2 - 1] + "…" for name in map(str, names)]
    outlying = points["verdict"].isin(["low", "high"]).to_numpy()
    shown = [name if not many or out else "" for name, out in zip(names, outlying)]
    figure, axis = panel((5.6, (6.5 if many else 0.17 * len(names)) + 0.9), left=room(shown))
    rows = np.arange(len(names))
    for verdict, colour, mark in (("", BLUE, "o"), ("high", VERMILION, "^"), ("low", GREEN, "v")):
        chosen = (points["verdict"] == verdict).to_numpy() if verdict else ~outlying
        part = points[chosen]
        axis.hlines(rows[chosen], part["low"], part["high"], color=colour, lw=0.5 if many else 1.2)
        axis.plot(part["ratio"], rows[chosen], mark, ms=2 if many else 4, color=colour, ls="none")
    axis.plot(points["shrunk"], rows, "D", ms=1.5 if many else 3, color=INK, markerfacecolor="none", mew=0.7)
    axis.axvline(1, color=INK, lw=0.8)
    axis.set_yticks(rows[[bool(name) for name in shown]], [name for name in shown if name], fontsize="small")
    axis.set(xlabel="Observed / expected, 95% interval (◇ shrunken)", ylim=(len(names) - 0.4, -0.6))
    axis.grid(visible=False, axis="y")
    return figure


@styled
def love(names: Sequence[str], before: np.ndarray, after: Mapping[str, np.ndarray]) -> Figure:
    """Draw standardised differences of two groups in each covariate: before weighting (hollow) and after, by model.

    Below the dotted line, at 0.1, groups are commonly regarded as balanced.

    Args:
        names: of the covariates.
        before: the difference in each before weighting.
        after: the differences after weighting by each model.

    Returns:
        The figure.

    >>> drawn = love(["age", "diabetes"], np.array([0.4, 0.2]), {"Charlson": np.array([0.05, 0.1])})
    >>> [text.get_text() for text in drawn.axes[0].get_legend().get_texts()]
    ['before weighting', 'weighted by Charlson']
    """
    names = [name if len(name) <= LONGEST else name[: LONGEST - 1] + "…" for name in names]
    figure, axis = panel((5.6, 0.3 * len(names) + 0.22 * (1 + len(after)) + 1.0), left=room(names))
    rows = np.arange(len(names))
    axis.plot(np.abs(before), rows, "o", ms=6, color=INK, markerfacecolor="none", ls="none", label="before weighting")
    for place, (model, values) in enumerate(after.items()):
        colour, mark = COLOURS[place % len(COLOURS)], MARKS[1:][place % (len(MARKS) - 1)]
        at = rows + 0.12 * (place + 1)
        axis.plot(np.abs(values), at, mark, ms=4.5, color=colour, ls="none", label=f"weighted by {model}")
    for limit, dash in ((0, "-"), (0.1, ":")):
        axis.axvline(limit, color=INK, lw=0.8, ls=dash)
    axis.set(
        xlabel="Absolute standardised difference",
        yticks=rows,
        ylim=(len(names) - 0.2 + 0.6 * (1 + len(after)), -0.6),
    )
    axis.set_yticklabels(names, fontsize="small")
    axis.legend(loc="lower right", fontsize=7)
    axis.grid(visible=False, axis="y")
    return figure
