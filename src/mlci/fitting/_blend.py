"""Several tables become one: each is judged on patients that it has not seen, and a mixture of all is kept.

In come tables and what happened; out comes the mixture. A table's log-odds are sums of weights, so a mixture of tables
is a table, and so is a table whose log-odds were recalibrated, or whose outcomes lend to each other. The shares of the
mixture are those of least deviance in log-odds that were cross-fitted (stacking; Wolpert 1992, van der Laan 2007).
Needs NumPy and SciPy.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit

from mlci.fitting._calibrate import UNDECIDED, calibrate

NEGLIGIBLE = 0.005  # a share below this is none


@dataclass(frozen=True)
class Lines:
    """Other log-odds made of log-odds: `shift + log_odds @ matrix.T`, a row of the matrix per outcome."""

    shift: np.ndarray
    matrix: np.ndarray

    def __call__(self, log_odds: np.ndarray) -> np.ndarray:
        return self.shift + log_odds @ self.matrix.T


@dataclass(frozen=True)
class Weighed:
    """A table, and log-odds of the admissions at hand by tables of its kind that have not seen them."""

    weights: np.ndarray  # tokens x outcomes
    intercepts: np.ndarray
    honest: np.ndarray  # admissions x outcomes

    def through(
        self, fit: Callable[[np.ndarray, np.ndarray], Lines], outcomes: np.ndarray, folds: np.ndarray
    ) -> "Weighed":
        """Return the table with lines of its log-odds, each admission's by lines fitted to the other folds."""
        honest, lines = np.empty_like(self.honest), fit(self.honest, outcomes)
        for fold in np.unique(folds):
            out = folds == fold
            honest[out] = fit(self.honest[~out], outcomes[~out])(self.honest[out])
        return Weighed(self.weights @ lines.matrix.T, lines(self.intercepts), honest)


def recalibrated(log_odds: np.ndarray, outcomes: np.ndarray) -> Lines:
    """Fit shift and slope of each outcome alone; a slope is at least 0.

    >>> telling_nothing = np.array([[-1.0], [-1.0], [1.0], [1.0]] * 100)
    >>> bool(recalibrated(telling_nothing, np.array([[0.0], [1.0]] * 200)).matrix[0, 0] < 0.1)
    True
    """
    pairs = zip(log_odds.T, outcomes.T)
    found = np.stack([calibrate(column, known, unit=max(float(column.std()), 1e-9)) for column, known in pairs])
    return Lines(found[:, 0], np.diag(np.maximum(found[:, 1], 0.0)))


def lending(log_odds: np.ndarray, outcomes: np.ndarray) -> Lines:
    """Fit each outcome on the log-odds of all of them: a rare outcome borrows from common ones that rise with it.

    Slopes are at least 0, and drawn towards 1 for the outcome itself and 0 for the others by a prior that `UNDECIDED`
    events outweigh.
    """
    mean, scale = log_odds.mean(axis=0), np.maximum(log_odds.std(axis=0), 1e-9)
    basis, shifts, rows = (log_odds - mean) / scale, [], []
    for place, outcome in enumerate(outcomes.T):
        known = ~np.isnan(outcome)
        x, y, prior = basis[known], outcome[known].astype(np.float64), np.zeros(len(scale))
        prior[place] = scale[place]

        def loss(values: np.ndarray, x: np.ndarray = x, y: np.ndarray = y, prior: np.ndarray = prior):
            sums, away = values[0] + x @ values[1:], values[1:] - prior
            error = expit(sums) - y
            value = (np.logaddexp(0, sums) - y * sums).sum() + UNDECIDED / 2 * away @ away
            return value, np.concatenate([[error.sum()], x.T @ error + UNDECIDED * away])

        start, bounds = np.concatenate([[mean[place]], prior]), [(None, None), *[(0.0, None)] * len(prior)]
        found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds).x
        rows.append(found[1:] / scale)
        shifts.append(found[0] - rows[-1] @ mean)
    return Lines(np.array(shifts), np.stack(rows))


def blend(tables: Sequence[Weighed], outcomes: np.ndarray) -> tuple[Weighed, np.ndarray]:
    """Mix tables so that the deviance of all outcomes is least; also the share of each, from 0 to 1, in all 1.

    >>> right, wrong = np.array([[-2.0], [2.0]] * 50), np.array([[2.0], [-2.0]] * 50)
    >>> pair = [Weighed(odds[:2], np.zeros(1), odds) for odds in (right, wrong)]
    >>> blend(pair, np.array([[0.0], [1.0]] * 50))[1].tolist()
    [1.0, 0.0]
    """
    known = ~np.isnan(outcomes)
    x, y = np.column_stack([table.honest[known] for table in tables]), outcomes[known].astype(np.float64)

    def loss(shares: np.ndarray) -> tuple[float, np.ndarray]:
        sums = x @ shares
        return float((np.logaddexp(0, sums) - y * sums).mean()), (expit(sums) - y) @ x / len(y)

    many = len(tables)
    whole = {"type": "eq", "fun": lambda shares: shares.sum() - 1, "jac": lambda shares: np.ones(many)}
    options = {"ftol": 1e-9, "maxiter": 200}
    found = minimize(
        loss,
        np.full(many, 1 / many),
        jac=True,
        method="SLSQP",
        bounds=[(0, 1)] * many,
        constraints=whole,
        options=options,
    ).x
    shares = np.where(found < NEGLIGIBLE, 0.0, found)
    shares = shares / shares.sum()
    parts = [(table.weights, table.intercepts, table.honest) for table in tables]
    mixed = (sum(share * part for share, part in zip(shares, kind)) for kind in zip(*parts))
    return Weighed(*mixed), shares  # pyright: ignore[reportArgumentType]
