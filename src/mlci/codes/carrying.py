"""How long each code is carried to later admissions: a word or a table of beginnings of codes in, days per code out.

A chronic disease stays with a patient, a pneumonia does not; a look-back that carries both tells an index of illnesses
that are long over. `comorbidities` carries the codes that Charlson or Elixhauser list, and no others; a table says it
code by code. Without either every code is carried as far as the look-back goes.
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
OTHERS = "*"  # in a table: the codes that it does not name
COLUMNS = ("code", "days")


@dataclass(frozen=True)
class Carry:
    """Which codes are carried, and how long: `words` says it; without a table, those of comorbidities alone.

    >>> Carry("a table", {"I50": 3650.0, "*": 0.0}).reach(np.array(["I509", "J189"]), 10).tolist()
    [3650.0, 0.0]
    """

    words: str
    days: Mapping[str, float] = field(default_factory=dict)

    def reach(self, codes: np.ndarray, version: int) -> np.ndarray:
        """Give the days for which each code is carried.

        Args:
            codes: distinct normalised codes.
            version: 9 or 10.

        Returns:
            Days, 0 where a code is never carried and infinity where the look-back alone says it.

        >>> Carry("comorbidities alone").reach(np.array(["I252", "J189"]), 10).tolist()
        [inf, 0.0]
        """
        if not self.days:
            return np.where(rules().code_bits(codes, version).any(axis=0), np.inf, 0.0)
        others = self.days.get(OTHERS, np.inf)
        return np.array(
            [next((self.days[part] for part in _beginnings(code) if part in self.days), others) for code in codes]
        )


def read_carry(said: str | Path) -> Carry:
    """Read which codes are carried.

    Args:
        said: the word comorbidities, or a table (CSV, Parquet, Excel) with the columns code (the beginning of codes; *
            for all that are not named) and days (0: never).

    Returns:
        The rule; the longest beginning counts.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "carry.csv")
    ...     _ = file.write_text("code,days\\nI50,3650\\n*,0\\n")
    ...     read_carry(file).days
    {'I50': 3650.0, '*': 0.0}
    """
    if str(said) == COMORBIDITIES:
        return Carry("comorbidities alone")
    found: dict[str, float] = {}
    with open_table(said) as file:
        lower = {name.lower(): name for name in file.names}
        for name in COLUMNS:
            if name not in lower:
                raise InputError(f"{said}: lacks the column {name}; it has {', '.join(file.names)}.")
        row = file.first_row
        for part in file.read([lower[name] for name in COLUMNS]):
            for code, days in zip(*(part[lower[name]].to_pylist() for name in COLUMNS)):
                found[_beginning(code, f"{said}: column code, row {row}")] = _number(
                    days, f"{said}: column days, row {row}"
                )
                row += 1
    if not found:
        raise InputError(f"{said}: has no rows; needed are codes and how many days each is carried.")
    return Carry(f"as long as {Path(said).name} says", found)


def _beginnings(code: str) -> list[str]:
    """Return a code and all its beginnings, the longest first."""
    return [code[:length] for length in range(len(code), 0, -1)]


def _beginning(text: object, where: str) -> str:
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
        raise InputError(f"{where}: is no number of days; allowed is a number from 0.")
    return days
