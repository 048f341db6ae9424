"""Score with a DeepSets encoder by NumPy alone: phi once per vocabulary entry, then a gather, a pool, products.

In come the weights of a trained set encoder and flat tokens; out comes one float64 per admission. Neither the order of
the codes nor the company an admission is scored in can change a single bit of its score: the table of phi is held in
whole numbers, so plain sums are exact, and averages by attention or gates take the codes in the vocabulary's order.
"""

import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mlci.base.blas import single_thread
from mlci.codes.admissions import Admissions
from mlci.index._reading import Reading
from mlci.tokens import Tokens, Vocabulary, positions

NORM_EPS = 1e-5
ROWS = 4096  # admissions worked on at once: fewer, and threads wait for each other between short steps
SHARE = 4  # blocks that a thread takes at once, in the same room
SMALLER = (64, 512)  # rooms for few admissions, such as those of a page


@dataclass(frozen=True)
class DeepSetsScorer:
    """The encoder's weights by name (`embedding.weight`, `phi.0.weight`, ...), ready to score."""

    state: Mapping[str, np.ndarray]
    pooling: str  # mean, max, sum, attention, gated; several joined by +
    vocabulary: Vocabulary

    def encode(self, admissions: Admissions) -> Tokens:
        """Every token of every code."""
        return self.vocabulary.encode(admissions)

    def read(self, tokens: Tokens) -> Reading:
        """Scores alone: what the encoder learned is one number."""
        return Reading(self(tokens))

    def risks(self, reading: Reading) -> np.ndarray:
        """None: nothing was learned of an outcome by itself."""
        return np.empty((len(reading.score), 0))

    def check(self, outcomes: int) -> None:
        """Refuse arrays that do not fit together, of a file that somebody made by hand."""
        state, width = self.state, self.state["embedding.weight"].shape[1]
        poolings = self.pooling.split("+")
        pooled = width * len(poolings)
        *hidden, last = self._numbers("rho")
        wanted = {
            "embedding.weight": (len(self.vocabulary), width),
            **{f"norm.{part}": (pooled,) for part in ("weight", "bias")},
            **{f"phi.{layer}.weight": (width, width) for layer in self._numbers("phi")},
            **{f"phi.{layer}.bias": (width,) for layer in self._numbers("phi")},
            **{f"rho.{layer}.weight": (width, width if layer else pooled) for layer in hidden},
            **{f"rho.{layer}.bias": (width,) for layer in hidden},
            f"rho.{last}.weight": (1, width if hidden else pooled),
            f"rho.{last}.bias": (1,),
        }
        if "attention" in poolings:
            wanted |= {"query": (width,)}
        if "gated" in poolings:
            wanted |= {"gate.0.weight": (width, width), "gate.0.bias": (width,)}
            wanted |= {"gate.2.weight": (1, width), "gate.2.bias": (1,)}
        found = {name: values.shape for name, values in state.items()}
        if found != wanted:
            raise ValueError(f"tensors {found}, wanted {wanted}")
        if not all(values.dtype == np.float32 and np.isfinite(values).all() for values in state.values()):
            raise ValueError("weights that are not finite 32-bit numbers")

    def __call__(self, tokens: Tokens) -> np.ndarray:
        _ = self._table, self._layers, self._logits  # made once, before threads need them
        scores, counts = np.empty(len(tokens)), tokens.counts
        shortest_last = np.argsort(-counts, kind="stable")

        with single_thread():
            size = next((size for size in self._sizes if len(tokens) <= size), ROWS)

        def work(start: int) -> None:
            room = _Room.of(self._table[0], self.pooling, size)
            for at in range(start, min(start + SHARE * size, len(tokens)), size):
                rows = shortest_last[at : at + size]
                scores[rows] = self._block(tokens, rows, counts[rows], room)

        starts = range(0, len(tokens), SHARE * size)
        with single_thread():  # our threads, not those of BLAS: its own are slower on matrices so small
            if len(starts) < 2:
                list(map(work, starts))
            else:
                with ThreadPoolExecutor(os.cpu_count()) as pool:
                    list(pool.map(work, starts))
        return scores

    def _numbers(self, part: str) -> list[int]:
        """The numbers of the linear layers of phi or rho."""
        return sorted(
            int(name.split(".")[1]) for name in self.state if name.startswith(part) and name.endswith("weight")
        )

    @cached_property
    def _features(self) -> np.ndarray:
        """phi of each token."""
        hidden = self.state["embedding.weight"]
        for layer in self._numbers("phi"):
            hidden = np.maximum(hidden @ self.state[f"phi.{layer}.weight"].T + self.state[f"phi.{layer}.bias"], 0)
        return hidden

    @cached_property
    def _table(self) -> tuple[np.ndarray, np.ndarray]:
        """phi of each token in whole multiples of a step per column, so small that no sum of them overflows."""
        longest = self.vocabulary.longest
        whole = np.int32 if longest <= 512 else np.int64  # 22 bits or more remain for each value
        step = self._features.max(axis=0).astype(np.float64) / (np.iinfo(whole).max // longest - 1)
        step[step == 0] = 1
        return np.rint(self._features / step).astype(whole), step.astype(np.float32)

    @cached_property
    def _logits(self) -> dict[str, np.ndarray]:
        """By whose softmax over an admission its codes are averaged: of each token, for attention and for gates."""
        features, found = self._features.astype(np.float64), {}
        if "query" in self.state:
            found["attention"] = features @ self.state["query"] / np.sqrt(features.shape[1])
        if "gate.0.weight" in self.state:
            hidden = np.maximum(features @ self.state["gate.0.weight"].T + self.state["gate.0.bias"], 0)
            opened = hidden @ self.state["gate.2.weight"][0] + self.state["gate.2.bias"][0]
            found["gated"] = -np.logaddexp(0, -opened)
        return found

    @cached_property
    def _layers(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """rho with LayerNorm's own scale and shift folded into its first layer."""
        layers = [
            (self.state[f"rho.{layer}.weight"], self.state[f"rho.{layer}.bias"]) for layer in self._numbers("rho")
        ]
        weight, bias = layers[0]
        layers[0] = (weight * self.state["norm.weight"], bias + weight @ self.state["norm.bias"])
        return [(np.ascontiguousarray(weight.T), bias) for weight, bias in layers]

    @cached_property
    def _sizes(self) -> tuple[int, ...]:
        """Of the smaller rooms, those in which matrix products give the bits of `ROWS` rows on this machine."""
        widest = max(len(matrix) for matrix, _ in self._layers)
        rows = np.random.default_rng(0).normal(size=(ROWS, widest)).astype(np.float32)
        inputs = [(np.ascontiguousarray(rows[:, : len(matrix)]), matrix) for matrix, _ in self._layers[:-1]]
        whole = [(x, matrix, x @ matrix) for x, matrix in inputs]
        return tuple(size for size in SMALLER if all(np.array_equal(x[:size] @ m, y[:size]) for x, m, y in whole))

    def _block(self, tokens: Tokens, rows: np.ndarray, counts: np.ndarray, room: "_Room") -> np.ndarray:
        """Scores of up to `ROWS` admissions, the longest first.

        Those that have a j-th token are then the first ones, for every j, and each step is one dense gather, sum and
        maximum; and since all blocks together are in that order, most steps are of whole blocks.
        """
        table, step = self._table
        first = tokens.offsets[rows]
        total, largest = room.total, room.largest
        total[:] = 0
        largest[:] = 0  # phi ends in a ReLU: nothing is below 0, and no codes pool to 0
        having = np.searchsorted(-counts, -np.arange(1, counts.max(initial=0) + 1), side="right")
        for position, many in enumerate(having):
            found = room.gathered[:many]
            np.take(table, tokens.ids[first[:many] + position], axis=0, out=found, mode="clip")
            np.add(total[:many], found, out=total[:many])
            np.maximum(largest[:many], found, out=largest[:many])
        for place, how in enumerate(self.pooling.split("+")):
            pooled = room.pooled[:, place * len(step) : (place + 1) * len(step)]
            if how in self._logits:
                pooled[: len(rows)] = self._softly(how, tokens, first, counts, having)
                continue
            pooled[:] = largest if how == "max" else total
            pooled *= step
            if how == "mean":
                pooled[: len(rows)] *= (1 / np.maximum(counts, 1)).astype(np.float32)[:, None]
        return self._head(room)[: len(rows)]

    def _softly(
        self, how: str, tokens: Tokens, first: np.ndarray, counts: np.ndarray, having: np.ndarray
    ) -> np.ndarray:
        """phi averaged by the softmax of its logits over each admission, whose codes come in the vocabulary's order.

        `having` counts the admissions that have a j-th code, for every j; they are the first ones.
        """
        logits, features = self._logits[how], self._features
        flat, begin = positions(first, counts)
        ids = tokens.ids[flat].clip(max=len(logits) - 1)
        ids = ids[np.lexsort((ids, np.repeat(np.arange(len(counts)), counts)))]
        top = np.full(len(counts), -np.inf)
        for position, many in enumerate(having):
            np.maximum(top[:many], logits[ids[begin[:many] + position]], out=top[:many])
        total, mass = np.zeros((len(counts), features.shape[1])), np.zeros(len(counts))
        for position, many in enumerate(having):
            own = ids[begin[:many] + position]
            weight = np.exp(logits[own] - top[:many])
            mass[:many] += weight
            total[:many] += weight[:, None] * features[own]
        return (total / np.maximum(mass, 1e-30)[:, None]).astype(np.float32)

    def _head(self, room: "_Room") -> np.ndarray:
        """LayerNorm and rho, always on a whole room: matrix products then sum in the same order in every batch."""
        hidden = room.pooled
        hidden -= hidden.mean(axis=1, keepdims=True)
        variance = np.einsum("ij,ij->i", hidden, hidden) / hidden.shape[1]
        hidden /= np.sqrt(variance + np.float32(NORM_EPS))[:, None]
        *inner, (weight, bias) = self._layers
        for place, (matrix, shift) in enumerate(inner):
            hidden = np.matmul(hidden, matrix, out=room.hidden[place % 2])
            hidden += shift
            np.maximum(hidden, 0, out=hidden)
        hidden *= weight[:, 0]
        return hidden.sum(axis=1) + bias[0]


@dataclass(frozen=True)
class _Room:
    """Where a thread works, from block to block: to ask for memory anew costs as much as to fill it."""

    total: np.ndarray
    largest: np.ndarray
    gathered: np.ndarray
    pooled: np.ndarray
    hidden: tuple[np.ndarray, np.ndarray]

    @classmethod
    def of(cls, table: np.ndarray, pooling: str, rows: int) -> "_Room":
        shape = rows, table.shape[1]
        total, largest, gathered = (np.empty(shape, dtype=table.dtype) for _ in range(3))
        pooled = np.zeros((rows, shape[1] * len(pooling.split("+"))), dtype=np.float32)
        hidden = np.empty(shape, dtype=np.float32), np.empty(shape, dtype=np.float32)
        return cls(total, largest, gathered, pooled, hidden)
