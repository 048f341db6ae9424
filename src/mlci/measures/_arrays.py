"""Check the arguments of measures: any array of numbers becomes a checked float64 array, which the measures trust."""

from numbers import Real
from typing import Any

import numpy as np

from mlci.base.errors import InputError, kind_of


def as_scores(score: Any, name: str = "score") -> np.ndarray:
    """Return one finite number per admission, as float64; anything else raises an error."""
    scores = _floats(score, name, "a finite number")
    if scores.ndim != 1:
        raise InputError(f"{name}: has {scores.ndim} dimensions; one number per admission is needed.")
    if not scores.size:
        raise InputError(f"{name}: is empty; at least one admission is needed.")
    _refuse(~np.isfinite(scores), scores, name, "a finite number")
    return scores


def as_outcomes(y: Any, n: int, name: str = "y", *, soft: bool = False) -> np.ndarray:
    """Return outcomes as n x T float64, NaN where not known; with `soft`, probabilities are allowed as well."""
    allowed = "between 0 and 1, or null" if soft else "0, 1 or null"
    outcomes = _floats(y, name, allowed)
    if outcomes.ndim not in (1, 2):
        raise InputError(f"{name}: has {outcomes.ndim} dimensions; one or two are allowed.")
    if len(outcomes) != n:
        raise InputError(f"{name}: has {len(outcomes)} admissions and the score has {n}; they must be equal.")
    known = ~np.isnan(outcomes)
    good = (outcomes >= 0) & (outcomes <= 1) if soft else (outcomes == 0) | (outcomes == 1)
    _refuse(known & ~good, outcomes, name, allowed)
    return outcomes.reshape(n, -1)


def moderate(scores: np.ndarray, bits: int) -> np.ndarray:
    """Return the scores, divided by a power of two (which is exact) if one is as large as 2 ** `bits`."""
    exponent = int(np.frexp(np.abs(scores).max())[1])
    return scores if exponent <= bits else np.ldexp(scores, bits - exponent)


def unit_of(values: np.ndarray) -> float:
    """Return a power of two near the largest absolute value: division by it is exact and prevents overflow."""
    return float(np.ldexp(1.0, int(np.frexp(np.abs(values).max())[1]) - 1))


def midranks(values: np.ndarray) -> np.ndarray:
    """Return the ranks of the numbers, from 1; ties get the mean of their ranks."""
    order = np.argsort(values)
    ordered = values[order]
    starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1])[: len(values)])
    counts = np.diff(starts, append=len(values))
    ranks = np.empty(len(values))
    ranks[order] = np.repeat(starts + (counts + 1) / 2, counts)
    return ranks


def _floats(values: Any, name: str, allowed: str) -> np.ndarray:
    if isinstance(values, np.ma.MaskedArray):  # masked values are missing
        values = np.ma.filled(values.astype(np.float64), np.nan)
    array = np.asarray(values)
    if array.dtype.kind in "biuf":
        return array.astype(np.float64)
    import pandas as pd  # recognises the missing values of every library

    array = np.asarray(values, dtype=object)
    numbers = np.full(array.shape, np.nan)
    for index, value in np.ndenumerate(array):
        if isinstance(value, Real | np.bool_):
            numbers[index] = value
        elif not pd.isna(value):
            raise InputError(f"{name}[{', '.join(map(str, index))}]: {kind_of(value)} is not {allowed}.")
    return numbers


def _refuse(bad: np.ndarray, array: np.ndarray, name: str, allowed: str) -> None:
    if bad.any():
        index = tuple(int(i) for i in np.argwhere(bad)[0])
        shown = kind_of(array[index]) if np.isfinite(array[index]) else f"{array[index]:g}"
        raise InputError(f"{name}[{', '.join(map(str, index))}]: {shown} is not {allowed}.")
