"""A smooth monotone risk curve: a penalised linear spline of the log-odds over the score, with a confidence band.

Turn scores and outcomes into a `Smooth`, whose risks are never 0 or 1. The log-odds are piecewise linear and
nondecreasing. A penalty shrinks the slopes and the differences between neighbouring slopes, so few events give a plain,
flatter logistic curve, and many events show the shape in the data. (Isotonic regression gives risks of 0 and 1 at its
ends, and with few events for most admissions.) Fitting needs SciPy; applying a curve needs only NumPy.
"""

import numpy as np

from mlci.judging._known import known_outcomes
from mlci.judging._ramps import penalty as smoothness
from mlci.judging._ramps import ramps
from mlci.judging.kept import Smooth, expit
from mlci.measures import weighted
from mlci.measures._arrays import unit_of
from mlci.measures.weighted import effective

GROUPS = 400  # groups of neighbouring scores, aggregated before fitting
MOST_KNOTS = 8
EVENTS_PER_KNOT = 10


def smooth(score, outcome, *, least: int = 10, weight: np.ndarray | None = None) -> Smooth:
    """Fit the risk of an outcome as a smooth, nondecreasing function of a score.

    Survey weights are scaled to sum to the effective sample size (Kish), so that curve and band are no more detailed
    than the weighted sample supports.

    Args:
        score: one number per admission.
        outcome: 0, 1, or NaN if unknown.
        least: number of admissions over which the end knots are averaged.
        weight: survey weight of each admission.

    Returns:
        The curve.

    >>> rng = np.random.default_rng(0)
    >>> score = rng.normal(size=2000)
    >>> curve = smooth(score, rng.random(2000) < 1 / (1 + np.exp(3 - score)))
    >>> bool(abs(curve(0.0) - 0.047) < 0.01), bool(curve(-9.0) > 0)
    (True, True)
    """
    from scipy.optimize import minimize

    weight = None if weight is None else weight[~np.isnan(np.asarray(outcome, dtype=float))]
    score, outcome = known_outcomes(score, outcome)
    if weight is not None:
        score, outcome, weight = score[weight > 0], outcome[weight > 0], weight[weight > 0]
        weight = weight * effective(weight) / weight.sum()
    unit = unit_of(score)  # a power of two, so that the division is exact
    mean, scale = weighted.mean(score / unit, weight), max(weighted.spread(score / unit, weight), 1e-12)
    x, n, events = _grouped((score / unit - mean) / scale, outcome, weight)
    knots = _knots((score / unit - mean) / scale, outcome, least, weight)
    if not outcome.any() or outcome.all():  # add half an observation of the class that does not occur
        n, events = np.append(n, 0.5), np.append(events, 0.0 if outcome.all() else 0.5)
        x = np.append(x, 0.0)
    design = np.column_stack([np.ones(len(x)), ramps(x, knots)])
    penalty = smoothness(design.shape[1])

    def loss(parameters: np.ndarray) -> tuple[float, np.ndarray]:
        logit = design @ parameters
        pull = penalty @ parameters
        value = n @ np.logaddexp(0, logit) - events @ logit + parameters @ pull / 2
        return float(value), design.T @ (n * expit(logit) - events) + pull

    rate = np.clip(events.sum() / n.sum(), 1e-6, 1 - 1e-6)
    start = np.array([np.log(rate / (1 - rate)), *np.full(design.shape[1] - 1, 0.5)])
    bounds = [(None, None), *[(0, None)] * (design.shape[1] - 1)]
    fitted = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": 1000}).x
    at = np.column_stack([np.ones(len(knots)), ramps(knots, knots)])
    level = np.maximum.accumulate(at @ fitted)  # rounding could make a slope of 0 negative
    return Smooth(unit * (mean + scale * knots), level, _errors(design, n, penalty, fitted, at))


def _errors(design: np.ndarray, n: np.ndarray, penalty: np.ndarray, fitted: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Return standard errors of the log-odds, from the Hessian of the penalised likelihood in the nonzero slopes."""
    risk = expit(design @ fitted)
    free = np.append(True, fitted[1:] > 1e-9)
    curvature = (design.T * (n * risk * (1 - risk))) @ design + penalty
    covariance = np.linalg.inv(curvature[np.ix_(free, free)])
    return np.sqrt(np.einsum("ij,jk,ik->i", at[:, free], covariance, at[:, free]))


def _grouped(x: np.ndarray, outcome: np.ndarray, weight: np.ndarray | None) -> tuple[np.ndarray, ...]:
    """Return mean score, number of admissions and number of events for groups of neighbouring scores."""
    order = np.argsort(x, kind="stable")
    starts = np.unique(np.linspace(0, len(x), min(GROUPS, len(x)), endpoint=False).astype(int))
    n = np.diff(np.append(starts, len(x)))
    if weight is not None:
        x, outcome, n = x * weight, outcome * weight, np.add.reduceat(weight[order], starts)
    return np.add.reduceat(x[order], starts) / n, n.astype(float), np.add.reduceat(outcome[order], starts)


def _knots(x: np.ndarray, outcome: np.ndarray, least: int, weight: np.ndarray | None) -> np.ndarray:
    """Return the knots: two ends, each a mean of several scores, and quantiles of the rarer class between them.

    There is one inner knot for every `EVENTS_PER_KNOT` admissions of the rarer class, up to `MOST_KNOTS`.
    """
    ordered = np.sort(x)
    rarer = outcome == (weighted.mean(outcome, weight) < 0.5)
    rare, own = x[rarer], None if weight is None else weight[rarer]
    many = len(rare) if own is None else round(effective(own))
    inner = min(max(many // EVENTS_PER_KNOT - 1, 0), MOST_KNOTS)
    ends = [ordered[:least].mean(), ordered[-least:].mean()]
    quantiles = weighted.quantile(rare, np.linspace(0, 1, inner + 2)[1:-1], own) if inner else []
    knots = np.unique(np.clip([*ends, *quantiles], *ends))
    kept = np.concatenate([[True], np.diff(knots) > 1e-6])
    return knots[kept] if kept.sum() > 1 else np.array([ends[0] - 0.5, ends[0] + 0.5])
