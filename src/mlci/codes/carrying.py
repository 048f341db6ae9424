"""Decide for how many days each code is carried to later admissions.

A chronic disease stays with a patient, a pneumonia does not. A look-back that carries every code gives an index
illnesses that ended long ago. `comorbidities` carries only codes that Charlson or Elixhauser list; a table states the
days for each code. Without either, every code is carried over the whole look-back.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from mlci.base.errors import InputError
from mlci.base.tablefile import open_table
from mlci.codes.icd import normalise
from mlci.codes.rules import rules

COMORBIDITIES = "comorbidities"
OTHERS = "*"  # in a table: all codes that have no row of their own
COLUMNS = ("code", "days")


@dataclass(frozen=True)
class Carry:
    """Which codes are carried, and for how many days; without `days`, those that Charlson or Elixhauser list.

    >>> Carry("a table", {"I50": 3650.0, "*": 0.0}).reach(np.array(["I509", "J189"]), 10).tolist()
    [3650.0, 0.0]
    """

    words: str  # a description, for notes
    days: Mapping[str, float] = field(default_factory=dict)  # prefix of a code -> days

    def reach(self, codes: np.ndarray, version: int) -> np.ndarray:
        """Return the number of days for which each code is carried.

        Args:
            codes: distinct normalised codes.
            version: 9 or 10.

        Returns:
            Days: 0 for a code that is never carried, infinity for one that is carried over the whole look-back.

        >>> Carry("comorbidities alone").reach(np.array(["I252", "J189"]), 10).tolist()
        [inf, 0.0]
        """
        if not self.days:
            return np.where(rules().code_bits(codes, version).any(axis=0), np.inf, 0.0)
        others = self.days.get(OTHERS, np.inf)
        return np.array(
            [next((self.days[part] for part in _prefixes(code) if part in self.days), others) for code in codes]
        )


def read_carry(table: str | Path) -> Carry:
    """Read the rule for which codes are carried.

    Args:
        table: the word comorbidities, or a table (CSV, Parquet, Excel) with the columns code (the beginning of a code,
            or * for all others) and days (0: never).

    Returns:
        The rule. If several rows fit a code, the longest beginning counts.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "carry.csv")
    ...     _ = file.write_text("code,days\\nI50,3650\\n*,0\\n")
    ...     read_carry(file).days
    {'I50': 3650.0, '*': 0.0}
    """
    if str(table) == COMORBIDITIES:
        return Carry("comorbidities alone")
    found: dict[str, float] = {}
    with open_table(table) as file:
        lower = {name.lower(): name for name in file.names}
        for name in COLUMNS:
            if name not in lower:
                raise InputError(f"{table}: lacks the column {name}; it has {', '.join(file.names)}.")
        parts = file.read([lower[name] for name in COLUMNS])
        rows = (row for part in parts for row in zip(*(column.to_pylist() for column in part.columns)))
        for place, (code, days) in enumerate(rows):
            row = file.row_number(place)
            prefix = _prefix(code, f"{table}: column code, row {row}")
            if prefix in found:
                raise InputError(
                    f"{table}: column code, row {row}: repeats that of an earlier row; each may occur once."
                )
            found[prefix] = _number(days, f"{table}: column days, row {row}")
    if not found:
        raise InputError(f"{table}: has no rows; needed are codes and how many days each is carried.")
    return Carry(f"as long as {Path(table).name} says", found)


def _prefixes(code: str) -> list[str]:
    """Return all prefixes of a code, itself included, the longest first."""
    return [code[:length] for length in range(len(code), 0, -1)]


def _prefix(text: object, where: str) -> str:
    code = OTHERS if str(text).strip() == OTHERS else normalise(str(text or ""))
    if not code:
        raise InputError(f"{where}: is empty; needed is the beginning of a code, or * for all others.")
    return code


def _number(value: object, where: str) -> float:
    try:
        days = float(str(value))
    except ValueError:
        days = -1.0
    if not 0 <= days < np.inf:
        raise InputError(f"{where}: is not a number of days; allowed are numbers from 0.")
    return days
