"""Make risks of log-odds: shift and slope, fitted to what happened, and drawn towards none where events are few.

In come log-odds of admissions that had no part in them, and outcomes; out come two numbers for each outcome, and what
risks made by them leave unexplained. Needs NumPy alone.
"""

from collections.abc import Sequence

import numpy as np

from mlci.fitting._families import LOGISTIC, Family
from mlci.measures.weighted import mean

UNDECIDED = 10.0  # events that would have to speak for a change of calibration before half of it is made


def calibrate(
    log_odds: np.ndarray,
    outcome: np.ndarray,
    weight: np.ndarray | None = None,
    family: Family = LOGISTIC,
    *,
    unit: float = 1.0,
    undecided: float = UNDECIDED,
) -> np.ndarray:
    """Find a and b of the risk expit(a + b * log-odds), drawn towards 0 and 1 where events are few.

    Shift and slope are fitted around the log-odds where the outcome is least certain, where they hardly depend on each
    other; each has a normal prior that `undecided` events outweigh. `weight` says how much each admission counts. The
    slope's prior is by so many log-odds: with their standard deviation as `unit`, what is firm gives way sooner than
    what is spread widely. Of another `family` the mean takes the place of the risk.
    """
    known = ~np.isnan(outcome)
    if not known.any():
        return np.array([0.0, 1.0])
    x, y = log_odds[known].astype(np.float64), outcome[known].astype(np.float64)
    mass = np.ones(len(x)) if weight is None else weight[known]
    centre = float(np.average(x, weights=mass * family.curvature(family.mean(x))))
    basis = np.stack([np.ones_like(x), (x - centre) / unit])
    found, prior = np.zeros(2), np.eye(2) * undecided

    def loss(values: np.ndarray) -> float:
        return float(mass @ family.loss(x + values @ basis, y) + values @ prior @ values / 2)

    value = loss(found)
    for _ in range(100):
        expected = family.mean(x + found @ basis)
        gradient = basis @ (mass * family.slope(expected, y)) + prior @ found
        step = np.linalg.solve((basis * (mass * family.curvature(expected))) @ basis.T + prior, gradient)
        step /= max(1.0, float(np.abs(step).max()))
        while (there := loss(found - step)) > value + 1e-9 * abs(value) and np.abs(step).max() >= 1e-10:
            step /= 2  # the whole way leads uphill
        found, value = found - step, there
        if np.abs(step).max() < 1e-10:
            break
    slope = found[1] / unit
    return np.array([found[0] - slope * centre, 1 + slope])


def calibrate_all(
    log_odds: np.ndarray,
    outcomes: np.ndarray,
    weight: np.ndarray | None = None,
    families: Sequence[Family] = (),
    *,
    undecided: float = UNDECIDED,
) -> np.ndarray:
    """Find shift and slope of every outcome, a row each; without `families` all are risks."""
    columns = zip(log_odds.T, outcomes.T, families or (LOGISTIC,) * log_odds.shape[1])
    return np.stack(
        [calibrate(column, known, weight, family, undecided=undecided) for column, known, family in columns]
    )


def unexplained(
    log_odds: np.ndarray,
    outcomes: np.ndarray,
    calibration: np.ndarray,
    families: Sequence[Family],
    weight: np.ndarray | None = None,
) -> np.ndarray:
    """Return the deviance of each outcome's calibrated risk (or mean), as a share of that of its rate."""
    found = []
    for column, outcome, (shift, slope), family in zip(log_odds.T, outcomes.T, calibration, families):
        known = ~np.isnan(outcome)
        x, y = shift + slope * column[known], outcome[known].astype(np.float64)
        mass = None if weight is None else weight[known]
        rate = mean(y, mass)
        if family.kind == "logistic":
            null = -(rate * np.log(rate) + (1 - rate) * np.log(1 - rate))
        else:
            null = mean(family.loss(np.full_like(y, family.link(rate)), y), mass)
        found.append(float(mean(family.loss(x, y), mass) / null))
    return np.array(found)
