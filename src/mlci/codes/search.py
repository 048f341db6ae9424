"""Search codes by the beginning of a code, words of a title, an everyday name or an abbreviation.

The likeliest codes come first: the code that an everyday name means, codes that begin with the query, then titles with
the words of the query. A word that is in no title is replaced by the most similar word that is. Codes that may be
recorded come before headings. Everyday names are listed in `data/synonyms.csv`.
"""

import csv
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mlci.codes.icd import DATA, Code, icd_table, normalise

CLOSE = 0.8  # the least similarity (by difflib) of a mistyped word and its correction
MOST_CORRECTED = 8  # the most words of a query that are corrected; each costs some milliseconds
LONGEST_NAME = 5  # the most words of an everyday name


@dataclass(frozen=True)
class Name:
    """An everyday name of a disease."""

    meaning: str  # the words that titles use instead
    code: str | None  # the code that it means without further words


def search(query: str, version: int, limit: int = 20, *, loose: bool = True) -> list[Code]:
    """Find the likeliest codes for a query.

    Args:
        query: the beginning of a code, words of a title, an everyday name or an abbreviation; words may be misspelt.
        version: 9 or 10.
        limit: the largest number of codes to return.
        loose: if no title has all the words, return the codes of everyday names among them.

    Returns:
        Codes with their titles, the likeliest first.

    >>> [code.code for code in search("chf", 10, limit=1)], [code.code for code in search("sepsys", 10, limit=1)]
    (['I509'], ['A419'])
    """
    words = re.findall(r"\w+", query.lower())
    if not words or limit < 1:
        return []
    table, prefix = icd_table(version), normalise(query)
    by_code = pc.starts_with(table["code"].chunk(0), prefix).to_numpy(zero_copy_only=False) & bool(prefix)
    if not by_code.any():
        words = [_spelled(word, version) if at < MOST_CORRECTED else word for at, word in enumerate(words)]
    meant, within = _meant(words, version)
    whole = _names(version).get(_key(words))
    by_words, by_whole = _holding(words, version)
    by_meaning, whole_meaning = _holding(meant, version) if meant != words else (by_words, by_whole)
    is_named = _among([whole], version)
    if loose and not (by_code | by_words | by_meaning | is_named).any():
        is_named = _among(within, version)  # the everyday names among several words
    found = np.flatnonzero(by_code | by_words | by_meaning | is_named)
    hits = _lower(version).take(found)
    begins = pc.starts_with(hits, " ".join(words)).to_numpy(zero_copy_only=False)
    length = pc.utf8_length(hits).to_numpy(zero_copy_only=False)
    heading = ~table["billable"].chunk(0).take(found).to_numpy(zero_copy_only=False)
    # Codes that begin with the query are sorted by code, others by the length of the title.
    brevity = np.where(by_code[found], 0, length)
    part = ~(by_whole | whole_meaning)[found]
    keys = (found, brevity, part, ~begins, ~by_meaning[found], heading, ~by_code[found], ~is_named[found])
    rows = table.take(found[np.lexsort(keys)[:limit]]).to_pylist()
    return [Code(row["code"], version, row["title"], row["billable"]) for row in rows]


def words_of(title: str) -> set[str]:
    """Return the distinct words of a `title`, in small letters.

    >>> sorted(words_of("Heart failure, unspecified"))
    ['failure', 'heart', 'unspecified']
    """
    return set(re.findall(r"\w+", title.lower()))


def is_title_word(word: str, version: int) -> bool:
    """Return whether some title or everyday name has exactly this word.

    Args:
        word: a word, in capitals or not.
        version: 9 or 10, the ICD version of the titles.

    >>> is_title_word("Heart", 10), is_title_word("haert", 10)
    (True, False)
    """
    return word.lower() in _vocabulary(version)


def _meant(words: list[str], version: int) -> tuple[list[str], list[Name]]:
    """Replace everyday names by the words that titles use; return the words, and the names that were found."""
    names = _names(version)
    result, found, at = [], [], 0
    while at < len(words):
        for length in range(min(LONGEST_NAME, len(words) - at), 0, -1):
            if name := names.get(_key(words[at : at + length])):
                result += re.findall(r"\w+", name.meaning)
                found.append(name)
                at += length
                break
        else:
            result.append(words[at])
            at += 1
    return result, found


def _among(names: Sequence[Name | None], version: int) -> np.ndarray:
    """Return for each row of the table whether it is the code of one of these names."""
    codes = pa.array([name.code for name in names if name], pa.string())
    return pc.is_in(icd_table(version)["code"].chunk(0), value_set=codes.drop_null()).to_numpy(zero_copy_only=False)


def _key(words: Iterable[str]) -> str:
    """Return a text that is the same for words in any order."""
    return " ".join(sorted(words))


def _holding(words: list[str], version: int) -> tuple[np.ndarray, np.ndarray]:
    """Return which titles have all the words as parts of theirs, and which have all of them as whole words."""
    distinct, starts, rows_of = _words(version)
    by_words, by_whole = np.ones((2, len(icd_table(version))), dtype=bool)
    for word in words:  # a word of the query lies within one word of a title, or nowhere
        for every, match in ((by_words, pc.match_substring), (by_whole, pc.equal)):
            held = np.zeros(len(every), dtype=bool)
            for place in np.flatnonzero(match(distinct, word)):
                held[rows_of[starts[place] : starts[place + 1]]] = True
            every &= held
    return by_words, by_whole


@lru_cache(maxsize=10_000)
def _spelled(word: str, version: int) -> str:
    """Return the most similar word of everyday names or titles if it is close enough, else the word itself."""
    from difflib import get_close_matches

    if len(word) < 4 or pc.any(pc.match_substring(_words(version)[0], word)).as_py() or is_title_word(word, version):
        return word
    for source in (_name_words(version), _vocabulary(version)):
        alike = [other for other in source if other[:1] == word[0] and abs(len(other) - len(word)) <= 2]
        if close := get_close_matches(word, alike, n=1, cutoff=CLOSE):
            return close[0]
    return word


@cache
def _names(version: int) -> dict[str, Name]:
    with open(DATA / "synonyms.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return {_key(row["term"].split()): Name(row["meaning"], row[f"icd{version}"] or None) for row in rows}


@cache
def _name_words(version: int) -> dict[str, None]:
    return dict.fromkeys(word for name in _names(version) for word in name.split())


@cache
def _vocabulary(version: int) -> dict[str, None]:
    return _name_words(version) | dict.fromkeys(_words(version)[0].to_pylist())


@cache
def _lower(version: int) -> pa.Array:
    return pc.utf8_lower(icd_table(version)["title"].combine_chunks())


@cache
def _words(version: int) -> tuple[pa.Array, np.ndarray, np.ndarray]:
    """Return the distinct words of all titles, and for each word (by offsets) the rows of its titles."""
    titles = pc.split_pattern_regex(_lower(version), r"[^\pL\pN_]+")
    words = titles.flatten().dictionary_encode()
    numbers = words.indices.to_numpy()
    starts = np.concatenate([[0], np.cumsum(np.bincount(numbers, minlength=len(words.dictionary)))])
    return words.dictionary, starts, pc.list_parent_indices(titles).to_numpy()[np.argsort(numbers, kind="stable")]
