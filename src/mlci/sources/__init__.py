"""Sources of cohorts. This folder is the registry: a module `x.py` is the source `x`.

To add a source, add one file with one function:

    def read(location, *, option=default, ...) -> Draft

`location` is what the user typed: a folder, a file or a database URL; from Python also an Ibis backend or a Spark
session. Each keyword is an option that `mlci cohort` and `build_cohort` pass on by the same name. `Draft.table` has one
row per admission, in any order, with these columns: `admission_id`, `subject_id`, `icd_version`, `codes` (lists of
strings as recorded, in recorded order), one Boolean column per outcome (null = not known) and columns to keep (`age`,
`sex`, an existing `split`). `mlci.cohort.build_cohort` then does what all sources share: it normalises the codes, sorts
the rows by admission, draws the split and reports outcomes that cannot be used.

A source that reads tables declares their columns, opens them with `_engine.open_tables`, writes one Ibis expression
with the rules of `_rules`, and counts what it leaves out with `Attrition`; `mimic4.py` is a complete example. Files
whose names begin with an underscore are not sources.
"""

import pkgutil
from dataclasses import dataclass, field
from importlib import import_module
from importlib.metadata import entry_points
from types import ModuleType
from typing import TYPE_CHECKING

from mlci.base.errors import InputError
from mlci.base.plugins import plugins

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

GROUP = "mlci.sources"  # the entry points with which other packages add a source


@dataclass(frozen=True)
class Step:
    """One rule of the selection, in words, with the numbers of admissions that it removed and left."""

    rule: str
    removed: int
    left: int


@dataclass(frozen=True)
class Draft:
    """What a source returns; `outcomes` maps each outcome's column to its rule in words.

    `admitted` holds the time of each admission, if the source has it; a look-back needs it. `rows` are the numbers of
    the rows of `admitted` in messages, if the source is one table.
    """

    table: "pa.Table"
    outcomes: dict[str, str]
    attrition: tuple[Step, ...] = ()
    notes: tuple[str, ...] = ()
    admitted: "pa.Array | pa.ChunkedArray | None" = None
    rows: "np.ndarray | None" = None


@dataclass
class Attrition:
    """A table of admissions that rules make shorter, and the counts of each rule."""

    table: "pa.Table"
    start: str
    steps: list[Step] = field(init=False)

    def __post_init__(self) -> None:
        self.steps = [Step(self.start, 0, self.table.num_rows)]

    def keep(self, rows: "pa.Array | pa.ChunkedArray", rule: str) -> None:
        """Keep the admissions that obey a rule, and count the others.

        Args:
            rows: a Boolean for each admission; null counts as false.
            rule: the rule in words.

        >>> import pyarrow as pa
        >>> attrition = Attrition(pa.table({"age": [70, 9]}), "rows of the survey")
        >>> attrition.keep(pa.array([True, False]), "18 years or older")
        >>> attrition.steps[-1]
        Step(rule='18 years or older', removed=1, left=1)
        """
        before = self.table.num_rows
        self.table = self.table.filter(rows)
        self.steps.append(Step(rule, before - self.table.num_rows, self.table.num_rows))


def names() -> list[str]:
    """Return the names of all sources, those of other packages included.

    >>> {"file", "mimic4", "omop"} <= set(names())
    True
    """
    return sorted({*_own(), *(point.name for point in entry_points(group=GROUP))})


def _own() -> list[str]:
    return [module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_")]


def find(name: str) -> ModuleType:
    """Return the module of the source called `name`; an unknown name raises an `InputError`.

    >>> find("nhds").OUTCOMES["long_stay"]
    'days of care > 7'
    """
    if name not in names():
        raise InputError(f"{name!r} is not a source; allowed are {', '.join(names())}.")
    return import_module(f"{__name__}.{name}") if name in _own() else plugins(GROUP)[name]
