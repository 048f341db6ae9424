"""Normalise ICD codes, and look up their titles.

Text as people store it (with dots, small letters, padding) becomes the plain form that every table of this package uses
as a key. Titles are the official ones of ICD-9-CM and ICD-10-CM. Functions take the ICD version, because the same text
can be a code of both: V42.0 is a transplanted kidney in ICD-9 and a car accident in ICD-10.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mlci.base.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

DATA = Path(__file__).parent / "data"
FEW = 1000  # up to so many codes are looked up one by one, because Arrow would first index the whole table
VERSIONS = (9, 10)
OTHER = {9: 10, 10: 9}
LONGEST = {9: 5, 10: 7}  # characters of a normalised code
JUNK = "[^A-Za-z0-9]+"  # ICD codes consist of ASCII letters and digits
# I50,9 is I50.9. Behind V58 of ICD-9, digits may be a code without its zeros; without a letter, they may be so too.
DECIMAL_COMMA = r"\b([A-UW-Za-uw-z][0-9][0-9A-Za-z]),([0-9]{1,2})([^0-9A-Za-z.]|$)"
WITH_DOT = r"\1.\2\3"
WIDE = {wide: wide - 0xFEE0 for wide in range(0xFF01, 0xFF5F)}  # full-width forms, as East Asian programs write them


@dataclass(frozen=True)
class Code:
    """One entry of an ICD table; a heading (`billable` false) groups finer codes."""

    code: str
    version: int
    title: str
    billable: bool


def normalise(text: str) -> str:
    """Return the `text` of a code in capitals, with letters and digits only.

    >>> normalise(" i50.9 ")
    'I509'
    """
    return re.sub(JUNK, "", text.translate(WIDE)).upper()


def dotted(code: str, version: int) -> str:
    """Return a normalised `code` of an ICD `version` with its dot.

    >>> dotted("I509", 10), dotted("E8809", 9)
    ('I50.9', 'E880.9')
    """
    head = 4 if version == 9 and code.startswith("E") else 3
    return f"{code[:head]}.{code[head:]}" if len(code) > head else code


def narrowed(texts: "pa.Array") -> "pa.Array":
    """Return an Arrow array of `texts` with full-width letters, digits and signs in their ordinary form.

    >>> import pyarrow as pa
    >>> narrowed(pa.array(["\uff29\uff15\uff10\uff0e\uff19", None])).to_pylist()
    ['I50.9', None]
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    wide = pc.match_substring_regex(texts, "[\uff01-\uff5e]").fill_null(False)
    if not pc.any(wide).as_py():
        return texts
    plain = pa.array([text.translate(WIDE) for text in texts.filter(wide).to_pylist()], texts.type)
    return pc.replace_with_mask(texts, wide, plain)


def normalise_array(codes: "pa.Array") -> "pa.Array":
    """Return `normalise` of an Arrow array of `codes`; missing stays missing.

    >>> import pyarrow as pa
    >>> normalise_array(pa.array(["i50.9", None])).to_pylist()
    ['I509', None]
    """
    import pyarrow.compute as pc

    if not pc.all(pc.ascii_is_alnum(codes)).as_py():  # the check is several times faster than replacing
        codes = codes if pc.all(pc.string_is_ascii(codes)).as_py() else narrowed(codes)
        codes = pc.replace_substring_regex(codes, JUNK, "")
    return pc.ascii_upper(codes)


def check_version(version: object) -> int:
    """Return an ICD version as a whole number; any other value raises an `InputError`.

    >>> check_version(10)
    10
    >>> check_version(11)
    Traceback (most recent call last):
    mlci.base.errors.InputError: ICD version 11 is not known; allowed are 9 and 10.
    """
    if version not in VERSIONS:
        raise InputError(f"ICD version {version!r} is not known; allowed are 9 and 10.")
    return int(version)  # type: ignore[call-overload]


@cache
def icd_table(version: int, *columns: str) -> "pa.Table":
    """Return the table of an ICD `version`, or only some `columns`: titles are most of it and rarely needed.

    >>> icd_table(10, "code").column_names
    ['code', 'version']
    """
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    with pq.ParquetFile(DATA / "titles.parquet") as file:  # `read_table` would import many more modules
        table = file.read([*columns, "version"] if columns else None)
    return table.filter(pc.equal(table["version"], check_version(version))).combine_chunks()


@cache
def _rows(version: int) -> dict[str, int]:
    return {code: row for row, code in enumerate(icd_table(version)["code"].to_pylist())}


@lru_cache(maxsize=10_000)
def title(code: str, version: int) -> str | None:
    """Return the official title of a `code` of an ICD `version`, or None if the table does not have the code.

    >>> title("I50.9", 10)
    'Heart failure, unspecified'
    """
    row = _rows(version).get(normalise(code))
    return None if row is None else icd_table(version)["title"][row].as_py()


def titles(codes: "Sequence[str] | np.ndarray", version: int) -> list[str | None]:
    """Return the official titles of many normalised `codes` of an ICD `version`.

    >>> titles(["I509", "I50X"], 10)
    ['Heart failure, unspecified', None]
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if len(codes) <= FEW:
        return [title(code, version) for code in codes]
    table = icd_table(version)
    return table["title"].take(pc.index_in(pa.array(codes, pa.string()), value_set=table["code"])).to_pylist()


def known(codes: "Sequence[str] | np.ndarray | pa.Array", version: int) -> np.ndarray:
    """Return for each of the normalised `codes` whether the table of an ICD `version` has it.

    >>> known(["I509", "I50X"], 10).tolist()
    [True, False]
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    values: Any = codes if isinstance(codes, pa.Array) else pa.array(codes, pa.string())
    listed: Any = all_codes(version)
    if len(values) <= FEW:
        listed = listed.filter(pc.is_in(listed, value_set=values))
    return pc.is_in(values, value_set=listed).to_numpy(zero_copy_only=False)


def all_codes(version: int) -> "pa.Array":
    """Return every code of the ICD table of a version, as an Arrow array.

    >>> len(all_codes(10)) > 70_000
    True
    """
    return icd_table(version, "code")["code"].combine_chunks()


@cache
def billable(version: int) -> "pa.Array":
    """Return the codes of a version that may be recorded, that is, without finer codes, as an Arrow array.

    >>> "I50" in billable(10).to_pylist(), "I509" in billable(10).to_pylist()
    (False, True)
    """
    table = icd_table(version, "code", "billable")
    return table["code"].combine_chunks().filter(table["billable"].combine_chunks())
