"""Guess the ICD version of codes, if the user does not state it.

A version is accepted if nearly all codes are of it and fewer are of the other version. A note always reports the guess;
if no version is accepted, an error asks for it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from mlci.base.errors import InputError
from mlci.codes import icd, zeros

if TYPE_CHECKING:
    import pyarrow as pa

    from mlci.codes.admissions import Admissions

CERTAINTY = ("G", "V", "Z", "A")  # letters behind German diagnoses: confirmed, suspected, formerly, ruled out
SURE = 0.9  # the least share of codes of an ICD version for a guess


def guess_version(counts: Mapping[str, int], where: str) -> tuple[int, str]:
    """Guess the ICD version of codes.

    Args:
        counts: normalised codes, with the number of times each was recorded.
        where: the name of their file in messages.

    Returns:
        The version, and a sentence that reports it. If no version fits nearly all codes, an `InputError` is raised.

    >>> guess_version({"I509": 3, "E119": 1}, "visits.csv")
    (10, 'the codes were taken for ICD-10, which 100.0% of them fit; change this with --icd-version.')
    """
    often = np.fromiter(counts.values(), dtype=np.int64, count=len(counts))
    return _decide(_shares(_fits(list(counts)), often), where)


def _fits(codes: Sequence[str] | np.ndarray) -> dict[int, np.ndarray]:
    """Return for each version which of the codes it has, as a code or as a heading."""
    import pyarrow as pa
    import pyarrow.compute as pc

    text = pa.array(codes, pa.string())
    found = {version: _listed(text, version) for version in icd.VERSIONS}
    found[9] |= zeros.stripped(text)
    lettered = (
        pc.match_substring_regex(text, f"[{''.join(CERTAINTY)}]$").to_numpy(zero_copy_only=False)
        & ~found[9]
        & ~found[10]
    )
    if lettered.any():
        found[10][lettered] = _listed(pc.utf8_slice_codeunits(text.filter(pa.array(lettered)), 0, -1), 10)
    return found


def _listed(text: "pa.Array", version: int) -> np.ndarray:
    return icd.known(text, version) | zeros.heading(text, version)


def _shares(fits: Mapping[int, np.ndarray], often: np.ndarray) -> dict[int, float]:
    return {version: float(often[fit].sum() / max(often.sum(), 1)) for version, fit in fits.items()}


def _sure(shares: Mapping[int, float]) -> int | None:
    best, other = sorted(shares, key=lambda version: -shares[version])
    return best if shares[best] >= SURE and shares[best] > shares[other] else None


def _decide(shares: Mapping[int, float], where: str) -> tuple[int, str]:
    """Return the version that the shares of fitting codes show, and a sentence on it."""
    if (version := _sure(shares)) is None:
        raise InputError(
            f"{where}: the ICD version of the codes cannot be told from them ({shares[9]:.0%} fit ICD-9, "
            f"{shares[10]:.0%} ICD-10); give it by --icd-version 9 or 10 (icd_version= in Python), or name the column "
            "that holds it."
        )
    share = shares[version]
    found = f"the codes were taken for ICD-{version}, which {share:.1%} of them fit; change this with --icd-version."
    return version, found


class Guess:
    """Guesses the ICD version of the codes of a file from its first batch, if no code has a version.

    A later batch whose codes are of the other version raises an `InputError`, because the file then has both.

    Args:
        where: the file's name in messages.
        tell: called once with a sentence that reports the guess.

    >>> from mlci.codes.admissions import Admissions
    >>> guess = Guess("visits.csv", print)
    >>> guess(Admissions.from_lists([["I509", "N179"]])).versions.tolist()
    the codes were taken for ICD-10, which 100.0% of them fit; change this with --icd-version.
    [10, 10]
    """

    def __init__(self, where: str, tell: Callable[[str], None]):
        self.where, self.tell, self.version = where, tell, 0
        self.seen: tuple[np.ndarray, dict[int, np.ndarray]] | None = None  # distinct codes, often those of many batches

    def __call__(self, batch: "Admissions") -> "Admissions":
        if not len(batch.indices) or batch.versions.any():
            return batch
        if self.seen is None or self.seen[0] is not batch.values:
            self.seen = batch.values, _fits(batch.values)
        shares = _shares(self.seen[1], batch.mentions)
        if not self.version:
            self.version, sentence = _decide(shares, self.where)
            self.tell(sentence)
        elif _sure(shares) not in (None, self.version):
            raise InputError(
                f"{self.where}: the first codes are ICD-{self.version}, later ones of the other version; --icd-version "
                "COLUMN names the column that holds the version."
            )
        return replace(batch, versions=np.full_like(batch.versions, self.version))
