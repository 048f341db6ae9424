"""The input of a risk curve: the admissions whose outcome is known."""

import numpy as np
from numpy.typing import ArrayLike

from mlci.base.errors import InputError


def known_outcomes(score: ArrayLike, outcome: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Return the scores and outcomes of admissions whose outcome is known.

    >>> known_outcomes([0.1, 0.2, 0.3], [1, np.nan, 0])
    (array([0.1, 0.3]), array([1., 0.]))
    """
    score, outcome = np.asarray(score, dtype=float), np.asarray(outcome, dtype=float)
    if score.shape != outcome.shape or score.ndim != 1:
        raise InputError(f"a risk curve needs one outcome per score; got shapes {score.shape} and {outcome.shape}.")
    known = ~np.isnan(outcome)
    if not known.any():
        raise InputError("a risk curve needs admissions whose outcome is known; there are none.")
    if not np.isfinite(score[known]).all():
        raise InputError("a risk curve needs finite scores; some are missing or infinite.")
    return score[known], outcome[known]
