"""Small figures of a model, as coordinates for inline SVG: computed once, so that a page only adds its marks."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mlci.index.model import Model
from mlci.judging.kept import Smooth

WIDTH, HEIGHT = 340, 150
LEFT, RIGHT, TOP, BOTTOM = 34, 12, 26, 24  # room for labels
BARS, POINTS = 40, 80
ABOVE = 1.08  # of the upper edge: where a higher risk is marked
TAIL = 0.5  # percent of the training admissions at either end that are outside the figure


@dataclass(frozen=True)
class RiskLine:
    """The risk of one outcome along the score."""

    points: str  # of an SVG polyline
    band: str  # of an SVG polygon; empty if the curve has no interval
    top: float  # risk at the upper edge
    ticks: list[tuple[float, float]]  # risk, y
    middle: float  # risk at the median score of the training admissions
    ends: tuple[float, float]  # risk at either end of the figure

    def is_above(self, risk: float) -> bool:
        """Return whether a risk is too high for the figure."""
        return risk > self.top * ABOVE

    def y(self, risk: float) -> float:
        """Return the y coordinate of a risk; above the figure, that of its edge."""
        risk = self.top * ABOVE if self.is_above(risk) else risk
        return _round(HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * risk / self.top)


@dataclass(frozen=True)
class Drawing:
    """The figures of a model; all share the score axis, so that a mark is at the same place in each."""

    model: Model

    width, height, left, right = WIDTH, HEIGHT, LEFT, WIDTH - RIGHT
    top, floor = TOP, HEIGHT - BOTTOM

    @cached_property
    def limits(self) -> tuple[float, float]:
        shares = np.linspace(0, 100, len(self.model.quantiles))
        low, high = np.interp([TAIL, 100 - TAIL], shares, self.model.quantiles)
        low, high = min(low, self.model.cutoff.score), max(high, self.model.cutoff.score)
        return (float(low), float(high)) if low < high else (float(low) - 1, float(high) + 1)

    def x(self, score: float) -> float:
        """Return the x coordinate of a score; outside the figure, that of its edge."""
        low, high = self.limits
        return _round(LEFT + (WIDTH - LEFT - RIGHT) * min(max((score - low) / (high - low), 0.0), 1.0))

    @cached_property
    def ticks(self) -> list[tuple[float, float]]:
        """Score and x of the tick labels."""
        return [(score, self.x(score)) for score in _nice(*self.limits)]

    @cached_property
    def bars(self) -> list[tuple[float, float, float, float]]:
        """x, y, width and height of each bar: the share of training admissions in equal steps of the score."""
        edges = np.linspace(*self.limits, BARS + 1)
        share = np.diff(self.model.percentile(edges))
        heights = (self.floor - TOP) * share / max(share.max(), 1e-12)
        width = (WIDTH - LEFT - RIGHT) / BARS
        return [
            (_round(self.x(edge)), _round(self.floor - height), _round(width - 1), _round(height))
            for edge, height in zip(edges, heights)
        ]

    def below(self, x: float) -> int:
        """Return how many bars have their middle at `x` or to the left of it."""
        return sum(left + width / 2 <= x for left, _, width, _ in self.bars)

    @cached_property
    def curves(self) -> dict[str, RiskLine]:
        return {name: self._curve(name) for name in self.model.curves}

    def _curve(self, name: str) -> RiskLine:
        curve, (low, high) = self.model.curves[name], self.limits
        inside = curve.score[(curve.score > low) & (curve.score < high)]  # corners of a curve of steps
        scores = np.unique(np.concatenate([np.linspace(low, high, POINTS), inside]))
        risks = curve(scores)
        lower, upper = curve.around(risks, scores) if isinstance(curve, Smooth) else (risks, risks)
        ticks = _nice(0.0, max(float(upper.max()), 0.001))
        top = max(ticks[-1], float(upper.max()))
        ends = (float(risks[0]), float(risks[-1]))
        drawn = RiskLine("", "", top, [], float(curve(np.median(self.model.quantiles))), ends)

        def line(values: np.ndarray, step: int = 1) -> str:
            pairs = zip(scores[::step], values[::step])
            return " ".join(f"{self.x(score)},{drawn.y(value)}" for score, value in pairs)

        band = f"{line(upper)} {line(lower, -1)}" if isinstance(curve, Smooth) else ""
        heights = [(tick, drawn.y(tick)) for tick in ticks]
        return RiskLine(line(risks), band, top, heights, drawn.middle, ends)


@dataclass(frozen=True)
class Bars:
    """A histogram: how many admissions of a file are in each twentieth of the reference admissions."""

    counts: np.ndarray

    width, height, floor = WIDTH, HEIGHT, HEIGHT - BOTTOM

    @property
    def rects(self) -> list[tuple[float, float, float, float]]:
        """x, y, width, height of each bar."""
        step = (WIDTH - LEFT - RIGHT) / len(self.counts)
        heights = (self.floor - TOP) * self.counts / max(self.counts.max(), 1)
        return [
            (_round(LEFT + at * step), _round(self.floor - height), _round(step - 1), _round(height))
            for at, height in enumerate(heights)
        ]

    def x(self, percentile: float) -> float:
        return _round(LEFT + (WIDTH - LEFT - RIGHT) * percentile / 100)

    @property
    def even(self) -> float:
        """The y of the top of all bars if the file were like the reference admissions."""
        mean = self.counts.sum() / len(self.counts)
        return _round(self.floor - (self.floor - TOP) * mean / max(self.counts.max(), 1))


def _nice(low: float, high: float, most: int = 4) -> list[float]:
    """Return a few round numbers between two limits."""
    rough = (high - low) / most
    unit = 10.0 ** np.floor(np.log10(rough))
    step = next(unit * factor for factor in (1, 2, 2.5, 5, 10) if unit * factor >= rough * 0.999)
    return [float(round(step * k, 10)) for k in range(int(np.ceil(low / step)), int(np.floor(high / step)) + 1)]


def _round(value: float) -> float:
    return round(float(value), 1)
