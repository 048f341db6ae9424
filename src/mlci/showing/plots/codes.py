"""Figures of the effects of codes on scores."""

from collections.abc import Sequence
from textwrap import shorten

import numpy as np
from matplotlib.figure import Figure

from mlci.base.errors import InputError
from mlci.index._explain import Explanation
from mlci.showing._colours import BLUE, VERMILION
from mlci.showing._words import number, signed
from mlci.showing.plots._style import COUNT, INK, LONGEST, panel, room, styled


@styled
def influence(names: Sequence[str], effects: np.ndarray, *, marked: Sequence[bool] = ()) -> Figure:
    """Draw the mean change in the score by code, in the order given; codes that raise the score point to the right.

    Args:
        names: the names of the codes.
        effects: the mean change of each.
        marked: whether each is drawn hollow (none if empty).

    Returns:
        The figure.

    >>> drawn = influence(["I50.9 Heart failure", "Z37.0 Live birth"], np.array([0.4, -0.2]))
    >>> drawn.axes[0].get_xlabel()
    'Mean change (score units)'
    """
    names = [name if len(name) <= LONGEST else name[: LONGEST - 1] + "…" for name in names]
    figure, axis = panel((5.2, 0.19 * len(names) + 0.8), left=room(names))
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
    axis.locator_params(axis="x", nbins=5)
    axis.xaxis.set_major_formatter(COUNT)
    axis.set_yticklabels(names, fontsize="small")
    axis.grid(visible=False, axis="y")
    return figure


@styled
def waterfall(explanation: Explanation, *, most: int = 20) -> Figure:
    """Draw a waterfall chart: how the codes change the score of an admission without codes, largest effect first.

    Args:
        explanation: the explanation of one admission, whose effects must add up.
        most: maximum number of codes drawn one by one; the rest is one bar.

    Returns:
        The figure.

    >>> import mlci
    >>> drawn = waterfall(mlci.load("us2010").explain(["I50.9", "N17.9"], icd_version=10))
    >>> drawn.axes[0].get_yticklabels()[-1].get_text()
    'This admission'
    """
    if not explanation.additive:
        raise InputError("a waterfall needs effects that add up, as in the recipe table.")
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
        axis.annotate(signed(effect, 2), (far, place), (3, 0), textcoords="offset points", va="center", fontsize=8)
    axis.axvline(ends[0], color=INK, lw=1, ls=":")
    names = [f"{code}  {shorten(title, 44, placeholder='…')}".strip() for code, title, _ in bars]
    axis.set_yticks([*range(len(bars)), len(bars)], [*names, "This admission"])
    axis.plot(ends[-1], len(bars), "D", color=INK, ms=5)
    axis.annotate(number(ends[-1], 2), (ends[-1], len(bars)), (7, 0), textcoords="offset points", va="center")
    axis.set(
        title=f"From no codes ({number(ends[0], 2)}) to this admission", xlabel="Score", ylim=(len(bars) + 0.6, -0.6)
    )
    margin = 0.1 * (ends.max() - ends.min()) or 1.0
    axis.set_xlim(ends.min() - margin, ends.max() + margin)
    axis.grid(axis="y", visible=False)
    return figure
