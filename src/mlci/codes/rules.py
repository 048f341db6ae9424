"""Compute flags and scores of any choice of indices from the categories of codes, stored as bits.

The categories of the chosen indices are numbered: category k is bit k mod 64 of word k // 64. Bits are an array with a
row for each word and a column for each code or admission. Each distinct code is looked up once. The bits of an
admission are the OR of the bits of its codes. A score is the sum of the weights of its bits, looked up for eight bits
at a time. An index without a list for an ICD version has one more bit, which codes of that version set: the score of
such an admission is masked, not 0.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from mlci.codes.family import CLASSIC, Category, Index, family
from mlci.codes.icd import VERSIONS

WORD = 64
AGES = (50, 60, 70, 80)  # ages at which a point is added (Charlson 1994)


class Entries(NamedTuple):
    """Listed prefixes of one length, or whole codes (`length` None), with their bits; the last column: no match."""

    length: int | None
    codes: Any  # an Arrow array
    present: np.ndarray  # bits of a code that was present on admission
    late: np.ndarray  # bits of a code that arose after admission


class Rules:
    """The rules of several indices.

    Args:
        names: names of indices.

    >>> rules = Rules(("charlson", "gagne"))
    >>> bits = rules.code_bits(["I509", "XXX"], 10)
    >>> {name: points.tolist() for name, points in rules.scores(bits, ["cci_charlson", "gagne_score"]).items()}
    {'cci_charlson': [1, 0], 'gagne_score': [2, 0]}
    """

    def __init__(self, names: Sequence[str]):
        self.indices: tuple[Index, ...] = tuple(family()[name] for name in names)
        self.categories: tuple[Category, ...] = tuple(item for index in self.indices for item in index.categories)
        unread = [_unread(index) for index in self.indices if len(index.versions) < len(VERSIONS)]
        self.place = {name: k for k, name in enumerate([*(item.column for item in self.categories), *unread])}
        self.words = -(-len(self.place) // WORD)
        self._none = np.zeros((2, self.words), dtype=np.uint64)
        self._entries: dict[int, list[Entries]] = {}
        self._tables: dict[str, list[tuple[int, np.ndarray]]] = {}
        skipping = [item.column for index in self.indices if index.skips_principal for item in index.categories]
        self.secondary_alone = self.mask(skipping)

    def mask(self, columns: Sequence[str]) -> np.ndarray:
        """Return the bits of the categories with these `columns`, one number per word of 64 bits.

        >>> Rules(["charlson"]).mask(["cci_mi"])
        array([1], dtype=uint64)
        """
        found = [0] * self.words
        for column in columns:
            found[self.place[column] // WORD] |= 1 << self.place[column] % WORD
        return np.array(found, dtype=np.uint64)

    def code_bits(self, codes: Sequence[str] | np.ndarray, version: int, *, late: bool = False) -> np.ndarray:
        """Return the categories of each normalised code as bits.

        Args:
            codes: normalised codes.
            version: the ICD version of the codes.
            late: whether the codes arose after admission; they then set only the bits that AHRQ's rule allows.

        >>> Rules(["charlson"]).code_bits(["I252", "I10"], 10)  # myocardial infarction is the first category
        array([[1, 0]], dtype=uint64)
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        text = pa.array(codes, pa.string())
        bits = np.zeros((self.words, len(text)), dtype=np.uint64)
        for entries in self._listed(version):
            cut = text if entries.length is None else pc.utf8_slice_codeunits(text, 0, entries.length)
            place = pc.fill_null(pc.index_in(cut, value_set=entries.codes), -1).to_numpy()
            for word, of_entry in zip(bits, entries.late if late else entries.present):
                word |= of_entry[place]
        unread = self.mask([_unread(index) for index in self.indices if version not in index.versions])
        return bits | unread[:, None] if unread.any() else bits

    def _listed(self, version: int) -> list[Entries]:
        """Return the listed codes of a version, grouped by length."""
        import pyarrow as pa

        if version not in self._entries:
            found: dict[int | None, dict[str, np.ndarray]] = {}
            for index in self.indices:
                for item in index.categories:
                    bit = self.mask([item.column])
                    for code in item.codes[version]:
                        listed = found.setdefault(None if index.exact else len(code), {})
                        present, late = listed.setdefault(code, np.zeros((2, self.words), dtype=np.uint64))
                        present |= bit * (not item.only_late)
                        late |= bit * item.counts_late(code)
            self._entries[version] = [
                Entries(length, pa.array(list(listed), pa.string()), *np.stack([*listed.values(), self._none], axis=-1))
                for length, listed in found.items()
            ]
        return self._entries[version]

    def has(self, bits: np.ndarray, column: str) -> np.ndarray:
        """Return 0 or 1 for each admission: whether the bit of a category is set.

        Args:
            bits: the categories of each admission.
            column: the category's column.

        >>> rules = Rules(["charlson"])
        >>> rules.has(rules.code_bits(["I252", "I10"], 10), "cci_mi").tolist()
        [1, 0]
        """
        place = self.place[column]
        return (bits[place // WORD] >> np.uint64(place % WORD)) & np.uint64(1)

    def settled(self, bits: np.ndarray, hierarchy: bool = True) -> np.ndarray:
        """Return the final bits: milder forms are cleared if the severer one is set, and parts set their wholes.

        Args:
            bits: the categories of each admission.
            hierarchy: whether to clear milder forms.

        >>> rules = Rules(["charlson"])
        >>> bits = rules.code_bits(["E119"], 10) | rules.code_bits(["E112"], 10)
        >>> rules.scores(bits, ["cci_count"]), rules.scores(rules.settled(bits), ["cci_count"])
        ({'cci_count': array([2], dtype=int32)}, {'cci_count': array([1], dtype=int32)})
        """
        found = bits.copy()
        for item in self.categories:
            word, shift = self.place[item.column] // WORD, np.uint64(self.place[item.column] % WORD)
            for severer in item.yields_to if hierarchy else ():
                found[word] &= ~(self.has(bits, severer) << shift)
            if item.beside:
                others = np.bitwise_or.reduce([self.has(bits, other) for other in item.beside])
                found[word] &= ~((others ^ np.uint64(1)) << shift)
            for whole in (self.place[column] for column in item.part_of):
                found[whole // WORD] |= self.has(found, item.column) << np.uint64(whole % WORD)
        return found

    def flags(self, bits: np.ndarray) -> dict[str, np.ndarray]:
        """Return a Boolean array for each category of `bits` that has a name, by column.

        >>> rules = Rules(["charlson"])
        >>> [name for name, flag in rules.flags(rules.code_bits(["I252"], 10)).items() if flag[0]]
        ['cci_mi']
        """
        octets = np.ascontiguousarray(bits.T, dtype="<u8").view(np.uint8)
        every = np.unpackbits(octets, axis=1, count=len(self.categories), bitorder="little").view(bool)
        return {item.column: flag for item, flag in zip(self.categories, every.T) if item.words}

    def scores(self, bits: np.ndarray, columns: Sequence[str]) -> dict[str, np.ndarray]:
        """Return the scores of admissions by column: whole numbers, or numbers with tenths for indices that have them.

        Args:
            bits: the categories of each admission, as `settled` returns them.
            columns: names that `score_columns` returns.

        Returns:
            Arrays; masked for admissions with codes of an ICD version for which the index has no list.

        >>> rules = Rules(["hfrs"])
        >>> rules.scores(rules.code_bits(["4280"], 9), ["hfrs_score"])["hfrs_score"].tolist()
        [None]
        """
        octets = np.ascontiguousarray(bits, dtype="<u8").view(np.uint8).reshape(self.words, -1, 8)
        found = {}
        for column in columns:
            index, name = self._named(column)
            found[column] = self._score(octets, column, index, name)
            unread = self.has(bits, _unread(index)).astype(bool) if _unread(index) in self.place else np.False_
            if unread.any():
                found[column] = np.ma.MaskedArray(found[column], unread)
        return found

    def _score(self, octets: np.ndarray, column: str, index: Index, name: str) -> np.ndarray:
        if column not in self._tables:
            self._tables[column] = list(self._octet_points(index, name))
        total = np.zeros(octets.shape[1], dtype=np.int32)
        for octet, points in self._tables[column]:
            total += points[octets[octet // 8, :, octet % 8]]
        if index.floor is not None:
            total = np.maximum(total, index.floor)
        return total / 10 if _tenths(index, name) else total

    def _named(self, column: str) -> tuple[Index, str]:
        index = next(index for index in self.indices if column.startswith(f"{index.short}_"))
        return index, column[len(index.short) + 1 :]

    def _octet_points(self, index: Index, name: str):
        """Yield the octets of bits that count, each with the points of each of its 256 values."""
        points = np.zeros(self.words * WORD, dtype=np.int32)
        for item in index.categories:
            points[self.place[item.column]] = round(item.weights[name] * (10 if _tenths(index, name) else 1))
        single = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little").astype(np.int32)
        for octet, of_octet in enumerate(points.reshape(-1, 8)):
            if of_octet.any():
                yield octet, single @ of_octet

    def with_age(self, found: dict[str, np.ndarray], ages: np.ndarray) -> dict[str, np.ndarray]:
        """Return scores with points for age added, for the indices that have them: one per ten years from 50, up to 4.

        Args:
            found: scores by column.
            ages: ages in years; NaN adds no point.

        >>> rules = Rules(["charlson"])
        >>> rules.with_age({"cci_charlson": np.array([1, 1])}, np.array([49.9, 80]))
        {'cci_charlson_age': array([1, 5], dtype=int32)}
        """
        points = np.searchsorted(AGES, np.nan_to_num(ages, nan=0), side="right").astype(np.int32)
        kept = [column for column in found if self._named(column)[0].age_points]
        return {f"{column}_age": found[column].astype(np.int32) + points for column in kept}


def _unread(index: Index) -> str:
    """Return the name of the bit for codes of an ICD version for which an index has no list."""
    return f"{index.short}:unread"


def _tenths(index: Index, name: str) -> bool:
    return any(isinstance(item.weights[name], float) for item in index.categories)


@cache
def rules(names: tuple[str, ...] = CLASSIC) -> Rules:
    """Return the rules of the indices with these `names`; they are made once.

    >>> rules().categories[0].words
    'myocardial infarction'
    """
    return Rules(names)
