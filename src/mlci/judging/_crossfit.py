"""Expected risks by leave-one-group-out cross-fitting of a logistic regression.

Turn a score, adjustment columns, an outcome and groups of admissions into expected risks. The model is a logistic
regression, smooth in the score; the risks of each group come from a fit without that group, so a hospital's own events
do not influence what is expected of it. The model is fitted once to all admissions, and a group is left out by one
Newton step from there. For groups that are large or unusual, Newton steps are repeated until convergence. The gradients
are kept, so that a bootstrap sample of patients needs sums instead of new fits.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from mlci.base.errors import InputError
from mlci.judging._ramps import penalty as smoothness
from mlci.judging._ramps import ramps
from mlci.measures._arrays import unit_of
from mlci.measures.discrimination import expit

LEVELS = (0.05, 0.2, 0.4, 0.6, 0.8, 0.9, 0.97, 0.995)  # quantiles of the score for the knots of its linear spline
BENDS = (0.25, 0.5, 0.75)  # the same for another numeric column
LARGE = 0.05  # share of the admissions from which leaving a group out is iterated to convergence
MOVED = 0.02  # relative change of the expected count by the first step from which it is iterated too
STEPS = 30
CLOSE = 1e-4  # convergence: a step in units of standardised columns; the error after it is of the order of its square
PIECE = 2**12  # rows per block
PART = 20_000  # rows of the subsample that gives starting values
MOST_CATEGORIES = 50


@dataclass(frozen=True)
class LogisticModel:
    """The design matrix of a logistic regression and the quadratic penalty on its coefficients."""

    columns: np.ndarray
    penalty: np.ndarray


@dataclass(frozen=True)
class CrossFit:
    """Risks of admissions sorted by group, and the sensitivity of a group's expected count to the other groups."""

    risk: np.ndarray
    gradient: np.ndarray  # admissions x columns: each admission's score contribution in the model of all admissions
    answer: np.ndarray  # groups x columns: change of the expected count per unit of the other groups' gradient


def design(score: np.ndarray, others: Sequence[tuple[str, np.ndarray]] = ()) -> LogisticModel:
    """Return the model: splines of the score and of other numeric columns, and dummies of categories."""
    score = score / unit_of(score)  # exact, and no square overflows
    x = (score - score.mean()) / max(float(score.std()), 1e-12)
    bends = np.unique(np.quantile(x, LEVELS))
    bends = bends[(bends > x.min()) & (bends < x.max())]
    knots = np.array([x.min() - 1e-9, *bends, x.max() + 1e-9])
    parts = [np.ones((len(x), 1)), ramps(x, knots)]
    parts += [_standardised(_spread_out(name, values)) for name, values in others]
    columns = np.hstack(parts)
    own = 1 + parts[1].shape[1]
    penalty = np.zeros((columns.shape[1], columns.shape[1]))
    penalty[:own, :own] = smoothness(own)
    penalty[range(own, len(penalty)), range(own, len(penalty))] = 1.0
    return LogisticModel(columns, penalty)


def _spread_out(name: str, values: np.ndarray) -> np.ndarray:
    """Return a column as regressors: a linear spline and a missing indicator, or one dummy per category."""
    series = pd.Series(values)
    if pd.api.types.is_numeric_dtype(series) and not pd.api.types.is_bool_dtype(series):
        number = series.to_numpy(dtype=float)
        missing = np.isnan(number)
        if missing.all():
            raise InputError(f"column {name}: is empty and cannot be adjusted for.")
        number = np.where(missing, np.median(number[~missing]), number)
        knots = np.unique(np.quantile(number, BENDS))
        return np.column_stack([number, *(np.maximum(number - knot, 0) for knot in knots), missing.astype(float)])
    codes, words = pd.factorize(series, sort=False)
    if not 1 <= len(words) <= MOST_CATEGORIES:
        raise InputError(f"column {name}: has {len(words):,} different values; 1 to {MOST_CATEGORIES} are allowed.")
    return np.column_stack([codes == code for code in range(len(words))]).astype(float)


def _standardised(columns: np.ndarray) -> np.ndarray:
    spread = columns.std(axis=0)
    return (columns - columns.mean(axis=0)) / np.where(spread > 1e-9, spread, 1.0)


def fit(model: LogisticModel, outcome: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Return the coefficients fitted to all rows."""
    rows = _Rows(model.columns, outcome, weight, model.penalty)
    return _newton(rows, _start(rows), [slice(0, len(outcome))])


def cross_fit(model: LogisticModel, outcome: np.ndarray, weight: np.ndarray, starts: np.ndarray) -> CrossFit:
    """Fit a model with each group left out once.

    Args:
        model: of rows sorted by group.
        outcome: 0 or 1 of each row.
        weight: of each row.
        starts: the first row of each group.
    """
    rows = _Rows(model.columns, outcome, weight, model.penalty)
    columns, size = model.columns, len(outcome)
    fitted = fit(model, outcome, weight)
    gradient = columns * (weight * (outcome - expit(columns @ fitted)))[:, None]
    parts = [slice(start, end) for start, end in zip(starts, [*starts[1:], size])]
    bends = [rows.look(fitted, [own]).bend for own in parts]
    whole = np.sum(bends, axis=0)
    risk, answer = np.empty(size), np.empty((len(starts), len(fitted)))
    for place, (own, bend) in enumerate(zip(parts, bends)):
        rest = whole - bend + model.penalty
        without = fitted - np.linalg.solve(rest, gradient[own].sum(axis=0))
        with_it, left_out = (weight[own] @ expit(columns[own] @ beta) for beta in (fitted, without))
        if own.stop - own.start > LARGE * size or abs(left_out - with_it) > MOVED * with_it:
            without = _newton(rows, without, [slice(0, own.start), slice(own.stop, size)])
        risk[own] = expit(columns[own] @ without)
        answer[place] = np.linalg.solve(rest, (weight[own] * risk[own] * (1 - risk[own])) @ columns[own])
    return CrossFit(risk, gradient, answer)


@dataclass(frozen=True)
class _Look:
    """The unpenalised log-likelihood at some coefficients: its negative value, gradient and negative Hessian."""

    loss: float
    slope: np.ndarray
    bend: np.ndarray


@dataclass(frozen=True)
class _Rows:
    columns: np.ndarray
    outcome: np.ndarray
    weight: np.ndarray
    penalty: np.ndarray

    def look(self, at: np.ndarray, parts: Sequence[slice]) -> _Look:
        """Sum over some rows in blocks that fit in the processor's cache."""
        loss, slope, bend = 0.0, np.zeros(len(at)), np.zeros((len(at), len(at)))
        for part in parts:
            for start in range(part.start, part.stop, PIECE):
                piece = slice(start, min(start + PIECE, part.stop))
                columns, outcome, weight = self.columns[piece], self.outcome[piece], self.weight[piece]
                logit = columns @ at
                risk = expit(logit)
                loss += float(weight @ (np.logaddexp(0, logit) - outcome * logit))
                slope += columns.T @ (weight * (outcome - risk))
                bend += (columns.T * (weight * risk * (1 - risk))) @ columns
        return _Look(loss, slope, bend)


def _start(rows: _Rows) -> np.ndarray:
    """Return starting values: the intercept alone, or with many rows the fit of a systematic subsample."""
    rate = float(rows.weight @ rows.outcome / rows.weight.sum())
    if not 0 < rate < 1:
        raise InputError(f"{'all' if rate else 'none'} of the admissions have the outcome; both classes are needed.")
    bare = np.append(np.log(rate / (1 - rate)), np.zeros(rows.columns.shape[1] - 1))
    step = len(rows.outcome) // PART
    if step < 2:
        return bare
    part = _Rows(rows.columns[::step], rows.outcome[::step], rows.weight[::step], rows.penalty)
    return _newton(part, bare, [slice(0, len(part.outcome))])


def _newton(rows: _Rows, at: np.ndarray, parts: Sequence[slice]) -> np.ndarray:
    """Maximise the penalised likelihood of some rows by Newton's method with step halving."""
    seen = rows.look(at, parts)
    for _ in range(STEPS):
        step = np.linalg.solve(seen.bend + rows.penalty, seen.slope - rows.penalty @ at)
        if np.abs(step).max() < CLOSE:
            return at + step
        value = seen.loss + at @ rows.penalty @ at / 2
        seen = rows.look(at + step, parts)
        while seen.loss + (at + step) @ rows.penalty @ (at + step) / 2 > value + 1e-9 * abs(value):
            step = step / 2
            if np.abs(step).max() < CLOSE:
                return at
            seen = rows.look(at + step, parts)
        at = at + step
    return at
