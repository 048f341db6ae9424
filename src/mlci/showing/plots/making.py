"""Figures of cohort selection, training, and comparisons of models."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from mlci.base.names import label
from mlci.measures.registry import METRICS
from mlci.showing._colours import BLUE, VERMILION
from mlci.showing.plots._style import COLOURS, DASHES, INK, MARKS, heading, panel, panels, room, styled


@styled
def attrition(steps: Sequence[tuple[str, int, int]]) -> Figure:
    """Draw the selection of a cohort: each rule, with the number of admissions removed and left.

    Args:
        steps: for each step, its rule, the number of admissions removed, and the number left.

    Returns:
        The figure.

    >>> drawn = attrition([("admissions", 0, 100), ("at least one diagnosis", 4, 96)])
    >>> [text.get_text() for text in drawn.axes[0].texts][-2:]
    ['96', '− 4']
    """
    import textwrap

    texts = [textwrap.wrap(rule, 40) for rule, _, _ in steps]
    heights = [0.24 + 0.17 * len(lines) for lines in texts]
    figure = Figure(figsize=(5.2, sum(heights) + 0.24 * len(steps)))
    axis = figure.add_axes((0, 0, 1, 1))
    axis.set(xlim=(0, 5.2), ylim=(-sum(heights) - 0.24 * len(steps), 0))
    axis.axis("off")
    top = -0.06
    for (_, removed, left), lines, height in zip(steps, texts, heights):
        box = FancyBboxPatch((0.08, top - height), 3.7, height, boxstyle="round,pad=0,rounding_size=0.06", lw=1)
        box.set(facecolor="none", edgecolor=BLUE)
        axis.add_patch(box)
        axis.text(0.2, top - height / 2, "\n".join(lines), va="center")
        axis.text(3.66, top - height / 2, f"{left:,}", va="center", ha="right", weight="bold")
        if removed:
            axis.plot([3.78, 4.0], [top - height / 2] * 2, color=VERMILION, lw=1)
            axis.text(4.06, top - height / 2, f"− {removed:,}", va="center", color=INK)
        if top - height - 0.3 > axis.get_ylim()[0]:
            axis.annotate(
                "",
                (0.5, top - height - 0.24),
                (0.5, top - height),
                arrowprops={"arrowstyle": "-|>", "color": BLUE, "lw": 1, "shrinkA": 0, "shrinkB": 0},
            )
        top -= height + 0.24
    return figure


@styled
def learning_curves(curves: Mapping[str, Sequence[float]], *, best: int | None = None, ylabel: str = "nHSIC") -> Figure:
    """Draw the course of a fit, epoch by epoch.

    Args:
        curves: the values after each epoch, one line per name.
        best: the epoch, from 1, that was kept.
        ylabel: what the values are.

    Returns:
        The figure.

    >>> learning_curves({"Validation split": [0.1, 0.2, 0.15]}, best=2).axes[0].get_xlabel()
    'Epoch'
    """
    figure, (axis,) = panels(1, size=(5.2, 3.2))
    for position, (name, values) in enumerate(curves.items()):
        epochs = np.arange(1, len(values) + 1)
        style = {"color": COLOURS[position % len(COLOURS)], "ls": DASHES[position % len(DASHES)]}
        axis.plot(epochs, values, marker=MARKS[position % len(MARKS)], ms=3.5, label=label(name), **style)
    if best is not None:
        axis.axvline(best, color=INK, lw=1, ls=":", label="kept")
    axis.set(xlabel="Epoch", ylabel=ylabel)
    axis.xaxis.get_major_locator().set_params(integer=True)
    figure.legend(loc="outside lower center", ncols=2)
    return figure


@styled
def benchmark(frame, metric: str, *, models: Sequence[str] | None = None) -> Figure:
    """Draw one metric of the tidy evaluation frame: models down, outcomes across, 95% intervals.

    Args:
        frame: the table that `mlci.evaluate` gives.
        metric: of those in it.
        models: which, and in what order (all, if None).

    Returns:
        The figure.

    >>> import pandas as pd
    >>> row = {"model": "Charlson", "outcome": "mortality", "metric": "auroc", "value": 0.8, "low": 0.7, "high": 0.9}
    >>> benchmark(pd.DataFrame([row]), "auroc").axes[0].get_xlabel()
    'AUROC'
    """
    frame = frame[frame["metric"] == metric]
    models = list(models or frame["model"].unique())
    outcomes = list(frame["outcome"].unique())
    parts = [frame[frame["outcome"] == outcome].set_index("model").reindex(models) for outcome in outcomes]
    columns = [[part[column].to_numpy(float) for column in ("value", "low", "high")] for part in parts]
    if len(outcomes) == 1:
        return estimates(metric, outcomes[0], models, *columns[0])
    width = min(3.6, 9.0 / max(len(outcomes), 1))
    figure, axes = panels(len(outcomes), columns=4, size=(max(width, 1.9), _height(models)))
    for position, (axis, outcome, found) in enumerate(zip(axes, outcomes, columns)):
        _dots(axis, metric, outcome, models, *found, inches=max(width, 1.9))
        if position % 4:
            axis.set_yticklabels([])
    return figure


@styled
def estimates(
    metric: str, outcome: str, models: Sequence[str], value: np.ndarray, low: np.ndarray, high: np.ndarray
) -> Figure:
    """Draw one metric for one outcome: models down, with their intervals.

    Args:
        metric: its name in the registry.
        outcome: its name.
        models: their names.
        value: of each model.
        low: the lower end of its interval.
        high: the upper end.

    Returns:
        The figure.

    >>> estimates("auroc", "mortality", ["Charlson"], *np.array([[0.8], [0.7], [0.9]])).axes[0].get_xlabel()
    'AUROC'
    """
    left = room(models)
    figure, axis = panel((3.6, _height(models)), left=left)
    _dots(axis, metric, outcome, models, value, low, high, inches=3.6 - left)
    return figure


def _height(models: Sequence[str]) -> float:
    return 0.22 * len(models) + 0.9


def _dots(axis, metric: str, outcome: str, models: Sequence[str], value, low, high, *, inches: float) -> None:
    rows = np.arange(len(models))
    for row in rows:
        colour, mark = COLOURS[row % len(COLOURS)], MARKS[row % len(MARKS)]
        axis.plot([low[row], high[row]], [row, row], color=colour, lw=1.4)
        axis.plot(value[row], row, mark, ms=5, color=colour)
    axis.set(title=heading(outcome, inches), ylim=(len(models) - 0.5, -0.5), yticks=rows)
    axis.set_yticklabels(models, fontsize="small")
    axis.locator_params(axis="x", nbins=4)
    axis.set_xlabel(METRICS[metric].heading)
