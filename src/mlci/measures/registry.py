"""The registry of metrics: for each its names, unit, direction, function and resampler.

A `Pair` (one score beside one outcome) comes in; `Metric.value` gives a number, `Metric.resampler` its spread. To add a
metric, write its function in a file of this room and one entry here: `mlci evaluate` computes and prints it at once,
and `benchmarked` and `reported` put it into the benchmark's tables and the report.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from mlci.measures import discrimination, information, resample
from mlci.measures.alignment import Kernel, distance_correlation, nhsic

FEW = 100  # a whole-numbered score with at most so many distinct values has a plug-in estimate of MI


@dataclass(frozen=True)
class Pair:
    """One score beside one outcome (0, 1, NaN where not known), and the outcome's predicted risk where one is given.

    `sigma` and `kernel` are those of nHSIC. What several metrics need is computed once.
    """

    scores: np.ndarray
    y: np.ndarray
    risk: np.ndarray | None = None
    sigma: float | None = None
    kernel: Kernel = "rbf"

    @cached_property
    def by_neighbours(self) -> np.ndarray:
        """The contributions of the admissions to mutual information, by nearest neighbours."""
        return self._contributions("neighbours")

    @cached_property
    def by_counting(self) -> np.ndarray:
        """The contributions of the admissions to mutual information, by counting."""
        return self._contributions("plug-in")

    @cached_property
    def calibration(self) -> discrimination.Calibration:
        """How true the risk is."""
        return discrimination.calibration(self.risk, self.y)

    @cached_property
    def has_few_values(self) -> bool:
        """Whether the score is a count of points, so that counting estimates its mutual information."""
        return not np.mod(self.scores, 1).any() and len(np.unique(self.scores)) <= FEW

    def _contributions(self, estimator: information.Estimator) -> np.ndarray:
        known = ~np.isnan(self.y)
        return information.contributions(self.scores[known], self.y[known], estimator=estimator)


@dataclass(frozen=True)
class Resampler:
    """A way to resample several metrics at once: `make` gives a statistic with a column for each of `metrics`."""

    metrics: tuple[str, ...]
    make: Callable[[Pair], resample.Statistic]


@dataclass(frozen=True)
class Metric:
    """One figure of a score for an outcome.

    Attributes:
        name: its key in tables and files.
        label: its heading on pages and figures.
        short: its heading in narrow tables.
        value: the figure itself.
        resampler: its spread over resampled patients.
        unit: "nats", or nothing for a pure number.
        better: the direction, larger or smaller, or the value that is right.
        depends: what of the score it depends on, in words.
        applies: whether a pair has this figure.
        benchmarked: whether it is a table of `mlci benchmark`.
        reported: whether it is a table of the report.
    """

    name: str
    label: str
    short: str
    value: Callable[[Pair], float]
    resampler: Resampler
    unit: str = ""
    better: Literal["larger", "smaller", "1", "0"] = "larger"
    depends: str = ""
    applies: Callable[[Pair], bool] = lambda pair: True
    benchmarked: bool = False
    reported: bool = False

    @property
    def heading(self) -> str:
        """The label with the unit."""
        return f"{self.label} ({self.unit})" if self.unit else self.label


def _mean(contributions: np.ndarray) -> float:
    return max(0.0, float(contributions.mean())) if len(contributions) else 0.0


def _has_risk(pair: Pair) -> bool:
    return pair.risk is not None


_RANKING = Resampler(
    resample.RANKING, lambda pair: resample.ranking(pair.scores, pair.y, sigma=pair.sigma, kernel=pair.kernel)
)
_CALIBRATION = Resampler(resample.CALIBRATION, lambda pair: resample.calibration(np.asarray(pair.risk), pair.y))

METRICS = {
    metric.name: metric
    for metric in (
        Metric(
            "dcorr",
            "Distance correlation",
            "dCorr",
            lambda pair: float(distance_correlation(pair.scores, pair.y)),
            _RANKING,
            depends="order and spacing",
            benchmarked=True,
            reported=True,
        ),
        Metric(
            "mi",
            "Mutual information",
            "MI (nats)",
            lambda pair: _mean(pair.by_neighbours),
            Resampler(("mi",), lambda pair: resample.mean(pair.by_neighbours, pair.y)),
            unit="nats",
            depends="mostly order",
            benchmarked=True,
            reported=True,
        ),
        Metric(
            "nhsic",
            "nHSIC",
            "nHSIC",
            lambda pair: float(nhsic(pair.scores, pair.y, sigma=pair.sigma, kernel=pair.kernel)),
            _RANKING,
            depends="order and spacing",
        ),
        Metric(
            "auroc",
            "AUROC",
            "AUROC",
            lambda pair: discrimination.auroc(pair.scores, pair.y),
            _RANKING,
            depends="order alone",
            benchmarked=True,
            reported=True,
        ),
        Metric(
            "average_precision",
            "Average precision",
            "average precision",
            lambda pair: discrimination.average_precision(pair.scores, pair.y),
            _RANKING,
            depends="order alone",
        ),
        Metric(
            "rank_dcorr",
            "Distance correlation of ranks",
            "dCorr of ranks",
            lambda pair: discrimination.rank_distance_correlation(pair.scores, pair.y),
            _RANKING,
            depends="order alone",
            benchmarked=True,
            reported=True,
        ),
        Metric(
            "mi_plugin",
            "Mutual information, plug-in",
            "MI, plug-in",
            lambda pair: _mean(pair.by_counting),
            Resampler(("mi_plugin",), lambda pair: resample.mean(pair.by_counting, pair.y)),
            unit="nats",
            depends="mostly order",
            applies=lambda pair: pair.has_few_values,
        ),
        Metric(
            "brier",
            "Brier score",
            "Brier",
            lambda pair: pair.calibration.brier,
            _CALIBRATION,
            better="smaller",
            applies=_has_risk,
        ),
        Metric(
            "slope",
            "Calibration slope",
            "calibration slope",
            lambda pair: pair.calibration.slope,
            _CALIBRATION,
            better="1",
            applies=_has_risk,
        ),
        Metric(
            "intercept",
            "Calibration intercept",
            "calibration intercept",
            lambda pair: pair.calibration.intercept,
            _CALIBRATION,
            better="0",
            applies=_has_risk,
        ),
        Metric(
            "ece",
            "Calibration error",
            "calibration error",
            lambda pair: pair.calibration.ece,
            _CALIBRATION,
            better="smaller",
            applies=_has_risk,
        ),
    )
}


def benchmarked() -> dict[str, Metric]:
    """Return the metrics of the benchmark's tables, by name.

    >>> [*benchmarked()]
    ['dcorr', 'mi', 'auroc', 'rank_dcorr']
    """
    return {name: metric for name, metric in METRICS.items() if metric.benchmarked}


def reported() -> dict[str, Metric]:
    """Return the metrics of the report, by name; those of order alone come first.

    >>> [*reported()]
    ['auroc', 'rank_dcorr', 'dcorr', 'mi']
    """
    chosen = (metric for metric in METRICS.values() if metric.reported)
    return {metric.name: metric for metric in sorted(chosen, key=lambda metric: metric.depends != "order alone")}
