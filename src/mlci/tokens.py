"""Codes become token ids: a vocabulary fitted on the training split, then flat ids and offsets, never a padded matrix.

Needs NumPy alone.
"""

from dataclasses import dataclass

import numpy as np

from mlci.codes.admissions import Admissions

PAD, UNK = 0, 1
SPECIAL = ("<PAD>", "<UNK>")


@dataclass(frozen=True)
class Tokens:
    """Admission i has the tokens `ids[offsets[i] : offsets[i + 1]]`."""

    ids: np.ndarray  # int32, flat
    offsets: np.ndarray  # int64, one more than admissions

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def counts(self) -> np.ndarray:
        return np.diff(self.offsets)

    def take(self, rows: np.ndarray) -> "Tokens":
        """The tokens of the given admissions, in the given order."""
        counts = self.counts[rows]
        offsets = np.concatenate([[0], np.cumsum(counts)])
        positions = np.arange(offsets[-1]) + np.repeat(self.offsets[rows] - offsets[:-1], counts)
        return Tokens(self.ids[positions], offsets)


@dataclass(frozen=True)
class Vocabulary:
    """Known prefixes of k characters; id 0 is padding (never used in flat form), id 1 stands for every other code."""

    tokens: tuple[str, ...]
    k: int = 4
    max_tokens: int = 256

    def __len__(self) -> int:
        return len(SPECIAL) + len(self.tokens)

    @classmethod
    def fit(cls, train: Admissions, *, k: int = 4, max_tokens: int = 256, min_admissions: int = 1) -> "Vocabulary":
        """The prefixes of the training admissions, sorted, that occur in at least `min_admissions` of them."""
        prefixes, group = np.unique([value[:k] for value in train.values], return_inverse=True)
        rows = np.repeat(np.arange(len(train)), np.diff(train.offsets))
        pairs = np.unique(np.column_stack([group[train.indices], rows]), axis=0)[:, 0] if len(rows) else []
        seen = np.bincount(np.asarray(pairs, dtype=np.int64), minlength=len(prefixes))
        return cls(tuple(str(prefix) for prefix in prefixes[seen >= min_admissions]), k, max_tokens)

    def encode(self, admissions: Admissions) -> Tokens:
        """Token ids of each admission's first `max_tokens` codes, in recorded order; duplicates stay."""
        ids = {token: number for number, token in enumerate(self.tokens, start=len(SPECIAL))}
        known = np.array([ids.get(value[: self.k], UNK) for value in admissions.values], dtype=np.int32)
        counts = np.diff(admissions.offsets)
        kept = np.minimum(counts, self.max_tokens)
        offsets = np.concatenate([[0], np.cumsum(kept)])
        flat = known[admissions.indices] if len(known) else np.empty(0, dtype=np.int32)
        if not np.array_equal(kept, counts):
            flat = flat[np.arange(offsets[-1]) + np.repeat(admissions.offsets[:-1] - offsets[:-1], kept)]
        return Tokens(flat, offsets)
