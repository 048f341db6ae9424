"""Age and sex of admissions, for models whose risks take them: from a cohort, a frame, or columns carried from a file.

In come data as `mlci score` and `MLCI.risk` take them; out come the rows of `mlci.fitting._people`, or None where the
data know neither: the risks are then those by codes alone.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mlci.base.errors import InputError
from mlci.fitting._people import SEXES, UNKNOWN, rows_of

COLUMNS = ("age", "sex")


def wanted(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Return which of age and sex a model's risks take, by the config in its card."""
    return tuple(name for name in COLUMNS if config.get("people", {}).get(name))


def of_table(table: Any, names: Sequence[str], where: str, rows: Sequence[int]) -> np.ndarray | None:
    """Return the rows of an Arrow table of admissions; `rows` are the numbers by which messages call them."""
    from mlci.sources._people import ages, sexes

    found = {}
    for name, parse in (("age", ages), ("sex", sexes)):
        if name in names and name in table.column_names:
            found[name] = parse(table[name], where, name, rows)[0].to_pylist()
    return rows_of(found.get("age"), found.get("sex"), len(table)) if found else None


def of_data(data: Any, names: Sequence[str], many: int) -> np.ndarray | None:
    """Return the rows of a cohort or a frame of admissions; of anything else nothing is known."""
    if not names:
        return None
    import narwhals as nw

    from mlci.codes.admissions import as_table

    table = getattr(data, "table", None) if hasattr(data, "admissions") else None
    if table is None and nw.dependencies.is_into_dataframe(data):
        table = as_table(data)
    if table is None or len(table) != many:
        return None
    return of_table(table, names, "the data", range(many))


def needed(data: Any, names: Sequence[str]) -> np.ndarray | None:
    """Return the same, to learn from: each of the names must be there."""
    if not names:
        return None
    columns = getattr(getattr(data, "table", data), "column_names", None) or list(getattr(data, "columns", ()))
    for name in names:
        if name not in columns:
            raise InputError(f"people.{name} is set, and the data have no column {name}.")
    return of_data(data, names, len(data))


def of_person(names: Sequence[str], age: float | None, sex: str | None) -> np.ndarray | None:
    """Return the rows of one person; None where nothing is said."""
    return of_persons(names, None if age is None else [age], None if sex is None else [sex], 1)


def of_persons(
    names: Sequence[str], ages: Sequence[float | None] | None, sexes: Sequence[str | None] | None, many: int
) -> np.ndarray | None:
    """Return the rows of so many persons, of whom ages or sexes were said in their order; None where neither was."""
    said = {name: values for name, values in (("age", ages), ("sex", sexes)) if values is not None}
    for name, values in said.items():
        if name not in names:
            raise InputError(f"the risks of this index do not take {name}; its config says `people.{name}`.")
        if len(values) != many:
            raise InputError(f"{name}: {len(values)} values for {many} admissions; each needs its own, or null.")
    if not {*(sexes or [])} <= {*SEXES, None}:
        raise InputError(f"sex is {' or '.join(SEXES)}.")
    return rows_of(ages, sexes, many) if said else None


def unsaid(names: Sequence[str], rows: np.ndarray | None) -> tuple[str, ...]:
    """Return which of these names no admission says.

    >>> unsaid(("age", "sex"), rows_of([71.0], [None], 1))
    ('sex',)
    """
    places = [(place, name) for place, name in enumerate(COLUMNS) if name in names]
    return tuple(name for place, name in places if rows is None or (rows[:, place] == UNKNOWN).all())
