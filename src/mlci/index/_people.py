"""Age and sex of admissions, for models whose risks depend on them: from a cohort, a frame or the columns of a file.

Turn the data of `mlci score` and `MLCI.risk` into rows of `mlci.fitting._people`, or None if the data have neither age
nor sex. The risks then depend on codes only.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from mlci.base.errors import InputError
from mlci.fitting._people import SEXES, UNKNOWN, rows_of

COLUMNS = ("age", "sex")


def wanted(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Return which of age and sex a model's risks depend on, by the config in its card."""
    return tuple(name for name in COLUMNS if config.get("people", {}).get(name))


def persons_of_table(
    table: Any, names: Sequence[str], where: str, rows: Sequence[int], *, whole: bool = True
) -> dict[str, list]:
    """Return age and sex of the admissions in an Arrow table, by name; `rows` are the row numbers for error messages.

    `whole` is false for a later part of a file: only its first part shows how the file writes sexes.
    """
    from mlci.sources._people import ages, cells, sexes

    return {
        name: parse(table[name], name, cells(where, name, rows))[0].to_pylist()
        for name, parse in (("age", ages), ("sex", partial(sexes, whole=whole)))
        if name in names and name in table.column_names
    }


def of_table(table: Any, names: Sequence[str], where: str, rows: Sequence[int]) -> np.ndarray | None:
    """Return the rows of an Arrow table of admissions, as `persons_of_table` reads them."""
    return rows_of_persons(persons_of_table(table, names, where, rows), len(table))


def rows_of_persons(persons: Mapping[str, Sequence], many: int) -> np.ndarray | None:
    """Return the rows of `many` persons from the lists of `persons_of_table`; None if there are none."""
    return rows_of(persons.get("age"), persons.get("sex"), many) if persons else None


def of_data(data: Any, names: Sequence[str], many: int) -> np.ndarray | None:
    """Return the rows of a cohort or a frame of admissions; None for other data."""
    if not names:
        return None
    import narwhals as nw

    from mlci.codes.admissions import as_table

    table = as_table(data) if nw.dependencies.is_into_dataframe(data) else getattr(data, "table", None)
    if table is None or len(table) != many:
        return None
    return of_table(table, names, "the data", range(many))


def needed(data: Any, names: Sequence[str]) -> np.ndarray | None:
    """Return the same for a fit, where every name must be a column of the data."""
    if not names:
        return None
    columns = getattr(getattr(data, "table", data), "column_names", None) or list(getattr(data, "columns", ()))
    for name in names:
        if name not in columns:
            raise InputError(f"people.{name} is set, but the data have no column {name}.")
    return of_data(data, names, len(data))


def of_person(names: Sequence[str], age: float | None, sex: str | None) -> np.ndarray | None:
    """Return the rows of one person; None if neither age nor sex is given."""
    return of_persons(names, None if age is None else [age], None if sex is None else [sex], 1)


def of_persons(
    names: Sequence[str], ages: Sequence[float | None] | None, sexes: Sequence[str | None] | None, many: int
) -> np.ndarray | None:
    """Return the rows of `many` persons from their ages or sexes, in order; None if neither is given."""
    given = {name: values for name, values in (("age", ages), ("sex", sexes)) if values is not None}
    for name, values in given.items():
        if name not in names:
            raise InputError(
                f"the risks of this index do not depend on {name}; an index fitted with `people.{name}` has such risks."
            )
        if len(values) != many:
            raise InputError(f"{name}: {len(values)} values for {many} admissions; pass one value, or null, for each.")
    if not {*(sexes or [])} <= {*SEXES, None}:
        raise InputError(f"sex must be {' or '.join(SEXES)}.")
    if ages:
        from mlci.sources._people import AGE_LIMIT

        years = np.array(ages, dtype=np.float64)  # None becomes NaN
        if ((years < 0) | (years >= AGE_LIMIT)).any():
            raise InputError(f"age must be from 0 to {AGE_LIMIT - 1} years.")
    return rows_of(ages, sexes, many) if given else None


def absent(names: Sequence[str], rows: np.ndarray | None) -> tuple[str, ...]:
    """Return the names for which no admission has a value.

    >>> absent(("age", "sex"), rows_of([71.0], [None], 1))
    ('sex',)
    """
    places = [(place, name) for place, name in enumerate(COLUMNS) if name in names]
    return tuple(name for place, name in places if rows is None or (rows[:, place] == UNKNOWN).all())


def absence_warning(names: Sequence[str], missing: Sequence[str]) -> str:
    """Return a warning that some of the `names` that risks depend on are missing, or nothing if none is.

    >>> absence_warning(("age", "sex"), ("sex",))
    "the model's risks depend on age and sex, but the data have no sex: they are computed without it."
    """
    if not missing:
        return ""
    how = "from codes only" if len(missing) == len(names) else "without it"
    inputs, lacking = " and ".join(names), " or ".join(missing)
    return f"the model's risks depend on {inputs}, but the data have no {lacking}: they are computed {how}."
