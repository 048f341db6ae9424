"""Columns that a cohort carries along, as those who compare need them: numbers, words, weights."""

import numpy as np

from mlci.base.errors import InputError
from mlci.cohort import Cohort
from mlci.judging.evaluate import subgroup


def column(cohort: Cohort, name: str) -> np.ndarray:
    """A column in its own kind of number or word; `age_band` is made from age."""
    return cohort.table[name].to_pandas().to_numpy() if name in cohort.table.column_names else subgroup(cohort, name)


def weights_of(cohort: Cohort, name: str) -> np.ndarray:
    """A column of survey weights: numbers from 0."""
    values = column(cohort, name)
    try:
        weight = values.astype(float)
    except (TypeError, ValueError) as error:
        raise InputError(f"column {name}: is not numeric; a weight is a number from 0.") from error
    if not np.isfinite(weight).all() or (weight < 0).any():
        row = int(np.argmax(~np.isfinite(weight) | (weight < 0)))
        raise InputError(f"column {name}, row {row + 1}: is empty or negative; a weight is a number from 0.")
    return weight
