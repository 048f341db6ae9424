"""The classes of the metric registry: a score with an outcome (`Pair`), how figures are resampled, and a figure.

The metrics themselves are listed in `mlci.measures.registry`.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np

from mlci.base.lazy import lazy_property
from mlci.measures import discrimination, information, resample
from mlci.measures.alignment import Kernel
from mlci.measures.design import Design, as_design
from mlci.measures.intervals import Interval, Reach
from mlci.measures.weighted import effective

FEW = 100  # distinct values up to which a whole-numbered score has a plug-in estimate of MI


@dataclass(frozen=True)
class Pair:
    """A score and an outcome (0, 1, NaN where not known), with the outcome's predicted risk if there is one.

    `sigma` and `kernel` are those of nHSIC. `patients` is the patient of each admission (by default each has its own),
    or a `Design` with weights and strata. Quantities that several metrics need are cached.
    """

    scores: np.ndarray
    y: np.ndarray
    risk: np.ndarray | None = None
    sigma: float | None = None
    kernel: Kernel = "rbf"
    patients: Any = None

    @lazy_property
    def events(self) -> int:
        """Patients with the rarer class of the outcome, on which the precision of its figures depends.

        At most the effective sample size of weighted samples, and at most the degrees of freedom of stratified ones,
        plus 1.
        """
        kinds = [self.y == kind for kind in (0, 1)]
        events = min(int(np.count_nonzero(np.bincount(self.design.cluster[rows]))) for rows in kinds)
        if self.weight is not None:
            events = min(events, *(round(effective(self.weight[rows])) for rows in kinds))
        return events if self.design.stratum is None else min(events, self.design.degrees + 1)

    @lazy_property
    def design(self) -> Design:
        """Return the sampling design of the admissions."""
        return as_design(np.arange(len(self.y)) if self.patients is None else self.patients)

    @property
    def weight(self) -> np.ndarray | None:
        return self.design.weight

    @lazy_property
    def n(self) -> int:
        """Return the number of admissions whose outcome is known."""
        return int((~np.isnan(self.y)).sum())

    @lazy_property
    def has_both(self) -> bool:
        """Whether both classes of the outcome occur and count; otherwise no score can be judged by it."""
        counts = True if self.weight is None else self.weight > 0
        return all(bool(np.any((self.y == kind) & counts)) for kind in (0, 1))

    @lazy_property
    def by_neighbours(self) -> np.ndarray:
        """Return the contributions of the admissions to mutual information, by nearest neighbours."""
        return self._contributions("neighbours")

    @lazy_property
    def by_counting(self) -> np.ndarray:
        """Return the contributions of the admissions to mutual information, by the plug-in estimator."""
        return self._contributions("plug-in")

    @lazy_property
    def calibration(self) -> discrimination.Calibration:
        """Return the calibration of the risk."""
        return discrimination.calibration(self.risk, self.y, weight=self.weight)

    @lazy_property
    def area_cache(self) -> dict[str, tuple[float, np.ndarray]]:
        """AUROC and influences of the score and of the risk, as far as they were needed."""
        return {}

    def areas(self, of: str) -> tuple[float, np.ndarray]:
        """Return AUROC and each admission's influence on it, `of` the "scores" or the "risk".

        >>> Pair(np.array([1.0, 2.0, 3.0, 4.0]), np.array([0.0, 1.0, 0.0, 1.0])).areas("scores")[0]
        0.75
        """
        if of not in self.area_cache:
            self.area_cache[of] = discrimination.area(np.asarray(getattr(self, of)), self.y, weight=self.weight)
        return self.area_cache[of]

    @lazy_property
    def weighted_figures(self) -> dict["Resampler", np.ndarray]:
        """Figures of resamplers at the sampling weights, as far as they were needed."""
        return {}

    @lazy_property
    def has_few_values(self) -> bool:
        """Whether the score has few whole-numbered values, so that the plug-in estimator of MI applies."""
        return not np.mod(self.scores, 1).any() and len(np.unique(self.scores)) <= FEW

    def _contributions(self, estimator: information.Estimator) -> np.ndarray:
        known = ~np.isnan(self.y)
        weight = None if self.weight is None else self.weight[known]
        return information.contributions(self.scores[known], self.y[known], estimator=estimator, weight=weight)


@dataclass(frozen=True)
class Resampler:
    """A way to resample several metrics at once: `make` returns a statistic with one column per name in `metrics`.

    With `together`, `make` takes pairs of one score with several outcomes, whose columns stand side by side. A `make`
    of several metrics takes the argument `figures`, to compute some of them.
    """

    metrics: tuple[str, ...]
    make: Callable[..., resample.Statistic]
    together: bool = False

    def only(self, names: Iterable[str]) -> "Resampler":
        """Return the resampler of some of its metrics, in its own order.

        Args:
            names: names of those metrics.

        >>> from mlci.measures.registry import METRICS
        >>> METRICS["auroc"].resampler.only(["rank_dcorr", "dcorr"]).metrics
        ('dcorr', 'rank_dcorr')
        """
        some = tuple(name for name in self.metrics if name in names)
        return self if some == self.metrics else replace(self, metrics=some, make=partial(self.make, figures=some))

    def at_weights(self, pair: Pair, name: str) -> float:
        """Return a metric at the sampling weights, as if each admission had been drawn as often as its weight.

        Args:
            pair: a pair with weights.
            name: the name of the metric.

        >>> from mlci.measures.registry import METRICS
        >>> design = Design.of(range(4), weights=[1, 3, 1, 1])
        >>> pair = Pair(np.array([1.0, 2.0, 3.0, 4.0]), np.array([0.0, 1.0, 0.0, 1.0]), patients=design)
        >>> METRICS["auroc"].resampler.at_weights(pair, "auroc")
        0.625
        """
        if self not in pair.weighted_figures:
            pair.weighted_figures[self] = self.make(pair)(lambda rows: np.asarray(pair.weight)[None, rows])[0]
        return float(pair.weighted_figures[self][self.metrics.index(name)])


@dataclass(frozen=True)
class Metric:
    """A figure of a score for an outcome.

    Attributes:
        name: its key in tables and files.
        label: its heading on pages and figures.
        short: its heading in narrow tables.
        value: computes the figure with each admission counting once; use `of`, which also applies weights.
        resampler: computes it on resampled patients; None if it is not resampled.
        interval: computes the interval from the pair, the figure, its resamples and the reach; None if it has none.
        drawn: the metric whose resamples it uses, if it has none of its own.
        by_influence: whether value and interval use influences, which apply weights themselves, so that resamples serve
            differences alone.
        unit: "nats", or empty for a pure number.
        better: the better direction (larger or smaller), or the ideal value.
        depends: what of the score it depends on, in words.
        applies: whether a pair has this figure.
        benchmarked: whether it has a table in `mlci benchmark`.
        reported: whether it has a table in the report.
    """

    name: str
    label: str
    short: str
    value: Callable[[Pair], float]
    resampler: Resampler | None
    interval: Callable[[Pair, float, np.ndarray, Reach], Interval] | None = None
    drawn: str = ""
    by_influence: bool = False
    unit: str = ""
    better: Literal["larger", "smaller", "1", "0"] = "larger"
    depends: str = ""
    applies: Callable[[Pair], bool] = lambda pair: True
    benchmarked: bool = False
    reported: bool = False

    def of(self, pair: Pair) -> float:
        """Return the figure of a pair, at its sampling weights if it has some.

        Args:
            pair: a score and an outcome; a figure that needs both classes is NaN without them.

        >>> from mlci.measures.registry import METRICS
        >>> METRICS["auroc"].of(Pair(np.array([1.0, 2.0, 3.0, 4.0]), np.array([0.0, 1.0, 0.0, 1.0])))
        0.75
        """
        if self.depends and not pair.has_both:
            return float("nan")
        if pair.weight is None or self.resampler is None or self.by_influence:
            return self.value(pair)
        return self.resampler.at_weights(pair, self.name)

    @property
    def heading(self) -> str:
        """The label with the unit."""
        return f"{self.label} ({self.unit})" if self.unit else self.label
