"""Pool the features of an admission's tokens (sum, mean, maximum) by a gather from a table of whole numbers.

Take the features of each token and flat tokens; return rows of float32. Sums of whole numbers are exact, so the result
depends on neither the order of the tokens nor the other admissions of the batch.

A row of the table is a token or a code. All known tokens of a code are beginnings of its deepest one, so their sum and
maximum can be stored under that token. A code with three tokens then costs one row instead of three.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from mlci.tokens import Tokens, Vocabulary


@dataclass(frozen=True)
class PoolingTable:
    """What each row adds to an admission, in whole multiples of one step.

    Row t is token t. If codes have several tokens, row `codes` + t is token t together with its beginnings.
    """

    total: np.ndarray
    largest: np.ndarray  # the same array if all rows are single tokens
    many: np.ndarray  # tokens in a row
    step: float
    codes: int  # where the rows of codes begin; 0 if each code is one token

    @classmethod
    def of(cls, features: np.ndarray, vocabulary: Vocabulary, *, codes: bool) -> "PoolingTable":
        """Make the table from non-negative features; with `codes`, add rows of tokens with their beginnings."""
        longest = vocabulary.longest
        whole, most = (np.int32, 2**31) if longest <= 2048 else (np.int64, 2**52)  # 20 bits or more for each value
        step = float(features.max(initial=0)) / (most // longest - 2) or 1.0
        alone = np.rint(features.astype(np.float64) / step).astype(whole)
        single = np.ones(len(alone), dtype=np.int32)
        if not codes:
            return cls(alone, alone, single, step, 0)
        total, largest, many = np.zeros_like(alone), np.zeros_like(alone), np.zeros_like(single)
        for brought in vocabulary.prefixes.T:  # PAD, which has no features, where there is no beginning
            rows = np.flatnonzero(brought)
            total[rows] += alone[brought[rows]]
            largest[rows] = np.maximum(largest[rows], alone[brought[rows]])
            many[rows] += 1
        return cls(
            np.concatenate([alone, total]),
            np.concatenate([alone, largest]),
            np.concatenate([single, many]),
            step,
            len(alone),
        )

    def alike(self, tokens: Tokens, rows: np.ndarray) -> "list[Alike]":
        """Group admissions, sorted by length, into runs of equal length."""
        first = tokens.offsets[rows]
        counts = tokens.offsets[rows + 1] - first
        ends = [*(np.flatnonzero(np.diff(counts)) + 1).tolist(), len(counts)]
        found = []
        for start, end in zip([0, *ends], ends):
            places = first[start:end] + np.arange(counts[start] if end else 0)[:, None]
            ids = tokens.ids.take(places, mode="clip").astype(np.intp)
            found.append(Alike(start, ids, self._share(ids)))
        return found

    def pool(self, run: "Alike", into: Mapping[str, np.ndarray], room: np.ndarray) -> None:
        """Write sums, means and maxima over the tokens of a run to the arrays of `into`, in units of the step.

        `room` is working memory with the type and width of the table and more rows than the longest admission has
        tokens.
        """
        size = len(room) // (len(run.ids) + 1)  # admissions, each with a row for its result
        for at in range(0, len(run), size):
            some = slice(at, at + size)
            ids, held = run.ids[:, some], None
            joined = room[: ids.shape[1]]
            gathered = room[len(joined) : len(joined) + ids.size].reshape(*ids.shape, room.shape[1])
            for how, pooled in into.items():
                source, join = (self.largest, np.maximum) if how == "max" else (self.total, np.add)
                if source is not held:
                    held = source
                    source.take(ids, axis=0, out=gathered, mode="clip")
                join.reduce(gathered, axis=0, out=joined, initial=None if len(ids) else 0)
                if how == "mean":
                    np.multiply(joined, run.share[some], out=pooled[some], dtype=np.float32, casting="unsafe")
                else:
                    pooled[some] = joined

    def _share(self, ids: np.ndarray) -> np.ndarray:
        """Return 1 / number of tokens for each admission, a column of `ids`."""
        many = self.many.take(ids).sum(axis=0, dtype=np.int32) if self.codes else np.full(ids.shape[1], len(ids))
        return (1 / np.maximum(many, 1)).astype(np.float32)[:, None]


@dataclass(frozen=True)
class Alike:
    """A run of admissions of equal length from the place `start` on, each a column of rows of the table."""

    start: int
    ids: np.ndarray
    share: np.ndarray  # 1 / number of tokens, for each admission

    def __len__(self) -> int:
        return self.ids.shape[1]

    @property
    def end(self) -> int:
        """The place after the last admission."""
        return self.start + len(self)
