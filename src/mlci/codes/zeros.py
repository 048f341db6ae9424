"""Recognise and restore leading zeros that ICD-9 codes lost in a spreadsheet: 038.9 became 38.9, 008 became 8.

ICD-9-CM codes of diseases begin with three digits. So a code with fewer digits before its dot, or fewer in all, has
lost a zero. Three digits without a dot are ambiguous: 401 may be the heading of hypertension, or what is left of 040.1.
If the text is neither a code nor a heading, it has surely lost a zero. The other cases are decided for the whole table.
A table of stripped codes has few of them, and nearly each becomes a code with a zero in front; a table of headings has
many. A code that equals another code without its zero (041.11 and 411.1) cannot be recognised.
"""

from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from mlci.codes import icd

if TYPE_CHECKING:
    import pyarrow as pa

SHORT = r"^\s*\d{1,2}\.\d"  # fewer than three digits before the dot
DIGITS = r"^\d+$"
SURE = 0.9  # the share of ambiguous codes that must become codes with a zero in front, for a table to be stripped


def short(raw: "pa.Array") -> np.ndarray:
    """Find codes with too few digits before the dot.

    Args:
        raw: codes as they were written; null is not short.

    Returns:
        A Boolean array, one flag per code.

    >>> import pyarrow as pa
    >>> short(pa.array(["38.9", "038.9", None])).tolist()
    [True, False, False]
    """
    import pyarrow.compute as pc

    return pc.match_substring_regex(raw, SHORT).fill_null(False).to_numpy(zero_copy_only=False)


def stripped(codes: "pa.Array") -> np.ndarray:
    """Find the normalised ICD-9 codes that lost a zero; ambiguous ones are decided by the table as a whole.

    Args:
        codes: the distinct codes of a table.

    Returns:
        A Boolean array, one flag per code.

    >>> import pyarrow as pa
    >>> stripped(pa.array(["38", "401", "428", "599", "4019"])).tolist()  # 401, 428 and 599 are headings
    [True, False, False, False, False]
    >>> stripped(pa.array(["389", "4019", "42731"])).tolist()  # among whole codes, 389 was 0389
    [True, False, False]
    """
    import pyarrow.compute as pc

    digits = pc.match_substring_regex(codes, DIGITS).to_numpy(zero_copy_only=False)
    length = pc.utf8_length(codes).to_numpy(zero_copy_only=False)
    with_zero = _with_zeros(codes) != codes.to_numpy(zero_copy_only=False)
    sure = digits & ((length < 3) | (~icd.known(codes, 9) & ~heading(codes) & with_zero))
    return sure | (_ambiguous(codes) & with_zero) if _whole_codes(codes) else sure


def _ambiguous(codes: "pa.Array") -> np.ndarray:
    """Find three digits that are a heading and no code: they were written so, or are the rest of a finer code."""
    import pyarrow.compute as pc

    three = pc.match_substring_regex(codes, r"^\d{3}$").fill_null(False).to_numpy(zero_copy_only=False)
    return three & ~icd.known(codes, 9) & heading(codes)


def _whole_codes(codes: "pa.Array") -> bool:
    """Return whether a table holds full codes rather than headings.

    It does if codes of four or more digits outnumber headings of three digits, and with a zero in front nearly each of
    these headings is a code.
    """
    import pyarrow.compute as pc

    fine = pc.match_substring_regex(codes, r"^\d{4,}$").fill_null(False).to_numpy(zero_copy_only=False)
    ambiguous = _ambiguous(codes)
    padded = pc.binary_join_element_wise("0", codes, "").fill_null("")
    return int((fine & icd.known(codes, 9)).sum()) > int(ambiguous.sum()) and (
        not ambiguous.any() or bool(icd.known(padded, 9)[ambiguous].mean() >= SURE)
    )


def restored(raw: "pa.Array") -> "pa.Array":
    """Normalise the codes of a table that is known to have lost zeros, and restore the zeros.

    Args:
        raw: codes as they were written.

    Returns:
        The normalised codes, in their order.

    >>> import pyarrow as pa
    >>> restored(pa.array(["38.9", "8", "4019", "I50.9"])).to_pylist()
    ['0389', '008', '4019', 'I509']
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    padded = pc.replace_substring_regex(raw, r"^\s*(\d\.\d)", r"00\1")
    codes = icd.normalise_array(pc.replace_substring_regex(padded, r"^\s*(\d\d\.\d)", r"0\1"))
    back = _with_zeros(codes)
    return pa.array(np.where(stripped(codes.fill_null("")), back, codes.to_numpy(zero_copy_only=False)), pa.string())


def heading(codes: "pa.Array", version: int = 9) -> np.ndarray:
    """Find headings among normalised codes: the first three or more characters of a finer code.

    Args:
        codes: normalised codes.
        version: 9 or 10.

    Returns:
        A Boolean array, one flag per code.

    >>> import pyarrow as pa
    >>> heading(pa.array(["401", "40"])).tolist()
    [True, False]
    """
    import pyarrow.compute as pc

    if len(codes) <= icd.FEW:
        return np.array([code in _heading_set(version) for code in codes.to_pylist()], dtype=bool)
    return pc.is_in(codes, value_set=_headings(version)).to_numpy(zero_copy_only=False)


@cache
def _heading_set(version: int) -> frozenset[str]:
    return frozenset(_headings(version).to_pylist())


@cache
def _headings(version: int) -> "pa.Array":
    import pyarrow as pa
    import pyarrow.compute as pc

    codes = icd.all_codes(version)
    parts = [pc.utf8_slice_codeunits(codes, 0, width) for width in range(3, 7)]
    return pa.chunked_array(parts).combine_chunks().unique()


def _with_zeros(codes: "pa.Array") -> np.ndarray:
    """Add the zeros in front that make a text a code or, in a table of headings, a heading; leave the others."""
    import pyarrow as pa
    import pyarrow.compute as pc

    values = codes.to_numpy(zero_copy_only=False)
    found = values.copy()
    digits = pc.match_substring_regex(codes, DIGITS).fill_null(False).to_numpy(zero_copy_only=False)
    for zeros in ("00", "0"):
        longer = pc.binary_join_element_wise(zeros, codes, "").fill_null("")
        fits = digits & icd.known(longer, 9)
        found[fits] = longer.to_numpy(zero_copy_only=False)[fits]
    short = digits & (pc.utf8_length(codes).fill_null(0).to_numpy(zero_copy_only=False) < 3)
    if _whole_codes(codes):
        short &= found == values  # else 38 is the heading 038, not the code 003.8
    if short.any():
        padded = pc.utf8_lpad(pa.array(values, pa.string()), 3, "0").fill_null("")
        fits = short & (heading(padded) | icd.known(padded, 9))
        found[fits] = padded.to_numpy(zero_copy_only=False)[fits]
    return found
