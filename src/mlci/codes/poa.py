"""Read flags of diagnoses that were present on admission (POA), in the forms that claims use.

Y: present; N: not present; U: the documentation is insufficient; W: clinically undetermined; 1 (also E): the code is
exempt from flags. Y, W and 1 count as present, N and U as arisen after admission, as Medicare and AHRQ do. A missing
flag counts as exempt, because claims in the 5010 format leave the flag of exempt codes empty. Every index uses this
module, so these rules are in one place.
"""

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from mlci.base.errors import InputError, kind_of

if TYPE_CHECKING:
    import pyarrow as pa

FLAGS = ("", "Y", "N", "U", "W", "1")  # a flag is stored as its place here; 0: no flag
LATE = (FLAGS.index("N"), FLAGS.index("U"))
WRITTEN = {
    **dict.fromkeys(("Y", "YES", "TRUE"), "Y"),
    **dict.fromkeys(("N", "NO", "FALSE", "0"), "N"),
    **dict.fromkeys(("1", "1.0", "E", "EXEMPT"), "1"),
    **{flag: flag for flag in ("U", "W", "")},
}
ALLOWED = "Y, N, U, W or 1 (exempt), or empty"
ALL, ONLY = "all", "only"  # every code counts; only codes present on admission count
KEEP, ANY = "keep", "any"  # every code, with its flag, which is required; the same, but flags are optional
MADE_FOR = {ALL: "all codes", ONLY: "codes present on admission alone"}  # how a model describes its codes
AHRQ = "ahrq"  # AHRQ's rule: acute comorbidities count only if present on admission, chronic ones always
SINGLE = ("poa", "poa_flag", "poa_ind", "poa_indicator", "present_on_admission", "dx_poa", "poa_code", "poas")
_MARK = r"(?:poa|present_on_admission)(?:_?(?:ind|indicator|flag|code|sw|cd))*"
_NUMBERED = re.compile(rf".*?(?:{_MARK}_?0*(\d{{1,3}})|(?<!\d)0*(\d{{1,3}})_?{_MARK})", re.I)


def flag_columns(names: Sequence[str], codes: Sequence[str]) -> tuple[str, ...]:
    """Find the columns of flags that belong to columns of codes.

    Args:
        names: the columns of a table.
        codes: the columns that hold codes, one or several.

    Returns:
        The column of flags for each of `codes`, or an empty text; an empty tuple if no column has flags.

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
    """Return the number in the `name` of a column of flags; None if it is not such a column.

    >>> [flag_number(name) for name in ("DXPOA3", "dx3_poa", "CLM_POA_IND_SW12", "DX3")]
    [3, 3, 12, None]
    """
    found = _NUMBERED.fullmatch(name)
    return int(found[1] or found[2]) if found else None


def _number(code: str) -> int:
    found = re.search(r"(\d+)$", code)
    return int(found[1]) if found else -1


def read_flags(column: "pa.Array", where: str, name: str, row_number: Callable[[int], int]) -> np.ndarray:
    """Read a column of flags.

    Args:
        column: an Arrow array of text or numbers.
        where: the table's name in messages.
        name: the column's name.
        row_number: gives the number of a flag's row in messages, from the flag's place in the array.

    Returns:
        A uint8 array of places in `FLAGS`. A value that is no flag raises an `InputError` that names its row.

    >>> import pyarrow as pa
    >>> read_flags(pa.array(["y", "N", None, "1"]), "visits.csv", "POA1", lambda place: place + 2).tolist()
    [1, 2, 0, 5]
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    column = column if pa.types.is_dictionary(column.type) else column.cast(pa.string()).dictionary_encode()
    places = []
    for value in column.dictionary.cast(pa.string()).to_pylist():
        flag = WRITTEN.get((value or "").strip().upper())
        if flag is None:
            row = row_number(pc.index(column.cast(pa.string()), value).as_py())
            raise InputError(f"{where}: column {name}, row {row}: {kind_of(value)} is not {ALLOWED}.")
        places.append(FLAGS.index(flag))
    return np.array([*places, 0], dtype=np.uint8)[column.indices.fill_null(-1).to_numpy()]


def reading(choice: str, allowed: Sequence[str] = (ALL, ONLY, AHRQ)) -> str:
    """Return how a table is to be read for a choice of the codes that count.

    Args:
        choice: all, only or ahrq.
        allowed: the choices that are possible.

    Returns:
        A value for `poa` of `mlci.codes.layout.find_layout`; any other choice raises an `InputError`.

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
    """Return `flags` as text, with null for no flag.

    >>> written(np.array([1, 0, 5])).to_pylist()
    ['Y', None, '1']
    """
    import pyarrow as pa

    return pa.array([None, *FLAGS[1:]]).take(pa.array(flags))


def words(flags: np.ndarray) -> str:
    """Return a sentence on how many codes arose after admission by their `flags`.

    >>> words(np.array([1, 2, 0]))
    '1 of 3 codes arose after admission by their flags (POA N or U); 1 have no flag and count as present.'
    """
    counts = np.bincount(flags, minlength=len(FLAGS))
    after, missing = counts[list(LATE)].sum(), counts[0]
    found = f"{after:,} of {counts.sum():,} codes arose after admission by their flags (POA N or U)"
    return f"{found}; {missing:,} have no flag and count as present." if missing else f"{found}."


def no_flags(where: str) -> InputError:
    """Return an error for a table, called `where`, that needs flags and has none.

    >>> no_flags("visits.csv").args[0].split(";")[0]
    'visits.csv: has no flags of what was present on admission'
    """
    return InputError(
        f"{where}: has no flags of what was present on admission; needed are columns POA1, POA2, ... for DX1, DX2, "
        "..., a column poa for code, or a list poa for codes (--poa all counts every code)."
    )
