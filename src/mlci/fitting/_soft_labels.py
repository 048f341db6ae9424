"""The labels that a score of several outcomes is aligned with, and the weight of each outcome.

The recipes `deep` and `table` share this: outcomes mixed with their predicted risks are less noisy than outcomes alone.
Pure functions on arrays; needs NumPy alone.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from mlci.base.errors import InputError


def known_mean(outcomes: np.ndarray, weight: np.ndarray | None = None) -> np.ndarray:
    """Return the mean of each outcome over the admissions where it is known, with sampling weights if given.

    >>> known_mean(np.array([[0.0], [1.0], [np.nan]]), np.array([3.0, 1.0, 1.0]))
    array([0.25])
    """
    if weight is None:
        return np.asarray(np.nanmean(outcomes, axis=0, dtype=np.float64))
    return weight @ np.nan_to_num(outcomes) / (weight @ ~np.isnan(outcomes))


def outcome_weights(
    outcomes: np.ndarray,
    names: Sequence[str],
    *,
    balance: float,
    importance: Mapping[str, float],
    weight: np.ndarray | None = None,
) -> np.ndarray:
    """Return how much each outcome counts: variance ** `balance`, times its importance, scaled to mean 1.

    `weight` are sampling weights of the admissions.

    >>> outcome_weights(np.array([[0, 1], [0, 0], [1, 1], [0, 0]]), ["death", "stay"], balance=0.0, importance={})
    array([1., 1.])
    """
    if weight is None:
        variance = np.nanvar(outcomes, axis=0, dtype=np.float64)
    else:
        variance = known_mean((outcomes - known_mean(outcomes, weight)) ** 2, weight)
    weights = variance**balance
    weights = weights * [importance.get(name, 1.0) for name in names]
    return weights / weights.mean()


def soften(log_odds: np.ndarray, outcomes: np.ndarray, *, observed: float) -> np.ndarray:
    """Return soft labels: `observed` * outcome + (1 - `observed`) * risk, or the risk alone for an unknown outcome.

    >>> soften(np.array([[0.0], [0.0]]), np.array([[1.0], [np.nan]]), observed=0.5)
    array([[0.75],
           [0.5 ]])
    """
    with np.errstate(over="ignore"):
        risks = 1 / (1 + np.exp(-log_odds.astype(np.float64)))
    return np.where(np.isnan(outcomes), risks, observed * np.nan_to_num(outcomes) + (1 - observed) * risks)


def check_importance(importance: Mapping[str, float], names: Sequence[str], *, where: str) -> None:
    """Raise an error for importance factors of unknown outcomes, or not above 0; `where` names the config's section.

    >>> check_importance({"mortality": 2.0}, ["mortality", "long_stay"], where="curve")
    """
    for name, factor in importance.items():
        if name not in names:
            raise InputError(f"{where}.importance: {name} is not an outcome; there is {', '.join(names)}.")
        if not factor > 0:
            raise InputError(f"{where}.importance: {name} counts {factor:g} times; allowed is more than 0.")
