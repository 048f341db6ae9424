"""What a model file may tell of its training admissions: figures behind which at least ten of them stand.

A file with every quantile of a small cohort would give back the score of each member, and whoever knows a patient's
codes could then tell that the patient was one of them.
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
AT_ONCE = 100_000  # admissions, as tokens may lie on disk


def quantiles(scores: np.ndarray, weight: np.ndarray | None = None) -> np.ndarray:
    """Return evenly spaced quantiles of the scores, from least to greatest, each a mean of ten neighbours or more.

    Steps are at least ten admissions wide, so that no admission counts in two of them. With weights, quantiles are even
    in weight: each is the mean of that ten in which its share of the weight is reached.

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
    """Return training scores as the index that ships gives them to admissions it has not seen.

    Scores from cross-fitted parts of an index spread otherwise than the whole one's (its members are noisier, its folds
    more shrunk), and those of admissions it was learned from too far. So they move as the parts' scores of validation
    admissions must move to spread like those of the index itself.

    Args:
        scores: of training admissions, by parts of the index that have not seen them.
        unseen: of validation admissions, by the index that ships.
        crossed: of the same, by the parts (parts x admissions); None: `scores` stand for them.
        weight, other: how much training and validation admissions count, where they count unequally.

    >>> round(float(as_shipped(np.arange(1000.0), np.arange(1000.0) / 2).std()))
    148
    """
    if len(unseen) < LEAST or not scores.std() > 0 or not unseen.std() > 0:
        return scores
    if crossed is None:
        return matched(scores, scores, unseen, weight=weight, other=other)
    every = None if other is None else np.tile(other, len(crossed))
    return matched(scores, crossed.ravel(), unseen, weight=every, other=other)


def counted(names: Sequence[str], outcomes: np.ndarray) -> dict[str, int]:
    """Return admissions with each outcome, but for those that fewer than ten have, or lack."""
    events, known = np.nansum(outcomes, axis=0), np.sum(~np.isnan(outcomes), axis=0)
    return {name: int(many) for name, many, of in zip(names, events, known) if min(many, of - many) >= LEAST}


def tokens_of_one_patient(train: Split) -> int:
    """Return how many tokens of the vocabulary occur in the admissions of a single patient alone.

    They would tell that this patient is among the training admissions to whoever knows the patient's codes.
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
    """Return the cutoff without the contrasts of small groups; fewer than ten beyond it (or below) count as none."""
    tail = cutoff.tail if LEAST <= cutoff.tail <= cutoff.n - LEAST else cutoff.n * round(cutoff.share)
    large = tuple(contrast for contrast in cutoff.contrasts if min(_cells(contrast)) >= LEAST)
    return replace(cutoff, tail=tail, contrasts=large)


def _cells(contrast: Contrast) -> list[int]:
    return [many for side in (contrast.above, contrast.below) for many in (side.positives, side.n - side.positives)]
