"""Disclosure control: the aggregates of training admissions that a model file may hold, each over at least ten of them.

A file with every quantile of a small cohort would disclose the score of each member. Anyone who knows a patient's codes
could then infer that the patient was in the training data.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from mlci.fitting._data import Split
from mlci.judging.kept import Contrast, Cutoff
from mlci.measures.matching import matched
from mlci.tokens import SPECIAL

LEAST = 10  # admissions behind every figure
MOST_STEPS = 1000
AT_ONCE = 100_000  # admissions per batch, because tokens may be on disk


def quantiles(scores: np.ndarray, weight: np.ndarray | None = None) -> np.ndarray:
    """Return evenly spaced quantiles of the scores, from smallest to largest, each a mean of ten or more neighbours.

    Quantiles are at least ten admissions apart, so that no admission counts in two of them. With weights, they are
    evenly spaced in weight: each is the mean of the block of ten in which its share of the weight is reached.

    >>> quantiles(np.arange(40.0)).tolist()
    [4.5, 14.5, 24.5, 34.5]
    """
    order = np.argsort(scores, kind="stable")
    scores = scores[order]
    points = int(np.clip(len(scores) // LEAST, 2, MOST_STEPS + 1))
    width = min(LEAST, max(1, len(scores) // points))
    starts = np.round(np.linspace(0, len(scores) - width, points)).astype(int)
    if weight is not None:
        reached = np.cumsum(weight[order])
        place = np.searchsorted(reached, np.linspace(0, 1, points) * reached[-1] * (1 - 1e-12))
        starts = np.minimum(place // width, len(scores) // width - 1) * width
    return scores[starts[:, None] + np.arange(width)].mean(axis=1)


def as_shipped(
    scores: np.ndarray,
    unseen: np.ndarray,
    crossed: np.ndarray | None = None,
    weight: np.ndarray | None = None,
    other: np.ndarray | None = None,
) -> np.ndarray:
    """Return training scores with the distribution that the final index gives to new admissions.

    Cross-fitted scores have another spread than those of the final index: single members are noisier, and folds are
    shrunk more. In-sample scores spread too widely. So the training scores are quantile-matched: they get the transform
    that maps the cross-fitted scores of the validation admissions to the final index's scores of the same admissions.

    Args:
        scores: out-of-sample scores of the training admissions.
        unseen: scores of the validation admissions by the final index.
        crossed: scores of the validation admissions by the cross-fitted parts (parts x admissions); None takes `scores`
            in their place.
        weight, other: survey weights of the training and the validation admissions, if any.

    >>> round(float(as_shipped(np.arange(1000.0), np.arange(1000.0) / 2).std()))
    148
    """
    if len(unseen) < LEAST or not scores.std() > 0 or not unseen.std() > 0:
        return scores
    if crossed is None:
        return matched(scores, scores, unseen, weight=weight, other=other)
    every = None if other is None else np.tile(other, len(crossed))
    return matched(scores, crossed.ravel(), unseen, weight=every, other=other)


def event_counts(names: Sequence[str], outcomes: np.ndarray) -> dict[str, int]:
    """Return the number of events of each outcome, except outcomes that fewer than ten admissions have, or lack."""
    events, known = np.nansum(outcomes, axis=0), np.sum(~np.isnan(outcomes), axis=0)
    return {name: int(many) for name, many, of in zip(names, events, known) if min(many, of - many) >= LEAST}


def tokens_of_one_patient(train: Split) -> int:
    """Count the tokens of the vocabulary that occur in the admissions of only one patient.

    Such a token discloses to anyone who knows the patient's codes that the patient is in the training data.
    """
    rows = np.arange(len(train))
    patients = rows if train.subjects is None else np.unique(train.subjects, return_inverse=True)[1]
    first, last = np.full(train.vocabulary_size, len(rows)), np.full(train.vocabulary_size, -1)
    for start in range(0, len(rows), AT_ONCE):
        part = train.tokens.take(rows[start : start + AT_ONCE])
        owner = np.repeat(patients[start : start + AT_ONCE], part.counts)
        np.minimum.at(first, part.ids, owner)
        np.maximum.at(last, part.ids, owner)
    return int(np.sum((first == last)[len(SPECIAL) :]))


def without_small_cells(cutoff: Cutoff) -> Cutoff:
    """Return the cutoff without contrasts of small groups; a side with fewer than ten admissions counts as empty."""
    tail = cutoff.tail if LEAST <= cutoff.tail <= cutoff.n - LEAST else cutoff.n * round(cutoff.share)
    large = tuple(contrast for contrast in cutoff.contrasts if min(_cells(contrast)) >= LEAST)
    return replace(cutoff, tail=tail, contrasts=large)


def _cells(contrast: Contrast) -> list[int]:
    return [many for side in (contrast.above, contrast.below) for many in (side.positives, side.n - side.positives)]
