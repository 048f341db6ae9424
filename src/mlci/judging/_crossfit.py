"""Expected risks by models that have not seen the group they judge.

In come a score, columns to adjust by, an outcome and groups of admissions; out come risks from a logistic model, smooth
in the score, whose every group is left out once: no hospital's own events decide what is expected of it. The model is
fitted to all admissions; leaving a group out is a Newton step from there, repeated until it stands still for groups so
large or so unusual that the first step could fall short. What resampling needs of the fit is kept, so that a resample
of patients costs sums, not fits.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from mlci.base.errors import InputError
from mlci.judging.smooth import _penalty, _ramps

LEVELS = (0.05, 0.2, 0.4, 0.6, 0.8, 0.9, 0.97, 0.995)  # quantiles of the score at which its line may bend
BENDS = (0.25, 0.5, 0.75)  # of another number's
LARGE = 0.05  # share of the admissions from which a group is left out to convergence
MOVED = 0.02  # and change of the expected count by the first step from which it is
STEPS = 30
CLOSE = 1e-8  # of a step, in units of standardised columns
MOST_CATEGORIES = 50


@dataclass(frozen=True)
class Design:
    """Columns of a logistic model with the penalty on their weights."""

    columns: np.ndarray
    penalty: np.ndarray


@dataclass(frozen=True)
class CrossFit:
    """Risks of admissions sorted by group, and how a group's expected count answers to the rest's events."""

    risk: np.ndarray
    gradient: np.ndarray  # admissions x columns: what each says about the weights of the model of all
    answer: np.ndarray  # groups x columns: change of the expected count per unit of the rest's gradient


def design(score: np.ndarray, others: Sequence[tuple[str, np.ndarray]] = ()) -> Design:
    """Lay out a model: a line in the score that may bend, and the other columns, numbers bent and words as flags."""
    x = (score - score.mean()) / max(float(score.std()), 1e-12)
    bends = np.unique(np.quantile(x, LEVELS))
    bends = bends[(bends > x.min()) & (bends < x.max())]
    knots = np.array([x.min() - 1e-9, *bends, x.max() + 1e-9])
    parts = [np.ones((len(x), 1)), _ramps(x, knots)]
    parts += [_standardised(_spread_out(name, values)) for name, values in others]
    columns = np.hstack(parts)
    own = 1 + parts[1].shape[1]
    penalty = np.zeros((columns.shape[1], columns.shape[1]))
    penalty[:own, :own] = _penalty(own)
    penalty[range(own, len(penalty)), range(own, len(penalty))] = 1.0
    return Design(columns, penalty)


def _spread_out(name: str, values: np.ndarray) -> np.ndarray:
    """A column as numbers: bent lines and a flag of the missing, or a flag for each word."""
    series = pd.Series(values)
    if pd.api.types.is_numeric_dtype(series) and not pd.api.types.is_bool_dtype(series):
        number = series.to_numpy(dtype=float)
        missing = np.isnan(number)
        if missing.all():
            raise InputError(f"column {name}: is empty; it cannot be adjusted by.")
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


def cross_fit(model: Design, outcome: np.ndarray, weight: np.ndarray, starts: np.ndarray) -> CrossFit:
    """Fit a model with each group left out once.

    `weight` is what each admission counts; the rows are sorted by group, and `starts` is where each group begins.
    """
    columns, penalty = model.columns, model.penalty
    ends = np.append(starts[1:], len(outcome))
    everyone = [slice(0, len(outcome))]
    fitted = _newton(_start(outcome, weight, columns.shape[1]), columns, outcome, weight, penalty, everyone)
    residual = weight * (outcome - _expit(columns @ fitted))
    gradient = columns * residual[:, None]
    whole = _curvature(columns, weight, fitted, everyone[0])
    risk, answer = np.empty(len(outcome)), np.empty((len(starts), len(fitted)))
    for place, (start, end) in enumerate(zip(starts, ends)):
        own = slice(start, end)
        rest = whole - _curvature(columns, weight, fitted, own) + penalty
        without = fitted - np.linalg.solve(rest, gradient[own].sum(axis=0))
        with_it, left_out = (weight[own] @ _expit(columns[own] @ beta) for beta in (fitted, without))
        if end - start > LARGE * len(outcome) or abs(left_out - with_it) > MOVED * with_it:
            parts = [slice(0, start), slice(end, len(outcome))]
            without = _newton(without, columns, outcome, weight, penalty, parts)
        risk[own] = _expit(columns[own] @ without)
        steepness = weight[own] * risk[own] * (1 - risk[own])
        answer[place] = np.linalg.solve(rest, steepness @ columns[own])
    return CrossFit(risk, gradient, answer)


def _start(outcome: np.ndarray, weight: np.ndarray, size: int) -> np.ndarray:
    rate = float(weight @ outcome / weight.sum())
    if not 0 < rate < 1:
        raise InputError(f"the outcome happened to {'all' if rate else 'none'} of the admissions; both are needed.")
    return np.append(np.log(rate / (1 - rate)), np.zeros(size - 1))


def _newton(
    at: np.ndarray,
    columns: np.ndarray,
    outcome: np.ndarray,
    weight: np.ndarray,
    penalty: np.ndarray,
    parts: Sequence[slice],
) -> np.ndarray:
    """Maximise the penalised likelihood of some rows, from a given start; a step that overshoots is halved."""

    def loss(beta: np.ndarray) -> float:
        total = beta @ penalty @ beta / 2
        for part in parts:
            logit = columns[part] @ beta
            total += weight[part] @ (np.logaddexp(0, logit) - outcome[part] * logit)
        return float(total)

    value = loss(at)
    for _ in range(STEPS):
        slope, bend = -penalty @ at, penalty.copy()
        for part in parts:
            slope += columns[part].T @ (weight[part] * (outcome[part] - _expit(columns[part] @ at)))
            bend += _curvature(columns, weight, at, part)
        step = np.linalg.solve(bend, slope)
        while (moved := loss(at + step)) > value + 1e-9 * abs(value) and np.abs(step).max() > CLOSE:
            step /= 2
        at, value = at + step, moved
        if np.abs(step).max() < CLOSE:
            break
    return at


def _curvature(columns: np.ndarray, weight: np.ndarray, at: np.ndarray, part: slice) -> np.ndarray:
    risk = _expit(columns[part] @ at)
    return (columns[part].T * (weight[part] * risk * (1 - risk))) @ columns[part]


def _expit(logit: np.ndarray) -> np.ndarray:
    return 0.5 * (1 + np.tanh(logit / 2))  # no overflow
