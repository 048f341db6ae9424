"""Shared parts of the classical models: sparse bags of prefixes, the neural models' validation loss, outcome weights.

Turn tokens into SciPy CSR matrices (never dense), and validation losses into the paper's Stage 2 weights.
"""

from collections.abc import Callable
from typing import TypeVar, cast

import numpy as np
from scipy import sparse

from mlci.base.errors import InputError
from mlci.config import WeightConfig
from mlci.fitting import Split
from mlci.fitting._weighting import stage2_weights

Fitted = TypeVar("Fitted")

BATCH = 256  # of the validation loss, as in the neural models
FEWEST = 10  # known values in the training split that an outcome needs


def counts(part: Split) -> sparse.csr_array:
    """Return token counts, admissions x vocabulary; <UNK> has a column and <PAD> has none.

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
    """Return counts times idf, each admission scaled to unit length; an admission without codes is zero."""
    from sklearn.preprocessing import normalize

    return cast(sparse.csr_array, normalize(sparse.csr_array(counts(part).multiply(idf))))


def inverse_frequency(train: Split) -> np.ndarray:
    """Return the smoothed idf, ln((1 + n) / (1 + df)) + 1; <UNK>, absent from training, has the largest."""
    from sklearn.feature_extraction.text import TfidfTransformer

    return TfidfTransformer().fit(counts(train)).idf_


def cross_entropy(logit: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the binary cross-entropy of each admission from logits; NaN if the outcome is unknown.

    >>> cross_entropy(np.array([0.0, 2.0]), np.array([1.0, np.nan])).round(3)
    array([0.693,   nan])
    """
    return np.logaddexp(0, logit) - logit * y


def validation_loss(logit: np.ndarray, y: np.ndarray) -> float:
    """Return the mean over batches of 256 of the mean loss of known outcomes; a batch without any counts as zero.

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
    """Return which outcomes can be learned: enough known values, and both classes.

    >>> active(np.array([[0, 0.0]] * 9 + [[0, 1.0]]))  # the first has one class
    array([False,  True])
    """
    known = np.isfinite(outcomes).sum(axis=0)
    positive = np.nansum(outcomes, axis=0)
    return (known >= FEWEST) & (positive > 0) & (positive < known)


def outcome_weights(losses: np.ndarray) -> np.ndarray:
    """Return the paper's weights from validation losses: larger for harder outcomes, with mean 1.

    A loss that is not finite marks an outcome that is left out; its weight is zero.

    >>> outcome_weights(np.array([0.2, 0.6, np.nan])).round(3)
    array([0.795, 1.205, 0.   ])
    """
    weights, used = np.zeros(len(losses)), np.isfinite(losses)
    if used.any():
        weights[used] = stage2_weights(np.maximum(np.log(2) - losses[used], 0.0), WeightConfig())
    return weights


def stage1(
    train: Split, valid: Split, fit: Callable[[int], tuple[Fitted, np.ndarray]]
) -> tuple[dict[int, Fitted], np.ndarray]:
    """Return one fit per outcome that can be learned, and the weights of all outcomes from the validation losses.

    `fit(outcome)` returns the fitted model and its logits for all validation admissions. If no outcome can be learned,
    an `InputError` is raised.
    """
    fits: dict[int, Fitted] = {}
    losses = np.full(len(train.names), np.nan)
    for outcome in np.flatnonzero(active(train.outcomes)):
        fits[int(outcome)], logit = fit(int(outcome))
        losses[outcome] = validation_loss(logit, valid.outcomes[:, outcome].astype(float))
    if not fits:
        raise InputError(
            f"no outcome can be learned: each needs {FEWEST} training admissions where it is known, and both classes."
        )
    return fits, outcome_weights(losses)


def pooled(part: Split, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return for each admission the weighted share of its known outcomes that are present, and the sum of weights.

    The cross-entropy with these as target and weight equals the weighted sum over the known outcomes.

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
