"""Pool the features of an admission's tokens: their sum, mean and maximum, by a gather from a table, in whole numbers.

In come the features of each token and flat tokens; out come rows of 32-bit numbers. Plain sums of whole numbers are
exact, so neither the order of the tokens nor the company an admission is pooled in can change a bit.

A row of the table is a token, or a code: the known tokens of a code are the beginnings of its deepest one, so their sum
and maximum are looked up by that one, and a code of three tokens costs one row instead of three.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from mlci.tokens import Tokens, Vocabulary

GATHERED = 2**17  # numbers gathered at once: a core's cache holds them until they are summed


@dataclass(frozen=True)
class PoolingTable:
    """What each row brings to an admission, in whole multiples of a step per column; the last row brings nothing.

    Row t is token t; row `codes` + t, where codes have several tokens, is token t with its beginnings.
    """

    total: np.ndarray
    largest: np.ndarray  # the same array where rows are single tokens
    many: np.ndarray  # tokens in a row
    step: np.ndarray
    codes: int  # where the rows of codes begin; 0 where a code is one token

    @classmethod
    def of(cls, features: np.ndarray, vocabulary: Vocabulary, *, codes: bool) -> "PoolingTable":
        """Lay out the features of tokens, none below 0; with `codes`, also those of tokens with their beginnings."""
        longest = vocabulary.longest
        whole = np.int32 if longest <= 2048 else np.int64  # 20 bits or more remain for each value
        step = features.max(axis=0).astype(np.float64) / (np.iinfo(whole).max // longest - 1)
        step[step == 0] = 1
        alone = np.rint(features / step).astype(whole)
        nothing, single = np.zeros_like(alone[:1]), np.ones(len(alone), dtype=np.int32)
        if not codes:
            plain = np.concatenate([alone, nothing])
            return cls(plain, plain, np.append(single, 0), step.astype(np.float32), 0)
        total, largest, many = np.zeros_like(alone), np.zeros_like(alone), np.zeros_like(single)
        for brought in vocabulary.beginnings.T:  # PAD, of which there are no features, where there is none
            rows = np.flatnonzero(brought)
            total[rows] += alone[brought[rows]]
            largest[rows] = np.maximum(largest[rows], alone[brought[rows]])
            many[rows] += 1
        return cls(
            np.concatenate([alone, total, nothing]),
            np.concatenate([alone, largest, nothing]),
            np.concatenate([single, many, [0]]),
            step.astype(np.float32),
            len(alone),
        )

    def sizes(self, tokens: Tokens) -> np.ndarray:
        """Return how many tokens each admission has: a row may stand for several."""
        if not self.codes:
            return tokens.counts
        return np.diff(np.append(0, self.many[tokens.ids].cumsum())[tokens.offsets])

    def pool(self, tokens: Tokens, rows: np.ndarray, into: Mapping[str, np.ndarray]) -> None:
        """Write sums over the tokens of admissions, and maxima for the name max, to the arrays of `into`.

        The longest admissions come first: of those that are gathered together, few places then stay empty.
        """
        first, width = tokens.offsets[rows], len(self.step)
        counts, start = tokens.offsets[rows + 1] - first, 0
        room = np.empty(width * max(GATHERED // width, int(counts.max(initial=0))), dtype=self.total.dtype)
        while start < len(rows):
            longest = int(counts[start])
            some = slice(start, min(len(rows), start + max(1, GATHERED // (width * max(1, longest)))))
            place = np.arange(longest)[:, None]
            ids = tokens.ids.take(first[some] + place, mode="clip")
            ids[place >= counts[some]] = len(self.many) - 1
            gathered, held = room[: ids.size * width].reshape(*ids.shape, width), None
            for how, pooled in into.items():
                source, join = (self.largest, np.maximum) if how == "max" else (self.total, np.add)
                if source is not held:
                    np.take(source, ids, axis=0, out=gathered, mode="clip")
                    held = source
                found = join.reduce(gathered, axis=0, dtype=source.dtype, initial=0)  # no feature is below 0
                np.multiply(found, self.step, out=pooled[some], dtype=np.float32, casting="unsafe")
            start = some.stop
