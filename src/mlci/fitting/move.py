"""Move the weights of a table towards a hospital's own admissions, as far as these speak for it.

In come a table and admissions with outcomes; out come new weights, and log-odds of the admissions by tables that have
not seen them. Six tables are made: the one that came in, as it is and recalibrated; two whose difference to all or half
of it is fitted, drawn towards 0 by the ridge of `_ridge`; and two of the own admissions alone, one of which lets
outcomes lend to each other. What comes out is their mixture (`_blend`), whose shares patients left out decide: a
hospital like those of the table keeps it, one from another world learns anew, and who lies between gets both.
A token of few own admissions does not move by itself, so that no weight tells of a person.
"""

from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, replace

import numpy as np

from mlci.config import PenaltyConfig
from mlci.fitting._blend import Weighed, blend, lending, recalibrated
from mlci.fitting._data import Split, folds_by_subject
from mlci.fitting._penalties import CHOSEN_ON, ROUGH
from mlci.fitting._presence import Presence
from mlci.fitting._ridge import Prior, Regressions
from mlci.fitting.table import FINE, RARITY

SPREADS = tuple(4.0**power for power in range(-6, 1))  # variances of a weight or of a difference, from firm to loose
EVEN, MORE, LESS = 0.5, (0.9, 0.98), (0.1,)  # shares of the variance that all outcomes have in common
WORSE = 1e-3  # of the deviance: what is worse than the best by this is not gone on from
SHIPPED, RECALIBRATED, MOVED, HALF, OWN, LENT = (
    "as it was",
    "recalibrated",
    "moved",
    "moved from half of it",
    "own",
    "own with outcomes lending to each other",
)


@dataclass(frozen=True)
class Moved:
    """A table that has moved; its outcomes are those of the split that it was moved to."""

    weights: np.ndarray  # tokens x outcomes
    intercepts: np.ndarray
    honest: np.ndarray  # log-odds of the admissions by tables that left them out
    sources: tuple[int, ...]  # which outcome of the table each began with
    shares: dict[str, float]  # of each table in the mixture
    unexplained: dict[str, float]  # by each table alone, of the deviance of patients left out

    @property
    def own(self) -> float:
        """The share that owes nothing to the table that came in."""
        return self.shares[OWN] + self.shares[LENT]

    @property
    def stayed(self) -> bool:
        """Whether the order of admissions is the former one: nothing was learned but shifts and slopes."""
        return self.shares[SHIPPED] + self.shares[RECALIBRATED] > 1 - 1e-9


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
    """Fit the weights that suit a hospital, beginning with a table.

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

    Returns:
        The weights, and how they are mixed.

    >>> from mlci.tokens import Tokens
    >>> tokens = Tokens(np.tile([2, 3], 10).astype(np.int32), np.arange(21))
    >>> split = Split(tokens, np.tile([[1.0], [0.0]], (10, 1)).astype(np.float32), ("mortality",), 4)
    >>> weights, parents = np.array([[0.0], [0.0], [1.0], [-1.0]]), np.zeros(4, int)
    >>> found = move(split, weights, np.zeros(1), sources=[0], parents=parents, least=5, seed=1)
    >>> [float(weight) > 2 for weight in found.weights[2:, 0] * [1, -1]]  # all agree with the table, and more so
    [True, True]
    """
    outcomes, presence = np.asarray(split.outcomes, np.float64), Presence.of(split.tokens, len(weights))
    told = presence.times(weights) + intercepts
    columns = [_likest(told, column) if source is None else source for column, source in zip(outcomes.T, sources)]
    shipped = Weighed(weights[:, columns], intercepts[columns], told[:, columns])
    part = folds_by_subject(split, folds, seed=seed)
    active, whole = _regressions(presence, outcomes, parents, least, part, folds + 1)
    lines = recalibrated(shipped.honest, outcomes)
    full = Weighed(shipped.weights @ lines.matrix.T, lines(shipped.intercepts), lines(shipped.honest))
    half, none = (Weighed(*(part * share for part in astuple(full))) for share in (0.5, 0.0))
    own = _moved(whole, active, none)
    tables = {
        SHIPPED: shipped,
        RECALIBRATED: shipped.through(recalibrated, outcomes, part),
        MOVED: _moved(whole, active, full).through(recalibrated, outcomes, part),
        HALF: _moved(whole, active, half).through(recalibrated, outcomes, part),
        OWN: own.through(recalibrated, outcomes, part),
        LENT: own.through(lending, outcomes, part),
    }
    mixed, shares = blend(list(tables.values()), outcomes)
    return Moved(
        weights=mixed.weights,
        intercepts=mixed.intercepts,
        honest=mixed.honest,
        sources=tuple(columns),
        shares=dict(zip(tables, shares.tolist())),
        unexplained={name: float(_loss(table.honest, outcomes).mean()) for name, table in tables.items()},
    )


def _likest(table: np.ndarray, outcome: np.ndarray) -> int:
    """Return the outcome of the table whose log-odds tell most of a new outcome."""
    known = outcome[:, None]
    losses = [_loss(recalibrated(column, known)(column), known).mean() for column in table.T[:, :, None]]
    return int(np.argmin(losses))


def _regressions(
    presence: Presence, outcomes: np.ndarray, parents: np.ndarray, least: int, folds: np.ndarray, count: int
) -> tuple[np.ndarray, Regressions]:
    """Return the tokens that enough admissions have, and regressions on these alone, numbered from 1 in their order."""
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


def _moved(whole: Regressions, active: np.ndarray, table: Weighed) -> Weighed:
    """Return the table with the difference to it that the admissions speak for."""
    beside = replace(whole, offset=table.honest if table.honest.any() else None)
    fitted = beside.solve(_chosen(beside), beside.start(), tolerance=FINE)
    weights, difference = table.weights.copy(), fitted[:, -1]
    weights[active] += difference[1:]
    return Weighed(weights, table.intercepts + difference[0], beside.log_odds(fitted))


def _chosen(whole: Regressions) -> Prior:
    """Choose how far weights may spread, and how much of that is common to all outcomes, by patients left out.

    Of what lies within a standard error of the best, the firmest is taken: it orders others' admissions better.
    """
    rows = np.arange(0, len(whole.outcomes), -(-len(whole.outcomes) // CHOSEN_ON))
    sample = whole.take(rows, whole.count - 1)
    tried: list[_Try] = []

    def along(pairs: Iterable[tuple[float, float]]) -> _Try:
        """Try pairs of a share in common and a spread, until one is clearly worse than the best; the best of all."""
        weights = min(tried, key=_Try.mean).weights if tried else sample.start()
        for common, spread in pairs:
            weights = sample.solve(_prior(common, spread), weights, tolerance=ROUGH)
            log_odds = sample.log_odds(weights)
            loss = _loss(recalibrated(log_odds, sample.outcomes)(log_odds), sample.outcomes)
            tried.append(_Try(common, spread, loss, weights))
            if loss.mean() > min(attempt.mean() for attempt in tried) + WORSE:
                break
        return min(tried, key=_Try.mean)

    best = along((EVEN, spread) for spread in SPREADS)
    best = along([(common, best.spread) for common in MORE])
    if best.common == EVEN:
        best = along([(common, best.spread) for common in LESS])
    best = along([(best.common, best.spread * factor) for factor in (2.0, 0.5)])
    near = [attempt for attempt in tried if (behind := attempt.loss - best.loss).mean() <= _error(behind)]
    firmest = min(near, key=lambda attempt: (attempt.spread, attempt.mean()))
    return _prior(firmest.common, firmest.spread)


@dataclass(frozen=True)
class _Try:
    common: float  # share of the variance that outcomes have in common
    spread: float  # the variance
    loss: np.ndarray  # of each admission
    weights: np.ndarray

    def mean(self) -> float:
        return float(self.loss.mean())


def _prior(common: float, spread: float) -> Prior:
    return Prior(common * spread, (1 - common) * spread)


def _error(values: np.ndarray) -> float:
    """Return the standard error of the mean."""
    return float(values.std() / np.sqrt(len(values)))


def _loss(log_odds: np.ndarray, outcomes: np.ndarray) -> np.ndarray:
    """Return the deviance of each admission over all outcomes, of the mean deviance of the rates alone.

    Outcomes add up as they are: common ones, whose deviance is known best, decide more than rare ones.
    """
    total, null = np.zeros(len(log_odds)), 0.0
    for column, outcome in zip(log_odds.T, outcomes.T):
        known = ~np.isnan(outcome)
        rate = outcome[known].mean()
        total[known] += _deviance(column[known], outcome[known])
        null += float(_deviance(np.log(rate / (1 - rate)), outcome[known]).sum())
    return total * len(total) / null


def _deviance(log_odds: np.ndarray | float, outcome: np.ndarray) -> np.ndarray:
    """Return half the deviance of each admission."""
    return np.logaddexp(0, log_odds) - outcome * log_odds
