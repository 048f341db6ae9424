"""The rule of page, API, report and `mlci score --strict`: an admission needs half of its codes understood for a score.

Turn admissions, and the deepest token that a vocabulary has for each of their codes, into the share of each admission's
codes that is understood and whether that is enough for a score. A code is understood if the model was trained with it
or one of its prefixes, or ignores it on purpose because it reveals an outcome.
"""

from dataclasses import dataclass

import numpy as np

from mlci.codes.admissions import Admissions
from mlci.tokens import PAD, UNK

LEAST_UNDERSTOOD = 0.5  # share of an admission's recorded codes that a score requires


@dataclass(frozen=True)
class Understanding:
    """One value per admission, in order."""

    share: np.ndarray  # of its recorded codes; NaN without codes
    enough: np.ndarray  # for a score: half of its codes are understood, and at least one counts

    def diluted(self, counts: np.ndarray, more: int) -> "Understanding":
        """Return the same with `more` diagnoses, none of them understood, in addition to the `counts` codes."""
        share = np.nan_to_num(self.share) * counts / (counts + more)
        return Understanding(share, self.enough & (share >= LEAST_UNDERSTOOD))


def understanding(admissions: Admissions, leaves: np.ndarray) -> Understanding:
    """Return the share of each admission that is understood; `leaves` is `Vocabulary.leaves` of the distinct codes.

    >>> admissions = Admissions.from_lists([["I509", "WHAT"], ["WHAT"], []])
    >>> understanding(admissions, np.array([2, UNK])).enough
    array([ True, False, False])
    """
    counts = admissions.counts
    understood = counts - admissions.count(leaves == UNK)
    share = np.divide(understood, counts, out=np.full(len(counts), np.nan), where=counts > 0)
    return Understanding(share, (share >= LEAST_UNDERSTOOD) & (understood > admissions.count(leaves == PAD)))


def poorly_understood(admissions: Admissions, leaves: np.ndarray, unknown_share: np.ndarray | None = None) -> int:
    """Count the admissions with codes of which fewer than half are understood.

    Args:
        admissions: normalised codes.
        leaves: `Vocabulary.leaves` of the distinct codes.
        unknown_share: `Model.unknown_share` of the admissions, if it has been computed already.

    >>> poorly_understood(Admissions.from_lists([["I509", "WHAT"], ["WHAT"], []]), np.array([2, UNK]))
    1
    """
    unknown = leaves == UNK
    if not unknown.any():
        return 0
    if unknown_share is not None and PAD not in leaves:  # no code is ignored: not understood means unknown
        return int((unknown_share > 1 - LEAST_UNDERSTOOD).sum())
    return int((admissions.count(unknown) > (1 - LEAST_UNDERSTOOD) * admissions.counts).sum())
