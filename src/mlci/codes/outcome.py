"""Codes that tell the outcome rather than the patient's state: an index that may not use them can leave them out.

Diagnoses are coded after discharge, so some record what happened (cardiac arrest) or was decided (palliative care). The
list is data: `data/outcome_codes.csv`. Needs the standard library alone.
"""

import csv
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FILE = Path(__file__).parent / "data" / "outcome_codes.csv"


@dataclass(frozen=True)
class OutcomeCode:
    """A code, or the beginning that several share."""

    version: int
    code: str
    tells: str  # which outcome
    title: str


@cache
def outcome_codes() -> tuple[OutcomeCode, ...]:
    """Return the list of codes that tell an outcome.

    >>> len(outcome_codes()) > 5
    True
    """
    with open(FILE, newline="", encoding="utf-8") as file:
        return tuple(
            OutcomeCode(int(row["version"]), row["code"], row["tells"], row["title"]) for row in csv.DictReader(file)
        )


def tells(code: str, version: int) -> str | None:
    """Which outcome a normalised code tells, or None; a code of no known version (0) is taken for either.

    >>> tells("I469", 10)
    'death'
    >>> tells("I500", 10)
    """
    for entry in outcome_codes():
        if version in (entry.version, 0) and code.startswith(entry.code):
            return entry.tells
    return None
