"""Score with a DeepSets encoder by NumPy alone: phi once per vocabulary entry, then a gather, a mean, a max, products.

In come the weights of a trained set encoder and flat tokens; out comes one float64 per admission. The table of phi is
held in whole numbers, so sums are exact: neither the order of the codes nor the company an admission is scored in can
change a single bit of its score.
"""

import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from threadpoolctl import ThreadpoolController

from mlci.codes.admissions import Admissions
from mlci.index._reading import Reading
from mlci.tokens import Tokens, Vocabulary

NORM_EPS = 1e-5
POOL_ROWS, HEAD_ROWS = 4096, 512  # admissions worked on at once: what a core's cache holds


@dataclass(frozen=True)
class DeepSetsScorer:
    """The encoder's weights by name (`embedding.weight`, `phi.0.weight`, ...), ready to score."""

    state: Mapping[str, np.ndarray]
    pooling: str  # mean, max, sum; several joined by +
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
        pooled = width * len(self.pooling.split("+"))
        wanted = {
            "embedding.weight": (len(self.vocabulary), width),
            **{f"phi.{layer}.weight": (width, width) for layer in (0, 2)},
            **{f"phi.{layer}.bias": (width,) for layer in (0, 2)},
            **{f"norm.{part}": (pooled,) for part in ("weight", "bias")},
            "rho.0.weight": (width, pooled),
            "rho.0.bias": (width,),
            "rho.2.weight": (width, width),
            "rho.2.bias": (width,),
            "rho.4.weight": (1, width),
            "rho.4.bias": (1,),
        }
        found = {name: values.shape for name, values in state.items()}
        if found != wanted:
            raise ValueError(f"tensors {found}, wanted {wanted}")
        if not all(values.dtype == np.float32 and np.isfinite(values).all() for values in state.values()):
            raise ValueError("weights that are not finite 32-bit numbers")

    def __call__(self, tokens: Tokens) -> np.ndarray:
        starts = range(0, len(tokens), POOL_ROWS)
        _ = self._table, self._layers  # made once, before threads need them
        with self._blas.limit(limits=1):  # our threads, not those of BLAS: its own are slower on matrices so small
            if len(starts) < 2:
                blocks = [self._block(tokens, start) for start in starts]
            else:
                with ThreadPoolExecutor(os.cpu_count()) as pool:
                    blocks = list(pool.map(lambda start: self._block(tokens, start), starts))
        return np.concatenate(blocks) if blocks else np.empty(0)

    @cached_property
    def _blas(self) -> ThreadpoolController:
        return ThreadpoolController().select(user_api="blas")

    @cached_property
    def _table(self) -> tuple[np.ndarray, np.ndarray]:
        """phi of each token in whole multiples of a step per column, so small that no sum of them overflows."""
        hidden = self.state["embedding.weight"]
        for layer in (0, 2):
            hidden = np.maximum(hidden @ self.state[f"phi.{layer}.weight"].T + self.state[f"phi.{layer}.bias"], 0)
        longest = self.vocabulary.longest
        whole = np.int32 if longest <= 512 else np.int64  # 22 bits or more remain for each value
        step = hidden.max(axis=0).astype(np.float64) / (np.iinfo(whole).max // longest - 1)
        step[step == 0] = 1
        return np.rint(hidden / step).astype(whole), step.astype(np.float32)

    @cached_property
    def _layers(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """rho with LayerNorm's own scale and shift folded into its first layer."""
        layers = [(self.state[f"rho.{layer}.weight"], self.state[f"rho.{layer}.bias"]) for layer in (0, 2, 4)]
        weight, bias = layers[0]
        layers[0] = (weight * self.state["norm.weight"], bias + weight @ self.state["norm.bias"])
        return [(np.ascontiguousarray(weight.T), bias) for weight, bias in layers]

    def _block(self, tokens: Tokens, start: int) -> np.ndarray:
        """Scores of up to `POOL_ROWS` admissions.

        Longest first: those that have a j-th token are then the first rows, for every j, and each step is one dense
        gather, sum and maximum.
        """
        table, step = self._table
        counts = tokens.counts[start : start + POOL_ROWS]
        order = np.argsort(-counts, kind="stable")
        counts, first = counts[order], tokens.offsets[start : start + len(order)][order]
        total = np.zeros((len(order), len(step)), dtype=table.dtype)
        largest = np.zeros_like(total)  # phi ends in a ReLU: nothing is below 0, and no codes pool to 0
        gathered = np.empty_like(total)
        having = np.searchsorted(-counts, -np.arange(1, counts.max(initial=0) + 1), side="right")
        for position, many in enumerate(having):
            rows = gathered[:many]
            np.take(table, tokens.ids[first[:many] + position], axis=0, out=rows, mode="clip")
            np.add(total[:many], rows, out=total[:many])
            np.maximum(largest[:many], rows, out=largest[:many])
        share = (1 / np.maximum(counts, 1)).astype(np.float32)[:, None]
        pools = {
            "sum": lambda part: total[part].astype(np.float32) * step,
            "mean": lambda part: total[part].astype(np.float32) * step * share[part],
            "max": lambda part: largest[part].astype(np.float32) * step,
        }
        scores = np.empty(len(order))
        for lower in range(0, len(order), HEAD_ROWS):
            part = slice(lower, lower + HEAD_ROWS)
            scores[order[part]] = self._head([pools[how](part) for how in self.pooling.split("+")])
        return scores

    def _head(self, pooled: list[np.ndarray]) -> np.ndarray:
        """LayerNorm and rho, always on `HEAD_ROWS` rows: matrix products then sum in the same order in every batch."""
        many, width = pooled[0].shape
        hidden = np.zeros((HEAD_ROWS, width * len(pooled)), dtype=np.float32)
        np.concatenate(pooled, axis=1, out=hidden[:many])
        hidden -= hidden.mean(axis=1, keepdims=True)
        variance = np.einsum("ij,ij->i", hidden, hidden) / hidden.shape[1]
        hidden /= np.sqrt(variance + np.float32(NORM_EPS))[:, None]
        *inner, (weight, bias) = self._layers
        for matrix, shift in inner:
            hidden = hidden @ matrix
            hidden += shift
            np.maximum(hidden, 0, out=hidden)
        return (hidden[:many] * weight[:, 0]).sum(axis=1) + bias[0]
