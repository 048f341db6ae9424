"""Move the weights of a table towards a hospital's own admissions, as far as these speak for it.

In come a table and admissions with outcomes; out come new weights, and log-odds of the admissions by regressions that
have not seen them. What is fitted is the difference to the table, whose log-odds are an offset: the ridge of `_ridge`
draws it towards 0. How far weights may move, and whether the table counts in full, in part or not at all, is chosen by
the deviance of patients left out. The table stands unless a standard error speaks against it: of the choices that count
it in full and lie that near to the best, the firmest is taken; where there is none, the best.
A token of few own admissions does not move, so that no weight tells of a person.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from mlci.config import PenaltyConfig
from mlci.fitting._data import Split, folds_by_subject
from mlci.fitting._presence import Presence
from mlci.fitting._ridge import Prior, Regressions
from mlci.fitting.table import CHOSEN_ON, FINE, RARITY, ROUGH, UNDECIDED, calibrate

FACTORS = (1.0, 0.5, 0.25, 0.0)  # by which the table's weights count
SPREADS = tuple(4.0**power for power in range(-6, 1))  # variances of a difference, from firm to loose
STILL = 1e-9  # the variance of a difference that there is not
COMMON = (0.05, 0.9)  # shares of it that all outcomes have in common


@dataclass(frozen=True)
class Choice:
    """How far weights may be from the table's, and what that reached."""

    factor: float  # by which the table's weights count
    prior: Prior | None  # of the difference; None: there is none
    unexplained: float  # deviance of patients left out, of that of the rates alone


@dataclass(frozen=True)
class Moved:
    """A table that has moved; its outcomes are those of the split that it was moved to."""

    weights: np.ndarray  # tokens x outcomes
    intercepts: np.ndarray
    calibration: np.ndarray  # outcomes x 2: the risk is expit(a + b * log-odds)
    honest: np.ndarray  # log-odds of the admissions by regressions that left them out
    sources: tuple[int, ...]  # which outcome of the table each began with
    choice: Choice
    tried: tuple[Choice, ...]


def move(
    split: Split,
    weights: np.ndarray,
    intercepts: np.ndarray,
    *,
    sources: Sequence[int | None],
    parents: np.ndarray,
    least: int,
    seed: int,
    folds: int = PenaltyConfig().folds,
) -> Moved:
    """Fit the difference between a table and the weights that suit a hospital.

    Args:
        split: what is learned from; its tokens are the rows of the table.
        weights: of the table, tokens x its outcomes; a token that is new to it has weights of 0.
        intercepts: of its outcomes.
        sources: for each outcome of the split, the outcome of the table that it is; None for a new one, which begins
            with the outcome of the table that tells most of it.
        parents: of each token, the next shorter beginning of the same code that is a token; 0 for none.
        least: own admissions that a token must have to move.
        seed: of the folds.
        folds: of patients.
    """
    outcomes, presence = np.asarray(split.outcomes, np.float64), Presence.of(split.tokens, len(weights))
    table = presence.times(weights) + intercepts
    columns = [_likest(table, column) if source is None else source for column, source in zip(outcomes.T, sources)]
    table = table[:, columns]
    part = folds_by_subject(split, folds, seed=seed)
    active, whole = _regressions(presence, outcomes, parents, least, part, folds + 1)
    choice, tried = _choose(whole, table)
    whole = _beside(whole, table, choice.factor)
    moved = whole.start()
    if choice.prior is not None:
        moved = whole.solve(choice.prior, moved, tolerance=FINE)
    honest, difference = whole.log_odds(moved), moved[:, -1]
    new = weights[:, columns] * choice.factor
    new[active] += difference[1:]
    return Moved(
        weights=new,
        intercepts=intercepts[columns] * choice.factor + difference[0],
        calibration=np.stack([calibrate(column, known) for column, known in zip(honest.T, outcomes.T)]),
        honest=honest,
        sources=tuple(columns),
        choice=choice,
        tried=tuple(tried),
    )


def _likest(table: np.ndarray, outcome: np.ndarray) -> int:
    """The outcome of the table whose log-odds tell most of a new outcome."""
    return int(np.argmin([_loss(column[:, None], outcome[:, None]).mean() for column in table.T]))


def _regressions(
    presence: Presence, outcomes: np.ndarray, parents: np.ndarray, least: int, folds: np.ndarray, count: int
) -> tuple[np.ndarray, Regressions]:
    """The tokens that enough admissions have, and regressions on these alone, numbered from 1 in their order."""
    many = np.bincount(presence.ids, minlength=presence.columns)
    active = np.flatnonzero(many >= least)
    number = np.zeros(presence.columns, np.int32)
    number[active] = np.arange(1, len(active) + 1)
    kept = number[presence.ids] > 0
    row = np.repeat(np.arange(len(presence)), np.diff(presence.offsets))[kept]
    offsets = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=len(presence)))])
    some = Presence(number[presence.ids[kept]], offsets, len(active) + 1)
    own = np.concatenate([[1], many[active]]).astype(np.float64)
    tightness = (own / np.exp(np.average(np.log(own), weights=own))) ** RARITY
    above = np.concatenate([[0], number[parents[active]]])  # a beginning has as many admissions, at least
    return active, Regressions(some, outcomes.astype(np.float32), folds, above, tightness, count)


def _beside(whole: Regressions, table: np.ndarray, factor: float) -> Regressions:
    """The regressions with the table as their offset; where it counts in full, its intercepts are held too."""
    return replace(whole, offset=factor * table, hold=UNDECIDED if factor == 1 else 0.0)


def _choose(whole: Regressions, table: np.ndarray) -> tuple[Choice, list[Choice]]:
    """Try choices from near to far; the table counts in full where that is within a standard error of the best."""
    rows = np.arange(0, len(table), -(-len(table) // CHOSEN_ON))
    sample = replace(
        whole,
        presence=whole.presence.take(rows),
        outcomes=whole.outcomes[rows],
        folds=whole.folds[rows],
        count=whole.count - 1,
    )
    tried, losses = [], []
    for factor in FACTORS:
        for prior, loss in _along(_beside(sample, table[rows], factor), still=factor == 1):
            tried.append(Choice(factor, prior, float(loss.mean())))
            losses.append(loss)
    best = int(np.argmin([loss.mean() for loss in losses]))
    for choice, loss in zip(tried, losses):
        worse = loss - losses[best]
        if choice.factor == 1 and worse.mean() <= worse.std() / np.sqrt(len(worse)):
            return choice, tried
    return tried[best], tried


def _along(beside: Regressions, *, still: bool) -> Iterator[tuple[Prior | None, np.ndarray]]:
    """The deviance of patients left out, by looser and looser priors for as long as these get better."""
    if still:  # intercepts alone, which all the others have too
        weights = beside.solve(Prior(0.0, STILL), beside.start(), tolerance=ROUGH)
        yield None, _loss(beside.log_odds(weights), beside.outcomes)
    for common in COMMON:
        weights, before = beside.start(), np.inf
        for spread in SPREADS:
            prior = Prior(common * spread, (1 - common) * spread)
            weights = beside.solve(prior, weights, tolerance=ROUGH)
            loss = _loss(beside.log_odds(weights), beside.outcomes)
            yield prior, loss
            if loss.mean() > before:
                break
            before = loss.mean()


def _loss(log_odds: np.ndarray, outcomes: np.ndarray) -> np.ndarray:
    """The deviance of each admission over all outcomes, calibrated, of the mean deviance of the rates alone.

    Outcomes add up as they are: common ones, whose deviance is known best, decide more than rare ones.
    """
    total, null = np.zeros(len(log_odds)), 0.0
    for column, outcome in zip(log_odds.T, outcomes.T):
        known, (shift, slope) = ~np.isnan(outcome), calibrate(column, outcome)
        rate = outcome[known].mean()
        total[known] += _deviance(shift + slope * column[known], outcome[known])
        null += float(_deviance(np.log(rate / (1 - rate)), outcome[known]).sum())
    return total * len(total) / null


def _deviance(log_odds: np.ndarray | float, outcome: np.ndarray) -> np.ndarray:
    """Half the deviance of each admission."""
    return np.logaddexp(0, log_odds) - outcome * log_odds
