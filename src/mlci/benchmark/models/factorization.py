"""Factorization machine on the presence of prefixes, trained by sparse AdaGrad, with outcomes pooled by weight."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy import sparse
from scipy.special import expit

from mlci.benchmark.models import Baseline, State, _bags
from mlci.fitting import Split


@dataclass(frozen=True, kw_only=True)
class FactorizationMachine(Baseline):
    """Score = constant + sum of w over codes + sum of <v, v'> over pairs of codes; keeps the best validation epoch."""

    family: str = "classical"
    seed: int | None = 42
    rank: int = 16
    epochs: int = 10
    batch: int = 32
    rate: float = 0.05
    penalty: float = 1e-6  # L2, on w and v
    spread: float = 0.01  # of the initial v

    def fit(self, train: Split, valid: Split, *, seed: int, device: str = "cpu") -> State:
        x, x_valid, columns = _presence(train), _presence(valid), train.vocabulary_size - 1

        def learn(weights: np.ndarray, stream: int) -> tuple[State, np.ndarray]:
            share, weight = _bags.pooled(train, weights)
            random = np.random.default_rng([seed, stream])
            table = random.normal(0, self.spread, (columns, 1 + self.rank))
            best, lowest, logit = {}, np.inf, np.empty(0)
            for state in self._epochs(table, x, share, weight, random):
                score = _score(state, x_valid)
                losses = [_bags.validation_loss(score, y) for y in valid.outcomes.astype(float).T]
                loss = float(weights @ np.array(losses))
                if not best or loss < lowest:
                    best, lowest, logit = {name: array.copy() for name, array in state.items()}, loss, score
            return best, logit

        alone = np.eye(len(train.names))
        weights = _bags.stage1(train, valid, lambda outcome: learn(alone[outcome], outcome))[1]
        return learn(weights, len(train.names))[0]

    def score(self, state: State, part: Split) -> np.ndarray:
        return _score(state, _presence(part))

    def _epochs(
        self, table: np.ndarray, x: sparse.csr_array, share: np.ndarray, weight: np.ndarray, random: np.random.Generator
    ) -> Iterator[State]:
        """Yield the state after each epoch. Column 0 of `table` is w, the others v; `seen` sums squared gradients."""
        table[:, 0] = 0
        seen, constant, constant_seen = np.zeros_like(table), 0.0, 0.0
        for _ in range(self.epochs):
            order = random.permutation(len(share))
            shuffled, y, a = x[order], share[order], weight[order]
            for start in range(0, len(y), self.batch):
                stop = min(start + self.batch, len(y))
                first, last = shuffled.indptr[start], shuffled.indptr[stop]
                codes, local = np.unique(shuffled.indices[first:last], return_inverse=True)
                offsets = shuffled.indptr[start : stop + 1] - first
                bag = sparse.csr_array((shuffled.data[first:last], local, offsets), shape=(stop - start, len(codes)))
                rows = table[codes]
                sums = bag @ rows
                logit = constant + sums[:, 0] + 0.5 * ((sums[:, 1:] ** 2).sum(1) - bag @ (rows[:, 1:] ** 2).sum(1))
                slope = a[start:stop] * (expit(logit) - y[start:stop])
                # d/dw_j = 1 and d/dv_j = (sum of v over the admission) - v_j, for each code j that is present.
                sums[:, 0] = 1
                gradient = bag.T @ (slope[:, None] * sums)
                gradient[:, 1:] -= (bag.T @ slope)[:, None] * rows[:, 1:]
                gradient += self.penalty * rows
                squares = seen[codes] + gradient**2
                seen[codes] = squares
                table[codes] = rows - self.rate * gradient / (np.sqrt(squares) + 1e-8)
                step = slope.sum()
                constant_seen += step**2
                constant -= self.rate * step / (np.sqrt(constant_seen) + 1e-8)
            yield {"table": table, "constant": np.array(constant)}


def _presence(part: Split) -> sparse.csr_array:
    bag = _bags.counts(part)
    bag.data[:] = 1
    return bag


def _score(state: State, x: sparse.csr_array) -> np.ndarray:
    w, v = state["table"][:, 0], state["table"][:, 1:]
    sums = x @ v
    return state["constant"] + x @ w + 0.5 * ((sums**2).sum(1) - x @ (v**2).sum(1))


MODELS = (FactorizationMachine(name="factorization", title="Factorization Machine (FM score)"),)
