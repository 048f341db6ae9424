"""Which ICD version codes are of, where nobody says it: counts of codes in, a version or a refusal out.

A version is taken where nearly all codes are of it and fewer of the other; a sentence always says which was taken.
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

CERTAINTY = ("G", "V", "Z", "A")  # letters behind the codes of German diagnoses: sure, suspected, former, ruled out
SURE = 0.9  # of the codes must be of one ICD version, to guess it


def guess_version(counts: Mapping[str, int], where: str) -> tuple[int, str]:
    """Tell the ICD version that nearly all codes belong to.

    Args:
        counts: normalised codes, with how often each came.
        where: what messages call their file.

    Returns:
        The version, and a sentence that tells it; codes that do not tell their version are an `InputError`.

    >>> guess_version({"I509": 3, "E119": 1}, "visits.csv")
    (10, 'the codes were taken for ICD-10: 100.0% of them are; --icd-version says otherwise.')
    """
    often = np.fromiter(counts.values(), dtype=np.int64, count=len(counts))
    return _told(_shares(_fits(list(counts)), often), where)


def _fits(codes: Sequence[str] | np.ndarray) -> dict[int, np.ndarray]:
    """Return which of the codes each version has, as a code or as a heading."""
    import pyarrow as pa
    import pyarrow.compute as pc

    text = pa.array(codes, pa.string())
    found = {version: _listed(text, version) for version in icd.VERSIONS}
    found[9] |= zeros.stripped(text)
    marked = (
        pc.match_substring_regex(text, f"[{''.join(CERTAINTY)}]$").to_numpy(zero_copy_only=False)
        & ~found[9]
        & ~found[10]
    )
    if marked.any():
        found[10][marked] = _listed(pc.utf8_slice_codeunits(text.filter(pa.array(marked)), 0, -1), 10)
    return found


def _listed(text: "pa.Array", version: int) -> np.ndarray:
    return icd.known(text, version) | zeros.heading(text, version)


def _shares(fits: Mapping[int, np.ndarray], often: np.ndarray) -> dict[int, float]:
    return {version: float(often[fit].sum() / max(often.sum(), 1)) for version, fit in fits.items()}


def _sure(shares: Mapping[int, float]) -> int | None:
    best, other = sorted(shares, key=lambda version: -shares[version])
    return best if shares[best] >= SURE and shares[best] > shares[other] else None


def _told(shares: Mapping[int, float], where: str) -> tuple[int, str]:
    if (version := _sure(shares)) is None:
        raise InputError(
            f"{where}: the ICD version of the codes cannot be told from them ({shares[9]:.0%} fit ICD-9, "
            f"{shares[10]:.0%} ICD-10); --icd-version 9 or 10 (icd_version= in Python) says it, or names the column "
            "that does."
        )
    share = shares[version]
    return version, f"the codes were taken for ICD-{version}: {share:.1%} of them are; --icd-version says otherwise."


class Guess:
    """Gives codes the version that the first batch of them tells, where no code of their file says one.

    A later batch that tells the other version is refused: such a file has both.

    Args:
        where: what messages call the file.
        tell: called once with the sentence of what was guessed.

    >>> from mlci.codes.admissions import Admissions
    >>> guess = Guess("visits.csv", print)
    >>> guess(Admissions.from_lists([["I509", "N179"]])).versions.tolist()
    the codes were taken for ICD-10: 100.0% of them are; --icd-version says otherwise.
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
            self.version, said = _told(shares, self.where)
            self.tell(said)
        elif _sure(shares) not in (None, self.version):
            raise InputError(
                f"{self.where}: the first codes are ICD-{self.version}, later ones of the other version; --icd-version "
                "COLUMN names the column that says which."
            )
        return replace(batch, versions=np.full_like(batch.versions, self.version))
