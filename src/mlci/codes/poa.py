"""Whether a diagnosis was present on admission (POA): flags as claims write them in, one small number per code out.

Y: present; N: not; U: the record does not say; W: clinically undetermined; 1 (also E, exempt): the code needs no flag.
Y, W and 1 count as present and N and U as arisen later, as Medicare and AHRQ have it. No flag counts as exempt: claims
in the 5010 format leave it empty there. What counts is settled here once, for every index.
"""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from mlci.base.errors import InputError, kind_of

if TYPE_CHECKING:
    import pyarrow as pa

FLAGS = ("", "Y", "N", "U", "W", "1")  # a flag is its place here; 0: none
LATE = (FLAGS.index("N"), FLAGS.index("U"))
WRITTEN = {
    **dict.fromkeys(("Y", "YES", "TRUE"), "Y"),
    **dict.fromkeys(("N", "NO", "FALSE", "0"), "N"),
    **dict.fromkeys(("1", "1.0", "E", "EXEMPT"), "1"),
    **{flag: flag for flag in ("U", "W", "")},
}
ALLOWED = "Y, N, U, W or 1 (exempt), or empty"
ALL, ONLY = "all", "only"  # every code counts; those that were present on admission
KEEP, ANY = "keep", "any"  # every code, with its flag; the same if there are flags
MADE_FOR = {ALL: "all codes", ONLY: "codes present on admission alone"}  # what a model says of itself
AHRQ = "ahrq"  # as AHRQ does: acute comorbidities need to have been present, chronic ones do not
SINGLE = ("poa", "poa_flag", "poa_ind", "poa_indicator", "present_on_admission", "dx_poa", "poa_code", "poas")
_MARK = r"(?:poa|present_on_admission)(?:_?(?:ind|indicator|flag|code|sw|cd))*"
_NUMBERED = re.compile(rf".*?(?:{_MARK}_?0*(\d{{1,3}})|(?<!\d)0*(\d{{1,3}})_?{_MARK})", re.I)


def flag_columns(names: Sequence[str], codes: Sequence[str]) -> tuple[str, ...]:
    """Find the columns of flags that stand beside columns of codes.

    Args:
        names: the columns of a table.
        codes: those that hold codes, one or several.

    Returns:
        A column for each of `codes`, empty text where one has none; nothing where none has one.

    >>> flag_columns(["id", "PDX", "DX1", "DX2", "DXPOA1", "DXPOA2"], ["PDX", "DX1", "DX2"])
    ('', 'DXPOA1', 'DXPOA2')
    >>> flag_columns(["visit", "code", "poa"], ["code"])
    ('poa',)
    """
    if len(codes) == 1:
        lower = {name.lower(): name for name in reversed(names)}
        single = next((lower[name] for name in SINGLE if name in lower), None)
        return (single,) if single else ()
    numbered = {number: name for name in names if (number := flag_number(name)) is not None}
    found = tuple(numbered.get(_number(code), "") for code in codes)
    return found if any(found) else ()


def flag_number(name: str) -> int | None:
    """Return the number in the `name` of a column of flags; None where it is no such column.

    >>> [flag_number(name) for name in ("DXPOA3", "dx3_poa", "CLM_POA_IND_SW12", "DX3")]
    [3, 3, 12, None]
    """
    found = _NUMBERED.fullmatch(name)
    return int(found[1] or found[2]) if found else None


def _number(code: str) -> int:
    found = re.search(r"(\d+)$", code)
    return int(found[1]) if found else -1


def read_flags(column: "pa.Array", where: str, name: str, first_row: int) -> np.ndarray:
    """Read a column of flags.

    Args:
        column: an Arrow array of text or numbers.
        where: what messages call the table.
        name: of the column.
        first_row: the number of its first row.

    Returns:
        A uint8 array of places in `FLAGS`; a value that is no flag is an `InputError` that names its row.

    >>> import pyarrow as pa
    >>> read_flags(pa.array(["y", "N", None, "1"]), "visits.csv", "POA1", 2).tolist()
    [1, 2, 0, 5]
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    column = column if pa.types.is_dictionary(column.type) else column.cast(pa.string()).dictionary_encode()
    places = []
    for value in column.dictionary.cast(pa.string()).to_pylist():
        flag = WRITTEN.get((value or "").strip().upper())
        if flag is None:
            row = first_row + pc.index(column.cast(pa.string()), value).as_py()
            raise InputError(f"{where}: column {name}, row {row}: {kind_of(value)} is not {ALLOWED}.")
        places.append(FLAGS.index(flag))
    return np.array([*places, 0], dtype=np.uint8)[column.indices.fill_null(-1).to_numpy()]


def reading(choice: str, allowed: Sequence[str] = (ALL, ONLY, AHRQ)) -> str:
    """Say how codes are to be read for a choice of those that count.

    Args:
        choice: all, only or ahrq.
        allowed: those of them that can be had.

    Returns:
        A word that `mlci.codes.layout.find_layout` takes; another choice is an `InputError`.

    >>> reading("ahrq")
    'keep'
    """
    if choice not in allowed:
        *others, last = allowed
        raise InputError(f"poa {choice!r} is not known; allowed are {', '.join(others)} and {last}.")
    return KEEP if choice == AHRQ else choice


def late(flags: np.ndarray) -> np.ndarray:
    """Return for each of the `flags` whether its diagnosis arose after admission.

    >>> late(np.array([0, 1, 2, 3, 4, 5])).tolist()
    [False, False, True, True, False, False]
    """
    return (flags == LATE[0]) | (flags == LATE[1])


def written(flags: np.ndarray) -> "pa.Array":
    """Return `flags` as text, null where there is none.

    >>> written(np.array([1, 0, 5])).to_pylist()
    ['Y', None, '1']
    """
    import pyarrow as pa

    return pa.array([None, *FLAGS[1:]]).take(pa.array(flags))


def words(flags: np.ndarray) -> str:
    """Return a sentence that says how many of the `flags` are of codes that arose after admission.

    >>> words(np.array([1, 2, 0]))
    '1 of 3 codes arose after admission by their flags (POA N or U); 1 have no flag and count as present.'
    """
    counts = np.bincount(flags, minlength=len(FLAGS))
    after, silent = counts[list(LATE)].sum(), counts[0]
    said = f"{after:,} of {counts.sum():,} codes arose after admission by their flags (POA N or U)"
    return f"{said}; {silent:,} have no flag and count as present." if silent else f"{said}."


def no_flags(where: str) -> InputError:
    """Return the error that says that a table, called `where`, has no flags.

    >>> no_flags("visits.csv").args[0].split(";")[0]
    'visits.csv: has no flags of what was present on admission'
    """
    return InputError(
        f"{where}: has no flags of what was present on admission; needed are columns POA1, POA2, ... beside DX1, DX2, "
        "..., a column poa beside code, or a list poa beside codes (--poa all counts every code)."
    )
