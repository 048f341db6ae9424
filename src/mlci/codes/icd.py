"""How ICD codes are written and what they mean.

In comes text as people store it (dots, small letters, padding); out comes the plain form every table of this package is
keyed by, and, for ICD-9-CM and ICD-10-CM, the official title. The version is always said: the same text can be a code
of both (V42.0 is a transplanted kidney in ICD-9 and a car accident in ICD-10).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mlci.base.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

DATA = Path(__file__).parent / "data"
VERSIONS = (9, 10)
# ASCII letters and digits are all that ICD codes are made of.
JUNK = "[^A-Za-z0-9]+"


@dataclass(frozen=True)
class Code:
    """One entry of an ICD table; a heading (`billable` false) groups finer codes."""

    code: str
    version: int
    title: str
    billable: bool


def normalise(text: str) -> str:
    """Letters and digits alone, in capitals: `" i50.9 "` becomes `"I509"`."""
    return re.sub(JUNK, "", text).upper()


def dotted(code: str, version: int) -> str:
    """A normalised code as it is printed: `"I509"` becomes `"I50.9"`, in ICD-9 `"E8809"` becomes `"E880.9"`."""
    head = 4 if version == 9 and code.startswith("E") else 3
    return f"{code[:head]}.{code[head:]}" if len(code) > head else code


def normalise_array(codes: "pa.Array") -> "pa.Array":
    """`normalise` for an Arrow array of text; missing stays missing."""
    import pyarrow.compute as pc

    if not pc.all(pc.ascii_is_alnum(codes)).as_py():  # looking is several times faster than replacing
        codes = pc.replace_substring_regex(codes, JUNK, "")
    return pc.ascii_upper(codes)


def check_version(version: object) -> int:
    if version not in VERSIONS:
        raise InputError(f"ICD version {version!r} is not known; allowed are 9 and 10.")
    return int(version)  # type: ignore[call-overload]


@cache
def _table(version: int) -> "pa.Table":
    import pyarrow.parquet as pq

    table = pq.read_table(DATA / "titles.parquet", filters=[("version", "=", check_version(version))])
    return table.combine_chunks()


@cache
def _rows(version: int) -> dict[str, int]:
    return {code: row for row, code in enumerate(_table(version)["code"].to_pylist())}


@cache
def _lower(version: int) -> "pa.Array":
    import pyarrow.compute as pc

    return pc.utf8_lower(_table(version)["title"].combine_chunks())


@cache
def _words(version: int) -> "tuple[pa.Array, np.ndarray, np.ndarray]":
    """The distinct words of all titles, and of each place where one stands: which word, and in which row."""
    import pyarrow.compute as pc

    titles = pc.split_pattern_regex(_lower(version), r"[^\pL\pN_]+")
    words = titles.flatten().dictionary_encode()
    return words.dictionary, words.indices.to_numpy(), pc.list_parent_indices(titles).to_numpy()


def title(code: str, version: int) -> str | None:
    """The official title, or None where the table has no such code."""
    row = _rows(version).get(normalise(code))
    return None if row is None else _table(version)["title"][row].as_py()


def known(codes: "Sequence[str] | np.ndarray | pa.Array", version: int) -> np.ndarray:
    """Whether each (normalised) code is in the ICD table of that version."""
    import pyarrow as pa
    import pyarrow.compute as pc

    values = codes if isinstance(codes, pa.Array) else pa.array(codes, pa.string())
    return pc.is_in(values, value_set=_table(version)["code"].combine_chunks()).to_numpy(zero_copy_only=False)


def search(query: str, version: int, limit: int = 20) -> list[Code]:
    """Codes that begin with `query`, then titles that hold its words: those that begin so, whole words, short ones."""
    import pyarrow.compute as pc

    table = _table(version)
    prefix, words = normalise(query), re.findall(r"\w+", query.lower())
    if not words or limit < 1:
        return []
    by_code = pc.starts_with(table["code"].chunk(0), prefix).to_numpy(zero_copy_only=False) & bool(prefix)
    distinct, places, rows_of = _words(version)
    by_words, by_whole = np.ones((2, len(table)), dtype=bool)
    for word in words:  # a word of the query lies within one word of a title, or nowhere
        for every, match in ((by_words, pc.match_substring), (by_whole, pc.equal)):
            held = np.zeros(len(table), dtype=bool)
            held[rows_of[match(distinct, word).to_numpy(zero_copy_only=False)[places]]] = True
            every &= held
    found = np.flatnonzero(by_code | by_words)
    hits, whole = _lower(version).take(found), by_whole[found]
    begins = pc.starts_with(hits, " ".join(words)).to_numpy(zero_copy_only=False)
    length = pc.utf8_length(hits).to_numpy(zero_copy_only=False)
    # Headings before their finer codes: under a prefix by order of the code, among titles by brevity.
    order = np.lexsort((found, np.where(by_code[found], 0, length), ~whole, ~begins, ~by_code[found]))
    rows: list[dict[str, Any]] = table.take(found[order[:limit]]).to_pylist()
    return [Code(row["code"], version, row["title"], row["billable"]) for row in rows]
