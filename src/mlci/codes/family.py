"""The published comorbidity indices: tables in, one record per index out.

`data/indices.csv` has a row for each index, and `data/lists/` a file of its name with a row for each category: its
codes in ICD-9 and ICD-10, the severer forms it yields to, its present-on-admission rule, and in every other column a
set of weights. An index is added by a row and a file; no program changes. Only the lists that are asked for are read.
"""

import csv
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from mlci.base.errors import InputError
from mlci.codes.icd import DATA, VERSIONS

CLASSIC = ("charlson", "elixhauser")
COUNT = "count"  # the weights that are 1 everywhere
# What a list's columns are; any other column is a set of weights.
COLUMNS = ("yields_to", "part_of", "beside")  # that name other categories
FIELDS = ("category", "words", "poa", "exempt", *COLUMNS, *(f"icd{version}" for version in VERSIONS))


@dataclass(frozen=True)
class Category:
    """One comorbidity; `column` is its flag's name. A category without words only helps to settle another."""

    column: str
    words: str
    codes: dict[int, tuple[str, ...]]  # ICD version -> codes, or beginnings of codes
    weights: dict[str, int | float]  # by name of the weights; `count` is 1 everywhere
    yields_to: tuple[str, ...]  # columns of severer forms that drop it
    part_of: tuple[str, ...]  # columns that it is counted in
    beside: tuple[str, ...]  # columns of which at least one must be met, if any is named, for it to count
    needs_poa: bool  # by AHRQ's rule: counts only if present on admission, as it may arise in hospital
    only_late: bool  # met only by what arose after admission
    exempt: frozenset[str]  # codes whose flag says nothing: they are taken for present on admission

    def counts_late(self, code: str) -> bool:
        """Return whether a listed `code` counts if it arose after admission.

        >>> failure = next(item for item in family()["ahrq"].categories if "HF" in item.column.upper())
        >>> failure.counts_late("I509")  # it may arise in hospital
        False
        """
        exempt = code in self.exempt
        return not exempt if self.only_late else exempt or not self.needs_poa


@dataclass(frozen=True)
class Index:
    """One published index, as its row in `data/indices.csv` tells it."""

    name: str
    short: str  # what its columns begin with
    title: str
    use: str
    default: tuple[str, ...]  # weights
    exact: bool  # whether a code must be listed itself, rather than begin with one that is
    skips_principal: bool  # whether the first diagnosis of an admission is no comorbidity
    floor: int | None  # the least score
    age_points: bool  # whether points for age may be added
    edition: str
    source: str

    @cached_property
    def categories(self) -> tuple[Category, ...]:
        """Its categories, in the order of its list."""
        rows = list(_rows(DATA / "lists" / f"{self.name}.csv"))
        weights = [name for name in rows[0] if name not in FIELDS]
        return tuple(self._category(row, weights) for row in rows)

    def _category(self, row: dict[str, str], weights: list[str]) -> Category:
        names = {field: row.get(field, "").split() for field in FIELDS}
        columns = {field: tuple(f"{self.short}_{name}" for name in names[field]) for field in COLUMNS}
        return Category(
            column=f"{self.short}_{row['category']}",
            words=row["words"],
            codes={version: tuple(names[f"icd{version}"]) for version in VERSIONS},
            weights={name: _number(row[name]) for name in weights} | {COUNT: int(bool(row["words"]))},
            **columns,
            needs_poa=row["poa"] == "needed",
            only_late=row["poa"] == "late",
            exempt=frozenset(names["exempt"]),
        )

    @property
    def versions(self) -> tuple[int, ...]:
        """The ICD versions that it has a list for."""
        return tuple(version for version in VERSIONS if any(item.codes[version] for item in self.categories))

    @property
    def weights(self) -> tuple[str, ...]:
        """The names of its weights."""
        return tuple(self.categories[0].weights)


def _rows(path: Path) -> Iterator[dict[str, str]]:
    with open(path, newline="", encoding="utf-8") as file:
        yield from csv.DictReader(file)


def _number(text: str) -> int | float:
    return float(text) if "." in text else int(text)


@cache
def family() -> dict[str, Index]:
    """Return every index by its name.

    >>> family()["gagne"].versions, family()["ahrq"].weights
    ((9, 10), ('mortality', 'readmission', 'count'))
    """
    return {
        row["name"]: Index(
            name=row["name"],
            short=row["short"],
            title=row["title"],
            use=row["use"],
            default=tuple(row["default"].split()),
            exact=row["match"] == "is",
            skips_principal=row["principal"] == "skipped",
            floor=int(row["floor"]) if row["floor"] else None,
            age_points=row["age"] == "points",
            edition=row["edition"],
            source=row["source"],
        )
        for row in _rows(DATA / "indices.csv")
    }


def chosen(names: str | Iterable[str]) -> tuple[str, ...]:
    """Return the names of indices, each once, as they were asked for.

    Args:
        names: one name, several with commas between, or several of these.

    >>> chosen("gagne, hfrs"), chosen(["charlson", "gagne,charlson"])
    (('gagne', 'hfrs'), ('charlson', 'gagne'))
    """
    parts = [names] if isinstance(names, str) else names
    found = tuple(dict.fromkeys(name.strip() for part in parts for name in part.split(",") if name.strip()))
    for name in found:
        if name not in family():
            raise InputError(f"index {name!r} is not known; allowed are {', '.join(family())}.")
    if not found:
        raise InputError(f"no index is named; allowed are {', '.join(family())}.")
    return found


def score_columns(weights: Iterable[str], indices: Iterable[str] = CLASSIC) -> list[str]:
    """Return the score columns that weights ask for, in the tables' order.

    Args:
        weights: their names; an index that none of them is for takes its own first ones.
        indices: names of indices.

    >>> score_columns(["quan"]), score_columns([], ["ahrq"])
    (['cci_quan', 'eci_vw'], ['ahrq_mortality', 'ahrq_readmission'])
    """
    weights, asked = list(weights), [family()[name] for name in indices]
    allowed = list(dict.fromkeys(name for index in asked for name in index.weights))
    for name in weights:
        if name not in allowed:
            raise InputError(f"weights {name!r} are not known; allowed are {', '.join(allowed)}.")
    columns = []
    for index in asked:
        wanted = [name for name in index.weights if name in weights] or index.default
        columns += [f"{index.short}_{name}" for name in wanted]
    return columns
