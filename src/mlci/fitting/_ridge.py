"""Penalised logistic regressions of several outcomes on tokens, some leaving out a fold each, all solved at once.

In come who has which token, outcomes, folds and how far weights may spread; out come weights. A token's weight for an
outcome is a part common to all outcomes plus a part of its own, normal with the variances of `Prior`: rare outcomes
borrow from common ones, and rare tokens from nobody, so that their weights stay near 0 and the tokens of their prefix
and category speak for them. A missing outcome costs only itself.

Newton's method; its equations are solved by conjugate gradients, which see the matrix in products alone. Nothing is
drawn at random and every sum has a fixed order, so the same data give the same bits. Regressions are solved in two
groups, side by side where there are two cores; which regression is in which group does not depend on that.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
from scipy import sparse

from mlci.fitting._collapse import known_mean
from mlci.fitting._families import LOGISTIC, Family, parts
from mlci.fitting._presence import Presence

FORCING = 0.1  # how exactly Newton's equations are solved, at first
MOST_NEWTON, MOST_PRODUCTS = 50, 100
GROUPS = 2  # of regressions


@dataclass(frozen=True)
class Prior:
    """The variance of the part of a weight that is common to all outcomes, and of the part that is an outcome's own."""

    common: float
    own: float

    def precision(self, outcomes: int) -> np.ndarray:
        """Return the inverse covariance of a token's weights."""
        return np.linalg.inv(np.full((outcomes, outcomes), self.common) + self.own * np.eye(outcomes))


@dataclass(frozen=True)
class Regressions:
    """Several regressions on the same admissions; the one of number b leaves out the admissions of fold b.

    Weights are tokens x regressions x outcomes. The row of token 0, which no admission has, holds the intercepts.
    """

    presence: Presence
    outcomes: np.ndarray  # admissions x outcomes: 0, 1, NaN where not known
    folds: np.ndarray  # of each admission
    parents: np.ndarray  # of each token: the next shorter beginning of the same code that is a token, 0 for none
    tightness: np.ndarray  # of each token: what its share of the penalty is multiplied by
    count: int  # of regressions: with one more than there are folds, the last leaves out nobody
    offset: np.ndarray | None = None  # admissions x outcomes: log-odds that the weights add to, those of another table
    weight: np.ndarray | None = None  # how much each admission counts; None: once
    families: tuple[Family, ...] | None = None  # of the outcomes; None: all happen or not
    alike: np.ndarray | None = None  # tokens whose weights are drawn towards their mean, which is free, instead of 0

    @cached_property
    def nested(self) -> list[tuple[np.ndarray, sparse.csr_array]]:
        """The tokens of each level from the leaves to the roots, and what adds them to their parents."""
        found, level = [], np.flatnonzero(self.parents == 0)
        while len(level):
            ones = (np.ones(len(level)), (self.parents[level], np.arange(len(level))))
            found.append((level, sparse.csr_array(ones, shape=(len(self.parents), len(level)))))
            level = np.flatnonzero(np.isin(self.parents, level) & (self.parents > 0))
        return found[::-1]

    def take(self, rows: np.ndarray, count: int) -> "Regressions":
        """Return as many regressions on some of the admissions."""
        own = {name: getattr(self, name) for name in ("outcomes", "folds", "offset", "weight")}
        taken = {name: None if values is None else values[rows] for name, values in own.items()}
        return replace(self, presence=self.presence.take(rows), count=count, **taken)

    def start(self) -> np.ndarray:
        """Return weights of 0, and the intercepts that give each outcome's rate; beside an offset, those of 0 too."""
        weights = np.zeros((self.presence.columns, self.count, self.outcomes.shape[1]))
        if self.offset is not None:
            return weights
        rate = known_mean(self.outcomes, self.weight)
        weights[0] = [family.link(level) for family, level in zip(self.kinds, rate)]
        return weights

    @property
    def level(self) -> np.ndarray:
        """Whether each outcome is the same in all admissions that some regression learns from: it has no log-odds."""
        found = []
        for column, family in zip(self.outcomes.T, self.kinds):
            happened = [np.bincount(self.folds[column == value], minlength=self.count) for value in (0, 1)]
            found.append(family == LOGISTIC and any((many == many.sum()).any() for many in happened))
        return np.array(found)

    @property
    def kinds(self) -> tuple[Family, ...]:
        """The family of each outcome."""
        return self.families or (LOGISTIC,) * self.outcomes.shape[1]

    def solve(self, prior: Prior, start: np.ndarray, *, tolerance: float) -> np.ndarray:
        """Find the weights of least penalised deviance.

        Args:
            prior: how far weights may spread.
            start: weights to begin with.
            tolerance: the step that promises less than this share of the deviance is the last.
        """
        groups = [group for group in np.array_split(np.arange(self.count), GROUPS) if len(group)]
        with ThreadPoolExecutor(len(groups)) as pool:
            return np.concatenate(list(pool.map(partial(self._solve, prior, start, tolerance), groups)), axis=1)

    def _solve(self, prior: Prior, start: np.ndarray, tolerance: float, group: np.ndarray) -> np.ndarray:
        """Solve some of the regressions together: tokens are looked at once for all of them."""
        precision, weights = prior.precision(self.outcomes.shape[1]), start[:, group]
        value, gradient, curvature = self._slope(weights, precision, group)
        for _ in range(MOST_NEWTON):
            step = self._newton(gradient, curvature, precision)
            promise = -_dot(gradient, step)
            if (promise <= tolerance * value).all():
                return weights + step
            length = np.ones(len(group))
            while True:  # half the way, where the whole way leads uphill
                there = weights + length[:, None] * step
                found, gradient, curvature = self._slope(there, precision, group)
                uphill = ~(found <= value - 1e-4 * length * promise + 1e-12 * value)
                if not uphill.any() or length.min() < 1e-6:
                    break
                length[uphill] /= 2
            weights, value = there, found
        return weights

    def log_odds(self, weights: np.ndarray) -> np.ndarray:
        """Return the log-odds of each admission and outcome, by the regression that left out the admission's fold."""
        found = np.empty(self.outcomes.shape)
        for rows, block in self.presence.blocks(np.float64):
            every = self._sums(block, weights)
            found[rows] = every[np.arange(len(every)), self.folds[rows]]
        return found if self.offset is None else found + self.offset

    def _sums(self, block, weights: np.ndarray) -> np.ndarray:
        """Return log-odds of some admissions: admissions x regressions x outcomes."""
        return (block @ weights.reshape(len(weights), -1)).reshape(-1, *weights.shape[1:]) + weights[0]

    def _slope(
        self, weights: np.ndarray, precision: np.ndarray, group: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return penalised deviance (half of it) of each regression, its gradient, and p (1 - p) where it counts."""
        value, gradient = np.zeros(len(group)), np.zeros_like(weights)
        curvature = np.empty((len(self.presence), *weights.shape[1:]), np.float32)
        for rows, block in self.presence.blocks(np.float64):
            outcomes, log_odds = self.outcomes[rows, None, :], self._sums(block, weights)
            if self.offset is not None:
                log_odds += self.offset[rows, None, :]
            counted = ~np.isnan(outcomes) & (self.folds[rows, None] != group)[:, :, None]
            if self.weight is not None:
                counted = counted * self.weight[rows, None, None]
            outcomes = np.broadcast_to(np.nan_to_num(outcomes), log_odds.shape)
            loss, slope, bend = parts(self.kinds, log_odds, outcomes)
            value += (loss * counted).sum(axis=(0, 2))
            self._add(gradient, block, slope * counted)
            curvature[rows] = bend * counted
        pull = self._pull(weights, precision)
        return value + _dot(weights, pull) / 2, gradient + pull, curvature

    def _add(self, total: np.ndarray, block, values: np.ndarray) -> None:
        """Add to each token what its admissions have, and to token 0 what all have."""
        total += (block.T @ values.reshape(len(values), -1)).reshape(total.shape)
        total[0] += values.sum(axis=0, dtype=np.float64)

    def _pull(self, weights: np.ndarray, precision: np.ndarray) -> np.ndarray:
        """Return the penalty's gradient; intercepts are free.

        The mean that costs least is that by tightness, and at it the penalty does not change with the mean.
        """
        if self.alike is not None:
            tightness, weights = self.tightness[self.alike], weights.copy()
            weights[self.alike] -= np.tensordot(tightness, weights[self.alike], (0, 0)) / tightness.sum()
        pull = np.einsum("vbi,ij->vbj", weights, precision)
        pull *= self.tightness[:, None, None]
        pull[0] = 0
        return pull

    def _newton(self, gradient: np.ndarray, curvature: np.ndarray, precision: np.ndarray) -> np.ndarray:
        """Return Newton's step, by conjugate gradients that begin with the equations of nested tokens."""
        own = np.zeros_like(gradient)
        for rows, block in self.presence.blocks(np.float32):
            self._add(own, block, curvature[rows])
        nearly = _Nested(own, self.tightness[:, None, None, None] * precision, self.parents, self.nested)

        def product(direction: np.ndarray) -> np.ndarray:
            single, total = direction.astype(np.float32), np.zeros_like(direction)
            for rows, block in self.presence.blocks(np.float32):
                self._add(total, block, self._sums(block, single) * curvature[rows])
            return total + self._pull(direction, precision)

        step, rest = np.zeros_like(gradient), -gradient
        scaled = nearly.solve(rest)
        direction, size = scaled, _dot(rest, scaled)
        small = np.maximum(FORCING**2 * size, np.finfo(float).tiny)
        for _ in range(MOST_PRODUCTS):
            if (size <= small).all():
                break
            along = product(direction)
            length = np.where(size > small, size / np.maximum(_dot(direction, along), np.finfo(float).tiny), 0.0)
            step = step + length[:, None] * direction
            rest = rest - length[:, None] * along
            scaled = nearly.solve(rest)
            before, size = size, _dot(rest, scaled)
            direction = scaled + (size / np.maximum(before, np.finfo(float).tiny))[:, None] * direction
        return step


class _Nested:
    """Newton's equations as they would be if codes of different beginnings never met in an admission.

    Then the data speak of each token's sum with its beginnings alone, as often as the token is the deepest: a tree,
    solved exactly from its leaves to its roots and back. Without it, a category and its most frequent code, present in
    nearly the same admissions, would keep conjugate gradients busy for long.
    """

    def __init__(
        self,
        own: np.ndarray,
        precision: np.ndarray,
        parents: np.ndarray,
        nested: Sequence[tuple[np.ndarray, sparse.csr_array]],
    ) -> None:
        self.parents, self.levels = parents, []  # the levels from the leaves to the roots
        alone = own.copy()
        for tokens, up in nested[:-1]:
            alone -= (up @ own[tokens].reshape(len(tokens), -1)).reshape(own.shape)
        total = np.maximum(alone, 1e-9)[..., None] * np.eye(own.shape[-1])
        for tokens, up in nested:
            tight = precision[tokens]
            inverse = np.linalg.inv(total[tokens] + tight)
            level = _Level(tokens, up, tight[:, 0], inverse, inverse @ tight)
            if len(self.levels) < len(nested) - 1:
                total += level.raised(tight - tight @ level.share)
            self.levels.append(level)
        free = np.maximum(own[0], 1e-9)[..., None] * np.eye(own.shape[-1])  # the intercepts
        self.levels[-1].inverse[0] = np.linalg.inv(free)

    def solve(self, rest: np.ndarray) -> np.ndarray:
        """Find the step whose product with this matrix is `rest`."""
        below, sums = np.zeros_like(rest), np.empty_like(rest)
        *nested, roots = self.levels
        for level in nested:
            tokens, own = level.tokens, rest[level.tokens]
            sums[tokens] = np.einsum("vbij,vbj->vbi", level.inverse, below[tokens] + own)
            below += level.raised(np.einsum("vij,vbj->vbi", level.precision, sums[tokens]) - own)
        sums[roots.tokens] = np.einsum("vbij,vbj->vbi", roots.inverse, below[roots.tokens] + rest[roots.tokens])
        step = sums.copy()
        for level in reversed(nested):
            above = sums[self.parents[level.tokens]]
            sums[level.tokens] += np.einsum("vbij,vbj->vbi", level.share, above)
            step[level.tokens] = sums[level.tokens] - above
        return step


@dataclass(frozen=True)
class _Level:
    """Tokens with as many beginnings each, and their part of the equations."""

    tokens: np.ndarray
    up: sparse.csr_array  # adds them to their parents
    precision: np.ndarray
    inverse: np.ndarray
    share: np.ndarray  # of the step of its beginnings that a token follows

    def raised(self, values: np.ndarray) -> np.ndarray:
        """Sum the values of tokens for their parents: a row for each token that there is."""
        return (self.up @ values.reshape(len(values), -1)).reshape(self.up.shape[0], *values.shape[1:])


def _dot(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return one number per regression."""
    return np.einsum("vbt,vbt->b", left, right)
