"""Figures: data in, Figure out; the only importer of matplotlib.

One style for all: Okabe and Ito's colours, which colour-blind readers can tell apart, with marks or line styles that
differ as well, so that nothing hangs on colour alone. `svg` gives inline vector text whose ink takes the page's text
colour, so one drawing serves light, dark and paper.
"""

import re
from collections.abc import Mapping, Sequence
from io import StringIO
from pathlib import Path
from textwrap import shorten

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch
from matplotlib.ticker import FuncFormatter

from mlci.base.errors import InputError
from mlci.base.files import atomic
from mlci.base.names import label
from mlci.index.estimator import Explanation
from mlci.judging.curves import Isotonic, Rates
from mlci.judging.theory import Scan
from mlci.measures.registry import METRICS

BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"
COLOURS = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY)
DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 1)))
MARKS = ("o", "s", "D", "^", "v", "P")
INK = "#0a0b0c"  # stands for the text colour of whatever page the figure lies on
POINTS = 400  # a line on paper shows no more
PERCENT = FuncFormatter(lambda value, _: f"{100 * value:.6g}%")

STYLE = {
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
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
    "svg.hashsalt": "mlci",
}


def _styled(draw):
    """Draw in the house style, whatever the reader's own settings."""

    def wrapper(*args, **options) -> Figure:
        with mpl.rc_context({**mpl.rcParamsDefault, "backend": "agg", **STYLE}):
            return draw(*args, **options)

    wrapper.__name__, wrapper.__doc__ = draw.__name__, draw.__doc__
    return wrapper


def _panels(count: int, *, columns: int = 2, size: tuple[float, float] = (3.6, 2.5)):
    columns = min(columns, count)
    rows = -(-count // columns)
    figure = Figure(figsize=(size[0] * columns, size[1] * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for axis in axes[count:]:
        axis.remove()
    return figure, axes[:count]


@_styled
def risk_curves(
    curves: Mapping[str, tuple[Rates | None, Isotonic | None]], *, cutoff: float | None = None, legend: bool = True
) -> Figure:
    """Observed rates (points with 95% intervals) and the monotone fit (line), one panel per outcome."""
    figure, axes = _panels(len(curves))
    for axis, (name, (rates, fit)) in zip(axes, curves.items()):
        axis.set_ylim(bottom=0)
        if fit is not None:
            axis.plot(fit.score, fit.risk, color=VERMILION, label="monotone fit")
        if rates is not None:
            _points(axis, rates.score, rates, ms=3, lw=0.7, alpha=0.75, label="observed, 95% interval")
            # The fit's first and last steps may rest on a few admissions: they must not squeeze the rest.
            low, high = rates.score[[0, -1]]
            margin = (high - low) or 1.0
            axis.set(xlim=(low - 0.06 * margin, high + 0.12 * margin), ylim=(0, 1.05 * rates.high.max()))
        if cutoff is not None:
            axis.axvline(cutoff, color=INK, lw=1, ls=":", label="high-severity cutoff")
        axis.set(title=label(name), xlabel="Score", ylabel="Risk")
        axis.yaxis.set_major_formatter(PERCENT)
    if legend:
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper left", ncols=3 if len(axes) > 1 else 1)
    return figure


def _points(axis, x: np.ndarray, rates: Rates, **style) -> None:
    spread = np.abs([rates.risk - rates.low, rates.high - rates.risk])
    axis.errorbar(x, rates.risk, yerr=spread, fmt="o", color=BLUE, **style)


@_styled
def score_distribution(
    score: np.ndarray, outcomes: np.ndarray, names: Sequence[str], *, cutoff: float | None = None, bins: int = 30
) -> Figure:
    """How the score is spread among admissions with and without each outcome."""
    figure, axes = _panels(len(names))
    low, high = np.nanquantile(score, [0.001, 0.999])
    edges = np.linspace(low, high if high > low else low + 1, bins + 1)
    for axis, name, outcome in zip(axes, names, np.asarray(outcomes, dtype=float).T):
        for value, colour, dash, said in ((0, BLUE, "-", "without"), (1, VERMILION, "--", "with")):
            chosen = score[outcome == value]
            if len(chosen):
                share = np.histogram(chosen, edges)[0] / len(chosen)
                axis.stairs(share, edges, color=colour, lw=1.4, ls=dash, label=f"{said} (n = {len(chosen):,})")
        if cutoff is not None:
            axis.axvline(cutoff, color=INK, lw=1, ls=":")
        axis.set(title=label(name), xlabel="Score", ylabel="Share of admissions")
        axis.yaxis.set_major_formatter(PERCENT)
        axis.set_ylim(top=axis.get_ylim()[1] * 1.25)  # room for the legend
        axis.legend(loc="upper right")
    return figure


@_styled
def threshold_scan(scan: Scan, names: Sequence[str]) -> Figure:
    """rho_j^2 of every cut, with each direction's best; `names` are those of the scan's columns."""
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
    axis.set(xscale="log", xlabel="Admissions beyond the cut", ylabel="Squared cosine ρ²")
    axis.invert_xaxis()
    axis.set_ylim(bottom=0)
    axis.xaxis.set_major_formatter(PERCENT)
    figure.legend(loc="outside lower center", ncols=2)
    return figure


@_styled
def singular_values(values: Sequence[float]) -> Figure:
    """Share of the outcomes' joint variation in each direction; the first is what they have in common."""
    figure, (axis,) = _panels(1, size=(3.6, 2.5))
    energy = np.square(values) / np.square(values).sum()
    bars = axis.bar(np.arange(1, len(energy) + 1), energy, color=[BLUE, *["#999999"] * (len(energy) - 1)], width=0.6)
    axis.bar_label(bars, [f"{share:.0%}" for share in energy], padding=2)
    axis.axhline(1 / len(energy), color=INK, lw=1, ls=":")
    axis.set(xlabel="Direction", ylabel="Share of energy", xticks=np.arange(1, len(energy) + 1))
    axis.set_ylim(0, energy.max() * 1.15)
    axis.yaxis.set_major_formatter(PERCENT)
    axis.grid(visible=False, axis="x")
    return figure


@_styled
def benchmark(frame, metric: str, *, models: Sequence[str] | None = None) -> Figure:
    """Dot plot of one metric of the tidy evaluation frame: models down, outcomes across, 95% intervals."""
    frame = frame[frame["metric"] == metric]
    models = list(models or frame["model"].unique())
    outcomes = list(frame["outcome"].unique())
    width = min(3.6, 9.0 / max(len(outcomes), 1))
    figure, axes = _panels(len(outcomes), columns=4, size=(max(width, 1.9), 0.28 * len(models) + 1.0))
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
        axis.set_yticklabels(models if position % 4 == 0 else [])
        axis.locator_params(axis="x", nbins=4)
    figure.supxlabel(METRICS[metric].heading, fontsize="medium")
    return figure


@_styled
def calibration(groups: Mapping[str, tuple[np.ndarray, Rates]]) -> Figure:
    """Predicted against observed risk per outcome; on the dotted line they agree."""
    figure, axes = _panels(len(groups), size=(3.6, 2.9))
    for axis, (name, (predicted, rates)) in zip(axes, groups.items()):
        top = 1.25 * max(float(predicted.max()), float(rates.risk.max())) or 1.0  # not the interval of a tiny group
        axis.plot([0, top], [0, top], color=INK, lw=1, ls=":")
        _points(axis, predicted, rates, ms=4, lw=1)
        axis.set(title=label(name), xlabel="Predicted risk", ylabel="Observed", xlim=(0, top), ylim=(0, top))
        axis.xaxis.set_major_formatter(PERCENT)
        axis.yaxis.set_major_formatter(PERCENT)
        axis.locator_params(nbins=5)
    return figure


@_styled
def attrition(steps: Sequence[tuple[str, int, int]]) -> Figure:
    """Flow of the selection: each rule in words, how many admissions it removed and how many it left."""
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
def influence(names: Sequence[str], effects: np.ndarray) -> Figure:
    """Mean change of the score by code: to the right it raises the score, to the left it lowers it."""
    figure, (axis,) = _panels(1, size=(5.2, 0.19 * len(names) + 0.8))
    rows = np.arange(len(names))
    axis.hlines(rows, 0, effects, color=[VERMILION if effect > 0 else BLUE for effect in effects], lw=1.4)
    for sign, colour, mark in ((1, VERMILION, ">"), (-1, BLUE, "<")):
        chosen = np.sign(effects) == sign
        axis.plot(effects[chosen], rows[chosen], mark, ms=5, color=colour)
    axis.axvline(0, color=INK, lw=0.8)
    axis.set(xlabel="Mean change of the score", yticks=rows, ylim=(len(names) - 0.4, -0.6))
    axis.set_yticklabels([name if len(name) <= 46 else name[:45] + "…" for name in names], fontsize="small")
    axis.grid(visible=False, axis="y")
    return figure


@_styled
def waterfall(explanation: Explanation, *, most: int = 20) -> Figure:
    """From an admission without codes to this one: a bar per code where the last one ended, the largest first.

    Codes beyond the `most` are drawn as one. Effects that do not add up have no waterfall.
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
def learning_curves(curves: Mapping[str, Sequence[float]], *, best: int | None = None, ylabel: str = "nHSIC") -> Figure:
    """How a fit went, epoch by epoch: one line per name; `best` is the epoch (from 1) that was kept."""
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


def svg(figure: Figure, *, prefix: str, alternative: str) -> str:
    """Inline SVG: `prefix` keeps its ids apart from others on the page, `alternative` says it in words."""
    from html import escape

    with mpl.rc_context(STYLE):
        buffer = StringIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>\s*", "", text, flags=re.DOTALL)
    text = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{prefix}-", text).replace(INK, "currentColor")
    text = re.sub(r"font: (\d[\d.]*px) [^;\"]*", r"font-size: \1; font-family: inherit", text)
    text = re.sub(r"font: (\w+) (\d[\d.]*px) [^;\"]*", r"font-weight: \1; font-size: \2; font-family: inherit", text)
    said = escape(alternative, quote=True)
    text = re.sub(r'width="[\d.]+pt" height="[\d.]+pt"', rf'role="img" aria-label="{said}"', text, count=1)
    return re.sub(r"(\d+\.\d{2})\d+", r"\1", text)


def save(figure: Figure, path: str | Path) -> None:
    """Write a figure on white, in the format that the name's ending says (svg, pdf, png)."""
    with mpl.rc_context(STYLE), atomic(path) as temporary:
        figure.savefig(temporary, format=Path(path).suffix.lstrip("."), facecolor="white", dpi=200)
