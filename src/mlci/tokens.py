"""Codes become token ids: a vocabulary fitted on the training split, then flat ids and offsets, never a padded matrix.

A code gives one token for each depth of the vocabulary: its first so many characters (the paper: one depth of 4). A
token belongs to an ICD version, because the same text means different things in ICD-9 and ICD-10. Needs NumPy alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from mlci.codes.admissions import Admissions
from mlci.codes.outcome import outcome_codes

PAD, UNK = 0, 1
SPECIAL = ("<PAD>", "<UNK>")


def positions(starts: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Positions of several runs of a flat array, laid end to end, and the offsets of the runs in the result."""
    offsets = np.concatenate([[0], np.cumsum(counts)])
    return np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], counts), offsets


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
        starts = self.offsets[rows]
        flat, offsets = positions(starts, self.offsets[rows + 1] - starts)
        return Tokens(self.ids[flat], offsets)


@dataclass(frozen=True)
class Vocabulary:
    """Known tokens and the ICD version of each; id 0 is padding (never used in flat form), id 1 every other code."""

    tokens: tuple[str, ...]
    versions: tuple[int, ...]
    depths: tuple[int, ...] = (4,)
    max_codes: int = 256
    ignored: tuple[str, ...] = ()  # ICD version, colon, code or its beginning: such codes are as if not recorded

    def __len__(self) -> int:
        return len(SPECIAL) + len(self.tokens)

    @classmethod
    def fit(
        cls,
        train: Admissions,
        *,
        depths: tuple[int, ...] = (4,),
        max_codes: int = 256,
        min_admissions: int = 1,
        without_outcome_codes: bool = False,
    ) -> "Vocabulary":
        """The tokens of the training admissions, sorted, that occur in at least `min_admissions` of them."""
        options = {"depths": depths, "max_codes": max_codes, "without_outcome_codes": without_outcome_codes}
        return cls.of(cls.count(train, **options), min_admissions=min_admissions, **options)

    @classmethod
    def of(
        cls,
        seen: Mapping[tuple[int, str], int],
        *,
        depths: tuple[int, ...],
        max_codes: int,
        min_admissions: int,
        without_outcome_codes: bool,
    ) -> "Vocabulary":
        """From the number of admissions that have each (ICD version, token)."""
        kept = sorted(name for name, count in seen.items() if count >= min_admissions)
        tokens, versions = tuple(text for _, text in kept), tuple(version for version, _ in kept)
        return cls(tokens, versions, tuple(depths), max_codes, _telling() if without_outcome_codes else ())

    @staticmethod
    def count(
        train: Admissions, *, depths: tuple[int, ...], max_codes: int, without_outcome_codes: bool = False
    ) -> dict[tuple[int, str], int]:
        """In how many admissions each (ICD version, token) occurs; counts of parts of a split add up."""
        if without_outcome_codes:
            train = without(train, _telling())
        keys = [_prefixes(value, int(version), depths) for value, version in zip(train.values, train.versions)]
        names = sorted({key for each in keys for key in each})
        number = {key: position for position, key in enumerate(names)}
        indices, offsets = _first(train, max_codes)
        rows = np.repeat(np.arange(len(train)), np.diff(offsets))
        # Codes that share a prefix count once for an admission.
        seen = np.zeros(len(names), dtype=np.int64)
        for depth in range(len(depths)):
            group = np.array([number[each[min(depth, len(each) - 1)]] for each in keys], dtype=np.int64)
            if len(rows):
                pairs = np.unique(group[indices] * np.int64(len(train)) + rows)
                seen = np.maximum(seen, np.bincount(pairs // len(train), minlength=len(names)))
        return dict(zip(names, seen.tolist()))

    @cached_property
    def _ids(self) -> tuple[dict[tuple[int, str], int], int | None]:
        """The id of each token, and the ICD version if all tokens share one."""
        versions = set(self.versions)
        only = versions.pop() if len(versions) == 1 else None
        return {key: number for number, key in enumerate(zip(self.versions, self.tokens), start=len(SPECIAL))}, only

    def encode(self, admissions: Admissions) -> Tokens:
        """Token ids of each admission's first `max_codes` codes, in recorded order; duplicates stay.

        A code without any known token is one UNK. A code whose version nobody said is read as the vocabulary's, where
        that is unambiguous, and a vocabulary fitted on such codes takes every version.
        """
        admissions = without(admissions, self.ignored)
        (ids, only), found = self._ids, []
        for value, version in zip(admissions.values, admissions.versions.tolist()):
            version = only if only is not None and 0 in (only, version) else version
            known = [ids[key] for key in _prefixes(value, version, self.depths) if key in ids]
            found.append(known or [UNK])
        indices, offsets = _first(admissions, self.max_codes)
        widths = np.fromiter(map(len, found), dtype=np.int64, count=len(found))
        table = np.array([token for known in found for token in known], dtype=np.int32)
        if (widths == 1).all():
            return Tokens(table[indices], offsets)
        starts = np.cumsum(widths) - widths
        flat, ends = positions(starts[indices], widths[indices])
        return Tokens(table[flat], ends[offsets])


def _prefixes(code: str, version: int, depths: tuple[int, ...]) -> list[tuple[int, str]]:
    """The code's tokens, shortest first; a code shorter than a depth is its own token, once."""
    return [(version, text) for text in dict.fromkeys(code[:depth] for depth in sorted(depths))]


def _telling() -> tuple[str, ...]:
    return tuple(f"{code.version}:{code.code}" for code in outcome_codes())


def without(admissions: Admissions, ignored: tuple[str, ...]) -> Admissions:
    """The admissions without the codes that begin like one of `ignored`; a code of no version is of either."""
    if not ignored:
        return admissions
    beginnings: dict[int, tuple[str, ...]] = {0: tuple(text.split(":")[1] for text in ignored)}
    for version in (9, 10):
        beginnings[version] = tuple(text.split(":")[1] for text in ignored if text.startswith(f"{version}:"))
    gone = [value.startswith(beginnings[int(v)]) for value, v in zip(admissions.values, admissions.versions)]
    kept = ~np.array(gone, dtype=bool)[admissions.indices]
    offsets = np.concatenate([[0], np.cumsum(kept)])[admissions.offsets]
    return replace(admissions, indices=admissions.indices[kept], offsets=offsets)


def _first(admissions: Admissions, limit: int) -> tuple[np.ndarray, np.ndarray]:
    """The indices of each admission's first `limit` codes, and their offsets."""
    counts = np.diff(admissions.offsets)
    if not len(counts) or counts.max() <= limit:
        return admissions.indices, admissions.offsets
    flat, offsets = positions(admissions.offsets[:-1], np.minimum(counts, limit))
    return admissions.indices[flat], offsets
