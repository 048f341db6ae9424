"""Figures: data in, Figure out; the only importer of matplotlib.

One style for all: Okabe and Ito's colours, which colour-blind readers can tell apart, with marks or line styles that
differ as well, so that nothing hangs on colour alone. `svg` gives inline vector text whose ink takes the page's text
colour, so one drawing serves light, dark and paper.
"""

import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from io import StringIO
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Any, Literal, ParamSpec

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from mlci.base.errors import InputError
from mlci.base.files import atomic
from mlci.base.names import label
from mlci.index._explain import Explanation
from mlci.judging.curves import CalibrationCurve, Rates, RiskCurve
from mlci.judging.kept import Isotonic
from mlci.judging.theory import Scan
from mlci.measures.registry import METRICS

if TYPE_CHECKING:
    import pandas as pd

Words = ParamSpec("Words")
BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"
GREY = "#7B8794"
COLOURS = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY)
DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 1)))
MARKS = ("o", "s", "D", "^", "v", "P")
INK = "#0a0b0c"  # stands for the text colour of whatever page the figure lies on
DARK = {BLUE: "#56B4E9", VERMILION: "#FF8A4C", GREEN: "#2FC99B", GREY: "#9AA4AE"}  # lighter, where the page is dark
LONGEST = 46  # letters of a name beside a bar
POINTS = 400  # a line on paper shows no more
TICKS = (0.001, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 0.999)  # of a normal scale
COUNT = FuncFormatter(lambda value, _: f"{value:,.6g}")
PERCENT = FuncFormatter(lambda value, _: f"{100 * value:.6g}%")

STYLE: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.titley": 1.0,  # no axis has labels above that it would have to give way to, so none are measured
    "axes.titleweight": "bold",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": INK,
    "grid.alpha": 0.12,
    "grid.linewidth": 0.6,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.titlecolor": INK,
    "lines.linewidth": 1.6,
    "legend.frameon": False,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
    "svg.fonttype": "none",
    "text.parse_math": False,  # a hospital may have a dollar sign in its name
    "svg.hashsalt": "mlci",
}


def _styled(draw: Callable[Words, Figure]) -> Callable[Words, Figure]:
    """Draw in the house style, whatever the reader's own settings."""

    @wraps(draw)
    def wrapper(*args: Words.args, **options: Words.kwargs) -> Figure:
        with mpl.rc_context({**mpl.rcParamsDefault, "backend": "agg", **STYLE}):
            return draw(*args, **options)

    return wrapper


def _panel(size: tuple[float, float] = (3.6, 2.5), *, left: float = 0.68, right: float = 0.1):
    """Return one panel with room (inches) for title, tick labels and axis titles; it needs no layout engine."""
    figure = Figure(figsize=size)
    width, height = size
    box = (left / width, 0.48 / height, (width - left - right) / width, (height - 0.48 - 0.3) / height)
    return figure, figure.add_axes(box)


def _room(names: Sequence[str]) -> float:
    """Return inches that small tick labels need to the left of a panel."""
    return 0.2 + 0.062 * max(map(len, names), default=0)


def _panels(count: int, *, columns: int = 2, size: tuple[float, float] = (3.6, 2.5)):
    columns = min(columns, count)
    rows = -(-count // columns)
    figure = Figure(figsize=(size[0] * columns, size[1] * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for axis in axes[count:]:
        axis.remove()
    return figure, axes[:count]


@_styled
def risk_curve(name: str, rates: Rates, fit: Isotonic, *, cutoff: float | None = None) -> Figure:
    """Draw one outcome's risk along the score's percentile on a normal scale, which gives both tails room.

    Scores crowd at one end, percentiles do not: groups lie apart whatever the score's own spacing.

    Args:
        name: of the outcome.
        rates: how often it happened in groups of the score.
        fit: the rising curve through them.
        cutoff: the score at which a dotted line is drawn.

    Returns:
        The figure.

    >>> from mlci.judging.curves import binned, isotonic
    >>> score, died = np.arange(200.0), np.arange(200) % 4 == 3
    >>> drawn = risk_curve("mortality", binned(score, died, bins=4), isotonic(score, died), cutoff=150.0)
    >>> drawn.axes[0].get_title(loc="left")
    'In-hospital mortality'
    """
    from scipy.special import ndtri

    figure, axis = _panel()
    share = (np.cumsum(rates.mass) - rates.mass / 2) / rates.mass.sum()
    place = ndtri(share)
    grid = np.linspace(place[0], place[-1], POINTS // 4)
    axis.plot(grid, fit(np.interp(grid, place, rates.score)), color=VERMILION)
    _points(axis, place, rates, ms=3.5, lw=0.9)
    if cutoff is not None and rates.score[0] <= cutoff <= rates.score[-1]:
        axis.axvline(np.interp(cutoff, rates.score, place), color=INK, lw=1, ls=":")
    ticks = [tick for tick in TICKS if place[0] - 0.1 <= ndtri(tick) <= place[-1] + 0.1] or [0.5]
    axis.set_xticks(ndtri(ticks), [f"{100 * tick:.4g}" for tick in ticks])
    axis.set(title=label(name), xlabel="Percentile of the score", ylabel="Risk (% of admissions)")
    axis.set_ylim(0, 1.05 * rates.high.max())
    axis.yaxis.set_major_formatter(PERCENT)
    return figure


@_styled
def risk_curves(curves: Sequence[RiskCurve], kind: Literal["binned", "isotonic"], *, title: str = "") -> Figure:
    """Draw the paper's figures: the risk of each outcome along the score, a panel each.

    Args:
        curves: those of the outcomes, as `mlci.judging.curves.risk_curves` makes them.
        kind: "binned" shows what was observed in quantile bins, whatever its ups and downs; "isotonic" the rising fit.
        title: above all panels.

    Returns:
        The figure.

    >>> from mlci.judging import curves
    >>> found = curves.risk_curves([range(40)], [0] * 20 + [1] * 20, ["mortality"])
    >>> risk_curves(found, "binned").axes[0].get_xlabel()
    'Score (Δ = 100.0 points: increasing)'
    """
    columns, rows = min(2, len(curves)), -(-len(curves) // 2)
    width, height = 3.6 * columns, 2.5 * rows + 0.3
    figure = Figure(figsize=(width, height))
    figure.suptitle(title, x=0.1 / width, y=1 - 0.06 / height, ha="left")
    for place, curve in enumerate(curves):
        corner = 3.6 * (place % columns) + 0.68, 2.5 * (rows - 1 - place // columns) + 0.48
        axis = figure.add_axes((corner[0] / width, corner[1] / height, 2.82 / width, 1.72 / height))
        if kind == "binned":
            axis.fill_between(curve.rates.score, curve.rates.low, curve.rates.high, color=BLUE, alpha=0.18, lw=0)
            axis.plot(curve.rates.score, curve.rates.risk, "o-", color=BLUE, ms=2.5, lw=0.9)
            if len(curve.rates.score) == 1:  # too few admissions for a band
                _points(axis, curve.rates.score, curve.rates, ms=2.5, lw=0.9)
        else:
            axis.plot(curve.grid, curve.fit(curve.grid), color=VERMILION)
            marks = curve.grid[[int(0.05 * (len(curve.grid) - 1)), int(0.95 * (len(curve.grid) - 1))]]
            axis.plot(marks, curve.fit(marks), "D", color=VERMILION, ms=4, clip_on=False)
        said = f"Score (Δ = {curve.trend.points}: {curve.trend.verdict})"
        number = curve.trend.level is not None
        axis.set(title=label(curve.trend.outcome), xlabel=said)
        axis.set_ylabel(f"Mean {curve.trend.outcome}" if number else "Risk (% of admissions)")
        if not number:
            axis.set_ylim(0, 1.05 * max(axis.dataLim.y1, 0.01))
            axis.yaxis.set_major_formatter(PERCENT)
    return figure


def _points(axis, x: np.ndarray, rates: Rates, **style) -> None:
    spread = np.abs([rates.risk - rates.low, rates.high - rates.risk])
    axis.errorbar(x, rates.risk, yerr=spread, fmt="o", color=BLUE, **style)


@_styled
def score_distribution(
    name: str, edges: np.ndarray, shares: Sequence[np.ndarray], counts: Sequence[int], *, cutoff: float | None = None
) -> Figure:
    """Draw how the score is spread among admissions without (first) and with an outcome.

    Args:
        name: of the outcome.
        edges: of the bins.
        shares: of the admissions without and with it, in each bin.
        counts: how many admissions these are.
        cutoff: the score at which a dotted line is drawn.

    Returns:
        The figure.

    >>> shares = [np.array([0.8, 0.2]), np.array([0.3, 0.7])]
    >>> score_distribution("mortality", np.array([0.0, 1.0, 2.0]), shares, [90, 10]).axes[0].get_xlabel()
    'Score'
    """
    figure, axis = _panel()
    for share, n, colour, dash, said in zip(shares, counts, (BLUE, VERMILION), ("-", "--"), ("without", "with")):
        axis.stairs(share, edges, color=colour, lw=1.4, ls=dash, label=f"{said} (n = {n:,})")
    if cutoff is not None:
        axis.axvline(cutoff, color=INK, lw=1, ls=":")
    axis.set(title=label(name), xlabel="Score", ylabel="Share of admissions (%)")
    axis.yaxis.set_major_formatter(PERCENT)
    axis.set_ylim(top=axis.get_ylim()[1] * 1.25)  # room for the legend
    axis.legend(loc="upper right")
    return figure


@_styled
def threshold_scan(scan: Scan, names: Sequence[str]) -> Figure:
    """Draw rho_j^2 of every cut, with each direction's best.

    Args:
        scan: of all cuts, as `mlci.judging.theory` finds them.
        names: of the scan's columns.

    Returns:
        The figure.

    >>> from mlci.judging.theory import scan
    >>> threshold_scan(scan([1, 2, 3, 4], [0, 0, 1, 1]), ["mortality"]).axes[0].get_xscale()
    'log'
    """
    figure, (axis,) = _panels(1, size=(5.2, 3.6))
    beyond = 1 - scan.split / scan.n
    for column, name in enumerate(names):
        rho2 = scan.rho[:, column] ** 2
        best = int(np.argmax(rho2))
        # Evenly along the logarithmic axis, and the maximum itself, whatever the number of admissions.
        wanted = np.geomspace(beyond[0], beyond[-1], POINTS)
        rows = np.unique([*np.searchsorted(-beyond, -wanted).clip(0, len(beyond) - 1), best])
        style = {"color": COLOURS[column % len(COLOURS)], "ls": DASHES[column % len(DASHES)]}
        axis.plot(beyond[rows], rho2[rows], lw=2.2 if column == 0 else 1.2, label=label(name), **style)
        axis.plot(beyond[best], rho2[best], MARKS[column % len(MARKS)], ms=6, color=style["color"])
    axis.set(xscale="log", xlabel="Admissions beyond the cut (%)", ylabel="Squared cosine ρ² (no unit)")
    axis.invert_xaxis()
    axis.set_ylim(bottom=0)
    axis.xaxis.set_major_formatter(PERCENT)
    figure.legend(loc="outside lower center", ncols=2)
    return figure


@_styled
def singular_values(values: Sequence[float], *, unrelated: float | None = None) -> Figure:
    """Draw the share of the outcomes' joint variation in each direction; the first is what they have in common.

    Args:
        values: the singular values.
        unrelated: what the first would hold if the outcomes were unrelated, the dotted line; by default with equal
            weights.

    Returns:
        The figure.

    >>> [float(bar.get_height()) for bar in singular_values([3.0, 1.0]).axes[0].patches]
    [0.9, 0.1]
    """
    figure, axis = _panel()
    energy = np.square(values) / np.square(values).sum()
    bars = axis.bar(np.arange(1, len(energy) + 1), energy, color=[BLUE, *[GREY] * (len(energy) - 1)], width=0.6)
    axis.bar_label(bars, [f"{share:.0%}" for share in energy], padding=2)
    axis.axhline(unrelated or 1 / len(energy), color=INK, lw=1, ls=":")
    axis.set(xlabel="Direction", ylabel="Joint variation (%)", xticks=np.arange(1, len(energy) + 1))
    axis.set_ylim(0, energy.max() * 1.15)
    axis.yaxis.set_major_formatter(PERCENT)
    axis.grid(visible=False, axis="x")
    return figure


@_styled
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
    height = 0.22 * len(models) + 0.9
    if len(outcomes) == 1:
        figure, axis = _panel((3.6, height), left=_room(models))
        axes = [axis]
    else:
        width = min(3.6, 9.0 / max(len(outcomes), 1))
        figure, axes = _panels(len(outcomes), columns=4, size=(max(width, 1.9), height))
    for position, (axis, outcome) in enumerate(zip(axes, outcomes)):
        part = frame[frame["outcome"] == outcome].set_index("model").reindex(models)
        rows = np.arange(len(models))
        value = part["value"].to_numpy(float)
        low, high = part["low"].to_numpy(float), part["high"].to_numpy(float)
        for row in rows:
            colour, mark = COLOURS[row % len(COLOURS)], MARKS[row % len(MARKS)]
            axis.plot([low[row], high[row]], [row, row], color=colour, lw=1.4)
            axis.plot(value[row], row, mark, ms=5, color=colour)
        axis.set(title=label(outcome), ylim=(len(models) - 0.5, -0.5), yticks=rows)
        axis.set_yticklabels(models if position % 4 == 0 else [], fontsize="small")
        axis.locator_params(axis="x", nbins=4)
        axis.set_xlabel(METRICS[metric].heading)
    return figure


@_styled
def calibration(name: str, groups: Rates, smooth: CalibrationCurve) -> Figure:
    """Draw predicted against observed risk of one outcome; on the dotted line they agree.

    Both axes are square roots, so that the low risks of most admissions do not all lie in one corner.

    Args:
        name: of the outcome.
        groups: observed risks of groups of admissions with about the same predicted one.
        smooth: the smoothed curve through all admissions.

    Returns:
        The figure.

    >>> from mlci.judging.curves import Rates, CalibrationCurve
    >>> risk = np.array([0.1, 0.4])
    >>> groups = Rates(risk, risk, risk - 0.05, risk + 0.05, np.array([100, 100]), 100 * risk)
    >>> calibration("mortality", groups, CalibrationCurve(risk, risk)).axes[0].get_ylabel()
    'Observed risk (%)'
    """
    figure, axis = _panel((3.6, 3.2), right=0.22)  # "100%" may stand at the very end
    top = 1.06 * max(float(groups.score.max()), float(groups.high.max()), float(smooth.predicted.max())) or 1.0
    axis.plot([0, top], [0, top], color=INK, lw=1, ls=":")
    axis.plot(smooth.predicted, smooth.observed, color=VERMILION, lw=1.4)
    _points(axis, groups.score, groups, ms=4, lw=1)
    for side in (axis.xaxis, axis.yaxis):
        side.axes.set(**{f"{side.axis_name}lim": (0, top)})
        getattr(side.axes, f"set_{side.axis_name}scale")("function", functions=(_root, np.square))
        side.set_major_locator(FixedLocator(_square_ticks(top)))
        side.set_major_formatter(PERCENT)
    axis.set(title=label(name), xlabel="Predicted risk (%, root scale)", ylabel="Observed risk (%)")
    return figure


def _root(values):
    return np.sqrt(np.clip(values, 0, None))


def _square_ticks(top: float) -> list[float]:
    """Return about five round numbers, evenly spread on a root scale from 0 to `top`."""
    allowed = np.array([digit * 10.0**power for power in range(-5, 1) for digit in (1, 2, 5)])
    allowed = allowed[allowed <= top]
    wanted = np.sqrt(top) * np.arange(1, 5) / 4
    chosen = {float(allowed[np.abs(np.sqrt(allowed) - root).argmin()]) for root in wanted}
    return [0.0, *sorted(chosen)]


@_styled
def attrition(steps: Sequence[tuple[str, int, int]]) -> Figure:
    """Draw the flow of the selection: each rule in words, how many admissions it removed and how many it left.

    Args:
        steps: the rule of each step, how many admissions it removed, how many were left.

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


@_styled
def influence(names: Sequence[str], effects: np.ndarray, *, marked: Sequence[bool] = ()) -> Figure:
    """Draw the mean change of the score by code, in the order given: what raises it lies to the right.

    Args:
        names: of the codes.
        effects: the change by each.
        marked: whether each is drawn hollow (none, if empty).

    Returns:
        The figure.

    >>> drawn = influence(["I50.9 Heart failure", "Z37.0 Live birth"], np.array([0.4, -0.2]))
    >>> drawn.axes[0].get_xlabel()
    'Mean change (score units)'
    """
    names = [name if len(name) <= LONGEST else name[: LONGEST - 1] + "…" for name in names]
    figure, axis = _panel((5.2, 0.19 * len(names) + 0.8), left=_room(names))
    rows = np.arange(len(names))
    hollow = np.asarray(marked, dtype=bool) if len(marked) else np.zeros(len(names), dtype=bool)
    axis.hlines(rows, 0, effects, color=[VERMILION if effect > 0 else BLUE for effect in effects], lw=1.4)
    for sign, colour, mark in ((1, VERMILION, ">"), (-1, BLUE, "<")):
        for chosen, fill in (
            ((np.sign(effects) == sign) & ~hollow, colour),
            ((np.sign(effects) == sign) & hollow, "none"),
        ):
            axis.plot(effects[chosen], rows[chosen], mark, ms=5, color=colour, markerfacecolor=fill)
    axis.axvline(0, color=INK, lw=0.8)
    axis.set(xlabel="Mean change (score units)", yticks=rows, ylim=(len(names) - 0.4, -0.6))
    axis.set_yticklabels(names, fontsize="small")
    axis.grid(visible=False, axis="y")
    return figure


@_styled
def waterfall(explanation: Explanation, *, most: int = 20) -> Figure:
    """Draw the way from an admission without codes to this one: a bar per code where the last one ended, largest first.

    Args:
        explanation: of one admission; effects that do not add up have no waterfall.
        most: codes beyond so many are drawn as one.

    Returns:
        The figure.

    >>> import mlci
    >>> drawn = waterfall(mlci.load("us2010").explain(["I50.9", "N17.9"], icd_version=10))
    >>> drawn.axes[0].get_yticklabels()[-1].get_text()
    'This admission'
    """
    if not explanation.additive:
        raise InputError("a waterfall needs effects that add up; those of a table do.")
    ordered = sorted(explanation, key=lambda effect: -abs(effect.effect))
    bars = [(effect.code, effect.title or "", effect.effect) for effect in ordered[:most]]
    if rest := ordered[most:]:
        bars.append((f"{len(rest)} more", "", sum(effect.effect for effect in rest)))
    ends = explanation.base_score + np.cumsum([0.0, *(effect for *_, effect in bars)])
    figure = Figure(figsize=(7, 0.28 * len(bars) + 1.3), layout="constrained")
    axis = figure.subplots()
    for place, ((_, _, effect), start) in enumerate(zip(bars, ends)):
        rises = effect > 0
        axis.barh(
            place, effect, left=start, color=VERMILION if rises else BLUE, hatch=None if rises else "//", height=0.7
        )
        axis.plot([start + effect] * 2, [place - 0.35, place + 1.35], color=INK, lw=0.6)
        far = max(start, start + effect)
        axis.annotate(f"{effect:+.2f}", (far, place), (3, 0), textcoords="offset points", va="center", fontsize=8)
    axis.axvline(ends[0], color=INK, lw=1, ls=":")
    names = [f"{code}  {shorten(title, 44, placeholder='…')}".strip() for code, title, _ in bars]
    axis.set_yticks([*range(len(bars)), len(bars)], [*names, "This admission"])
    axis.plot(ends[-1], len(bars), "D", color=INK, ms=5)
    axis.annotate(f"{ends[-1]:.2f}", (ends[-1], len(bars)), (7, 0), textcoords="offset points", va="center")
    axis.set(title=f"From no codes ({ends[0]:.2f}) to this admission", xlabel="Score", ylim=(len(bars) + 0.6, -0.6))
    margin = 0.1 * (ends.max() - ends.min()) or 1.0
    axis.set_xlim(ends.min() - margin, ends.max() + margin)
    axis.grid(axis="y", visible=False)
    return figure


@_styled
def funnel(points: "pd.DataFrame", limits: "pd.DataFrame", *, most: int = 12) -> Figure:
    """Draw ratios of observed to expected events over the expected ones, between the limits of chance.

    Args:
        points: the rows `of` a model of a comparison; those that are ranked are drawn.
        limits: the comparison's lines. The columns that begin with exact are those of chance alone, drawn faintly where
            room is made for usual differences.
        most: up to so many outliers are named.

    Returns:
        The figure.

    >>> import pandas as pd
    >>> point = {"group": "North", "effective": 40.0, "ratio": 1.2, "verdict": "as expected", "ranked": True}
    >>> line = {"effective": [10, 90], "low95": 0.5, "high95": 1.5, "low998": 0.3, "high998": 1.8}
    >>> funnel(pd.DataFrame([point]), pd.DataFrame(line)).axes[0].get_ylabel()
    'Observed / expected'
    """
    points = points[points["ranked"]]
    figure, axis = _panel((5.6, 3.8), left=0.6)
    for column in [name for name in limits if name.startswith("exact")]:
        axis.plot(limits["effective"], limits[column], color=GREY, lw=0.7, ls=":")
    for level, dash in (("95", "--"), ("998", "-")):
        for side in ("low", "high"):
            said = f"{'95' if level == '95' else '99.8'}% limits" if side == "low" else None
            axis.plot(limits["effective"], limits[f"{side}{level}"], color=GREY, lw=1.1, ls=dash, label=said)
    axis.axhline(1, color=INK, lw=0.8)
    for verdict, colour, mark in (("as expected", BLUE, "o"), ("high", VERMILION, "^"), ("low", GREEN, "v")):
        part = points[points["verdict"] == verdict]
        axis.plot(part["effective"], part["ratio"], mark, ms=4.5, color=colour, label=verdict, ls="none")
    out = points[points["verdict"].isin(["low", "high"])]
    for row in out.reindex(np.abs(out["ratio"] - 1).sort_values(ascending=False).index).head(most).itertuples():
        axis.annotate(str(row.group)[:24], (row.effective, row.ratio), (4, 4), textcoords="offset points", fontsize=7)
    usual = np.interp(np.median(points["effective"]), limits["effective"], limits["high998"])
    top = max(float(points["ratio"].max()), 1.3, float(usual))
    axis.set(xlabel="Expected events of a Poisson count as precise", ylabel="Observed / expected", ylim=(0, 1.08 * top))
    axis.set_xscale("log")
    axis.xaxis.set_major_locator(FixedLocator([digit * 10.0**power for power in range(8) for digit in (1, 2, 5)]))
    axis.xaxis.set_major_formatter(COUNT)
    axis.xaxis.set_minor_locator(NullLocator())
    axis.legend(loc="lower left", bbox_to_anchor=(0, 1), borderaxespad=0.3, fontsize=7, ncols=5)
    return figure


@_styled
def caterpillar(names: Sequence[str], points: "pd.DataFrame", *, labelled: int = 70) -> Figure:
    """Draw ratios with their intervals, one line per group in the order given, and the shrunken ratio beside each.

    Args:
        names: of the groups.
        points: a row for each, with ratio, low, high, shrunk and verdict.
        labelled: more groups than this are drawn thin, and of these the outliers alone are named.

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
    figure, axis = _panel((5.6, (6.5 if many else 0.17 * len(names)) + 0.9), left=_room(shown))
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


@_styled
def love(names: Sequence[str], before: np.ndarray, after: Mapping[str, np.ndarray]) -> Figure:
    """Draw standardised differences of two groups in each covariate: before weighting (hollow) and after, by model.

    Between the dotted lines, at 0.1, groups are commonly taken as alike.

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
    figure, axis = _panel((5.6, 0.3 * len(names) + 0.22 * (1 + len(after)) + 1.0), left=_room(names))
    rows = np.arange(len(names))
    axis.plot(np.abs(before), rows, "o", ms=6, color=INK, markerfacecolor="none", ls="none", label="before weighting")
    for place, (model, values) in enumerate(after.items()):
        colour, mark = COLOURS[place % len(COLOURS)], MARKS[1:][place % (len(MARKS) - 1)]
        at = rows + 0.12 * (place + 1)
        axis.plot(np.abs(values), at, mark, ms=4.5, color=colour, ls="none", label=f"weighted by {model}")
    for limit, dash in ((0, "-"), (0.1, ":")):
        axis.axvline(limit, color=INK, lw=0.8, ls=dash)
    axis.set(
        xlabel="Standardised difference, without sign",
        yticks=rows,
        ylim=(len(names) - 0.2 + 0.6 * (1 + len(after)), -0.6),
    )
    axis.set_yticklabels(names, fontsize="small")
    axis.legend(loc="lower right", fontsize=7)
    axis.grid(visible=False, axis="y")
    return figure


@_styled
def learning_curves(curves: Mapping[str, Sequence[float]], *, best: int | None = None, ylabel: str = "nHSIC") -> Figure:
    """Draw how a fit went, epoch by epoch.

    Args:
        curves: the values after each epoch, one line per name.
        best: the epoch, from 1, that was kept.
        ylabel: what the values are.

    Returns:
        The figure.

    >>> learning_curves({"Validation split": [0.1, 0.2, 0.15]}, best=2).axes[0].get_xlabel()
    'Epoch'
    """
    figure, (axis,) = _panels(1, size=(5.2, 3.2))
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


def dark_style() -> str:
    """Return the colours of `svg` on a dark page, as CSS declarations.

    >>> dark_style().split(";")[0]
    '--0072B2: #56B4E9'
    """
    return " ".join(f"--{colour[1:]}: {lighter};" for colour, lighter in DARK.items())


def svg(figure: Figure, *, prefix: str, alternative: str) -> str:
    """Return a figure as inline SVG, whose ink takes the page's text colour.

    Args:
        figure: to be drawn.
        prefix: keeps its ids apart from others on the page.
        alternative: says it in words, for those who do not see it.

    >>> svg(singular_values([3.0, 1.0]), prefix="shares", alternative="Two bars")[:4]
    '<svg'
    """
    from html import escape

    with mpl.rc_context(STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # the reader's browser has its own fonts
        buffer = StringIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>\s*", "", text, flags=re.DOTALL)
    text = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{prefix}-", text).replace(INK, "currentColor")
    text = re.sub(r"font: (\d[\d.]*px) [^;\"]*", r"font-size: \1; font-family: inherit", text)
    text = re.sub(r"font: (\w+) (\d[\d.]*px) [^;\"]*", r"font-weight: \1; font-size: \2; font-family: inherit", text)
    text = re.sub(r"font-family: [^;\"]*", "font-family: inherit", text)  # as matplotlib 3.11 writes it
    for colour in DARK:  # the page says whether it is dark
        text = re.sub(rf"(stroke|fill): {colour.lower()}", rf"\1: var(--{colour[1:]}, {colour})", text)
    said = escape(alternative, quote=True)
    text = re.sub(r'width="[\d.]+pt" height="[\d.]+pt"', rf'role="img" aria-label="{said}"', text, count=1)
    return re.sub(r"(\d+\.\d{2})\d+", r"\1", text)


def save(figure: Figure, path: str | Path) -> None:
    """Write a figure on white, without a date.

    Args:
        figure: to be written.
        path: its ending says the format: svg, pdf or png.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     save(singular_values([3.0, 1.0]), f"{folder}/shares.svg")
    ...     print([file.name for file in Path(folder).iterdir()])
    ['shares.svg']
    """
    ending = Path(path).suffix.lstrip(".")
    undated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(ending)
    with mpl.rc_context(STYLE), atomic(path) as temporary:
        figure.savefig(temporary, format=ending, facecolor="white", dpi=200, metadata=undated)
