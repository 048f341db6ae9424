"""Mix candidate tables into one (stacking; Wolpert 1992, van der Laan 2007).

A table's log-odds are sums of weights. So a mixture of tables is again a table, and so is a table after a linear map of
its log-odds, such as a recalibration. The shares of the mixture minimise the deviance of out-of-fold log-odds. Needs
NumPy and SciPy.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit

from mlci.fitting._calibrate import PRIOR_EVENTS, calibrate

NEGLIGIBLE = 0.005  # smaller shares are set to 0


@dataclass(frozen=True)
class LinearMap:
    """A linear map of log-odds: `shift + log_odds @ matrix.T`, with one row of the matrix per outcome."""

    shift: np.ndarray
    matrix: np.ndarray

    def __call__(self, log_odds: np.ndarray) -> np.ndarray:
        return self.shift + log_odds @ self.matrix.T


@dataclass(frozen=True)
class CandidateTable:
    """A table, and the out-of-fold log-odds of the admissions by tables fitted in the same way."""

    weights: np.ndarray  # tokens x outcomes
    intercepts: np.ndarray
    out_of_fold: np.ndarray  # admissions x outcomes

    def cross_fitted(
        self, fit: Callable[[np.ndarray, np.ndarray], LinearMap], outcomes: np.ndarray, folds: np.ndarray
    ) -> "CandidateTable":
        """Return the table after a linear map of its log-odds.

        The table itself is mapped by `fit` on all admissions; the out-of-fold log-odds of a fold by `fit` on the other
        folds.
        """
        out_of_fold, lines = np.empty_like(self.out_of_fold), fit(self.out_of_fold, outcomes)
        for fold in np.unique(folds):
            out = folds == fold
            out_of_fold[out] = fit(self.out_of_fold[~out], outcomes[~out])(self.out_of_fold[out])
        return CandidateTable(self.weights @ lines.matrix.T, lines(self.intercepts), out_of_fold)


def recalibrated(log_odds: np.ndarray, outcomes: np.ndarray) -> LinearMap:
    """Fit shift and slope of each outcome separately; slopes are at least 0.

    >>> uninformative = np.array([[-1.0], [-1.0], [1.0], [1.0]] * 100)
    >>> bool(recalibrated(uninformative, np.array([[0.0], [1.0]] * 200)).matrix[0, 0] < 0.1)
    True
    """
    pairs = zip(log_odds.T, outcomes.T)
    found = np.stack(
        [calibrate(column, known, unit=max(float(column.std()), 1e-9), rising=True) for column, known in pairs]
    )
    return LinearMap(found[:, 0], np.diag(found[:, 1]))


def recalibrated_jointly(log_odds: np.ndarray, outcomes: np.ndarray) -> LinearMap:
    """Fit each outcome on the log-odds of all outcomes, so that a rare outcome can borrow from frequent ones.

    Slopes are at least 0 and shrunk towards 1 for the outcome itself and 0 for the others (normal priors of precision
    `PRIOR_EVENTS`).
    """
    mean, scale = log_odds.mean(axis=0), np.maximum(log_odds.std(axis=0), 1e-9)
    basis, shifts, rows = (log_odds - mean) / scale, [], []
    for place, outcome in enumerate(outcomes.T):
        known = ~np.isnan(outcome)
        x, y, prior = basis[known], outcome[known].astype(np.float64), np.zeros(len(scale))
        prior[place] = scale[place]

        def loss(values: np.ndarray, x: np.ndarray = x, y: np.ndarray = y, prior: np.ndarray = prior):
            sums, deviation = values[0] + x @ values[1:], values[1:] - prior
            error = expit(sums) - y
            value = (np.logaddexp(0, sums) - y * sums).sum() + PRIOR_EVENTS / 2 * deviation @ deviation
            return value, np.concatenate([[error.sum()], x.T @ error + PRIOR_EVENTS * deviation])

        start, bounds = np.concatenate([[mean[place]], prior]), [(None, None), *[(0.0, None)] * len(prior)]
        found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds).x
        rows.append(found[1:] / scale)
        shifts.append(found[0] - rows[-1] @ mean)
    return LinearMap(np.array(shifts), np.stack(rows))


def blend(tables: Sequence[CandidateTable], outcomes: np.ndarray) -> tuple[CandidateTable, np.ndarray]:
    """Return the mixture of tables with the least out-of-fold deviance over all outcomes, and the share of each table.

    >>> right, wrong = np.array([[-2.0], [2.0]] * 50), np.array([[2.0], [-2.0]] * 50)
    >>> pair = [CandidateTable(odds[:2], np.zeros(1), odds) for odds in (right, wrong)]
    >>> blend(pair, np.array([[0.0], [1.0]] * 50))[1].tolist()
    [1.0, 0.0]
    """
    known = ~np.isnan(outcomes)
    x, y = np.column_stack([table.out_of_fold[known] for table in tables]), outcomes[known].astype(np.float64)

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
    parts = [(table.weights, table.intercepts, table.out_of_fold) for table in tables]
    mixed = (sum(share * part for share, part in zip(shares, kind)) for kind in zip(*parts))
    return CandidateTable(*mixed), shares  # pyright: ignore[reportArgumentType]
