"""Read the lists and weights of the published comorbidity indices.

`data/indices.csv` has a row for each index. `data/lists/` has a file for each index, with a row for each category: its
codes in ICD-9 and ICD-10, the severer forms that replace it, its present-on-admission rule, and in every other column a
set of weights. To add an index, add a row and a file; the code stays as it is. Lists are read when they are needed.
"""

import csv
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from mlci.base.errors import InputError
from mlci.codes.icd import DATA, VERSIONS

CLASSIC = ("charlson", "elixhauser")
COUNT = "count"  # the set of weights in which each category counts 1
# The columns of a list; any other column is a set of weights.
COLUMNS = ("yields_to", "part_of", "beside")  # columns that name other categories
FIELDS = ("category", "words", "poa", "exempt", *COLUMNS, *(f"icd{version}" for version in VERSIONS))


@dataclass(frozen=True)
class Category:
    """One comorbidity; `column` is the name of its flag. A category without words only serves the rules of others."""

    column: str
    words: str
    codes: dict[int, tuple[str, ...]]  # ICD version -> codes, or prefixes of codes
    weights: dict[str, int | float]  # by name of the set of weights; `count` is 1
    yields_to: tuple[str, ...]  # columns of severer forms; if one is set, this category does not count
    part_of: tuple[str, ...]  # columns that this category sets too
    beside: tuple[str, ...]  # if not empty: this category counts only if one of these columns is set
    needs_poa: bool  # AHRQ's rule: counts only if present on admission, because it may arise in hospital
    only_late: bool  # set only by codes that arose after admission
    exempt: frozenset[str]  # codes that are exempt from flags and count as present on admission

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
    """One published index: its row in `data/indices.csv`."""

    name: str
    short: str  # the prefix of its columns
    title: str
    use: str
    default: tuple[str, ...]  # names of the default sets of weights
    exact: bool  # whether listed codes are whole codes rather than prefixes
    skips_principal: bool  # whether the first diagnosis of an admission does not count
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
        """The ICD versions for which it has a list."""
        return tuple(version for version in VERSIONS if any(item.codes[version] for item in self.categories))

    @property
    def weights(self) -> tuple[str, ...]:
        """The names of its sets of weights."""
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
    """Return the names of indices that the user chose, in that order, each once.

    Args:
        names: one name, several separated by commas, or a sequence of these.

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
    """Return the columns of scores with these weights, in the order of the tables.

    Args:
        weights: names of weights; an index that has none of them uses its default weights.
        indices: names of indices.

    >>> score_columns(["quan"]), score_columns([], ["ahrq"])
    (['cci_quan', 'eci_vw'], ['ahrq_mortality', 'ahrq_readmission'])
    """
    weights, selected = list(weights), [family()[name] for name in indices]
    allowed = list(dict.fromkeys(name for index in selected for name in index.weights))
    for name in weights:
        if name not in allowed:
            raise InputError(f"weights {name!r} are not known; allowed are {', '.join(allowed)}.")
    columns = []
    for index in selected:
        wanted = [name for name in index.weights if name in weights] or index.default
        columns += [f"{index.short}_{name}" for name in wanted]
    return columns
