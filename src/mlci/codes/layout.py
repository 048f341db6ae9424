"""Find which columns of a table hold the admission, its codes and their ICD version.

`find_layout` combines the names of the columns with the user's options (`id`, `codes`) and returns a `Layout`. The
command line, Python, Spark and the page all use it. Four layouts are understood: a column for each code (`DX1`, `DX2`,
...), one row per admission with a list of codes, one row per admission with the codes in one text, and one row per
code.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from mlci.base.errors import InputError, header_of, name_of
from mlci.codes.poa import ALL, ANY, ONLY, flag_columns, flag_number, no_flags

if TYPE_CHECKING:
    import pyarrow as pa

ID, CODES, CODE, VERSION = "admission_id", "codes", "code", "icd_version"
# Column names that are recognised, in capitals or not; the first one that a table has is taken.
IDS = (
    *(ID, "hadm_id", "visit_id", "encounter_id", "visit_occurrence_id", "stay_id", "case_id", "episode_id", "claim_id"),
    *("admission", "encounter", "visit", "discharge_id", "record_id", "key_nis", "key_nrd", "clm_id", "id"),
)
VERSIONS = (VERSION, "icd_ver", "dxver", "dx_version", "i10_dxver", "icd_code_version", "vocabulary_id")
ONE_COLUMN = (
    *("icd_codes", "dx_codes", "diagnoses", "diagnosis_codes", "icd_code", "dx_code", "diagnosis_code", "icd10_code"),
    *("icd9_code", "icd10", "icd9", "icd", "dx", "diagnosis", "diag"),
)
FIRST = re.compile(r"(pdx|dx_?p|(principal|primary|main)_?(dx|diag|diagnosis)|prncpal_dgns_cd)", re.I)
NUMBERED = re.compile(
    r"((?:i(?:cd)?_?)?(?:9|10)?_?(?:dx|diag|diagnosis|icd|dgns_cd|code|icd_?code)_?)0*(\d{1,3})", re.I
)


@dataclass(frozen=True)
class Layout:
    """Where a table holds its codes.

    `form` is `wide` (a column per code), `list` (a list, or text, per admission) or `long` (a row per code).
    """

    form: str
    codes: tuple[str, ...]  # in the order of an admission's codes
    id: str | None = None
    version: str | None = None  # the column of ICD versions
    poa: tuple[str, ...] = ()  # for each column of codes, its column of present-on-admission flags, or an empty text
    only: bool = False  # whether to leave out codes that arose after admission
    others: tuple[str, ...] = field(default=(), repr=False)  # columns that look like codes and are not read

    @property
    def doubt(self) -> str:
        """A sentence that names the columns that look like codes and are not read; empty if there are none.

        >>> find_layout(["visit_id", "DX1", "DX2", "I10_DX1"], "visits.csv").doubt
        'not read, although named like codes: I10_DX1; --codes (codes= in Python) names the columns to read.'
        """
        if not self.others:
            return ""
        names = ", ".join(map(name_of, self.others[:5])) + (" and others" if len(self.others) > 5 else "")
        return f"not read, although named like codes: {names}; --codes (codes= in Python) names the columns to read."

    @property
    def columns(self) -> list[str]:
        """The columns that are read.

        >>> Layout("wide", ("DX1", "DX2"), id="visit").columns
        ['visit', 'DX1', 'DX2']
        """
        return [*filter(None, [self.id]), *self.codes, *filter(None, [self.version, *self.poa])]

    def settled(self, first: "pa.Table") -> "Layout":
        """Decide by the first rows whether a single column has a row per admission or a row per code.

        Where an admission repeats, each row is a code. A column named `codes` always has a row per admission.

        Args:
            first: the first rows.

        Returns:
            The layout, its `form` changed to `long` if each row is a code.

        >>> import pyarrow as pa
        >>> rows = pa.table({"visit": [7, 7], "icd10": ["I50.9", "N17.9"]})
        >>> Layout("list", ("icd10",), id="visit").settled(rows).form
        'long'
        """
        if self.form != "list" or self.id is None or self.codes[0].lower() == CODES:
            return self
        ids = first[self.id]
        return replace(self, form="long") if len(ids.unique()) < len(ids) else self


def find_layout(
    names: Sequence[str],
    where: str,
    *,
    id: str | None = None,
    codes: str | Sequence[str] | None = None,
    version: str | None = None,
    needs_id: bool = True,
    poa: str = ALL,
) -> Layout:
    """Find the columns that the user named, and recognise the others by their names.

    A single column of codes has the form `list`, unless it is called `code`; `Layout.settled` looks at its rows.

    Args:
        names: the columns of the table.
        where: the table's name in messages.
        id: the column of admissions.
        codes: a column or a pattern such as `DX*`, or several of them (a sequence, or text with commas).
        version: the column of ICD versions.
        needs_id: whether a column of admissions is required.
        poa: which codes count, a choice of `mlci.codes.poa`; all but `ALL` and `ANY` need flags.

    Returns:
        The layout. A named column that is missing, or a table without codes, raises an `InputError`.

    >>> find_layout(["visit_id", "DX1", "DX10", "DX2", "los"], "visits.csv")
    Layout(form='wide', codes=('DX1', 'DX2', 'DX10'), id='visit_id', version=None, poa=(), only=False)
    """
    id_column = named_column(names, [id], where, "--id") if id else _first(names, IDS)
    chosen = _chosen(names, codes, where) if codes else _guessed(names)
    version_column = named_column(names, [version], where, "--icd-version") if version else _first(names, VERSIONS)
    found = header_of(names)
    if not chosen:
        found += " (is there a title above the header?)" if sum(map(bool, names)) == 1 else ""
        raise InputError(
            f"{where}: lacks the column codes; needed are a list of codes, columns such as DX1, DX2, or one row per "
            f"code (--codes names them); found are {found}."
        )
    form = "wide" if len(chosen) > 1 else "long" if CODE in map(str.lower, chosen) else "list"
    if id_column is None and (needs_id or form == "long"):
        raise InputError(
            f"{where}: lacks the column {ID}; --id names the column that identifies admissions; found are {found}."
        )
    flags = flag_columns(names, chosen) if poa != ALL else ()
    if not flags and poa not in (ALL, ANY):
        raise no_flags(where)
    read = [*filter(None, [id_column, version_column]), *chosen]
    if twice := next((name for name in read if read.count(name) > 1), None):
        raise InputError(
            f"{where}: column {twice} cannot be two of identifier, codes and ICD version; --id, --codes and "
            "--icd-version name columns of their own."
        )
    others = () if codes else tuple(name for name in names if name not in read and _looks_like_codes(name))
    return Layout(form, chosen, id_column, version_column, flags, poa == ONLY, others)


def named_column(names: Sequence[str], wanted: Sequence[str], where: str, option: str) -> str:
    """Find a column that the user named, in capitals or not.

    Args:
        names: the columns of the table.
        wanted: names to look for; the first that the table has is taken.
        where: the table's name in messages.
        option: the option that named the column, for messages.

    Returns:
        The column's name as the table writes it; a column that is missing raises an `InputError`.

    >>> named_column(["Visit", "DX1"], ["visit"], "visits.csv", "--id")
    'Visit'
    """
    found = _first(names, wanted)
    if found is None:
        raise InputError(f"{where}: lacks the column {wanted[0]} ({option}); it has {header_of(names)}.")
    return found


def _first(names: Sequence[str], wanted: Sequence[str]) -> str | None:
    lower = {name.lower(): name for name in reversed(names)}
    exact = (name for name in wanted if name in names)
    return next(exact, None) or next((lower[name.lower()] for name in wanted if name.lower() in lower), None)


def _chosen(names: Sequence[str], codes: str | Sequence[str], where: str) -> tuple[str, ...]:
    patterns = [part.strip() for part in codes.split(",")] if isinstance(codes, str) else list(codes)
    found: list[str] = []
    for pattern in patterns:
        hits = [name for name in names if name == pattern]
        hits = hits or [name for name in names if fnmatchcase(name.lower(), pattern.lower())]
        hits = [name for name in hits if flag_number(name) is None] or hits  # DX* is not DXPOA1
        if not hits:
            raise InputError(f"{where}: no column matches {pattern} (--codes); it has {header_of(names)}.")
        found += sorted(hits, key=_position)
    return tuple(dict.fromkeys(found))


def _position(name: str) -> tuple[int, int]:
    """Return a sort key: the number at the end of a name; without one it is the principal diagnosis and comes first."""
    found = re.search(r"(\d+)$", name)
    return (1, int(found[1])) if found else (0, 0)


def _looks_like_codes(name: str) -> bool:
    """Return whether a column holds codes, judged by its name."""
    return bool(NUMBERED.fullmatch(name) or FIRST.fullmatch(name)) or name.lower() in (CODES, CODE, *ONE_COLUMN)


def _guessed(names: Sequence[str]) -> tuple[str, ...]:
    """Return the columns of codes, recognised by their names: one column, or the largest numbered family."""
    if plain := _first(names, (CODES, CODE)):
        return (plain,)
    families: dict[str, list[str]] = {}
    for name in names:
        if found := NUMBERED.fullmatch(name):
            families.setdefault(found[1].lower(), []).append(name)
    if families:
        largest = max(families.values(), key=len)
        first = [name for name in names if FIRST.fullmatch(name)]
        return tuple(dict.fromkeys([*first, *sorted(largest, key=_position)]))
    single = _first(names, ONE_COLUMN)
    return (single,) if single else ()
