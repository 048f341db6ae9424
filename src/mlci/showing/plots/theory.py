"""Figures of the theory: the shared direction of outcomes, and cuts of the score."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullFormatter

from mlci.base.names import label
from mlci.judging.theory import Scan
from mlci.showing._colours import BLUE, GREY
from mlci.showing.plots._style import COLOURS, DASHES, INK, MARKS, PERCENT, POINTS, panel, panels, styled

TALL = 0.12  # of an axis: a number above a bar
SHARES = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 0.9)  # named on an axis that spans less than a power of ten


@styled
def threshold_scan(scan: Scan, names: Sequence[str]) -> Figure:
    """Draw rho_j^2 of every cut, and mark the best cut of each direction.

    Args:
        scan: the scan of all cuts, from `mlci.judging.theory`.
        names: the names of the columns of the scan.

    Returns:
        The figure.

    >>> from mlci.judging.theory import scan
    >>> threshold_scan(scan([1, 2, 3, 4], [0, 0, 1, 1]), ["mortality"]).axes[0].get_xscale()
    'log'
    """
    figure, (axis,) = panels(1, size=(5.2, 3.6))
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
    axis.set(xscale="log", xlabel="Admissions at or above the cut (%)", ylabel="Squared cosine ρ²")
    axis.invert_xaxis()
    axis.set_ylim(bottom=0)
    axis.xaxis.set_major_formatter(PERCENT)
    axis.xaxis.set_minor_formatter(NullFormatter())
    if beyond[-1] > 0.1 * beyond[0]:  # few admissions: no two powers of ten to name
        axis.xaxis.set_major_locator(FixedLocator([share for share in SHARES if beyond[-1] <= share <= beyond[0]]))
    figure.legend(loc="outside lower center", ncols=2)
    return figure


@styled
def singular_values(values: Sequence[float], *, unrelated: float | None = None) -> Figure:
    """Draw the share of the outcomes' joint variation in each direction; the first is the shared direction.

    Args:
        values: the singular values.
        unrelated: the share of the first direction if the outcomes were unrelated, drawn as a dotted line; by default
            that of equal weights.

    Returns:
        The figure.

    >>> [float(bar.get_height()) for bar in singular_values([3.0, 1.0]).axes[0].patches]
    [0.9, 0.1]
    """
    figure, axis = panel()
    energy = np.square(values) / np.square(values).sum()
    axis.bar(np.arange(1, len(energy) + 1), energy, color=[BLUE, *[GREY] * (len(energy) - 1)], width=0.6)
    top, dotted = energy.max() * 1.15, unrelated or 1 / len(energy)
    for place, share in enumerate(energy, start=1):
        above = dotted if 0 <= dotted - share < TALL * top else share  # the line must not strike the number out
        axis.annotate(f"{share:.0%}", (place, above), (0, 2), textcoords="offset points", ha="center", va="bottom")
    axis.axhline(dotted, color=INK, lw=1, ls=":")
    axis.set(xlabel="Direction", ylabel="Joint variation (%)", xticks=np.arange(1, len(energy) + 1))
    axis.set_ylim(0, top)
    axis.yaxis.set_major_formatter(PERCENT)
    axis.grid(visible=False, axis="x")
    return figure
