"""Means, standard deviations and quantiles with sampling weights; without weights exactly those of NumPy.

A weight says how many admissions of the population an admission of the sample represents; only ratios of weights matter
here. Without weights (None) each admission counts once.
"""

from collections.abc import Sequence

import numpy as np


def mean(values: np.ndarray, weight: np.ndarray | None = None):
    """Return the mean over admissions.

    Args:
        values: along the first axis, one per admission.
        weight: sampling weight of each admission.

    >>> float(mean(np.array([1.0, 4.0]), np.array([2.0, 1.0])))
    2.0
    """
    return values.mean(axis=0) if weight is None else np.average(values, axis=0, weights=weight)


def spread(values: np.ndarray, weight: np.ndarray | None = None):
    """Return the standard deviation over admissions, with the divisor n.

    Args:
        values: along the first axis, one per admission.
        weight: sampling weight of each admission.

    >>> float(spread(np.array([1.0, 4.0]), np.array([2.0, 1.0])).round(3))
    1.414
    """
    if weight is None:
        return values.std(axis=0)
    return np.sqrt(np.average((values - mean(values, weight)) ** 2, axis=0, weights=weight))


def quantile(values: np.ndarray, levels: Sequence[float] | np.ndarray, weight: np.ndarray | None = None) -> np.ndarray:
    """Return quantiles; with weights, the least value up to which at least that share of the weight lies.

    Args:
        values: one per admission.
        levels: shares, from 0 to 1.
        weight: sampling weight of each admission.

    >>> quantile(np.array([3.0, 1.0, 2.0]), [0.5], np.array([1.0, 5.0, 1.0])).tolist()
    [1.0]
    """
    if weight is None:
        return np.quantile(values, levels)
    order = np.argsort(values, kind="stable")
    order = order[weight[order] > 0]
    reached = np.cumsum(weight[order])
    place = np.searchsorted(reached, np.asarray(levels) * reached[-1] * (1 - 1e-12))
    return values[order][np.minimum(place, len(order) - 1)]


def effective(weight: np.ndarray) -> float:
    """Return Kish's effective sample size of a `weight` per admission: (Σ w)² / Σ w².

    >>> effective(np.array([1.0, 1.0, 1.0, 0.0])), effective(np.array([3.0, 1.0]))
    (3.0, 1.6)
    """
    return float(weight.sum() ** 2 / (weight @ weight)) if weight.any() else 0.0


def effective_of_mean(residuals: np.ndarray, weight: np.ndarray) -> float:
    """Return the sample size at which an unweighted mean is as precise as the weighted one: Σ w Σ w r² / Σ w² r².

    It is smaller than Kish's where large residuals have large weights, as those of events that were drawn rarely.

    Args:
        residuals: each admission's deviation from the mean; if all are 0, the result is Kish's.
        weight: sampling weight of each admission.

    >>> effective_of_mean(np.array([0.5, -0.5, 0.0, 0.0]), np.array([3.0, 3.0, 1.0, 1.0]))
    2.6666666666666665
    """
    squares = residuals**2
    variance = float(weight**2 @ squares)
    return float(weight.sum() * (weight @ squares)) / variance if variance > 0 else effective(weight)
