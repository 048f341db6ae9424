"""Check whether codes were valid in the United States in the year of the admission.

ICD-10-CM replaced ICD-9-CM on 1 October 2015; `data/added.csv` has the year of each code that was added later. The data
do not tell when ICD-10-CM codes ended and ICD-9-CM codes began, so this is not checked. Years after the last edition in
the table are not checked either, because some data have dates that were shifted to protect patients, such as MIMIC.
"""

import csv
from collections import Counter
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from mlci.base.errors import InputError
from mlci.codes.icd import DATA

if TYPE_CHECKING:
    from mlci.codes.admissions import Admissions

CHANGED = 2015  # the year in which ICD-10-CM replaced ICD-9-CM
LAST = 2026  # the last year for which added codes are known
SPAN = 4096  # larger than any year


@cache
def added() -> dict[str, int]:
    """Return the year of each ICD-10-CM code that was added after the first edition.

    >>> added()["U071"], "I509" in added()
    (2020, False)
    """
    with open(DATA / "added.csv", newline="", encoding="utf-8") as file:
        return {code: int(row["year"]) for row in csv.DictReader(file) for code in row["codes"].split()}


def valid_words(code: str, version: int) -> str:
    """Return in words in which years a `code` of an ICD `version` was valid, as far as is known.

    >>> valid_words("U071", 10), valid_words("4280", 9)
    ('from 2020', 'to 2015')
    """
    return f"to {CHANGED}" if version == 9 else f"from {added().get(code, CHANGED)}"


class ByYear:
    """Counts codes by the year of their admission, batch after batch; `column` holds the times of admission.

    >>> from mlci.codes.admissions import Admissions
    >>> seen = ByYear()
    >>> seen.add(Admissions.from_lists([["U071", "I509"], ["U071"]], icd_version=10), np.array([2018, 2021]))
    >>> seen.invalid()
    {(10, 'U071'): 1}
    """

    def __init__(self, column: str = "admitted") -> None:
        self.column = column
        self.counts: Counter[tuple[int, str, int]] = Counter()

    def add(self, admissions: "Admissions", years: np.ndarray) -> None:
        """Count the codes of a batch.

        Args:
            admissions: normalised codes.
            years: the year of each admission, 0 if unknown.

        >>> from mlci.codes.admissions import Admissions
        >>> seen = ByYear()
        >>> seen.add(Admissions.from_lists([["I509"], ["I509"]], icd_version=10), np.array([2018, 0]))
        >>> seen.judged, seen.silent
        (1, 1)
        """
        usable = np.where((years > 0) & (years <= LAST), years, 0)
        keys = admissions.indices.astype(np.int64) * SPAN + np.repeat(usable, np.diff(admissions.offsets))
        for key, count in zip(*(found.tolist() for found in np.unique(keys, return_counts=True))):
            value = key // SPAN
            self.counts[int(admissions.versions[value]), str(admissions.values[value]), key % SPAN] += count

    @property
    def judged(self) -> int:
        """The number of codes with a year that can be checked."""
        return sum(count for (_, _, year), count in self.counts.items() if year)

    @property
    def silent(self) -> int:
        """The number of codes without such a year."""
        return self.counts.total() - self.judged

    def invalid(self) -> dict[tuple[int, str], int]:
        """Return how often each code was recorded in a year in which it was not valid.

        >>> from mlci.codes.admissions import Admissions
        >>> seen = ByYear()
        >>> seen.add(Admissions.from_lists([["4280"]], icd_version=9), np.array([2021]))
        >>> seen.invalid()
        {(9, '4280'): 1}
        """
        found: Counter[tuple[int, str]] = Counter()
        for (version, code, year), count in self.counts.items():
            if year and (year > CHANGED if version == 9 else year < added().get(code, CHANGED)):
                found[version, code] += count
        return dict(found)


def years_of(table: Any, column: str, where: str) -> np.ndarray:
    """Return the years of a column of dates and times; 0 if the column is missing or cannot be read.

    Args:
        table: an Arrow table.
        column: its column of dates, times or text.
        where: the table's name in messages.

    >>> import pyarrow as pa
    >>> years_of(pa.table({"admitted": ["2019-12-31", None]}), "admitted", "visits.csv").tolist()
    [2019, 0]
    """
    from mlci.codes.lookback import seconds_of

    unknown = np.zeros(len(table), dtype=np.int64)
    if column not in table.column_names:
        return unknown
    try:
        seconds, known = seconds_of(table[column], where)
    except InputError:
        return unknown
    years = seconds.astype("datetime64[s]").astype("datetime64[Y]").astype(np.int64) + 1970
    return np.where(known, np.clip(years, 0, SPAN - 1), 0)
