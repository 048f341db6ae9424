"""Calibrate log-odds to risks: fit a shift and a slope to the outcomes, shrunk towards no change where events are few.

The log-odds must be out of fold, or of admissions that were not trained on. Needs NumPy alone.
"""

from collections.abc import Callable, Sequence

import numpy as np

from mlci.fitting._families import LOGISTIC, Family
from mlci.measures.weighted import mean

PRIOR_EVENTS = 10.0  # strength of the prior: with about so many events, half of a change of calibration is made


def newton(
    loss: Callable[[np.ndarray], float], step: Callable[[np.ndarray], np.ndarray], found: np.ndarray
) -> np.ndarray:
    """Minimise a convex loss by Newton's method: subtract steps, shortened to at most 1 and while they raise the loss.

    >>> newton(lambda x: float((x - 3) @ (x - 3)), lambda x: x - 3, np.zeros(1))
    array([3.])
    """
    value = loss(found)
    for _ in range(100):
        change = step(found)
        change /= max(1.0, float(np.abs(change).max()))
        while (trial := loss(found - change)) > value + 1e-9 * abs(value) and np.abs(change).max() >= 1e-10:
            change /= 2
        found, value = found - change, trial
        if np.abs(change).max() < 1e-10:
            break
    return found


def calibrate(
    log_odds: np.ndarray,
    outcome: np.ndarray,
    weight: np.ndarray | None = None,
    family: Family = LOGISTIC,
    *,
    unit: float = 1.0,
    prior_events: float = PRIOR_EVENTS,
    rising: bool = False,
) -> np.ndarray:
    """Return a and b of the risk expit(a + b * log-odds), shrunk towards 0 and 1 where events are few.

    The fit is maximum a posteriori by Newton's method, with the log-odds as offset. Shift and slope are fitted around
    the log-odds centred at their curvature-weighted mean, where the two estimates are nearly uncorrelated. Each has a
    normal prior of precision `prior_events`. The slope's prior is per `unit` of log-odds: with the standard deviation
    as `unit`, the slope of log-odds that vary little is shrunk less. `weight` are sampling weights. For another
    `family`, the mean takes the place of the risk. With `rising` the slope is at least 0: where it would be negative,
    the risk is the same for all log-odds.
    """
    known = ~np.isnan(outcome)
    if not known.any():
        return np.array([0.0, 1.0])
    x, y = log_odds[known].astype(np.float64), outcome[known].astype(np.float64)
    mass = np.ones(len(x)) if weight is None else weight[known]
    centre = float(np.average(x, weights=mass * family.curvature(family.mean(x))))
    basis = np.stack([np.ones_like(x), (x - centre) / unit])
    prior = np.eye(2) * prior_events

    def loss(values: np.ndarray) -> float:
        return float(mass @ family.loss(x + values @ basis, y) + values @ prior @ values / 2)

    def step(values: np.ndarray) -> np.ndarray:
        expected = family.mean(x + values @ basis)
        gradient = basis @ (mass * family.slope(expected, y)) + prior @ values
        return np.linalg.solve((basis * (mass * family.curvature(expected))) @ basis.T + prior, gradient)

    found = newton(loss, step, np.zeros(2))
    slope = found[1] / unit
    if rising and 1 + slope < 0:
        level = calibrate(np.full(len(x), centre), y, mass, family, prior_events=prior_events)[0] + centre
        return np.array([level, 0.0])
    return np.array([found[0] - slope * centre, 1 + slope])


def line_errors(log_odds: np.ndarray, outcome: np.ndarray, line: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Return the standard errors of a + b * log-odds at the log-odds `at`, for the `line` a, b of `calibrate`.

    They are those of the normal approximation at the maximum a posteriori. Where b is 0, the level alone is uncertain.
    """
    known = ~np.isnan(outcome)
    x, (shift, slope) = log_odds[known], line
    centre = float(np.average(x, weights=LOGISTIC.curvature(LOGISTIC.mean(x))))
    basis, points = (np.stack([np.ones_like(values), values - centre]) for values in (x, at))
    curvature = LOGISTIC.curvature(LOGISTIC.mean(shift + slope * x))
    information = (basis * curvature) @ basis.T + np.eye(2) * PRIOR_EVENTS
    if slope == 0:
        return np.full(len(at), information[0, 0] ** -0.5)
    return np.sqrt((points * np.linalg.solve(information, points)).sum(axis=0))


def calibrate_all(
    log_odds: np.ndarray,
    outcomes: np.ndarray,
    weight: np.ndarray | None = None,
    families: Sequence[Family] = (),
    *,
    prior_events: float = PRIOR_EVENTS,
) -> np.ndarray:
    """Return shift and slope of every outcome, one row each; without `families` all outcomes are binary."""
    columns = zip(log_odds.T, outcomes.T, families or (LOGISTIC,) * log_odds.shape[1])
    return np.stack(
        [calibrate(column, known, weight, family, prior_events=prior_events) for column, known, family in columns]
    )


def unexplained(
    log_odds: np.ndarray,
    outcomes: np.ndarray,
    calibration: np.ndarray,
    families: Sequence[Family],
    weight: np.ndarray | None = None,
) -> np.ndarray:
    """Return the deviance of each outcome's calibrated risk (or mean), as a share of the deviance of its rate alone."""
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
