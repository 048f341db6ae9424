"""Compare recorded codes with the ICD tables, and report those that are not valid.

Codes are not changed. A finding names an invalid code and says what it looks like.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlci.codes import icd, years, zeros

KINDS = {
    "heading": "a heading, or a code that lost its last digit: finer codes exist, and one of them was meant",
    "zero": "lost a leading zero",
    "other": "a code of the other ICD version",
    "long": "more characters than a code: without the last it is one",
    "newer": "newer than the lists: came into ICD-10-CM after the edition of 2021",
    "year": "not valid in the year of the admission, by the US editions",
    "unknown": "in no table: of another country, or mistyped",
}


@dataclass(frozen=True)
class Audit:
    """Numbers of recorded codes of one ICD version: all, and those that look wrong."""

    version: int
    codes: int
    unknown: int  # codes that the table of this version lacks, as a code and as a heading of finer codes
    other: int  # unknown codes that the table of the other version has
    zeros: int  # codes that lack a leading zero
    longer: int  # codes with more characters than any code of this version has

    @property
    def share(self) -> str:
        table = f"ICD-{self.version}-CM table"
        return f"{self.unknown:,} of {self.codes:,} codes ({self.unknown / self.codes:.1%}) are in no {table}"

    @property
    def warnings(self) -> list[str]:
        """Sentences on codes that are too long, and on errors that at least one code in twenty has, not just a few."""
        found = []
        if self.other * 20 >= self.codes:
            found.append(
                f"{self.other:,} of {self.codes:,} codes said to be ICD-{self.version} are in the table of "
                f"ICD-{icd.OTHER[self.version]} alone; is the ICD version right?"
            )
        if self.zeros * 20 >= self.codes:
            found.append(
                f"{self.zeros:,} of {self.codes:,} ICD-{self.version} codes lack a leading zero (38.9 for 038.9), as "
                "if a spreadsheet had dropped it; they are read as they are (--restore-zeros restores the zeros)."
            )
        if self.longer:
            found.append(
                f"{self.longer:,} of {self.codes:,} codes are longer than any ICD-{self.version} code; each counts as "
                "the code with which it begins. Several codes written as one are the usual cause."
            )
        return found


def audit(codes: Any, counts: np.ndarray, version: int, *, short: int = 0) -> Audit:
    """Count the codes that look wrong.

    Args:
        codes: distinct normalised codes, an Arrow array.
        counts: how often each was recorded.
        version: 9 or 10.
        short: the number of recorded codes with too few digits before the dot.

    Returns:
        The numbers of codes: all, unknown ones, those of the other version, those that lost a zero, and too long ones.

    >>> import pyarrow as pa
    >>> report = audit(pa.array(["I509", "4280"]), np.array([3, 1]), 10)
    >>> report.codes, report.unknown, report.other
    (4, 1, 1)
    """
    import pyarrow.compute as pc

    unknown = ~_listed(codes, version)
    stripped = _stripped(codes, version)
    other = unknown & ~stripped
    other[other] = _listed(codes.filter(other), icd.OTHER[version])
    longer = pc.utf8_length(codes).to_numpy(zero_copy_only=False) > icd.LONGEST[version]
    # A code with too few digits may also be among the stripped ones: do not count it twice.
    without_zero = max(int(counts[stripped].sum()), short)
    wrong, foreign, overlong = (int(counts[rows].sum()) for rows in (unknown, other, longer))
    return Audit(version, int(counts.sum()), wrong, foreign, without_zero, overlong)


def only_in_other(codes: Any, version: int) -> np.ndarray:
    """Return which codes were probably recorded in the other ICD version: this one lacks them, also with a zero before.

    Args:
        codes: normalised codes, an Arrow array.
        version: 9 or 10.

    >>> import pyarrow as pa
    >>> only_in_other(pa.array(["I509", "4280", "QQQ"]), 10).tolist()
    [False, True, False]
    """
    found = ~_listed(codes, version) & ~_stripped(codes, version)
    found[found] = _listed(codes.filter(found), icd.OTHER[version])
    return found


def _listed(codes: Any, version: int) -> np.ndarray:
    """Return which codes are codes or headings of an ICD version."""
    found = icd.known(codes, version)
    if not found.all():
        found[~found] = zeros.heading(codes.filter(~found), version)
    return found


def _stripped(codes: Any, version: int) -> np.ndarray:
    """Return which codes lack a leading zero; ICD-10 codes have none."""
    return zeros.stripped(codes) if version == 9 else np.zeros(len(codes), dtype=bool)


@dataclass(frozen=True)
class Finding:
    """An invalid code, what is wrong with it (a key of `KINDS`), and how often it was recorded."""

    version: int
    code: str
    kind: str
    count: int


def findings(codes: Any, counts: np.ndarray, version: int) -> Iterator[Finding]:
    """Find the codes that are not valid.

    Args:
        codes: distinct normalised codes, an Arrow array.
        counts: how often each was recorded; codes that were not recorded are skipped.
        version: 9 or 10.

    Returns:
        An iterator over findings, in the order of the codes; each code has one finding, of the first kind that fits.

    >>> import pyarrow as pa
    >>> codes = pa.array(["I509", "I50", "4280", "I5099", "QQQ", "U099"])
    >>> [(found.code, found.kind) for found in findings(codes, np.ones(6, dtype=int), 10)]
    [('I50', 'heading'), ('4280', 'other'), ('I5099', 'long'), ('QQQ', 'unknown'), ('U099', 'newer')]
    """
    import pyarrow.compute as pc

    table = icd.billable(version)
    valid = pc.is_in(codes, value_set=table).to_numpy(zero_copy_only=False)
    stripped = _stripped(codes, version)
    odd = (counts > 0) & ~(valid & ~stripped)
    if not odd.any():
        return
    codes, counts, stripped = codes.filter(odd), counts[odd], stripped[odd]
    tests = {
        "newer": np.array([version == 10 and code in years.added() for code in codes.to_pylist()], dtype=bool),
        "heading": _listed(codes, version) & ~stripped,
        "zero": stripped,
        "other": _listed(codes, icd.OTHER[version]),
        "long": pc.is_in(pc.utf8_slice_codeunits(codes, 0, -1), value_set=table).to_numpy(zero_copy_only=False),
    }
    kinds = np.select(list(tests.values()), list(tests), "unknown")
    for code, kind, count in zip(codes.to_pylist(), kinds.tolist(), counts.tolist()):
        yield Finding(version, code, kind, count)


def out_of_year(seen: years.ByYear) -> Iterator[Finding]:
    """Find the codes that were recorded in a year in which they were not valid.

    Args:
        seen: codes by year; those in no table are skipped, because they are findings already.

    Returns:
        An iterator over findings of the kind `year`.

    >>> from mlci.codes.admissions import Admissions
    >>> seen = years.ByYear()
    >>> seen.add(Admissions.from_lists([["U071"]], icd_version=10), np.array([2018]))
    >>> [(found.code, found.kind, found.count) for found in out_of_year(seen)]
    [('U071', 'year', 1)]
    """
    invalid = seen.invalid()
    for version in icd.VERSIONS:
        codes = [code for number, code in invalid if number == version]
        for code, known in zip(codes, icd.known(codes, version).tolist()):
            if known or (version == 10 and code in years.added()):
                yield Finding(version, code, "year", invalid[version, code])
