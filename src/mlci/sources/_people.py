"""Read columns of age and sex in the forms that people use.

Values that mean "not known" become null. A value that is not understood raises an error that names the row.
"""

import re
from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from mlci.base.errors import InputError, kind_of
from mlci.sources._outcomes import UNKNOWN

AGE_LIMIT = 130  # years that no patient reaches
ZERO, ONE, TWO = ("0", "0.0"), ("1", "1.0"), ("2", "2.0")
WOMEN, MEN = ("f", "female", "w", "woman", *TWO, "8532"), ("m", "male", "man", *ONE, "8507")
NEITHER = (
    *UNKNOWN,
    "u",
    "o",
    "x",
    "other",
    "d",
    "divers",
    *ZERO,
    "9",
    "3",
    "unknown/invalid",
    "not known",
    "indeterminate",
    "9.0",
)
# A comma separates a band only after a bracket: 60,5 has a decimal comma.
BAND = re.compile(r"([\[(])?\s*(\d{1,3})\s*(?:-|–|to|(?(1),|-))\s*(\d{1,3})\s*([\])]?)")
OPEN = re.compile(r"(?:>=?\s*(\d{1,3})|(\d{1,3})\s*\+|(\d{1,3}) (?:and|or) (?:over|older|above))")


def sexes(
    column: pa.ChunkedArray, name: str, cell: Callable[[int], str], *, whole: bool = True
) -> tuple[pa.Array, list[str]]:
    """Return F, M or null for each row, and notes; `cell` names the cell of a row in messages.

    A column of 0 and 1 alone is refused, unless it is only a part of a column (`whole` is false).

    >>> found, notes = sexes(pa.chunked_array([["Female", "1", "?"]]), "gender", "a.csv: cell {}".format)
    >>> found.to_pylist(), notes
    (['F', 'M', None], ['column gender: 1 was read as male and 2 as female.'])
    """
    text = _plain(column)
    women, men = pc.is_in(text, pa.array(WOMEN)), pc.is_in(text, pa.array(MEN))
    _refuse(column, pc.or_(pc.or_(women, men), _unknown(text, NEITHER)), cell, SEXES)
    zero = pc.index(pc.is_in(text, pa.array(ZERO)), True).as_py()
    if whole and zero >= 0 and not pc.any(women).as_py() and pc.any(pc.is_in(text, pa.array(ONE))).as_py():
        raise InputError(f"{cell(zero)}: from 0 and 1 alone, the sex cannot be told; write F and M.")
    found = pc.if_else(women, "F", pc.if_else(men, "M", pa.scalar(None, pa.string())))
    numbers = pc.any(pc.is_in(text, pa.array([*ONE, *TWO]))).as_py()
    return found, [f"column {name}: 1 was read as male and 2 as female."] if numbers else []


SEXES = "F or M, female or male, 1 (male) or 2 (female), or empty where not known"
AGES = f"an age from 0 to {AGE_LIMIT - 1}, a band such as [60-70) or 60-69, or empty where not known"


def ages(column: pa.ChunkedArray, name: str, cell: Callable[[int], str]) -> tuple[pa.Array, list[str]]:
    """Return years for each row, for a band its middle, and notes; `cell` names the cell of a row in messages.

    >>> found, notes = ages(pa.chunked_array([["71", "[60-70)", "20-29", "90+", ""]]), "age", "a.csv: cell {}".format)
    >>> found.to_pylist()
    [71.0, 65.0, 25.0, 90.0, None]
    """
    text = _plain(column).dictionary_encode()
    values = [_years(value) for value in text.dictionary.to_pylist()]
    fits = pa.array([value is not None for value, _ in values] or [], pa.bool_()).take(text.indices)
    _refuse(column, pc.or_(fits.fill_null(True), _unknown(_plain(column), UNKNOWN)), cell, AGES)
    found = pa.array([value for value, _ in values], pa.float64()).take(text.indices)
    bands = any(band for _, band in values)
    return found, [f"column {name}: an age band counts as its middle, an open one as its lower end."] if bands else []


def cells(where: str, name: str, rows: Sequence[int]) -> Callable[[int], str]:
    """Return a function that names the cell of a column by its place; `rows` are the row numbers of the file."""
    return lambda place: f"{where}: column {name}, row {rows[place]}"


def _years(text: str) -> tuple[float | None, bool]:
    """Return the years that a text states, and whether it is a band."""
    if found := BAND.fullmatch(text):
        low, high = float(found[2]), float(found[3])
        middle = (low + high + (found[4] != ")")) / 2  # 60-69 is 60 to 70 exclusive
        return (middle, True) if low <= high else (None, False)
    if found := OPEN.fullmatch(text):
        return float(next(filter(None, found.groups()))), True
    try:
        years = float(text)
    except ValueError:
        return None, False
    return (years, False) if 0 <= years < AGE_LIMIT else (None, False)


def _plain(column: pa.ChunkedArray) -> pa.Array:
    text = column.cast(pa.string()).combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return pc.utf8_lower(pc.utf8_trim_whitespace(text))


def _unknown(text: pa.Array, words: tuple[str, ...]) -> pa.Array:
    return pc.or_(pc.is_null(text), pc.is_in(text, pa.array(words)))


def _refuse(column: pa.ChunkedArray, fits: pa.Array, cell: Callable[[int], str], allowed: str) -> None:
    row = pc.index(fits, False).as_py()
    if row >= 0:
        raise InputError(f"{cell(row)}: {kind_of(column[row].as_py())} is not {allowed}.")
