"""Penalised regressions of several outcomes on tokens, some of them each without one fold, all solved at once.

The model: the log-odds of outcome t are an intercept plus the sum of the weights w_vt of the admission's tokens v. The
weight is a part common to all outcomes plus a part of its own, w_vt = c_v + d_vt, both normal with mean 0 and the
variances of `Prior`. So rare outcomes borrow from frequent ones, and the weights of rare tokens stay near 0, so that
the tokens of their prefix and category speak for them. A missing outcome drops out of the likelihood.

The objective, for each regression b: minimise Σ_it loss(η_it, y_it) + ½ Σ_v f_v w_v' P w_v over the admissions i that
are not in fold b, where the loss is half the deviance (`_families`), P the inverse covariance of a token's weights, and
f_v its penalty factor. Intercepts are not penalised.

The solver: Newton's method with backtracking. Newton's equations are solved by conjugate gradients, which need only
products with the Hessian, preconditioned by the tree of prefixes (`_TreePreconditioner`).

Nothing is random and every sum has a fixed order, so the result is reproducible bit for bit. The regressions are solved
in two groups, in parallel where there are two cores; which regression is in which group is fixed.

Needs NumPy and SciPy.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
from scipy import sparse

from mlci.base.threads import threads
from mlci.fitting._families import LOGISTIC, Family, parts
from mlci.fitting._presence import Presence
from mlci.fitting._soft_labels import known_mean

FORCING = 0.1  # conjugate gradients stop when the residual's norm is this share of what it was at first
MAX_NEWTON, MAX_PRODUCTS = 50, 100  # iterations of Newton's method, and of conjugate gradients in each
GROUPS = 2  # groups of regressions that are solved in parallel

OnStep = Callable[[np.ndarray, np.ndarray], None]


@dataclass(frozen=True)
class Prior:
    """The variance of the common part of a weight, and of the part of each outcome."""

    common: float
    own: float

    def precision(self, outcomes: int) -> np.ndarray:
        """Return the inverse covariance of a token's weights: (common * 11' + own * I)^-1."""
        return np.linalg.inv(np.full((outcomes, outcomes), self.common) + self.own * np.eye(outcomes))


@dataclass(frozen=True)
class Regressions:
    """Several regressions on the same admissions; regression b leaves out the admissions of fold b.

    Weights are tokens x regressions x outcomes. Row 0 (padding, which no admission has) holds the intercepts.
    """

    presence: Presence
    outcomes: np.ndarray  # admissions x outcomes, NaN where not known
    folds: np.ndarray  # of each admission
    parents: np.ndarray  # for each token, the next shorter prefix of the same code that is a token; 0 for none
    penalty_factors: np.ndarray  # factor of each token's penalty
    count: int  # number of regressions; with one more than there are folds, the last one is on all admissions
    offset: np.ndarray | None = None  # admissions x outcomes: log-odds to which those of the weights are added
    weight: np.ndarray | None = None  # sampling weight of each admission; None: 1
    families: tuple[Family, ...] | None = None  # of the outcomes; None: all are binary
    shrunk_to_mean: np.ndarray | None = None  # tokens whose weights are shrunk to their (free) mean instead of 0

    @cached_property
    def tree_levels(self) -> list[tuple[np.ndarray, sparse.csr_array]]:
        """The tokens at each depth of the tree of prefixes, leaves first, and the matrix that sums them to parents."""
        found, level = [], np.flatnonzero(self.parents == 0)
        while len(level):
            ones = (np.ones(len(level)), (self.parents[level], np.arange(len(level))))
            found.append((level, sparse.csr_array(ones, shape=(len(self.parents), len(level)))))
            level = np.flatnonzero(np.isin(self.parents, level) & (self.parents > 0))
        return found[::-1]

    def take(self, rows: np.ndarray, count: int) -> "Regressions":
        """Return `count` regressions on some of the admissions."""
        own = {name: getattr(self, name) for name in ("outcomes", "folds", "offset", "weight")}
        taken = {name: None if values is None else values[rows] for name, values in own.items()}
        return replace(self, presence=self.presence.take(rows), count=count, **taken)

    def start(self) -> np.ndarray:
        """Return initial weights: 0, with intercepts that give each outcome's rate (or 0 if there is an offset)."""
        weights = np.zeros((self.presence.columns, self.count, self.outcomes.shape[1]))
        if self.offset is not None:
            return weights
        rate = known_mean(self.outcomes, self.weight)
        weights[0] = [family.link(level) for family, level in zip(self.outcome_families, rate)]
        return weights

    @property
    def single_class(self) -> np.ndarray:
        """Whether each binary outcome has one value in the admissions of some regression: it has no finite fit then."""
        found = []
        for column, family in zip(self.outcomes.T, self.outcome_families):
            by_fold = [np.bincount(self.folds[column == value], minlength=self.count) for value in (0, 1)]
            found.append(family == LOGISTIC and any((counts == counts.sum()).any() for counts in by_fold))
        return np.array(found)

    @property
    def outcome_families(self) -> tuple[Family, ...]:
        """The family of each outcome."""
        return self.families or (LOGISTIC,) * self.outcomes.shape[1]

    def solve(self, prior: Prior, start: np.ndarray, *, tolerance: float, on_step: OnStep | None = None) -> np.ndarray:
        """Minimise the penalised deviance of each regression.

        Args:
            prior: the variances of the weights.
            start: initial weights.
            tolerance: stop after a Newton step whose expected decrease is below this share of the penalised deviance.
            on_step: called after each Newton step but the last of a group of regressions, in the group's thread, with
                the numbers of its regressions and their weights. Starting from these weights gives the same result bit
                for bit.
        """
        groups = [group for group in np.array_split(np.arange(self.count), GROUPS) if len(group)]
        with threads(len(groups)) as pool:
            return np.concatenate(pool.map(partial(self._solve, prior, start, tolerance, on_step), groups), axis=1)

    def _solve(
        self, prior: Prior, start: np.ndarray, tolerance: float, on_step: OnStep | None, group: np.ndarray
    ) -> np.ndarray:
        """Solve a group of regressions together, so that each block of tokens is read once for all of them."""
        precision, weights = prior.precision(self.outcomes.shape[1]), start[:, group]
        value, gradient, curvature = self._derivatives(weights, precision, group)
        for _ in range(MAX_NEWTON):
            step = self._newton_step(gradient, curvature, precision)
            decrease = -_dot_per_regression(gradient, step)  # expected, to first order
            if (decrease <= tolerance * value).all():
                return weights + step
            length = np.ones(len(group))
            while True:  # backtracking line search (Armijo), for each regression by itself
                trial = weights + length[:, None] * step
                trial_value, gradient, curvature = self._derivatives(trial, precision, group)
                rejected = ~(trial_value <= value - 1e-4 * length * decrease + 1e-12 * value)
                if not rejected.any() or length.min() < 1e-6:
                    break
                length[rejected] /= 2
            weights, value = trial, trial_value
            if on_step:
                on_step(group, weights)
        return weights

    def log_odds(self, weights: np.ndarray) -> np.ndarray:
        """Return out-of-fold log-odds: each admission's by the regression that left out its fold."""
        found = np.empty(self.outcomes.shape)
        for rows, block in self.presence.blocks(np.float64):
            every = self._linear_predictors(block, weights)
            found[rows] = every[np.arange(len(every)), self.folds[rows]]
        return found if self.offset is None else found + self.offset

    def _linear_predictors(self, block, weights: np.ndarray) -> np.ndarray:
        """Return the linear predictors of some admissions: admissions x regressions x outcomes."""
        return (block @ weights.reshape(len(weights), -1)).reshape(-1, *weights.shape[1:]) + weights[0]

    def _derivatives(
        self, weights: np.ndarray, precision: np.ndarray, group: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return each regression's penalised half-deviance and its gradient, and the losses' second derivatives.

        The latter (p (1 - p) for binary outcomes) are admissions x regressions x outcomes, 0 where an admission does
        not count.
        """
        value, gradient = np.zeros(len(group)), np.zeros_like(weights)
        curvature = np.empty((len(self.presence), *weights.shape[1:]), np.float32)
        for rows, block in self.presence.blocks(np.float64):
            outcomes, log_odds = self.outcomes[rows, None, :], self._linear_predictors(block, weights)
            if self.offset is not None:
                log_odds += self.offset[rows, None, :]
            counted = ~np.isnan(outcomes) & (self.folds[rows, None] != group)[:, :, None]
            if self.weight is not None:
                counted = counted * self.weight[rows, None, None]
            outcomes = np.broadcast_to(np.nan_to_num(outcomes), log_odds.shape)
            loss, slope, second = parts(self.outcome_families, log_odds, outcomes)
            value += (loss * counted).sum(axis=(0, 2))
            self._add_per_token(gradient, block, slope * counted)
            curvature[rows] = second * counted
        penalty = self._penalty_gradient(weights, precision)
        return value + _dot_per_regression(weights, penalty) / 2, gradient + penalty, curvature

    def _add_per_token(self, total: np.ndarray, block, values: np.ndarray) -> None:
        """Add to each token the sum of `values` over its admissions; to token 0 (the intercept), over all."""
        total += (block.T @ values.reshape(len(values), -1)).reshape(total.shape)
        total[0] += values.sum(axis=0, dtype=np.float64)

    def _penalty_gradient(self, weights: np.ndarray, precision: np.ndarray) -> np.ndarray:
        """Return the gradient of the penalty: f_v P w_v, and 0 for the intercepts.

        Where weights are shrunk to their mean, that mean is weighted by the penalty factors: it minimises the penalty,
        so the penalty's derivative by the mean is 0 and needs no term here.
        """
        if self.shrunk_to_mean is not None:
            factors, weights = self.penalty_factors[self.shrunk_to_mean], weights.copy()
            weights[self.shrunk_to_mean] -= np.tensordot(factors, weights[self.shrunk_to_mean], (0, 0)) / factors.sum()
        gradient = np.einsum("vbi,ij->vbj", weights, precision)
        gradient *= self.penalty_factors[:, None, None]
        gradient[0] = 0
        return gradient

    def _newton_step(self, gradient: np.ndarray, curvature: np.ndarray, precision: np.ndarray) -> np.ndarray:
        """Return Newton's step -H^-1 g, by preconditioned conjugate gradients."""
        diagonal = np.zeros_like(gradient)  # of the Hessian, without the penalty
        for rows, block in self.presence.blocks(np.float32):
            self._add_per_token(diagonal, block, curvature[rows])
        preconditioner = _TreePreconditioner(
            diagonal, self.penalty_factors[:, None, None, None] * precision, self.parents, self.tree_levels
        )

        def hessian_times(direction: np.ndarray) -> np.ndarray:
            single, total = direction.astype(np.float32), np.zeros_like(direction)
            for rows, block in self.presence.blocks(np.float32):
                self._add_per_token(total, block, self._linear_predictors(block, single) * curvature[rows])
            return total + self._penalty_gradient(direction, precision)

        step, residual = np.zeros_like(gradient), -gradient
        scaled = preconditioner.solve(residual)
        direction, size = scaled, _dot_per_regression(residual, scaled)
        target = np.maximum(FORCING**2 * size, np.finfo(float).tiny)
        for _ in range(MAX_PRODUCTS):
            if (size <= target).all():
                break
            along = hessian_times(direction)
            length = np.where(
                size > target, size / np.maximum(_dot_per_regression(direction, along), np.finfo(float).tiny), 0.0
            )
            step = step + length[:, None] * direction
            residual = residual - length[:, None] * along
            scaled = preconditioner.solve(residual)
            previous, size = size, _dot_per_regression(residual, scaled)
            direction = scaled + (size / np.maximum(previous, np.finfo(float).tiny))[:, None] * direction
        return step


class _TreePreconditioner:
    """An approximate Hessian that can be inverted exactly: as if codes with different prefixes never occurred together.

    Then an admission's log-odds are the sum of one token and its prefixes, so the data inform that sum alone, as often
    as the token is the deepest one. The equations form a tree, which is solved by block elimination from the leaves to
    the roots and back.

    Without the preconditioner, conjugate gradients would need many iterations: a category and its most frequent code
    occur in nearly the same admissions, so their weights are nearly collinear.
    """

    def __init__(
        self,
        diagonal: np.ndarray,
        precision: np.ndarray,
        parents: np.ndarray,
        tree_levels: Sequence[tuple[np.ndarray, sparse.csr_array]],
    ) -> None:
        self.parents, self.levels = parents, []  # leaves first
        deepest = diagonal.copy()  # the part from admissions in which the token is the deepest one of its code
        for tokens, up in tree_levels[:-1]:
            deepest -= (up @ diagonal[tokens].reshape(len(tokens), -1)).reshape(diagonal.shape)
        total = np.maximum(deepest, 1e-9)[..., None] * np.eye(diagonal.shape[-1])
        for tokens, up in tree_levels:
            tight = precision[tokens]
            inverse = np.linalg.inv(total[tokens] + tight)
            level = _Level(tokens, up, tight[:, 0], inverse, inverse @ tight)
            if len(self.levels) < len(tree_levels) - 1:
                total += level.raised(tight - tight @ level.share)
            self.levels.append(level)
        intercepts = np.maximum(diagonal[0], 1e-9)[..., None] * np.eye(diagonal.shape[-1])  # without a penalty
        self.levels[-1].inverse[0] = np.linalg.inv(intercepts)

    def solve(self, residual: np.ndarray) -> np.ndarray:
        """Return the step whose product with this approximate Hessian is `residual`."""
        # `sums` holds for each token the sum of the steps of the token and its prefixes.
        below, sums = np.zeros_like(residual), np.empty_like(residual)
        *nested, roots = self.levels
        for level in nested:
            tokens, own = level.tokens, residual[level.tokens]
            sums[tokens] = np.einsum("vbij,vbj->vbi", level.inverse, below[tokens] + own)
            below += level.raised(np.einsum("vij,vbj->vbi", level.precision, sums[tokens]) - own)
        sums[roots.tokens] = np.einsum("vbij,vbj->vbi", roots.inverse, below[roots.tokens] + residual[roots.tokens])
        step = sums.copy()
        for level in reversed(nested):
            above = sums[self.parents[level.tokens]]
            sums[level.tokens] += np.einsum("vbij,vbj->vbi", level.share, above)
            step[level.tokens] = sums[level.tokens] - above
        return step


@dataclass(frozen=True)
class _Level:
    """The tokens at one depth of the tree of prefixes, and their part of the equations."""

    tokens: np.ndarray
    up: sparse.csr_array  # sums the tokens' values for their parents
    precision: np.ndarray  # of each token's prior
    inverse: np.ndarray  # of each token's block of the matrix after elimination of its children
    share: np.ndarray  # inverse @ precision: how far a token's sum follows that of its prefixes

    def raised(self, values: np.ndarray) -> np.ndarray:
        """Sum the values of the tokens for their parents; one row for each token of the vocabulary."""
        return (self.up @ values.reshape(len(values), -1)).reshape(self.up.shape[0], *values.shape[1:])


def _dot_per_regression(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return the scalar product over tokens and outcomes, for each regression."""
    return np.einsum("vbt,vbt->b", left, right)
