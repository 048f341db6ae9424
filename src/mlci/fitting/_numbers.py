"""Outcomes that are numbers, beside those that happen or not: checked, scaled, and as the score's curves see them.

In come columns of numbers and their kinds; out come targets for the regressions, and the indicators and weights by
which the energy kernel turns the distance correlation with a number into one with binary outcomes. Needs NumPy.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from mlci.base.errors import InputError
from mlci.fitting._families import KINDS, LOGISTIC, Family, Kind
from mlci.measures.alignment import energy
from mlci.measures.weighted import mean, quantile, spread

NUMERIC = KINDS[1:]
CUTS = 16  # thresholds at which the score's curves look at a number
LEAST = 10  # admissions whose number is known


@dataclass(frozen=True)
class Numbers:
    """Outcomes that are numbers: admissions x outcomes, NaN where not known, with a name and a kind each."""

    values: np.ndarray
    names: tuple[str, ...]
    kinds: tuple[Kind, ...]

    @property
    def by_kind(self) -> dict[str, str]:
        return dict(zip(self.names, self.kinds))

    def take(self, rows: np.ndarray) -> "Numbers":
        return replace(self, values=self.values[rows])

    @classmethod
    def of(cls, columns: Mapping[str, np.ndarray], kinds: Mapping[str, str]) -> "Numbers":
        """Check columns; a kind that nobody named is `poisson` for numbers from 0, else `gaussian`."""
        found: list[Kind] = []
        for name, values in columns.items():
            known = values[np.isfinite(values)]
            if len(known) < LEAST or np.ptp(known) == 0:
                raise InputError(f"{name}: fewer than {LEAST} numbers are known, or all are the same; leave it out.")
            kind = kinds.get(name) or ("poisson" if known.min() >= 0 else "gaussian")
            if kind not in NUMERIC:
                raise InputError(f"{name}: {kind!r} is no kind of number; allowed are {', '.join(NUMERIC)}.")
            if kind == "poisson" and known.min() < 0:
                raise InputError(f"{name}: some numbers are negative; the kind poisson is for numbers from 0.")
            found.append(kind)
        return cls(np.column_stack([*columns.values()]), tuple(columns), tuple(found))


@dataclass(frozen=True)
class Scale:
    """How a number is learned: less `centre`, over `unit`, by a family."""

    centre: float
    unit: float
    family: Family

    @classmethod
    def of(cls, values: np.ndarray, kind: Kind, weight: np.ndarray | None) -> "Scale":
        """Return the scale of the known training values: measured numbers are standardised, counts keep theirs."""
        known = ~np.isnan(values)
        mass = None if weight is None else weight[known]
        middle, deviation = float(mean(values[known], mass)), float(spread(values[known], mass))
        if kind == "poisson":
            return cls(0.0, 1.0, Family(kind, max(deviation**2 / middle, 1.0)))
        return cls(middle, deviation, Family(kind))

    def __call__(self, values: np.ndarray) -> np.ndarray:
        return (values - self.centre) / self.unit

    def back(self, shift: float, slope: float) -> tuple[float, float]:
        """Shift and slope of a calibrated predictor, so that its mean comes out in the number's own unit."""
        return self.centre + self.unit * shift, self.unit * slope


@dataclass(frozen=True)
class Thresholds:
    """A number as the energy kernel sees it: beyond which of some thresholds it lies, and how much each counts.

    The centred kernel −|y − y'| is 2 Σ g eeᵀ over the gaps g between values, e the centred indicator of lying beyond;
    so the squared distance correlation with a number is a weighted sum of those with its indicators.
    """

    beyond: np.ndarray  # admissions x thresholds: 0, 1, NaN where not known
    weights: np.ndarray  # sum to what the number counts, as far as a score that tells all thresholds can earn it

    @classmethod
    def of(cls, values: np.ndarray, weight: np.ndarray | None) -> "Thresholds":
        known = ~np.isnan(values)
        y, mass = values[known], np.ones(int(known.sum())) if weight is None else weight[known]
        cuts = np.unique(y[mass > 0])
        if len(cuts) > CUTS + 1:
            cuts = np.unique(quantile(y, np.linspace(0, 1, CUTS + 2)[1:], mass))
        cuts = cuts[:-1]  # nobody lies beyond the largest
        group = np.searchsorted(cuts, y)
        total = np.bincount(group, mass, minlength=len(cuts) + 1)
        gaps = np.diff(np.bincount(group, mass * y, minlength=len(cuts) + 1) / np.maximum(total, 1e-300))
        norm = energy(gaps, total, total)[1]
        share = np.cumsum(total)[:-1] / total.sum()
        lengths = total.sum() * share * (1 - share)
        beyond = np.where(known[:, None], values[:, None] > cuts, np.nan)
        return cls(beyond, 2 * gaps * lengths / float(norm))


@dataclass(frozen=True)
class Targets:
    """What the regressions learn: binary outcomes first, then numbers on the scale of their family."""

    outcomes: np.ndarray  # admissions x outcomes, NaN where not known
    names: tuple[str, ...]
    families: tuple[Family, ...]  # of all of them
    scales: tuple[Scale, ...] = ()  # of the numbers

    @classmethod
    def of(cls, outcomes: np.ndarray, names: tuple[str, ...], numbers: Numbers | None, weight: np.ndarray | None):
        """Bring binary outcomes and numbers together."""
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
        """How many outcomes happen or not."""
        return len(self.names) - len(self.scales)

    def halves(self, weight: np.ndarray | None) -> np.ndarray:
        """Return the outcomes, of a number whether it lies beyond its median: what it counts by, whatever its unit."""
        found = np.array(self.outcomes, copy=True)
        for place in range(self.binary, len(self.names)):
            values, known = found[:, place], ~np.isnan(found[:, place])
            median = quantile(values[known], [0.5], None if weight is None else weight[known])[0]
            found[known, place] = values[known] > min(median, np.nextafter(values[known].max(), -np.inf))
        return found

    def scaled_back(self, calibration: np.ndarray) -> np.ndarray:
        """Shift and slope of each outcome, those of measured numbers in their own unit."""
        found = calibration.copy()
        for place, scale in enumerate(self.scales, start=self.binary):
            if scale.family.kind == "gaussian":
                found[place] = scale.back(*calibration[place])
        return found
