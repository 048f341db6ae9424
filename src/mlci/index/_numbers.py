"""Numeric outcomes of a fit, such as days or cost: check the columns of a cohort and the kind of each."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mlci.base.errors import InputError
from mlci.cohort import Cohort
from mlci.fitting._numbers import Numbers

LEARNED = ("table",)  # recipes that learn from numeric outcomes


def numbers_of(
    data: Any, names: Mapping[str, str] | Sequence[str], *, recipe: str, train: np.ndarray
) -> Numbers | None:
    """Return the numeric outcomes of each admission, or None if `names` is empty.

    Args:
        data: a cohort.
        names: of columns, or a mapping of each to `poisson` or `gaussian`.
        recipe: of the fit.
        train: the admissions to learn from.
    """
    if not names:
        return None
    if recipe not in LEARNED:
        raise InputError(f"the recipe {recipe} does not accept numeric outcomes; the recipe {LEARNED[0]} does.")
    if not isinstance(data, Cohort):
        raise InputError("numeric: names columns of a cohort; it cannot be used with codes.")
    taken = [name for name in names if name in data.outcomes]
    if taken:
        raise InputError(f"numeric: {taken[0]} is an outcome of the cohort already; leave it out.")
    from mlci.judging.numbers import numeric_column

    kinds = dict(names) if isinstance(names, Mapping) else {}
    return Numbers.of({name: numeric_column(data, name) for name in names}, kinds, train)
