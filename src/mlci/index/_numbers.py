"""Numbers that a fit learns from beside outcomes that happen or not: columns of a cohort, checked, with their kinds.

Names of columns come in, alone or with `poisson` or `gaussian`; `Numbers` go out, or None where nobody asked.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from mlci.base.errors import InputError
from mlci.cohort import Cohort
from mlci.fitting._numbers import Numbers

LEARNED = ("table",)  # recipes that learn from numbers


def numbers_of(data: Any, names: Mapping[str, str] | Sequence[str], *, recipe: str) -> Numbers | None:
    """Return the numbers of each admission, by the names of columns."""
    if not names:
        return None
    if recipe not in LEARNED:
        raise InputError(f"the recipe {recipe} learns from outcomes that happen or not; numbers are for {LEARNED[0]}.")
    if not isinstance(data, Cohort):
        raise InputError("numeric: names columns of a cohort; codes alone have none.")
    taken = [name for name in names if name in data.outcomes]
    if taken:
        raise InputError(f"numeric: {taken[0]} is an outcome of the cohort already; leave it out.")
    from mlci.judging.numbers import numeric_column

    kinds = dict(names) if isinstance(names, Mapping) else {}
    return Numbers.of({name: numeric_column(data, name) for name in names}, kinds)
