"""Score with a DeepSets encoder, with NumPy only: phi once per token of the vocabulary, then pooling and rho.

Take the weights of a trained set encoder and flat tokens. Return one float64 per admission and, where the encoder has
heads for them, the log-odds of each outcome, from one pass. Neither the order of the codes nor the other admissions of
the batch change a score by a single bit: plain sums are exact (`_pooling`), averages by attention or gates take the
codes in the vocabulary's order, and a matrix product does not depend on the place of its row (`_slabs`).
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from mlci.base.blas import single_thread
from mlci.codes.admissions import Admissions
from mlci.index._heads import MOST, OutcomeHeads, centred, shapes
from mlci.index._pooling import Alike, PoolingTable
from mlci.index._reading import Reading, in_blocks
from mlci.index._slabs import ROWS, Slabs, slabs_for
from mlci.tokens import Tokens, Vocabulary, positions

NORM_EPS = 1e-5
BLOCK = 16  # slabs of admissions worked on at once: with fewer, steps are short and threads contend for the GIL


@dataclass(frozen=True)
class DeepSetsScorer:
    """The encoder's weights by name (`embedding.weight`, `phi.0.weight`, ...), ready to score.

    If it has heads, the log-odds of an outcome are an output of the last layer (`heads.weight`, `heads.bias`) plus a
    weight for each token (`heads.tokens`). The risk is expit(a + b * log-odds), with a and b from `calibration`.
    """

    state: Mapping[str, np.ndarray]
    pooling: str  # mean, max, sum, attention, gated; several joined by +
    vocabulary: Vocabulary
    # Working memory that no thread uses, by how many rows of the table it holds.
    _rooms: dict[int, list["_Room"]] = field(
        default_factory=lambda: defaultdict(list), init=False, repr=False, compare=False
    )

    def encode(self, admissions: Admissions) -> Tokens:
        """Return every token of every code, or one row of the pooling table per code where the table has such rows."""
        if self._logits:
            return self.vocabulary.encode(admissions)
        deepest = self.vocabulary.deepest(admissions)
        return Tokens(deepest.ids + np.int32(self._table.codes), deepest.offsets)

    @property
    def risky(self) -> int:
        """How many outcomes have their own log-odds."""
        return len(self.state.get("heads.bias", ()))

    def risks(self, reading: Reading) -> np.ndarray:
        """Return the risk of each outcome that has its own log-odds, one column per outcome."""
        odds = self.risk_log_odds(reading).T
        np.negative(np.clip(odds, -MOST, MOST, out=odds), out=odds)
        np.exp(odds, out=odds)
        odds += 1
        return np.divide(1, odds, out=odds).T

    def risk_log_odds(self, reading: Reading) -> np.ndarray:
        """Return the calibrated log-odds behind each risk."""
        if reading.log_odds is None:
            return np.empty((len(reading.score), 0))
        shift, slope = self.state["calibration"].T[:, :, None]
        found = np.multiply(slope, reading.log_odds.T, order="C")  # contiguous for each outcome
        found += shift
        return found.T

    def check(self, outcomes: int) -> None:
        """Raise ValueError if the arrays do not fit together, as in a file made by hand."""
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
            **shapes(state, width if hidden else pooled, len(self.vocabulary)),
        }
        if "attention" in poolings:
            wanted |= {"query": (width,)}
        if "gated" in poolings:
            wanted |= {"gate.0.weight": (width, width), "gate.0.bias": (width,)}
            wanted |= {"gate.2.weight": (1, width), "gate.2.bias": (1,)}
        found = {name: values.shape for name, values in state.items()}
        if found != wanted or self.risky > outcomes:
            raise ValueError(f"tensors {found}, wanted {wanted}")
        kinds = {name: np.float64 if name == "calibration" else np.float32 for name in state}
        if not all(values.dtype == kinds[name] and np.isfinite(values).all() for name, values in state.items()):
            raise ValueError("weights that are not finite 32-bit numbers")

    def read(self, tokens: Tokens) -> Reading:
        """Return scores, and log-odds if there are heads, of plain tokens or of the tokens that `encode` returns."""
        with single_thread():  # fill the caches before several threads need them
            _ = self._table, self._layers, self._logits, self._heads, self._floors
        counts = tokens.counts
        longest = int(counts.max(initial=0))
        lacking = (longest - counts).astype(np.min_scalar_type(longest))  # a narrow type sorts faster
        by_length = np.argsort(lacking, kind="stable")
        scores, log_odds = np.empty(len(tokens)), np.empty((len(tokens), self.risky))
        size = BLOCK * self._slabs.used
        held = max(longest + 1, 2 * BLOCK * ROWS)  # two layers fit too

        def work(start: int) -> None:
            room = self._free_room(held)
            rows = by_length[start : start + size]
            runs = self._table.alike(tokens, rows) if self._summed or self.risky else []
            self._pool(tokens, rows, runs, room)
            self._head(room, len(rows))
            scores[rows] = room.scores[: len(rows)]
            if self.risky:
                for run in runs:
                    room.log_odds[run.start : run.end] = self._heads.added(run.ids)
                log_odds[rows] = self._heads.log_odds(room.log_odds, room.by_layer)[: len(rows)]
            self._rooms[held].append(room)

        with single_thread():  # our threads share the work; BLAS's own are slower on such small matrices
            in_blocks(work, len(tokens), size)
        return Reading(scores, log_odds if self.risky else None)

    def _numbers(self, part: str) -> list[int]:
        """Return the numbers of the linear layers of phi or rho."""
        return sorted(
            int(name.split(".")[1]) for name in self.state if name.startswith(part) and name.endswith("weight")
        )

    @cached_property
    def _features(self) -> np.ndarray:
        """phi of each token."""
        hidden = self.state["embedding.weight"]
        with single_thread():  # idle threads of BLAS spin for a while, which costs a core
            for layer in self._numbers("phi"):
                hidden = np.maximum(hidden @ self.state[f"phi.{layer}.weight"].T + self.state[f"phi.{layer}.bias"], 0)
        return hidden

    @cached_property
    def _table(self) -> PoolingTable:
        codes = len(self.vocabulary.depths) > 1 and not self._logits
        return PoolingTable.of(self._features, self.vocabulary, codes=codes)

    @cached_property
    def _logits(self) -> dict[str, np.ndarray]:
        """The logit of each token, for attention and gates; a softmax over an admission gives the weights."""
        features, found = self._features.astype(np.float64), {}
        if "query" in self.state:
            found["attention"] = features @ self.state["query"] / np.sqrt(features.shape[1])
        if "gate.0.weight" in self.state:
            hidden = np.maximum(features @ self.state["gate.0.weight"].T + self.state["gate.0.bias"], 0)
            opened = hidden @ self.state["gate.2.weight"][0] + self.state["gate.2.bias"][0]
            found["gated"] = -np.logaddexp(0, -opened)
        return found

    @property
    def _summed(self) -> list[str]:
        """The ways of pooling that are not softmax averages."""
        return [how for how in self.pooling.split("+") if how not in self._logits]

    @cached_property
    def _layers(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """rho, with LayerNorm's scale and shift folded into its first layer, and each bias into the next layer.

        The first layer is centred: its product with a row equals that with the row minus its mean, so LayerNorm need
        not subtract the mean. ReLU(x + b) = max(x, -b) + b: with the second b in the bias of the next layer, adding a
        bias needs no pass over the data.
        """
        layers = [
            (self.state[f"rho.{layer}.weight"], self.state[f"rho.{layer}.bias"]) for layer in self._numbers("rho")
        ]
        weight, bias = layers[0]
        layers[0] = (centred(weight * self.state["norm.weight"]), bias + weight @ self.state["norm.bias"])
        folded, before = [], np.zeros(layers[0][0].shape[1], dtype=np.float32)
        for weight, bias in layers:
            before = (bias + weight.astype(np.float64) @ before).astype(np.float32)
            folded.append((np.ascontiguousarray(weight.T), before))
        return folded

    @cached_property
    def _slabs(self) -> Slabs:
        matrices = [matrix for matrix, _ in self._layers]
        return slabs_for(tuple(matrix.shape for matrix in [*matrices, self._heads.matrix] if matrix.size))

    @cached_property
    def _floors(self) -> list[np.ndarray]:
        """The value below which each ReLU is constant, as a slab."""
        return [self._slabs.tiled(-shift) for _, shift in self._layers[:-1]]

    @cached_property
    def _heads(self) -> OutcomeHeads:
        return OutcomeHeads.of(self.state, self._layers, self.vocabulary, codes=self._table.codes > 0)

    def _free_room(self, held: int) -> "_Room":
        """Return working memory for so many rows of the table: some that no thread uses, or else new."""
        try:
            return self._rooms[held].pop()
        except IndexError:
            return _Room.of(self._table, self._slabs, held, len(self.pooling.split("+")), self.risky)

    def _pool(self, tokens: Tokens, rows: np.ndarray, runs: Sequence[Alike], room: "_Room") -> None:
        """Pool a block of admissions, the longest first, in units of the table's step."""
        width = room.gathered.shape[1]
        places = {how: slice(place * width, (place + 1) * width) for place, how in enumerate(self.pooling.split("+"))}
        for run in runs:
            into = {how: room.pooled[run.start : run.end, places[how]] for how in self._summed}
            self._table.pool(run, into, room.gathered)
        for how in self._logits:
            room.pooled[: len(rows), places[how]] = self._softly(how, tokens, rows) / self._table.step

    def _softly(self, how: str, tokens: Tokens, rows: np.ndarray) -> np.ndarray:
        """Average phi by the softmax of its logits over each admission, its codes taken in the vocabulary's order.

        Admissions are sorted by length, so for every j those with a j-th code come first.
        """
        first = tokens.offsets[rows]
        counts = tokens.offsets[rows + 1] - first
        having = np.searchsorted(-counts, -np.arange(1, counts.max(initial=0) + 1), side="right")
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

    def _head(self, room: "_Room", many: int) -> None:
        """Apply LayerNorm and rho to so many pooled rows; write their scores and log-odds to the room."""
        (*inner, (weight, bias)), slabs = self._layers, self._slabs
        number = slabs.number(many)
        scale = slabs.over(self._scale(room.padded[: slabs.rows(number)]), number)
        hidden = slabs.over(room.padded, number)
        for place, (matrix, _) in enumerate(inner):
            hidden = np.matmul(hidden, matrix, out=slabs.product(room.layers[place % 2], number, matrix.shape[1]))
            if not place:
                hidden *= scale
            np.maximum(hidden, self._floors[place], out=hidden)
        for matrix, into in ((weight, room.scores[:, None]), (self._heads.matrix, room.by_layer)):
            if matrix.size:  # two products, so that the score is the same bit for bit with and without heads
                found = np.matmul(hidden, matrix)
                if not inner:
                    found *= scale
                into[:many] = slabs.flat(found)[:many]
        room.scores[:many] += bias[0]

    def _scale(self, pooled: np.ndarray) -> np.ndarray:
        """Return the factor by which LayerNorm multiplies each row; pooled rows are in units of the table's step."""
        mean = np.einsum("ij->i", pooled).astype(np.float64) / pooled.shape[1]
        squares = np.einsum("ij,ij->i", pooled, pooled).astype(np.float64) / pooled.shape[1]
        variance = np.maximum(squares - mean**2, 0) + NORM_EPS / self._table.step**2
        return (1 / np.sqrt(variance)).astype(np.float32)[:, None]


@dataclass(frozen=True)
class _Room:
    """The working memory of a thread, kept from batch to batch: allocating it again costs as much as filling it."""

    padded: np.ndarray  # pooled rows, with unused rows before and after them that fill up the slabs
    pooled: np.ndarray  # a view of `padded` that begins with the first admission
    gathered: np.ndarray  # rows of the table
    layers: np.ndarray  # two layers, in the memory of `gathered`, which is free by then and in the core's cache
    scores: np.ndarray
    by_layer: np.ndarray  # the last layer's part of the log-odds
    log_odds: np.ndarray

    @classmethod
    def of(cls, table: PoolingTable, slabs: Slabs, held: int, poolings: int, outcomes: int) -> "_Room":
        width = table.total.shape[1]
        many = BLOCK * slabs.used
        padded = np.zeros((slabs.rows(BLOCK), width * poolings), dtype=np.float32)
        gathered = np.empty((held, width), dtype=table.total.dtype)
        layers = gathered.ravel().view(np.float32)
        layers = layers[: len(layers) // 2 * 2].reshape(2, -1)
        scores, by_layer = np.zeros(many, np.float32), np.zeros((many, outcomes), np.float32)
        return cls(padded, padded[slabs.start :], gathered, layers, scores, by_layer, np.zeros((many, outcomes)))
