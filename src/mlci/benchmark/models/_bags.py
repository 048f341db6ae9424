"""What the classical models share: sparse bags of prefixes, the validation loss of the deep models, outcome weights.

In come tokens, out come SciPy CSR matrices (never dense) and the paper's two-stage weights.
"""

from collections.abc import Callable
from typing import TypeVar, cast

import numpy as np
from scipy import sparse

from mlci.config import WeightConfig
from mlci.fitting import Split
from mlci.fitting._weighting import stage2_weights

Fitted = TypeVar("Fitted")

BATCH = 256  # of the validation loss, as the deep models take it
FEWEST = 10  # known outcomes in the training split that an outcome needs to take part


def counts(part: Split) -> sparse.csr_array:
    """Return admissions x vocabulary; the column of <PAD> is left out, <UNK> has one. Order of codes is forgotten here.

    >>> from mlci.tokens import Tokens
    >>> split = Split(Tokens(np.array([2, 3, 2]), np.array([0, 2, 3])), np.array([[1.0], [0.0]]), ("mortality",), 4)
    >>> counts(split).toarray().tolist()
    [[0.0, 1.0, 1.0], [0.0, 1.0, 0.0]]
    """
    tokens = part.tokens
    shape = (len(tokens), part.vocabulary_size - 1)
    ones = np.ones(len(tokens.ids))
    bag = sparse.csr_array((ones, tokens.ids.astype(np.int32) - 1, tokens.offsets.astype(np.int32)), shape=shape)
    bag.sum_duplicates()
    return bag


def tfidf(part: Split, idf: np.ndarray) -> sparse.csr_array:
    """Return counts times idf, each admission scaled to length one; an admission without codes stays zero."""
    from sklearn.preprocessing import normalize

    return cast(sparse.csr_array, normalize(sparse.csr_array(counts(part).multiply(idf))))


def inverse_frequency(train: Split) -> np.ndarray:
    """Smooth natural idf: ln((1 + n) / (1 + df)) + 1; <UNK>, never met in training, has the largest."""
    from sklearn.feature_extraction.text import TfidfTransformer

    return TfidfTransformer().fit(counts(train)).idf_


def cross_entropy(logit: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return binary cross-entropy of each admission, from logits; NaN where the outcome is not known.

    >>> cross_entropy(np.array([0.0, 2.0]), np.array([1.0, np.nan])).round(3)
    array([0.693,   nan])
    """
    return np.logaddexp(0, logit) - logit * y


def validation_loss(logit: np.ndarray, y: np.ndarray) -> float:
    """Return the mean over batches of 256 of the batch's mean over known outcomes; a batch without any counts as zero.

    >>> round(validation_loss(np.zeros(300), np.ones(300)), 3)
    0.693
    """
    starts = np.arange(0, len(y), BATCH)
    known = np.isfinite(y)
    total = np.add.reduceat(np.where(known, cross_entropy(logit, y), 0.0), starts)
    return float(np.mean(total / np.maximum(np.add.reduceat(known.astype(float), starts), 1)))


def known(part: Split, outcome: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the admissions whose outcome is known, and the outcome.

    >>> from mlci.tokens import Tokens
    >>> tokens = Tokens(np.array([2, 3]), np.array([0, 1, 2]))
    >>> known(Split(tokens, np.array([[np.nan], [1.0]]), ("mortality",), 4), 0)
    (array([1]), array([1]))
    """
    rows = np.flatnonzero(np.isfinite(part.outcomes[:, outcome]))
    return rows, part.outcomes[rows, outcome].astype(int)


def active(outcomes: np.ndarray) -> np.ndarray:
    """Return which outcomes can be learned: enough known values, of both classes.

    >>> active(np.array([[0, 0.0]] * 9 + [[0, 1.0]]))  # nobody has the first
    array([False,  True])
    """
    known = np.isfinite(outcomes).sum(axis=0)
    positive = np.nansum(outcomes, axis=0)
    return (known >= FEWEST) & (positive > 0) & (positive < known)


def outcome_weights(losses: np.ndarray) -> np.ndarray:
    """Return the paper's weights from validation losses: the harder the outcome, the heavier; their mean is 1.

    A loss that is not finite marks an outcome that takes no part; its weight is zero.

    >>> outcome_weights(np.array([0.2, 0.6, np.nan])).round(3)
    array([0.795, 1.205, 0.   ])
    """
    weights, taking = np.zeros(len(losses)), np.isfinite(losses)
    if taking.any():
        weights[taking] = stage2_weights(np.maximum(np.log(2) - losses[taking], 0.0), WeightConfig())
    return weights


def stage1(
    train: Split, valid: Split, fit: Callable[[int], tuple[Fitted, np.ndarray]]
) -> tuple[dict[int, Fitted], np.ndarray]:
    """Return one fit per outcome that can be learned, then the weights of all outcomes from the validation losses.

    `fit(outcome)` returns what it learned and its logits for all validation admissions.
    """
    fits: dict[int, Fitted] = {}
    losses = np.full(len(train.names), np.nan)
    for outcome in np.flatnonzero(active(train.outcomes)):
        fits[int(outcome)], logit = fit(int(outcome))
        losses[outcome] = validation_loss(logit, valid.outcomes[:, outcome].astype(float))
    return fits, outcome_weights(losses)


def pooled(part: Split, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return for each admission the weighted share of its known outcomes that happened, and the sum of their weights.

    The loss of each admission once with these is that of each admission once per known outcome, all with one score.

    >>> from mlci.tokens import Tokens
    >>> tokens = Tokens(np.array([2, 3]), np.array([0, 1, 2]))
    >>> split = Split(tokens, np.array([[1.0, 0.0], [1.0, np.nan]]), ("mortality", "long_stay"), 4)
    >>> pooled(split, np.array([0.5, 1.5]))  # shares, and weights
    (array([0.25, 1.  ]), array([2. , 0.5]))
    """
    known = np.isfinite(part.outcomes)
    weight = known @ weights
    share = np.where(known, part.outcomes, 0.0) @ weights
    return share / np.where(weight > 0, weight, 1.0), weight
