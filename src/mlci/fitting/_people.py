"""Age and sex in the risks of the recipe `table` (never in the score).

For each outcome the risk gets a shift, a slope of the log-odds by codes, and a term for each band of age and each sex,
fitted on out-of-fold log-odds. The score uses codes alone. Without age and sex, the risk is that by codes alone. Needs
NumPy and SciPy.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

AGES = np.array([0, 18, 30, 40, 50, 60, 70, 80, 90])  # lower limits of the bands
SEXES = ("F", "M")
ROWS = (
    *(f"age {low} to {high - 1}" for low, high in zip(AGES.tolist(), AGES.tolist()[1:])),
    f"age {AGES[-1]} and over",
    *(f"sex {sex}" for sex in SEXES),
)
UNKNOWN = -1  # in place of a row's number
PRIOR_EVENTS, SPREAD = 10.0, 1.0  # precision of the prior of shift and slope, and prior variance of a row


def rows_of(age: Sequence | np.ndarray | None, sex: Sequence | np.ndarray | None, many: int) -> np.ndarray:
    """Return the numbers of the rows of each admission's age and sex in `ROWS`, `UNKNOWN` where not known.

    >>> rows_of([71.0, None], ["F", "?"], 2).tolist()
    [[6, 9], [-1, -1]]
    """
    found = np.full((many, 2), UNKNOWN, dtype=np.int8)
    if age is not None:
        years = np.array([np.nan if value is None else value for value in age], dtype=np.float64)
        known = years >= 0
        found[known, 0] = np.searchsorted(AGES, years[known], side="right") - 1
    if sex is not None:
        values = np.asarray(sex, dtype=object)
        for place, name in enumerate(SEXES, start=len(AGES)):
            found[values == name, 1] = place
    return found


def fit_people(
    log_odds: np.ndarray, outcomes: np.ndarray, rows: np.ndarray, weight: np.ndarray | None = None
) -> np.ndarray:
    """Fit shift, slope and rows of each outcome's risk, by penalised logistic regression.

    Args:
        log_odds: admissions x outcomes, by codes, out of fold.
        outcomes: admissions x outcomes: 0, 1, NaN where not known.
        rows: of each admission, as `rows_of` returns them.
        weight: sampling weight of each admission, if they differ.

    Returns:
        An array of 2 + len(ROWS) x outcomes. The log-odds of a risk are the first row, plus the second row times the
        log-odds by codes, plus the rows of the admission's age and sex.
    """
    present = np.zeros((len(rows), len(ROWS)), dtype=np.float32)
    for column in rows.T:
        known = np.flatnonzero(column != UNKNOWN)
        present[known, column[known]] = 1
    mass = np.ones(len(rows)) if weight is None else weight
    return np.column_stack([_fitted(x, y, present, mass) for x, y in zip(log_odds.T, outcomes.T)])


def _fitted(log_odds: np.ndarray, outcome: np.ndarray, present: np.ndarray, mass: np.ndarray) -> np.ndarray:
    from scipy.special import expit  # not at the top: scoring does without SciPy

    from mlci.fitting._calibrate import newton

    known = ~np.isnan(outcome)
    x, y, mass = log_odds[known], outcome[known].astype(np.float64), mass[known]
    centre = float(x.mean())
    basis = np.column_stack([np.ones_like(x), x - centre, present[known]])
    prior = np.array([PRIOR_EVENTS, PRIOR_EVENTS, *[1 / SPREAD] * len(ROWS)])

    def loss(values: np.ndarray) -> float:
        odds = x + basis @ values
        return float(mass @ (np.logaddexp(0, odds) - y * odds) + prior @ values**2 / 2)

    def step(values: np.ndarray) -> np.ndarray:
        risk = expit(x + basis @ values)
        gradient = basis.T @ (mass * (risk - y)) + prior * values
        return np.linalg.solve((basis * (mass * risk * (1 - risk))[:, None]).T @ basis + np.diag(prior), gradient)

    found = newton(loss, step, np.zeros(basis.shape[1]))
    return np.concatenate([[found[0] - found[1] * centre, 1 + found[1]], found[2:]])


@dataclass(frozen=True)
class People:
    """The terms of age and sex in risks: the array that `fit_people` returns."""

    values: np.ndarray

    def added(self, rows: np.ndarray) -> np.ndarray:
        """Return the terms of each admission's age and sex in the log-odds of each risk; NaN where neither is known."""
        table = np.vstack([self.values[2:], np.zeros_like(self.values[:1])])  # the last row is for unknown
        return np.where((rows == UNKNOWN).all(axis=1)[:, None], np.nan, table[rows].sum(axis=1))

    def log_odds(self, by_codes: np.ndarray, added: np.ndarray) -> np.ndarray:
        """Return the log-odds of each risk."""
        return self.values[0] + self.values[1] * by_codes + added

    def recalibrated(self, place: int, shift: float, slope: float) -> "People":
        """Return the terms after a further shift and slope of one outcome's log-odds."""
        values = self.values.copy()
        values[:, place] *= slope
        values[0, place] += shift
        return People(values)
