"""Pool the features of an admission's tokens: their sum, mean and maximum, by a gather from a table, in whole numbers.

In come the features of each token and flat tokens; out come rows of 32-bit numbers. Plain sums of whole numbers are
exact, so neither the order of the tokens nor the company an admission is pooled in can change a bit.

A row of the table is a token, or a code: the known tokens of a code are the beginnings of its deepest one, so their sum
and maximum are looked up by that one, and a code of three tokens costs one row instead of three.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from mlci.tokens import Tokens, Vocabulary

GATHERED = 2**19  # numbers gathered at once: of more, a cache holds few until they are summed; fewer are more steps


@dataclass(frozen=True)
class PoolingTable:
    """What each row brings to an admission, in whole multiples of one step.

    Row t is token t; row `codes` + t, where codes have several tokens, is token t with its beginnings.
    """

    total: np.ndarray
    largest: np.ndarray  # the same array where rows are single tokens
    many: np.ndarray  # tokens in a row
    step: float
    codes: int  # where the rows of codes begin; 0 where a code is one token

    @classmethod
    def of(cls, features: np.ndarray, vocabulary: Vocabulary, *, codes: bool) -> "PoolingTable":
        """Lay out the features of tokens, none below 0; with `codes`, also those of tokens with their beginnings."""
        longest = vocabulary.longest
        whole, most = (np.int32, 2**31) if longest <= 2048 else (np.int64, 2**52)  # 20 bits or more for each value
        step = float(features.max(initial=0)) / (most // longest - 2) or 1.0
        alone = np.rint(features.astype(np.float64) / step).astype(whole)
        single = np.ones(len(alone), dtype=np.int32)
        if not codes:
            return cls(alone, alone, single, step, 0)
        total, largest, many = np.zeros_like(alone), np.zeros_like(alone), np.zeros_like(single)
        for brought in vocabulary.beginnings.T:  # PAD, of which there are no features, where there is none
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

    def pool(
        self,
        tokens: Tokens,
        rows: np.ndarray,
        into: Mapping[str, np.ndarray],
        room: np.ndarray,
        added: tuple[np.ndarray, np.ndarray],
    ) -> None:
        """Write sums, means and maxima over the tokens of admissions, in steps, to the arrays of `into` of that name.

        `added` is a further table, of whole numbers in 64 bits, and where the sums of its rows go. Admissions of one
        length that follow each other are worked on together, so let them come by length; `room` has the type and width
        of the table, and more rows than the longest has tokens.
        """
        weights, sums = added
        first = tokens.offsets[rows]
        counts = tokens.offsets[rows + 1] - first
        for length, some in _alike(counts, len(room)):
            ids = tokens.ids.take(first[some] + np.arange(length)[:, None], mode="clip")
            joined, held = room[: ids.shape[1]], None
            gathered = room[len(joined) : len(joined) + ids.size].reshape(*ids.shape, room.shape[1])
            for how, pooled in into.items():
                source, join = (self.largest, np.maximum) if how == "max" else (self.total, np.add)
                if source is not held:
                    held, _ = source, np.take(source, ids, axis=0, out=gathered, mode="clip")
                join.reduce(gathered, axis=0, out=joined, initial=None if length else 0)
                if how == "mean":
                    np.multiply(joined, self._share(ids), out=pooled[some], dtype=np.float32, casting="unsafe")
                else:
                    pooled[some] = joined
            if sums.size:
                flat = weights.take(ids, axis=0, mode="clip").reshape(length, sums[some].size)
                sums[some] = flat.sum(axis=0).reshape(sums[some].shape)  # long rows are summed faster than short ones

    def _share(self, ids: np.ndarray) -> np.ndarray | np.float32:
        """Return the share of a token in the mean of its admission, a column of `ids`."""
        if not self.codes:
            return np.float32(1 / max(len(ids), 1))
        return (1 / np.maximum(self.many.take(ids).sum(axis=0, dtype=np.int32), 1)).astype(np.float32)[:, None]


def _alike(counts: np.ndarray, room: int) -> Iterator[tuple[int, slice]]:
    """Give runs of equal counts, of each as many as have room with a place for what they are joined to."""
    ends = [*(np.flatnonzero(np.diff(counts)) + 1).tolist(), len(counts)]
    for start, end in zip([0, *ends], ends):
        count = int(counts[start])
        size = room // (count + 1)
        yield from ((count, slice(at, min(at + size, end))) for at in range(start, end, size))
