"""Which columns of a table hold what: the admission, its codes, their ICD version.

In come the names of the columns and what a person said of them (`id`, `codes`); out comes a `Layout`, the same for the
command line, Python, Spark and the page. Four layouts are understood: a column for each code (`DX1`, `DX2`, ...), one
row per admission with a list of codes, the same with text in place of the list, and one row per code.
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
# Names that say by themselves what a column holds, in any case; the first one that a table has is taken.
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
    codes: tuple[str, ...]  # in the order in which an admission's codes count
    id: str | None = None
    version: str | None = None  # the column of ICD versions
    poa: tuple[str, ...] = ()  # of each column of codes, its flags (present on admission); empty text: none
    only: bool = False  # whether codes that arose after admission are left out
    others: tuple[str, ...] = field(default=(), repr=False)  # named as codes are, and not read, which nobody said

    @property
    def doubt(self) -> str:
        """Name the columns that hold codes by their names and are not read, in a sentence; empty where there are none.

        >>> find_layout(["visit_id", "DX1", "DX2", "I10_DX1"], "visits.csv").doubt
        'not read, though named as codes are: I10_DX1; --codes (codes= in Python) says which columns count.'
        """
        if not self.others:
            return ""
        names = ", ".join(map(name_of, self.others[:5])) + (" and others" if len(self.others) > 5 else "")
        return f"not read, though named as codes are: {names}; --codes (codes= in Python) says which columns count."

    @property
    def columns(self) -> list[str]:
        """List all columns that are read.

        >>> Layout("wide", ("DX1", "DX2"), id="visit").columns
        ['visit', 'DX1', 'DX2']
        """
        return [*filter(None, [self.id]), *self.codes, *filter(None, [self.version, *self.poa])]

    def seen(self, first: "pa.Table") -> "Layout":
        """Return the layout as the first rows of a table settle it: where admissions repeat, a row is a code.

        A column named `codes` is a list, whether or not its admissions repeat.

        Args:
            first: the first rows.

        >>> import pyarrow as pa
        >>> Layout("list", ("icd10",), id="visit").seen(pa.table({"visit": [7, 7], "icd10": ["I50.9", "N17.9"]})).form
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
    """Match what a person said with the names that a table has, and guess by name what they left open.

    A single column of codes has the form `list`, unless it is called `code`; `Layout.seen` settles it.

    Args:
        names: the columns of the table.
        where: what messages call the table.
        id: the column of admissions.
        codes: a column or a pattern such as `DX*`, or several of them (a sequence, or text with commas).
        version: the column of ICD versions.
        needs_id: whether a table without a column of admissions is refused.
        poa: which codes count, as `mlci.codes.poa` names it; all but `ALL` and `ANY` need flags.

    Returns:
        The layout; a column that is named and missing, or no column of codes at all, is an `InputError`.

    >>> find_layout(["visit_id", "DX1", "DX10", "DX2", "los"], "visits.csv")
    Layout(form='wide', codes=('DX1', 'DX2', 'DX10'), id='visit_id', version=None, poa=(), only=False)
    """
    held = named_column(names, [id], where, "--id") if id else _first(names, IDS)
    chosen = _chosen(names, codes, where) if codes else _guessed(names)
    stated = named_column(names, [version], where, "--icd-version") if version else _first(names, VERSIONS)
    found = header_of(names)
    if not chosen:
        found += " (does a title stand above the header?)" if sum(map(bool, names)) == 1 else ""
        raise InputError(
            f"{where}: lacks the column codes; needed are a list of codes, columns such as DX1, DX2, or one row per "
            f"code (--codes names them); found are {found}."
        )
    form = "wide" if len(chosen) > 1 else "long" if CODE in map(str.lower, chosen) else "list"
    if held is None and (needs_id or form == "long"):
        raise InputError(
            f"{where}: lacks the column {ID}; --id names the one that tells admissions; found are {found}."
        )
    flags = flag_columns(names, chosen) if poa != ALL else ()
    if not flags and poa not in (ALL, ANY):
        raise no_flags(where)
    rest = () if codes else tuple(name for name in names if name not in (*chosen, held, stated) and _holds_codes(name))
    return Layout(form, chosen, held, stated, flags, poa == ONLY, rest)


def named_column(names: Sequence[str], wanted: Sequence[str], where: str, option: str) -> str:
    """Find the column that a person named, in capitals or not.

    Args:
        names: the columns of the table.
        wanted: names to look for; the first that the table has is taken.
        where: what messages call the table.
        option: the option by which it was named, for messages.

    Returns:
        The column's name as the table writes it.

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
            raise InputError(f"{where}: no column is like {pattern} (--codes); it has {header_of(names)}.")
        found += sorted(hits, key=_number)
    return tuple(dict.fromkeys(found))


def _number(name: str) -> tuple[int, int]:
    """Return the number that a name ends with; a name without one is the principal diagnosis and comes first."""
    found = re.search(r"(\d+)$", name)
    return (1, int(found[1])) if found else (0, 0)


def _holds_codes(name: str) -> bool:
    """Return whether a column is one of codes by its name."""
    return bool(NUMBERED.fullmatch(name) or FIRST.fullmatch(name)) or name.lower() in (CODES, CODE, *ONE_COLUMN)


def _guessed(names: Sequence[str]) -> tuple[str, ...]:
    if plain := _first(names, (CODES, CODE)):
        return (plain,)
    families: dict[str, list[str]] = {}
    for name in names:
        if found := NUMBERED.fullmatch(name):
            families.setdefault(found[1].lower(), []).append(name)
    if families:
        largest = max(families.values(), key=len)
        first = [name for name in names if FIRST.fullmatch(name)]
        return tuple(dict.fromkeys([*first, *sorted(largest, key=_number)]))
    single = _first(names, ONE_COLUMN)
    return (single,) if single else ()
