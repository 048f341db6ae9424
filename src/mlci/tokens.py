"""Turn codes into token ids, with a vocabulary that is fitted on the training split.

A token is a prefix of a code. Each depth of the vocabulary is a length of prefix and gives one token per code; the
paper has one depth, 4. A token belongs to an ICD version, because the same text means different things in ICD-9 and
ICD-10. Optionally the first code, the principal diagnosis, gives its tokens a second time with a mark. Token ids are
kept as one flat array with offsets, never as a padded matrix. `encode`, all that training needs, imports NumPy alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from mlci.codes.admissions import Admissions
from mlci.codes.icd import FEW
from mlci.codes.outcome import telling_codes
from mlci.codes.poa import ALL

PAD, UNK = 0, 1
SPECIAL = ("<PAD>", "<UNK>")
PRINCIPAL = ">"  # first character of a token that only the principal diagnosis gives
MANY = "#"  # first character of a token for the number of codes; the least number of its band follows
NUMBERS = np.array([1, 2, 3, 4, 5, 7, 10, 15, 20, 30])  # least number of codes of each band
BANDS = np.array([0, *(step * 10**power for power in range(1, 8) for step in (1, 2, 5))])  # 10, 20, 50, 100, ...


def positions(starts: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the positions of several runs of a flat array, end to end, and the offsets of the runs in the result.

    Args:
        starts: the position where each run begins.
        counts: the length of each run.

    >>> import numpy as np
    >>> found, offsets = positions(np.array([5, 0]), np.array([2, 3]))
    >>> found.tolist(), offsets.tolist()
    ([5, 6, 0, 1, 2], [0, 2, 5])
    """
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
        """Return the tokens of the admissions `rows`, in that order.

        >>> Tokens(np.array([7, 2, 5]), np.array([0, 2, 3])).take(np.array([1, 0])).ids.tolist()
        [5, 7, 2]
        """
        starts = self.offsets[rows]
        flat, offsets = positions(starts, self.offsets[rows + 1] - starts)
        return Tokens(self.ids[flat], offsets)


@dataclass(frozen=True)
class TokenForm:
    """Which tokens codes and admissions give; the fields are those of `Vocabulary`."""

    depths: tuple[int, ...] = (4,)
    max_codes: int = 256
    without_outcome_codes: bool = False
    primary: bool = False
    poa: str = ALL
    number_of_codes: bool = False


@dataclass(frozen=True)
class Vocabulary:
    """Known tokens and the ICD version of each; id 0 is padding (never used in flat form), id 1 every other code."""

    tokens: tuple[str, ...]
    versions: tuple[int, ...]
    depths: tuple[int, ...] = (4,)
    max_codes: int = 256
    ignored: tuple[str, ...] = ()  # codes to leave out: ICD version, colon, code or prefix
    primary: bool = False  # whether the first code is the principal diagnosis and gives marked tokens too
    support: tuple[int, ...] = ()  # least number of training admissions with each token, by BANDS; 0: under 10
    poa: str = ALL  # the codes it was fitted on: all, or only those present on admission; readers leave out the others
    number_of_codes: bool = False  # whether the number of an admission's codes is a token too

    def __len__(self) -> int:
        return len(SPECIAL) + len(self.tokens)

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> "Vocabulary":
        """Return the vocabulary with these fields, as JSON holds them: lists in place of tuples.

        >>> Vocabulary.from_dict({"tokens": ["I50"], "versions": [10]}).tokens
        ('I50',)
        """
        plain: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in fields.items()}
        return cls(**plain)

    @property
    def longest(self) -> int:
        """The largest number of tokens of one admission."""
        return (self.max_codes + self.primary) * len(self.depths) + self.number_of_codes

    @classmethod
    def fit(cls, train: Admissions, *, min_admissions: int = 1, **options: Any) -> "Vocabulary":
        """Return a vocabulary fitted on training admissions.

        Args:
            train: the admissions.
            min_admissions: the least number of admissions in which a token must occur.
            options: the fields of `TokenForm`.

        >>> visits = Admissions.from_lists([["I509", "N179"], ["I500"]], icd_version=10)
        >>> Vocabulary.fit(visits, depths=(3,)).tokens
        ('I50', 'N17')
        """
        return cls.of(cls.count(train, **options), min_admissions=min_admissions, **options)

    @classmethod
    def of(cls, seen: Mapping[tuple[int, str], int], *, min_admissions: int, **options: Any) -> "Vocabulary":
        """Return a vocabulary of counted tokens.

        Args:
            seen: (ICD version, token) → number of admissions in which it occurs.
            min_admissions: the least number of admissions in which a token must occur.
            options: the fields of `TokenForm`.

        >>> Vocabulary.of({(10, "I50"): 12, (10, "N17"): 2}, min_admissions=10).tokens
        ('I50',)
        """
        form = TokenForm(**options)
        kept = sorted(name for name, count in seen.items() if count >= min_admissions)
        counts = np.fromiter((seen[name] for name in kept), dtype=np.int64, count=len(kept))
        return cls(
            tokens=tuple(text for _, text in kept),
            versions=tuple(version for version, _ in kept),
            depths=tuple(form.depths),
            max_codes=form.max_codes,
            ignored=telling() if form.without_outcome_codes else (),
            primary=form.primary,
            poa=form.poa,
            support=tuple(BANDS[np.searchsorted(BANDS, counts, side="right") - 1].tolist()),
            number_of_codes=form.number_of_codes,
        )

    @staticmethod
    def count(train: Admissions, **options: Any) -> dict[tuple[int, str], int]:
        """Return in how many admissions each (ICD version, token) occurs; counts of parts of a split add up.

        Args:
            train: the admissions; `poa` is not applied here, but when they are read.
            options: the fields of `TokenForm`.

        >>> visits = Admissions.from_lists([["I509", "N179"], ["I500"]], icd_version=10)
        >>> Vocabulary.count(visits, depths=(3,))
        {(10, 'I50'): 2, (10, 'N17'): 1}
        """
        form = TokenForm(**options)
        if form.without_outcome_codes:
            train = without(train, telling())
        codes = list(zip(train.values, train.versions.tolist()))
        indices, offsets = _first(train, form.max_codes)
        recorded = {"": (indices, np.repeat(np.arange(len(train)), np.diff(offsets)))}
        if form.primary:
            rows = np.flatnonzero(np.diff(offsets))
            recorded[PRINCIPAL] = (indices[offsets[rows]], rows)
        seen: dict[tuple[int, str], int] = {}
        for mark, (indices, rows) in recorded.items():
            for depth in sorted(form.depths, reverse=True):  # least depth last: its counts include longer codes
                names, group = _distinct([(version, mark + value[:depth]) for value, version in codes])
                # Codes with the same prefix count once per admission.
                pairs = group[indices] * np.int64(max(len(train), 1)) + rows
                pairs.sort()
                pairs = pairs[np.diff(pairs, prepend=-1) > 0]
                seen.update(zip(names, np.bincount(pairs // max(len(train), 1), minlength=len(names)).tolist()))
        if form.number_of_codes:
            band = np.searchsorted(NUMBERS, np.diff(offsets), side="right")
            counted = np.bincount(band, minlength=len(NUMBERS) + 1)[1:].tolist()
            seen.update({(0, _many(least)): count for least, count in zip(NUMBERS.tolist(), counted) if count})
        return seen

    @cached_property
    def _ids(self) -> dict[tuple[int, str], int]:
        """The id of each (ICD version, token)."""
        return {key: number for number, key in enumerate(zip(self.versions, self.tokens), start=len(SPECIAL))}

    @cached_property
    def _only_version(self) -> int | None:
        """The ICD version of all tokens, or None if they have several; 0 means unknown."""
        versions = set(self.versions)
        if self.number_of_codes:
            versions = {version for version, text in zip(self.versions, self.tokens) if not text.startswith(MANY)}
        return versions.pop() if len(versions) == 1 else None

    def _read_as(self, version: int) -> int:
        """Return the ICD version under which codes of a version (0: unknown) are looked up."""
        only = self._only_version
        return only if only is not None and 0 in (only, version) else version

    def encode(self, admissions: Admissions) -> Tokens:
        """Return the token ids of each admission's first `max_codes` codes, in recorded order; duplicates stay.

        A code without a known token gives UNK once. If all tokens are of one ICD version, codes of unknown version are
        read as being of that version. A vocabulary fitted on codes of unknown version takes codes of any version.

        Args:
            admissions: normalised codes.

        >>> visits = Admissions.from_lists([["I509", "N179"], ["I500"]], icd_version=10)
        >>> Vocabulary(("I50",), (10,), depths=(3,)).encode(visits).ids.tolist()  # 1 is any other code
        [2, 1, 2]
        """
        admissions = without(admissions, self.ignored)
        ids, found, marked = self._ids, [], []
        for value, version in zip(admissions.values, admissions.versions.tolist()):
            version = self._read_as(version)
            texts = dict.fromkeys(value[:depth] for depth in sorted(self.depths))  # a short code is one token, once
            found.append([ids[version, text] for text in texts if (version, text) in ids] or [UNK])
            if self.primary:
                marked.append([ids[version, PRINCIPAL + text] for text in texts if (version, PRINCIPAL + text) in ids])
        indices, offsets = _first(admissions, self.max_codes)
        if self.primary:
            first = offsets[:-1][np.diff(offsets) > 0]
            indices = indices.astype(np.int64)
            indices[first] += len(found)
            found += [plain + more for plain, more in zip(found, marked)]
        widths = np.fromiter(map(len, found), dtype=np.int64, count=len(found))
        table = np.array([token for known in found for token in known], dtype=np.int32)
        if (widths == 1).all():
            return self._numbered(Tokens(table[indices], offsets), np.diff(offsets))
        starts = np.cumsum(widths) - widths
        flat, ends = positions(starts[indices], widths[indices])
        return self._numbered(Tokens(table[flat], ends[offsets]), np.diff(offsets))

    def _numbered(self, tokens: Tokens, many: np.ndarray) -> Tokens:
        """Add the token for an admission's number of codes, if the vocabulary has such tokens."""
        if not self.number_of_codes:
            return tokens
        found = self.number_tokens(many)
        rows = np.flatnonzero(found)
        more = np.bincount(rows + 1, minlength=len(tokens.offsets)).cumsum()
        return Tokens(np.insert(tokens.ids, tokens.offsets[rows + 1], found[rows]), tokens.offsets + more)

    def number_tokens(self, many: np.ndarray) -> np.ndarray:
        """Return the token for each number of codes (`many`), PAD where there is none.

        >>> Vocabulary(("I50",), (10,)).number_tokens(np.array([3]))
        array([0], dtype=int32)
        """
        ids = [PAD, *(self._ids.get((0, _many(least)), PAD) for least in NUMBERS.tolist())]
        return np.array(ids, dtype=np.int32)[np.searchsorted(NUMBERS, many, side="right")]

    def leaves(self, admissions: Admissions, *, mark: str = "") -> np.ndarray:
        """Return the deepest known token of each distinct code: UNK where none is known, PAD where the code is ignored.

        A code's other tokens are prefixes of the deepest one, so the deepest one stands for all. The last result is
        cached, because the batches of a file often share their distinct codes.

        Args:
            admissions: normalised codes.
            mark: the first character of the tokens to look up: none, or `PRINCIPAL`.

        >>> visits = Admissions.from_lists([["I509", "N179"], ["I500"]], icd_version=10)
        >>> known = Vocabulary(("I50", "I509"), (10, 10), depths=(3, 4)).leaves(visits)
        >>> dict(zip(visits.values.tolist(), known.tolist()))  # 1 is any other code
        {'I500': 2, 'I509': 3, 'N179': 1}
        """
        values, versions, answer = self._last.get(mark, (None, None, np.empty(0)))
        if values is not admissions.values or not np.array_equal(versions, admissions.versions):
            answer = self._look_up(admissions, mark)
            self._last[mark] = admissions.values, admissions.versions, answer
        return answer

    def _look_up(self, admissions: Admissions, mark: str) -> np.ndarray:
        import pyarrow as pa
        import pyarrow.compute as pc

        if len(admissions.values) <= FEW:
            return self._look_up_few(admissions, mark)
        text = pa.array(admissions.values, pa.string())
        found = np.full(len(text), UNK, dtype=np.int32)
        for version in np.unique(admissions.versions).tolist():
            rows = np.flatnonzero(admissions.versions == version)
            texts, ids = self._texts(self._read_as(version))
            own = text if len(rows) == len(text) else text.take(pa.array(rows))
            for depth in sorted(self.depths):
                prefixes = pc.utf8_slice_codeunits(own, 0, depth)
                prefixes = pc.binary_join_element_wise(mark, prefixes, "") if mark else prefixes
                place = pc.fill_null(pc.index_in(prefixes, value_set=texts), -1).to_numpy()
                found[rows[place >= 0]] = ids[place[place >= 0]]
        found[_ignored(admissions, self.ignored)] = PAD
        return found

    def _look_up_few(self, admissions: Admissions, mark: str) -> np.ndarray:
        """Do what `_look_up` does, code by code: faster for a few codes."""
        ids, depths = self._ids, sorted(self.depths, reverse=True)
        found = np.full(len(admissions.values), UNK, dtype=np.int32)
        for place, (value, version) in enumerate(zip(admissions.values, admissions.versions.tolist())):
            version = self._read_as(version)
            keys = ((version, mark + value[:depth]) for depth in depths)
            found[place] = next((ids[key] for key in keys if key in ids), UNK)
        found[_ignored(admissions, self.ignored)] = PAD
        return found

    def has(self, version: int, text: str) -> bool:
        """Return whether `text` is a token of the ICD `version`.

        >>> Vocabulary(("I50",), (10,)).has(10, "I50")
        True
        """
        return (version, text) in self._ids

    def deepest(self, admissions: Admissions) -> Tokens:
        """Return what `encode` does, but with the deepest known token of each code alone; marked tokens stay.

        Args:
            admissions: normalised codes.

        >>> visits = Admissions.from_lists([["I509", "N179"], ["I500"]], icd_version=10)
        >>> Vocabulary(("I50", "I509"), (10, 10), depths=(3, 4)).deepest(visits).ids.tolist()
        [3, 1, 2]
        """
        leaf = self.leaves(admissions)
        indices, offsets = _first(admissions.keep(leaf != PAD), self.max_codes)
        tokens = Tokens(leaf.take(indices), offsets)
        if not self.primary:
            return self._numbered(tokens, np.diff(offsets))
        rows = np.flatnonzero(tokens.counts)
        marked = self.leaves(admissions, mark=PRINCIPAL)[indices[offsets[rows]]]
        rows, marked = rows[marked > UNK], marked[marked > UNK]
        more = np.bincount(rows + 1, minlength=len(offsets)).cumsum()
        return self._numbered(Tokens(np.insert(tokens.ids, offsets[rows], marked), offsets + more), np.diff(offsets))

    @cached_property
    def prefixes(self) -> np.ndarray:
        """The prefixes of each token that are tokens, itself included: their ids by depth, PAD where none is known.

        A token stands in the column of the least depth that gives it, so a short code has one token, not several.
        """
        ids, depths = self._ids, sorted(self.depths)
        found = np.zeros((len(self), len(depths)), dtype=np.int32)
        names = [(0, ""), (0, ""), *ids]
        long = np.array([len(text) - text.startswith(PRINCIPAL) for _, text in names])
        for place, (before, depth) in enumerate(zip([0, *depths], depths)):
            itself, longer = np.flatnonzero((long > before) & (long <= depth)), np.flatnonzero(long > depth)
            found[itself, place] = itself
            found[longer, place] = [
                ids.get((version, text[: depth + (text[0] == PRINCIPAL)]), PAD)
                for version, text in map(names.__getitem__, longer.tolist())
            ]
        many = [number for (_, text), number in ids.items() if text.startswith(MANY)] if self.number_of_codes else []
        found[many], found[many, 0] = PAD, many
        found[UNK, 0] = UNK
        return found

    @property
    def parents(self) -> np.ndarray:
        """The longest shorter prefix of each token that is a token too; PAD where there is none.

        >>> Vocabulary(("I50", "I509"), (10, 10), depths=(3, 4)).parents.tolist()
        [0, 0, 0, 2]
        """
        own, found = np.arange(len(self)), np.zeros(len(self), dtype=np.int32)
        for column in self.prefixes.T:
            found = np.where((column != PAD) & (column != own), column, found)
        return found

    @cached_property
    def _last(self) -> dict[str, tuple[Any, Any, np.ndarray]]:
        return {}

    @cached_property
    def _by_version(self) -> dict[int, tuple[Any, np.ndarray]]:
        """The texts of each ICD version's tokens as an Arrow array, and their ids."""
        import pyarrow as pa

        versions = np.array(self.versions)
        places = {version: np.flatnonzero(versions == version) for version in set(self.versions)}
        return {
            version: (pa.array([self.tokens[place] for place in rows], pa.string()), (rows + 2).astype(np.int32))
            for version, rows in places.items()
        }

    def _texts(self, version: int) -> tuple[Any, np.ndarray]:
        import pyarrow as pa

        return self._by_version.get(version, (pa.array([], pa.string()), np.empty(0, dtype=np.int32)))


def _distinct(keys: list[tuple[int, str]]) -> tuple[list[tuple[int, str]], np.ndarray]:
    """Return the distinct keys, and the place of each key among them."""
    number: dict[tuple[int, str], int] = {}
    group = np.array([number.setdefault(key, len(number)) for key in keys], dtype=np.int64)
    return list(number), group


def _many(least: int) -> str:
    return f"{MANY}{least:02d}"


def telling(grade: str | None = None) -> tuple[str, ...]:
    """Return the codes that reveal an outcome, as `without` takes them: version, colon, code or prefix.

    Args:
        grade: as in `mlci.codes.outcome.telling_codes`.

    >>> all(text.split(":")[0] in ("9", "10") for text in telling("possible"))
    True
    """
    return tuple(f"{code.version}:{code.code}" for code in telling_codes(grade))


def without(admissions: Admissions, ignored: tuple[str, ...]) -> Admissions:
    """Leave out the codes that start with one of `ignored`.

    Args:
        admissions: as `mlci.codes.admissions` reads them.
        ignored: version, colon, code or prefix; a recorded code of unknown version is compared with both versions.

    Returns:
        The admissions, without these codes.

    >>> from mlci.codes.admissions import as_admissions
    >>> kept = without(as_admissions([["I46.9", "I50.9"]], icd_version=10), ("10:I46",))
    >>> kept.values[kept.indices].tolist()
    ['I509']
    """
    return admissions.keep(~_ignored(admissions, ignored)) if ignored else admissions


def _ignored(admissions: Admissions, ignored: tuple[str, ...]) -> np.ndarray:
    """Return whether each distinct code starts with one of `ignored`."""
    if not ignored:
        return np.zeros(len(admissions.values), dtype=bool)
    prefixes: dict[int, tuple[str, ...]] = {0: tuple(text.split(":")[1] for text in ignored)}
    for version in (9, 10):
        prefixes[version] = tuple(text.split(":")[1] for text in ignored if text.startswith(f"{version}:"))
    found = [value.startswith(prefixes[int(v)]) for value, v in zip(admissions.values, admissions.versions)]
    return np.array(found, dtype=bool)


def _first(admissions: Admissions, limit: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the indices of each admission's first `limit` codes, and their offsets."""
    counts = admissions.counts
    if not len(counts) or counts.max() <= limit:
        return admissions.indices, admissions.offsets
    flat, offsets = positions(admissions.offsets[:-1], np.minimum(counts, limit))
    return admissions.indices[flat], offsets
