"""What is not understood is not scored: the one rule that page, API, report and `mlci score --strict` follow.

In come admissions and the deepest token that a vocabulary has for each of their codes; out comes, per admission, the
share of its codes that is understood and whether that is enough for a score. A code is understood if the model has seen
it or one of its beginnings, or leaves it out on purpose because it tells an outcome.
"""

from dataclasses import dataclass

import numpy as np

from mlci.codes.admissions import Admissions
from mlci.tokens import PAD, UNK

LEAST_UNDERSTOOD = 0.5  # share of an admission's recorded codes below which it gets no score


@dataclass(frozen=True)
class Understanding:
    """One value per admission, in order."""

    share: np.ndarray  # of its recorded codes; NaN without codes
    enough: np.ndarray  # whether it may have a score: half of its codes are understood, and one at least counts

    def diluted(self, counts: np.ndarray, more: int) -> "Understanding":
        """Return the same if `more` diagnoses were recorded beside the `counts` codes, none of them understood."""
        share = np.nan_to_num(self.share) * counts / (counts + more)
        return Understanding(share, self.enough & (share >= LEAST_UNDERSTOOD))


def understanding(admissions: Admissions, leaves: np.ndarray) -> Understanding:
    """Return how far each admission is understood; `leaves` is `Vocabulary.leaves` of the distinct codes.

    >>> admissions = Admissions.from_lists([["I509", "WHAT"], ["WHAT"], []])
    >>> understanding(admissions, np.array([2, UNK])).enough
    array([ True, False, False])
    """
    counts = admissions.counts
    understood = counts - admissions.count(leaves == UNK)
    share = np.divide(understood, counts, out=np.full(len(counts), np.nan), where=counts > 0)
    return Understanding(share, (share >= LEAST_UNDERSTOOD) & (understood > admissions.count(leaves == PAD)))


def hardly(admissions: Admissions, leaves: np.ndarray, unknown_share: np.ndarray | None = None) -> int:
    """Count the admissions with codes of which fewer than half are understood: the same share, without its array.

    Args:
        admissions: normalised codes.
        leaves: `Vocabulary.leaves` of the distinct codes.
        unknown_share: `Model.unknown_share` of the admissions, where it is at hand.

    >>> hardly(Admissions.from_lists([["I509", "WHAT"], ["WHAT"], []]), np.array([2, UNK]))
    1
    """
    unknown = leaves == UNK
    if not unknown.any():
        return 0
    if unknown_share is not None and PAD not in leaves:  # no code is left out on purpose: what is unknown is all
        return int((unknown_share > 1 - LEAST_UNDERSTOOD).sum())
    return int((admissions.count(unknown) > (1 - LEAST_UNDERSTOOD) * admissions.counts).sum())
