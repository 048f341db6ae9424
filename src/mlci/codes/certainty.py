"""The letter apart from a German diagnosis that says how sure it is (ICD-10-GM): cells in, codes without it out.

G: confirmed; Z: formerly; V: suspected; A: ruled out. What is suspected or ruled out is no diagnosis of the patient and
does not count. Each code is judged by itself: `I50.9 A` has such a letter, but `S72.001 A` is a code of ICD-10-CM with
a blank in it, and `I50.9A` may be Swedish or English. Where it may be German, that is told.
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
BARE = rf"^\xa0*{LETTER}$"  # no-break spaces are blanks too
JOINT = "\u2060"  # a word joiner: stands for the blanks before a letter while a text is taken apart
# Codes of ICD-10-GM, and those of six characters, which may be the beginning of a code of ICD-10-CM.
CODE = r"[A-Za-z][0-9](?:[0-9](?:\.?[0-9]{1,2})?|[0-9A-Za-z]\.?[0-9A-Za-z]{3})[^0-9A-Za-z\s,;|]*"
BEHIND = rf"[\s\xa0{JOINT}]+({LETTER})"
APART = rf"\b({CODE}){BEHIND}([\s,;|]|$)"
JOINED = rf"\1{JOINT}\2\3"
ATTACHED = r"^[A-Z][0-9]{2,4}[A-Z]$"  # once normalised


def certain(cells: "pa.Array", version: int = 0) -> tuple["pa.Array", np.ndarray]:
    """Take letters of certainty off the codes they stand apart from.

    Args:
        cells: distinct, a code each; missing stays missing.
        version: 9 where the codes are said to be of ICD-9, which has no such letters.

    Returns:
        The codes, and whether each is suspected or ruled out.

    >>> import pyarrow as pa
    >>> codes, unsure = certain(pa.array(["I50.9 G", "I21.4 a", "S72.001 A", "I50.9A"]))
    >>> codes.to_pylist(), unsure.tolist()
    (['I509', 'I214', 'S72001A', 'I50.9A'], [False, True, False, False])
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    unsure = np.zeros(len(cells), dtype=bool)
    if version == 9:
        return pc.replace_substring_regex(cells, f"{JOINT}.*", ""), unsure
    apart = pc.match_substring_regex(cells, rf"^[\s,;|]*{CODE}{BEHIND}[\s,;|]*$").fill_null(False)
    if not pc.any(apart).as_py():
        return cells, unsure
    whole = icd.normalise_array(cells.filter(apart))
    german = ~_american(whole) & (pc.utf8_length(whole).to_numpy() < 7)
    places, text = apart.to_numpy(zero_copy_only=False), cells.to_numpy(zero_copy_only=False).copy()
    text[places] = [code[:-1] if off else code for code, off in zip(whole.to_pylist(), german)]
    unsure[places] = german & pc.match_substring_regex(whole, "[AV]$").to_numpy(zero_copy_only=False)
    return pa.array(text, pa.string()), unsure


def attached(codes: np.ndarray) -> np.ndarray:
    """Find the codes that end in a letter as no code of ICD-10-CM does, whatever the letter.

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
    places = np.flatnonzero(pc.match_substring_regex(text, ATTACHED).to_numpy(zero_copy_only=False))
    return places[~_american(text.take(pa.array(places)))] if len(places) else places


def told(unsure: int, often: Mapping[str, int] | None = None) -> list[str]:
    """Return what a person should know of letters of certainty, a sentence each.

    Args:
        unsure: how many codes were left out as suspected or ruled out.
        often: how often each of the codes was recorded that `attached` finds.

    >>> told(3)
    ['3 codes are marked as suspected (V) or ruled out (A), as German diagnoses are, and do not count.']
    >>> told(0, {"I489A": 2, "I489B": 1})  # Swedish
    []
    """
    said, verb = ("1 code is", "does") if unsure == 1 else (f"{unsure:,} codes are", "do")
    found = [f"{said} marked as suspected (V) or ruled out (A), as German diagnoses are, and {verb} not count."]
    found = found if unsure else []
    met = {code: count for code, count in (often or {}).items() if count}
    many = sum(count for code, count in met.items() if code[-1] in "AV")
    if many and all(code[-1] in "AVGZRL" for code in met):  # R and L: right and left
        said = "code ends in A or V, and counts" if many == 1 else "codes end in A or V, and count"
        found.append(
            f"{many:,} {said} as present: if German diagnoses are ruled out or suspected by these letters, put a blank "
            "before them (I50.9 A)."
        )
    return found


def _american(codes: "pa.Array") -> np.ndarray:
    """Return whether each of some normalised codes is one of ICD-10-CM, or the beginning of such."""
    later = np.array([code in _later() for code in codes.to_pylist()], dtype=bool)
    return later | icd.known(codes, 10) | zeros.heading(codes, 10)


@cache
def _later() -> frozenset[str]:
    """Return the codes that came after the edition of the ICD-10-CM table, and their beginnings."""
    return frozenset(code[:end] for code in years.added() for end in range(3, len(code) + 1))
