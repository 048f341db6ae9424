"""Draw the pictures of concepts.md: python docs/overview.py"""

from pathlib import Path

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt
import numpy as np

import mlci
from mlci.base.names import label

IMAGES = Path(__file__).parent / "images"
BLUE, ORANGE, GREEN, INK = "#0072B2", "#D55E00", "#009E73", "#333333"
plt.rcParams.update({"svg.hashsalt": "mlci", "svg.fonttype": "none", "font.size": 10, "text.color": INK})


def box(axes: plt.Axes, x: float, y: float, text: str, colour: str, width: float = 2.1, height: float = 1.0) -> None:
    style = {"boxstyle": "round,pad=0.08", "facecolor": "white", "edgecolor": colour, "linewidth": 1.6}
    axes.add_patch(matplotlib.patches.FancyBboxPatch((x, y - height / 2), width, height, **style))
    axes.text(x + width / 2, y, text, ha="center", va="center", linespacing=1.5)


def arrow(axes: plt.Axes, start: tuple[float, float], end: tuple[float, float]) -> None:
    axes.annotate("", end, start, arrowprops={"arrowstyle": "-|>", "color": INK, "linewidth": 1.2})


def overview() -> plt.Figure:
    """Heart failure, kidney failure and respiratory failure, scored by us2010."""
    figure, axes = plt.subplots(figsize=(9.2, 3.1))
    box(axes, 0, 2, "codes\nI50.9  N17.9\nJ96.01", INK, height=1.3)
    box(axes, 3.1, 2, "tokens\nI50  I50.9\nN17  N17.9 ...", BLUE, height=1.3)
    box(axes, 6.2, 2, "score\n0.66", ORANGE)
    for y, text in ((3.25, "risk of each outcome\ndeath 10 %, long stay 21 %"), (2, "percentile\n91 of 100")):
        box(axes, 9.4, y, text, GREEN, width=3.7, height=0.95)
        arrow(axes, (8.45, 2), (9.25, y))
    box(axes, 9.4, 0.75, "high severity: yes\nwith its certificate", GREEN, width=3.7, height=0.95)
    arrow(axes, (8.45, 2), (9.25, 0.75))
    arrow(axes, (2.25, 2), (2.95, 2))
    arrow(axes, (5.35, 2), (6.05, 2))
    axes.set(xlim=(-0.2, 13.3), ylim=(0.1, 3.9))
    axes.axis("off")
    return figure


def order_and_spacing() -> plt.Figure:
    """The same admissions in the same order, spaced two ways; made-up data."""
    rng = np.random.default_rng(1)
    latent = np.sort(rng.normal(size=4000))
    risk = 1 / (1 + np.exp(-(3.2 * latent - 5.5)))
    figure, panels = plt.subplots(1, 2, figsize=(9.2, 2.9), sharey=True, layout="constrained")
    for axes, score, title in (
        (panels[0], latent, "spaced without regard to risk"),
        (panels[1], risk, "spaced by risk"),
    ):
        scaled = (score - score.min()) / (score.max() - score.min())
        axes.plot(scaled, 100 * risk, color=ORANGE)
        axes.plot(scaled[::40], np.full(100, -4.0), "|", color=BLUE, markersize=8)
        axes.set(title=title, xlabel="score (scaled to 0 to 1)", ylim=(-8, 100))
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("risk of the outcome, %")
    return figure


def method() -> plt.Figure:
    """How an index is learned, by the recipe table; which admissions each step sees stands below it."""
    figure, axes = plt.subplots(figsize=(10.5, 2.4))
    steps = (
        ("admissions:\ncodes, outcomes", INK, ""),
        ("a weight for each\ncode and outcome", BLUE, "penalised regression"),
        ("risk of each\noutcome", BLUE, "calibrated"),
        ("a rising curve per\noutcome, summed", ORANGE, "distance correlation"),
        ("score, percentile,\ncutoff, risks", GREEN, "judged on others"),
    )
    for place, (text, colour, below) in enumerate(steps):
        box(axes, 4 * place, 2, text, colour, width=3.1)
        axes.text(4 * place + 1.55, 1.05, below, ha="center", style="italic", fontsize=9)
        if place:
            arrow(axes, (4 * place - 0.78, 2), (4 * place - 0.1, 2))
    seen = ((4, 15.1, "training split, each step on patients that the one before left out"), (16, 19.1, "test split"))
    for start, end, text in seen:
        axes.plot([start, end], [0.7, 0.7], color=INK, linewidth=1)
        axes.text((start + end) / 2, 0.2, text, ha="center", fontsize=9)
    axes.set(xlim=(-0.2, 19.4), ylim=(0, 2.7))
    axes.axis("off")
    return figure


def cutoff() -> plt.Figure:
    """The cutoff of us2010 on the admissions that it was learned from, as its model file tells."""
    model = mlci.load("us2010").model_
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.2, 2.9), layout="constrained")
    cut = model.cutoff
    scores = model.quantiles[model.quantiles < 3]
    for inside, colour in ((scores < cut.score, BLUE), (scores >= cut.score, ORANGE)):
        left.hist(scores[inside], bins=np.arange(-0.6, 3.01, 0.1), color=colour, rwidth=0.9)
    left.axvline(cut.score, color=INK, linestyle=":")
    left.annotate(f"cutoff {cut.score:.2f}:\n{cut.share:.1%} lie here or above", (cut.score + 0.1, 120), fontsize=9)
    left.set(xlabel="score", ylabel="admissions of 1,000", title="the high-severity group")
    place = np.arange(len(cut.contrasts))
    for shift, side, colour in ((-0.2, "below", BLUE), (0.2, "above", ORANGE)):
        rates = [100 * getattr(contrast, side).rate for contrast in cut.contrasts]
        bars = right.bar(place + shift, rates, 0.38, color=colour)
        right.bar_label(bars, [f"{rate:.1f}" for rate in rates], fontsize=8)
    names = [label(contrast.outcome).replace(" ", "\n", 1) for contrast in cut.contrasts]
    right.set(title="what happened below and above, %", ylim=(0, 70))
    right.set_xticks(place, names, fontsize=8)
    for panel in (left, right):
        panel.spines[["top", "right"]].set_visible(False)
    return figure


def main() -> None:
    drawn = {"overview": overview(), "order-and-spacing": order_and_spacing(), "method": method(), "cutoff": cutoff()}
    for name, figure in drawn.items():
        figure.savefig(IMAGES / f"{name}.svg", bbox_inches="tight", facecolor="white", metadata={"Date": None})


if __name__ == "__main__":
    main()
