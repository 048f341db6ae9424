"""Figures of an outcome along score and risk."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator

from mlci.judging.curves import CalibrationCurve, Rates, RiskCurve
from mlci.judging.kept import Isotonic
from mlci.measures.distributions import normal_quantile
from mlci.showing._colours import BLUE, VERMILION
from mlci.showing.plots._style import INK, PERCENT, POINTS, TICKS, heading, panel, points_of, styled


@styled
def risk_curve(name: str, rates: Rates, fit: Isotonic, *, cutoff: float | None = None) -> Figure:
    """Draw one outcome's risk along the percentile of the score, on a normal scale that stretches both tails.

    Many scores are concentrated at one end of their range; percentiles are spread evenly.

    Args:
        name: the outcome.
        rates: observed rates in groups along the score.
        fit: the nondecreasing curve through them.
        cutoff: the score at which a dotted line is drawn.

    Returns:
        The figure.

    >>> from mlci.judging.curves import binned, isotonic
    >>> score, died = np.arange(200.0), np.arange(200) % 4 == 3
    >>> drawn = risk_curve("mortality", binned(score, died, bins=4), isotonic(score, died), cutoff=150.0)
    >>> drawn.axes[0].get_title(loc="left")
    'In-hospital mortality'
    """
    figure, axis = panel()
    share = (np.cumsum(rates.mass) - rates.mass / 2) / rates.mass.sum()
    place = np.array([*map(normal_quantile, share)])
    grid = np.linspace(place[0], place[-1], POINTS // 4)
    line = fit(np.interp(grid, place, rates.score))
    axis.plot(grid, line, color=VERMILION)
    points_of(axis, place, rates, ms=3.5, lw=0.9)
    if cutoff is not None and rates.score[0] <= cutoff <= rates.score[-1]:
        axis.axvline(np.interp(cutoff, rates.score, place), color=INK, lw=1, ls=":")
    ticks = [tick for tick in TICKS if place[0] - 0.1 <= normal_quantile(tick) <= place[-1] + 0.1] or [0.5]
    axis.set_xticks([*map(normal_quantile, ticks)], [f"{100 * tick:.4g}" for tick in ticks])
    axis.set(title=heading(name), xlabel="Percentile of the score", ylabel="Risk (% of admissions)")
    axis.set_ylim(0, 1.05 * max(rates.high.max(), line.max()))
    axis.yaxis.set_major_formatter(PERCENT)
    return figure


@styled
def risk_curves(curves: Sequence[RiskCurve], kind: Literal["binned", "isotonic"], *, title: str = "") -> Figure:
    """Draw the figures of the paper: the risk of each outcome along the score, one panel each.

    Args:
        curves: the curves of the outcomes, as `mlci.judging.curves.risk_curves` makes them.
        kind: "binned" shows observed rates in quantile bins; "isotonic" the nondecreasing fit.
        title: the title above all panels.

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
                points_of(axis, curve.rates.score, curve.rates, ms=2.5, lw=0.9)
        else:
            axis.plot(curve.grid, curve.fit(curve.grid), color=VERMILION)
            marks = curve.grid[[int(0.05 * (len(curve.grid) - 1)), int(0.95 * (len(curve.grid) - 1))]]
            axis.plot(marks, curve.fit(marks), "D", color=VERMILION, ms=4, clip_on=False)
        axis_title = f"Score (Δ = {curve.trend.points}: {curve.trend.verdict})"
        number = curve.trend.level is not None
        axis.set(title=heading(curve.trend.outcome), xlabel=axis_title)
        axis.set_ylabel(f"Mean {curve.trend.outcome}" if number else "Risk (% of admissions)")
        if not number:
            axis.set_ylim(0, 1.05 * max(axis.dataLim.y1, 0.01))
            axis.yaxis.set_major_formatter(PERCENT)
    return figure


@styled
def score_distribution(
    name: str, edges: np.ndarray, shares: Sequence[np.ndarray], counts: Sequence[int], *, cutoff: float | None = None
) -> Figure:
    """Draw the distribution of the score among admissions without (first) and with an outcome.

    Args:
        name: the outcome.
        edges: the edges of the bins.
        shares: shares of the admissions without and with it, in each bin.
        counts: the number of admissions without and with it.
        cutoff: the score at which a dotted line is drawn.

    Returns:
        The figure.

    >>> shares = [np.array([0.8, 0.2]), np.array([0.3, 0.7])]
    >>> score_distribution("mortality", np.array([0.0, 1.0, 2.0]), shares, [90, 10]).axes[0].get_xlabel()
    'Score'
    """
    figure, axis = panel()
    for share, n, colour, dash, which in zip(shares, counts, (BLUE, VERMILION), ("-", "--"), ("without", "with")):
        axis.stairs(share, edges, color=colour, lw=1.4, ls=dash, label=f"{which} (n = {n:,})")
    if cutoff is not None:
        axis.axvline(cutoff, color=INK, lw=1, ls=":")
    axis.set(title=heading(name), xlabel="Score", ylabel="Share of admissions (%)")
    axis.yaxis.set_major_formatter(PERCENT)
    top = axis.get_ylim()[1] * 1.25  # room for the legend
    axis.set_ylim(top=top)
    axis.set_yticks([tick for tick in axis.get_yticks() if 0 <= tick <= min(top, 1)])
    axis.legend(loc="upper right")
    return figure


@styled
def calibration(name: str, groups: Rates, smooth: CalibrationCurve) -> Figure:
    """Draw predicted against observed risk of one outcome; on the dotted line they are equal.

    Both axes have a square-root scale, which spreads out the low risks of most admissions.

    Args:
        name: the outcome.
        groups: observed risks of groups of admissions with about the same predicted risk.
        smooth: the smoothed curve through all admissions.

    Returns:
        The figure.

    >>> from mlci.judging.curves import Rates, CalibrationCurve
    >>> risk = np.array([0.1, 0.4])
    >>> groups = Rates(risk, risk, risk - 0.05, risk + 0.05, np.array([100, 100]), 100 * risk)
    >>> calibration("mortality", groups, CalibrationCurve(risk, risk)).axes[0].get_ylabel()
    'Observed risk (%)'
    """
    figure, axis = panel((3.6, 3.2), right=0.22)  # room for "100%" at the end
    top = 1.06 * max(float(groups.score.max()), float(groups.high.max()), float(smooth.predicted.max())) or 1.0
    axis.plot([0, top], [0, top], color=INK, lw=1, ls=":")
    axis.plot(smooth.predicted, smooth.observed, color=VERMILION, lw=1.4)
    points_of(axis, groups.score, groups, ms=4, lw=1)
    for side in (axis.xaxis, axis.yaxis):
        side.axes.set(**{f"{side.axis_name}lim": (0, top)})
        getattr(side.axes, f"set_{side.axis_name}scale")("function", functions=(_root, np.square))
        side.set_major_locator(FixedLocator(_square_ticks(top)))
        side.set_major_formatter(PERCENT)
    axis.set(title=heading(name), xlabel="Predicted risk (%, root scale)", ylabel="Observed risk (%)")
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
