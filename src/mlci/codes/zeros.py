"""Zeros that a spreadsheet ate: 038.9 became 38.9, 0389 became 389, 008 became 8.

ICD-9-CM codes of illness begin with three digits, so a code with fewer before its dot, or fewer in all, has lost one.
Three digits are harder: 401 is the heading of hypertension, written whole, and may be what is left of 040.1. What can
be no code or heading as it stands has lost a zero for certain. The others are decided for the whole table: one of
stripped codes has few of them, and nearly each becomes a code with a zero in front, while a table of headings has
plenty. A code that is another code without its zero (041.11 and 411.1) cannot be recognised.
"""

from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from mlci.codes import icd

if TYPE_CHECKING:
    import pyarrow as pa

SHORT = r"^\s*\d{1,2}\.\d"  # fewer than three digits before the dot
DIGITS = r"^\d+$"
SURE = 0.9  # of the doubtful codes: that many become codes with a zero in front if the table was stripped


def short(raw: "pa.Array") -> np.ndarray:
    """Say of each code, as it was written, whether it has too few digits before its dot.

    Args:
        raw: codes as text; null is not short.

    Returns:
        A Boolean array, one flag per code.

    >>> import pyarrow as pa
    >>> short(pa.array(["38.9", "038.9", None])).tolist()
    [True, False, False]
    """
    import pyarrow.compute as pc

    return pc.match_substring_regex(raw, SHORT).fill_null(False).to_numpy(zero_copy_only=False)


def stripped(codes: "pa.Array") -> np.ndarray:
    """Say of each normalised ICD-9 code whether it lost a zero, judged in the company of the others.

    Args:
        codes: distinct codes of one table.

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
    return sure | (_doubtful(codes) & with_zero) if _whole_codes(codes) else sure


def _doubtful(codes: "pa.Array") -> np.ndarray:
    """Return three digits that are a heading and no code: written so, or what is left of a finer code."""
    import pyarrow.compute as pc

    three = pc.match_substring_regex(codes, r"^\d{3}$").fill_null(False).to_numpy(zero_copy_only=False)
    return three & ~icd.known(codes, 9) & heading(codes)


def _whole_codes(codes: "pa.Array") -> bool:
    """Return whether these are whole codes rather than headings.

    They are if codes of four digits and more outnumber headings of three, and a zero in front makes nearly each a code.
    """
    import pyarrow.compute as pc

    fine = pc.match_substring_regex(codes, r"^\d{4,}$").fill_null(False).to_numpy(zero_copy_only=False)
    doubtful = _doubtful(codes)
    padded = pc.binary_join_element_wise("0", codes, "").fill_null("")
    return int((fine & icd.known(codes, 9)).sum()) > int(doubtful.sum()) and (
        not doubtful.any() or bool(icd.known(padded, 9)[doubtful].mean() >= SURE)
    )


def restored(raw: "pa.Array") -> "pa.Array":
    """Return normalise the codes of a table that is known to be stripped, and put their zeros back.

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
    """Say of each normalised code whether it is a heading: the first three characters or more of a finer code.

    Args:
        codes: as text.
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
    """Return each code with the zeros in front that make it a code or, among headings, a heading; else itself."""
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
