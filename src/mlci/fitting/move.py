"""Adapt the weights of a table to a hospital's own admissions, as far as the data support it.

Six candidate tables are made:

- the shipped table, as it is and recalibrated;
- two that add to all or to half of the recalibrated table a fitted difference, shrunk to 0 by the ridge of `_ridge`;
- two learned from the own admissions alone, one of them with outcomes recalibrated jointly.

The result is a mixture of the six (`_blend`) whose shares minimise the out-of-fold deviance. So a hospital like those
that the table was made from keeps it, and a very different hospital gets a new one. A token that few of the own
admissions have does not get a difference of its own, so that no weight discloses anything about one patient.
"""

from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, replace

import numpy as np

from mlci.config import PenaltyConfig
from mlci.fitting._blend import CandidateTable, blend, recalibrated, recalibrated_jointly
from mlci.fitting._data import Split, folds_by_subject
from mlci.fitting._families import LOGISTIC
from mlci.fitting._penalties import CHOSEN_ON, ROUGH
from mlci.fitting._presence import Presence
from mlci.fitting._ridge import Prior, Regressions
from mlci.fitting.table import RARITY, TOLERANCE

SPREADS = tuple(4.0**power for power in range(-6, 1))  # variances to try for a weight or a difference, increasing
EVEN, MORE, LESS = 0.5, (0.9, 0.98), (0.1,)  # shares of the variance in common to all outcomes, to try
WORSE = 1e-3  # the search ends when the relative deviance is worse than the best by this
# The names of the candidates, as model files record them.
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
    """An adapted table; its outcomes are those of the split that it was adapted to."""

    weights: np.ndarray  # tokens x outcomes
    intercepts: np.ndarray
    out_of_fold: np.ndarray  # out-of-fold log-odds of the admissions
    sources: tuple[int, ...]  # for each outcome, the outcome of the shipped table that it was made from
    shares: dict[str, float]  # of each candidate in the mixture
    unexplained: dict[str, float]  # share of the out-of-fold deviance that each candidate alone leaves unexplained

    @property
    def own(self) -> float:
        """The share of the candidates that do not use the shipped table."""
        return self.shares[OWN] + self.shares[LENT]

    @property
    def stayed(self) -> bool:
        """Whether each outcome orders admissions as before, because nothing but shifts and slopes was learned."""
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
    """Fit the weights that suit a hospital, starting from a table.

    Args:
        split: the data to learn from; its tokens are the rows of the table.
        weights: of the table, tokens x its outcomes; a token that is new to the table has weights of 0.
        intercepts: of the table's outcomes.
        sources: for each outcome of the split, its column in the table; None for a new outcome, which starts from the
            table's outcome that predicts it best.
        parents: for each token, the next shorter prefix of the same code that is a token; 0 for none.
        least: the number of own admissions that a token needs for its weight to change by itself.
        seed: seed of the folds.
        folds: number of folds of patients.

    Returns:
        The adapted table, with the shares of the candidates in it.

    >>> from mlci.tokens import Tokens
    >>> tokens = Tokens(np.tile([2, 3], 10).astype(np.int32), np.arange(21))
    >>> split = Split(tokens, np.tile([[1.0], [0.0]], (10, 1)).astype(np.float32), ("mortality",), 4)
    >>> weights, parents = np.array([[0.0], [0.0], [1.0], [-1.0]]), np.zeros(4, int)
    >>> found = move(split, weights, np.zeros(1), sources=[0], parents=parents, least=5, seed=1)
    >>> [float(weight) > 2 for weight in found.weights[2:, 0] * [1, -1]]  # the data agree with the table, and more so
    [True, True]
    """
    outcomes, presence = np.asarray(split.outcomes, np.float64), Presence.of(split.tokens, len(weights))
    log_odds = presence.times(weights) + intercepts
    columns = [_closest(log_odds, column) if source is None else source for column, source in zip(outcomes.T, sources)]
    shipped = CandidateTable(weights[:, columns], intercepts[columns], log_odds[:, columns])
    fold_of = folds_by_subject(split, folds, seed=seed)
    active, regressions = _regressions(presence, outcomes, parents, least, fold_of, folds + 1)
    lines = recalibrated(shipped.out_of_fold, outcomes)
    full = CandidateTable(shipped.weights @ lines.matrix.T, lines(shipped.intercepts), lines(shipped.out_of_fold))
    half, none = (CandidateTable(*(part * share for part in astuple(full))) for share in (0.5, 0.0))
    own = _with_difference(regressions, active, none)
    tables = {
        SHIPPED: shipped,
        RECALIBRATED: shipped.cross_fitted(recalibrated, outcomes, fold_of),
        MOVED: _with_difference(regressions, active, full).cross_fitted(recalibrated, outcomes, fold_of),
        HALF: _with_difference(regressions, active, half).cross_fitted(recalibrated, outcomes, fold_of),
        OWN: own.cross_fitted(recalibrated, outcomes, fold_of),
        LENT: own.cross_fitted(recalibrated_jointly, outcomes, fold_of),
    }
    mixed, shares = blend(list(tables.values()), outcomes)
    return Moved(
        weights=mixed.weights,
        intercepts=mixed.intercepts,
        out_of_fold=mixed.out_of_fold,
        sources=tuple(columns),
        shares=dict(zip(tables, shares.tolist())),
        unexplained={name: float(_loss(table.out_of_fold, outcomes).mean()) for name, table in tables.items()},
    )


def _closest(table: np.ndarray, outcome: np.ndarray) -> int:
    """Return the outcome of the table whose log-odds predict a new outcome best."""
    known = outcome[:, None]
    losses = [_loss(recalibrated(column, known)(column), known).mean() for column in table.T[:, :, None]]
    return int(np.argmin(losses))


def _regressions(
    presence: Presence, outcomes: np.ndarray, parents: np.ndarray, least: int, folds: np.ndarray, count: int
) -> tuple[np.ndarray, Regressions]:
    """Return the tokens that enough admissions have, and regressions on these alone, numbered from 1."""
    counts = np.bincount(presence.ids, minlength=presence.columns)
    active = np.flatnonzero(counts >= least)
    number = np.zeros(presence.columns, np.int32)
    number[active] = np.arange(1, len(active) + 1)
    kept = number[presence.ids] > 0
    row = np.repeat(np.arange(len(presence)), np.diff(presence.offsets))[kept]
    offsets = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=len(presence)))])
    active_presence = Presence(number[presence.ids[kept]], offsets, len(active) + 1)
    own = np.concatenate([[1], counts[active]]).astype(np.float64)
    penalty_factors = (own / np.exp(np.average(np.log(own), weights=own))) ** RARITY
    above = np.concatenate([[0], number[parents[active]]])  # a prefix has at least as many admissions, so it is active
    return active, Regressions(active_presence, outcomes.astype(np.float32), folds, above, penalty_factors, count)


def _with_difference(regressions: Regressions, active: np.ndarray, table: CandidateTable) -> CandidateTable:
    """Return the table plus the penalised difference to it that is fitted to the admissions."""
    from_table = replace(regressions, offset=table.out_of_fold if table.out_of_fold.any() else None)
    fitted = from_table.solve(_chosen_prior(from_table), from_table.start(), tolerance=TOLERANCE)
    weights, difference = table.weights.copy(), fitted[:, -1]
    weights[active] += difference[1:]
    return CandidateTable(weights, table.intercepts + difference[0], from_table.log_odds(fitted))


def _chosen_prior(regressions: Regressions) -> Prior:
    """Choose the variance of the weights, and its share in common to all outcomes, by cross-validation.

    Of the attempts within one standard error of the best, the one with the least variance is taken: it orders
    admissions of other patients better.
    """
    rows = np.arange(0, len(regressions.outcomes), -(-len(regressions.outcomes) // CHOSEN_ON))
    sample = regressions.take(rows, regressions.count - 1)
    tried: list[_Try] = []

    def search(pairs: Iterable[tuple[float, float]]) -> _Try:
        """Try pairs of share and variance until one is clearly worse than the best; return the best of all so far."""
        weights = min(tried, key=_Try.mean).weights if tried else sample.start()
        for common, spread in pairs:
            weights = sample.solve(_prior(common, spread), weights, tolerance=ROUGH)
            log_odds = sample.log_odds(weights)
            loss = _loss(recalibrated(log_odds, sample.outcomes)(log_odds), sample.outcomes)
            tried.append(_Try(common, spread, loss, weights))
            if loss.mean() > min(attempt.mean() for attempt in tried) + WORSE:
                break
        return min(tried, key=_Try.mean)

    best = search((EVEN, spread) for spread in SPREADS)
    best = search([(common, best.spread) for common in MORE])
    if best.common == EVEN:
        best = search([(common, best.spread) for common in LESS])
    best = search([(best.common, best.spread * factor) for factor in (2.0, 0.5)])
    near = [attempt for attempt in tried if (excess := attempt.loss - best.loss).mean() <= _error(excess)]
    firmest = min(near, key=lambda attempt: (attempt.spread, attempt.mean()))
    return _prior(firmest.common, firmest.spread)


@dataclass(frozen=True)
class _Try:
    """A prior that was tried, with its out-of-fold losses and the fitted weights."""

    common: float  # share of the variance in common to all outcomes
    spread: float  # the variance
    loss: np.ndarray  # out-of-fold deviance of each admission
    weights: np.ndarray

    def mean(self) -> float:
        return float(self.loss.mean())


def _prior(common: float, spread: float) -> Prior:
    return Prior(common * spread, (1 - common) * spread)


def _error(values: np.ndarray) -> float:
    """Return the standard error of the mean."""
    return float(values.std() / np.sqrt(len(values)))


def _loss(log_odds: np.ndarray, outcomes: np.ndarray) -> np.ndarray:
    """Return each admission's deviance over all outcomes, relative to the mean deviance of the rates alone.

    The deviances of the outcomes are summed without weights, so frequent outcomes count more than rare ones.
    """
    total, null = np.zeros(len(log_odds)), 0.0
    for column, outcome in zip(log_odds.T, outcomes.T):
        known = ~np.isnan(outcome)
        rate = outcome[known].mean()
        total[known] += LOGISTIC.loss(column[known], outcome[known])
        null += float(LOGISTIC.loss(LOGISTIC.link(rate), outcome[known]).sum())
    return total * len(total) / null
