"""Translate codes to the other ICD version, with the General Equivalence Mappings of ICD-9-CM and ICD-10-CM.

A code mostly has several counterparts to choose from; sometimes several codes together are one counterpart. Headings
and codes newer than the maps have no entry. They are translated by the entries of codes with the same beginning, or of
the older code with the same meaning (`data/younger.csv`). Few counterparts mean exactly the same; the maps mark these.
"""

import csv
from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass
from functools import cache
from itertools import product

from mlci.codes.icd import DATA, OTHER, all_codes, check_version, normalise, title

CATEGORY = 3  # characters that codes must share to be translated alike


@dataclass(frozen=True)
class Counterpart:
    """One translation of a code; if it has several codes, they belong together."""

    codes: tuple[str, ...]
    approximate: bool


@dataclass(frozen=True)
class MapRow:
    """A row of the maps: in scenario 0 a translation by itself, else one of the codes of a choice list.

    A translation of a scenario has one code from each of its choice lists.
    """

    scenario: int
    choice_list: int
    approximate: bool
    target: str


def counterparts(code: str, version: int) -> tuple[Counterpart, ...]:
    """Return the translations of a `code` of `version`, the best first; none if the maps have nothing similar.

    >>> counterparts("428.0", 9)
    (Counterpart(codes=('I509',), approximate=True),)
    >>> [part.codes for part in counterparts("A02.1", 10)]
    [('0031', '99591')]
    """
    code = normalise(code)
    if entries := _entries(version).get(code):
        return tuple(sorted(_ways(entries), key=lambda way: (len(way.codes), not _unspecified(way, OTHER[version]))))
    kin = [way for other in _kin(code, version) for way in _ways(_entries(version)[other])]
    often = Counter(way.codes for way in kin)
    best = sorted(often, key=lambda codes: (len(codes), -often[codes]))
    return tuple(Counterpart(codes, approximate=True) for codes in best)


def _unspecified(way: Counterpart, version: int) -> bool:
    """Return whether a translation is an unspecified code, which adds no detail."""
    return "unspecified" in (title(way.codes[0], version) or "").lower()


def _ways(entries: tuple[MapRow, ...]) -> tuple[Counterpart, ...]:
    plain = [Counterpart((entry.target,), entry.approximate) for entry in entries if not entry.scenario]
    for scenario in sorted({entry.scenario for entry in entries} - {0}):
        lists: dict[int, list[MapRow]] = {}
        for entry in entries:
            if entry.scenario == scenario:
                lists.setdefault(entry.choice_list, []).append(entry)
        for chosen in product(*lists.values()):
            codes = tuple(dict.fromkeys(entry.target for entry in chosen))
            plain.append(Counterpart(codes, any(entry.approximate for entry in chosen)))
    return tuple(plain)


def _kin(code: str, version: int) -> list[str]:
    """Return the codes of the maps with the longest common prefix with `code`, at least a whole category."""
    codes = _sorted(version)
    code = next((older for young, older in _younger() if version == 10 and code.startswith(young)), code)
    for length in range(len(code), CATEGORY - 1, -1):
        first, last = (bisect_left(codes, code[:length] + end) for end in ("", "~"))  # "~" sorts after all letters
        if first < last:
            return codes[first:last]
    return []


@cache
def _younger() -> list[tuple[str, str]]:
    """Return prefixes of ICD-10-CM codes newer than the maps, each with the prefix of the codes used before."""
    with open(DATA / "younger.csv", newline="", encoding="utf-8") as file:
        return [(row["code"], row["older"]) for row in csv.DictReader(file)]


def is_mapped(code: str, version: int) -> bool:
    """Return whether the maps have a normalised `code` of an ICD `version`.

    >>> is_mapped("I509", 10), is_mapped("I5O9", 10)
    (True, False)
    """
    return code in _entries(version)


@cache
def _entries(version: int) -> dict[str, tuple[MapRow, ...]]:
    import pyarrow.parquet as pq

    table = pq.read_table(DATA / "maps.parquet", filters=[("version", "=", check_version(version))])
    grouped: dict[str, list[MapRow]] = {}
    names = ("code", "scenario", "choice_list", "approximate", "target")
    for code, *entry in zip(*(table[name].to_pylist() for name in names)):
        grouped.setdefault(code, []).append(MapRow(*entry))
    return {code: tuple(entries) for code, entries in grouped.items()}


@cache
def _sorted(version: int) -> list[str]:
    return sorted(_entries(version))


def mapped_codes(version: int) -> list[str]:
    """List the codes of one version that the maps translate to the other.

    Args:
        version: 9 or 10, the version of the codes to list.

    Returns:
        The codes, in order.

    >>> "4280" in mapped_codes(9)
    True
    """
    return _sorted(version)


def younger_codes() -> list[str]:
    """Return the ICD-10-CM codes that are newer than the maps and replace an older code of the maps.

    The older code is a prefix of the new one, or `data/younger.csv` names it.

    >>> codes = younger_codes()
    >>> "N6311" in codes, "I509" in codes  # lumps of the right breast were N63 before
    (True, False)
    """
    entries, table = _entries(10), tuple(young for young, _ in _younger())
    found = set(all_codes(10).to_pylist()) - set(entries)
    return sorted(
        code
        for code in found
        if code.startswith(table) or any(code[:length] in entries for length in range(CATEGORY, len(code)))
    )
