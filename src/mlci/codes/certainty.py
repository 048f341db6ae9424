"""Read the letter behind a German diagnosis (ICD-10-GM) that says how certain it is.

G means confirmed, Z formerly, V suspected and A ruled out. Suspected and ruled-out diagnoses are left out. Only a
letter that stands apart from its code is read: `I50.9 A`. Two forms are not read as letters of certainty:

- `S72.001 A` is a code of ICD-10-CM written with a blank; whether a code is one is looked up in the tables.
- `I50.9A` may be a Swedish or English code. A note reports such codes where they may be German.
"""

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from mlci.codes import icd, years, zeros
from mlci.codes.versions import CERTAINTY

if TYPE_CHECKING:
    import pyarrow as pa

LETTER = rf"[{''.join(CERTAINTY)}{''.join(CERTAINTY).lower()}]"
BARE = rf"^\xa0*{LETTER}$"  # a letter without a code; no-break spaces count as blanks
# A code that a letter may follow: one of ICD-10-GM, or six characters, which may be the beginning of an ICD-10-CM code.
CODE = r"[A-Za-z][0-9](?:[0-9](?:\.?[0-9]{1,2})?|[0-9A-Za-z]\.?[0-9A-Za-z]{3})[^0-9A-Za-z\s,;|]*"
# While a text is split at blanks, a word joiner replaces the blank before a letter: `re.sub(APART, JOINED, text)`.
JOINT = "\u2060"
BEHIND = rf"[\s\xa0{JOINT}]+({LETTER})"
APART = rf"\b({CODE}){BEHIND}([\s,;|]|$)"
JOINED = rf"\1{JOINT}\2\3"
ATTACHED = r"^[A-Z][0-9]{2,4}[A-Z]$"  # a normalised code


def read_letters(cells: "pa.Array", version: int = 0) -> tuple["pa.Array", np.ndarray]:
    """Separate codes from the letters of certainty behind them.

    Args:
        cells: distinct cells with one code each; missing cells stay missing.
        version: 9 if the codes are of ICD-9, which has no such letters.

    Returns:
        The codes, and whether each is suspected or ruled out.

    >>> import pyarrow as pa
    >>> codes, unsure = read_letters(pa.array(["I50.9 G", "I21.4 a", "S72.001 A", "I50.9A"]))
    >>> codes.to_pylist(), unsure.tolist()
    (['I509', 'I214', 'S72001A', 'I50.9A'], [False, True, False, False])
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    unsure = np.zeros(len(cells), dtype=bool)
    if version == 9:
        return pc.replace_substring_regex(cells, f"{JOINT}.*", ""), unsure
    lettered = pc.match_substring_regex(cells, rf"^[\s,;|]*{CODE}{BEHIND}[\s,;|]*$").fill_null(False)
    if not pc.any(lettered).as_py():
        return cells, unsure
    with_letter = icd.normalise_array(cells.filter(lettered))
    german = ~_is_american(with_letter) & (pc.utf8_length(with_letter).to_numpy() < 7)
    codes = [code[:-1] if is_german else code for code, is_german in zip(with_letter.to_pylist(), german)]
    unsure[_flags(lettered)] = german & _flags(pc.match_substring_regex(with_letter, "[AV]$"))
    return pc.replace_with_mask(cells, lettered, pa.array(codes, cells.type)), unsure


def attached(codes: np.ndarray) -> np.ndarray:
    """Find codes with a letter at the end, whatever the letter, that are no codes of ICD-10-CM.

    Args:
        codes: distinct and normalised.

    Returns:
        Their places.

    >>> attached(np.array(["I509", "I509A", "C84A", "I489B"], dtype=object)).tolist()
    [1, 3]
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    text = pa.array(codes, pa.string())
    places = np.flatnonzero(_flags(pc.match_substring_regex(text, ATTACHED)))
    return places[~_is_american(text.take(pa.array(places)))] if len(places) else places


def notes(unsure: int, often: Mapping[str, int] | None = None) -> list[str]:
    """Describe the letters of certainty that were met, a sentence each.

    Args:
        unsure: how many codes were left out as suspected or ruled out.
        often: how often each code that `attached` finds was recorded.

    Returns:
        The sentences; none where there is nothing to report.

    >>> notes(3)
    ['3 codes are marked as suspected (V) or ruled out (A), as German diagnoses are, and do not count.']
    >>> notes(0, {"I489A": 2, "I489B": 1})  # Swedish
    []
    """
    found = []
    if unsure:
        many, verb = ("1 code is", "does") if unsure == 1 else (f"{unsure:,} codes are", "do")
        found.append(f"{many} marked as suspected (V) or ruled out (A), as German diagnoses are, and {verb} not count.")
    recorded = {code: count for code, count in (often or {}).items() if count}
    in_doubt = sum(count for code, count in recorded.items() if code[-1] in "AV")
    if in_doubt and all(code[-1] in "AVGZRL" for code in recorded):  # R and L: right and left
        many = "1 code ends in A or V, and counts" if in_doubt == 1 else f"{in_doubt:,} codes end in A or V, and count"
        found.append(
            f"{many} as present: if German diagnoses are ruled out or suspected by these letters, put a blank "
            "before them (I50.9 A)."
        )
    return found


def _is_american(codes: "pa.Array") -> np.ndarray:
    """Return whether each normalised code is a code of ICD-10-CM or the beginning of one."""
    later = np.array([code in _later() for code in codes.to_pylist()], dtype=bool)
    return later | icd.known(codes, 10) | zeros.heading(codes, 10)


@cache
def _later() -> frozenset[str]:
    """Return the codes that are newer than the ICD-10-CM table, and their beginnings."""
    return frozenset(code[:end] for code in years.added() for end in range(3, len(code) + 1))


def _flags(values: "pa.Array") -> np.ndarray:
    return values.to_numpy(zero_copy_only=False)
