"""Numeric outcomes of the recipe `table`: checked, scaled for the regressions, and as the score's curves see them.

The curves maximise the distance correlation, which for a number is a weighted sum of distance correlations with its
indicators "above a threshold" (`Thresholds`). So the curves need only binary labels. Needs NumPy.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from mlci.base.errors import InputError
from mlci.fitting._families import KINDS, LOGISTIC, Family, Kind
from mlci.measures.alignment import energy
from mlci.measures.weighted import mean, quantile, spread

NUMERIC = KINDS[1:]
CUTS = 16  # thresholds of a number, at most
LEAST = 10  # admissions with a known number, at least


@dataclass(frozen=True)
class Numbers:
    """Numeric outcomes: admissions x outcomes, NaN where not known, each with a name and a kind."""

    values: np.ndarray
    names: tuple[str, ...]
    kinds: tuple[Kind, ...]

    @property
    def by_kind(self) -> dict[str, str]:
        """The kind of each outcome, by name."""
        return dict(zip(self.names, self.kinds))

    def take(self, rows: np.ndarray) -> "Numbers":
        return replace(self, values=self.values[rows])

    @classmethod
    def of(
        cls, columns: Mapping[str, np.ndarray], kinds: Mapping[str, str], train: np.ndarray | slice = slice(None)
    ) -> "Numbers":
        """Check columns of numbers; without a named kind, numbers from 0 are `poisson` and others `gaussian`.

        `train` are the rows to learn from. A number that is not finite is not known.
        """
        found: list[Kind] = []
        columns = {name: np.where(np.isfinite(values), values, np.nan) for name, values in columns.items()}
        for name, values in columns.items():
            known, learned = (part[~np.isnan(part)] for part in (values, values[train]))
            if len(learned) < LEAST or np.ptp(learned) == 0:
                raise InputError(
                    f"{name}: fewer than {LEAST} numbers are known for training admissions, or all are the same; leave "
                    "it out."
                )
            kind = kinds.get(name) or ("poisson" if known.min() >= 0 else "gaussian")
            if kind not in NUMERIC:
                raise InputError(f"{name}: {kind!r} is not a kind of number; allowed are {', '.join(NUMERIC)}.")
            if kind == "poisson" and known.min() < 0:
                raise InputError(f"{name}: some numbers are negative; the kind poisson is for numbers from 0.")
            found.append(kind)
        return cls(np.column_stack([*columns.values()]), tuple(columns), tuple(found))


@dataclass(frozen=True)
class Scale:
    """The scale of a number in the regressions: (number - `centre`) / `unit`, with a family."""

    centre: float
    unit: float
    family: Family

    @classmethod
    def of(cls, values: np.ndarray, kind: Kind, weight: np.ndarray | None) -> "Scale":
        """Return the scale of the known training values: measured numbers are standardised, counts are not."""
        known = ~np.isnan(values)
        mass = None if weight is None else weight[known]
        centre, sd = float(mean(values[known], mass)), float(spread(values[known], mass))
        if kind == "poisson":
            return cls(0.0, 1.0, Family(kind, max(sd**2 / centre, 1.0)))
        return cls(centre, sd, Family(kind))

    def __call__(self, values: np.ndarray) -> np.ndarray:
        return (values - self.centre) / self.unit

    def back(self, shift: float, slope: float) -> tuple[float, float]:
        """Return a calibration (shift and slope) whose mean comes out in the number's own unit."""
        return self.centre + self.unit * shift, self.unit * slope


@dataclass(frozen=True)
class Thresholds:
    """A number as the energy kernel sees it: indicators of lying above each of some thresholds, with weights.

    The centred kernel −|y − y'| is 2 Σ g eeᵀ over the gaps g between values, where e is the centred indicator of lying
    above the gap. So the squared distance correlation with a number is a weighted sum of those with its indicators.
    """

    indicators: np.ndarray  # admissions x thresholds: 0, 1, NaN where not known
    weights: np.ndarray  # of each threshold: 2 g ‖e‖² / ‖HKH‖

    @classmethod
    def of(cls, values: np.ndarray, weight: np.ndarray | None) -> "Thresholds":
        known = ~np.isnan(values)
        y, mass = values[known], np.ones(int(known.sum())) if weight is None else weight[known]
        cuts = np.unique(y[mass > 0])
        if len(cuts) > CUTS + 1:
            cuts = np.unique(quantile(y, np.linspace(0, 1, CUTS + 2)[1:], mass))
        cuts = cuts[:-1]  # no value lies above the largest
        group = np.searchsorted(cuts, y)
        total = np.bincount(group, mass, minlength=len(cuts) + 1)
        gaps = np.diff(np.bincount(group, mass * y, minlength=len(cuts) + 1) / np.maximum(total, 1e-300))
        norm = energy(gaps, total, total)[1]
        share = np.cumsum(total)[:-1] / total.sum()
        lengths = total.sum() * share * (1 - share)
        indicators = np.where(known[:, None], values[:, None] > cuts, np.nan)
        return cls(indicators, 2 * gaps * lengths / float(norm))


@dataclass(frozen=True)
class Targets:
    """What the regressions learn: binary outcomes first, then numbers on the scale of their family."""

    outcomes: np.ndarray  # admissions x outcomes, NaN where not known
    names: tuple[str, ...]
    families: tuple[Family, ...]  # of all outcomes
    scales: tuple[Scale, ...] = ()  # of the numbers

    @classmethod
    def of(cls, outcomes: np.ndarray, names: tuple[str, ...], numbers: Numbers | None, weight: np.ndarray | None):
        """Combine binary outcomes and numbers."""
        plain = (LOGISTIC,) * len(names)
        if numbers is None:
            return cls(outcomes, names, plain)
        columns = numbers.values.T.astype(np.float64)
        scales = tuple(Scale.of(values, kind, weight) for values, kind in zip(columns, numbers.kinds))
        scaled = np.column_stack([scale(values) for scale, values in zip(scales, columns)])
        families = (*plain, *(scale.family for scale in scales))
        return cls(np.column_stack([outcomes, scaled]), (*names, *numbers.names), families, scales)

    @property
    def binary(self) -> int:
        """The number of binary outcomes."""
        return len(self.names) - len(self.scales)

    def dichotomised(self, weight: np.ndarray | None) -> np.ndarray:
        """Return the outcomes with each number replaced by whether it lies above its median.

        The weight of an outcome depends on its variance; this makes that of a number independent of its unit.
        """
        found = np.array(self.outcomes, copy=True)
        for place in range(self.binary, len(self.names)):
            values, known = found[:, place], ~np.isnan(found[:, place])
            median = quantile(values[known], [0.5], None if weight is None else weight[known])[0]
            found[known, place] = values[known] > min(median, np.nextafter(values[known].max(), -np.inf))
        return found

    def calibration_in_units(self, calibration: np.ndarray) -> np.ndarray:
        """Return shift and slope of each outcome, those of measured numbers in their own unit."""
        found = calibration.copy()
        for place, scale in enumerate(self.scales, start=self.binary):
            if scale.family.kind == "gaussian":
                found[place] = scale.back(*calibration[place])
        return found
