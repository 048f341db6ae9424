"""List codes that reveal the outcome rather than the patient's state, so that an index can leave them out.

Diagnoses are coded after discharge, so some record what happened (cardiac arrest) or was decided (palliative care). The
list is `data/outcome_codes.csv`, by outcome and grade: a code `tells` the outcome, is a `complication` of care, or is a
`possible` consequence that may as well be the reason for admission. Needs the standard library alone.
"""

import csv
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FILE = Path(__file__).parent / "data" / "outcome_codes.csv"
GRADES = ("tells", "complication", "possible")  # the surest first
CRITICAL_CARE = "critical care"


@dataclass(frozen=True)
class OutcomeCode:
    """A code, or the prefix of several codes."""

    version: int
    code: str
    tells: str  # the outcome that it reveals
    grade: str  # one of `GRADES`
    title: str


@cache
def outcome_codes() -> tuple[OutcomeCode, ...]:
    """Return the whole list, the surest grade first.

    >>> {entry.grade for entry in outcome_codes()} == {*GRADES}
    True
    """
    with open(FILE, newline="", encoding="utf-8") as file:
        rows = csv.DictReader(file)
        return tuple(
            OutcomeCode(int(row["version"]), row["code"], row["tells"], row["grade"], row["title"]) for row in rows
        )


def telling_codes(grade: str | None = None) -> tuple[OutcomeCode, ...]:
    """Return the codes that reveal an outcome.

    Args:
        grade: return the codes of this grade and of surer ones, for every outcome. Without it, return the short list
            that `mlci fit --without-outcome-codes` leaves out: codes that surely reveal death or discharge.

    >>> sorted({entry.tells for entry in telling_codes()})
    ['death', 'discharge, length of stay']
    >>> [len(telling_codes(grade)) for grade in GRADES] == sorted(len(telling_codes(grade)) for grade in GRADES)
    True
    """
    if grade is None:
        return tuple(entry for entry in telling_codes(GRADES[0]) if entry.tells != CRITICAL_CARE)
    return tuple(entry for entry in outcome_codes() if GRADES.index(entry.grade) <= GRADES.index(grade))


def tells(code: str, version: int) -> str | None:
    """Return the outcome that a code reveals, or None.

    Args:
        code: a normalised code.
        version: 9 or 10; 0 if unknown, and then the codes of both versions are searched.

    >>> tells("I469", 10)
    'death'
    >>> tells("I500", 10)
    """
    for entry in telling_codes():
        if version in (entry.version, 0) and code.startswith(entry.code):
            return entry.tells
    return None
