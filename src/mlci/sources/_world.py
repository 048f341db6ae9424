"""The codes of synthetic hospitals: real ICD codes, with the frequency of each and its relation to severity.

`world` returns the `World` of an ICD version, which does not depend on a hospital's seed. Conditions and chapters, with
their shares and slopes, are in `data/`.
"""

import csv
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from mlci.codes import icd

DATA = Path(__file__).parent / "data"
GRID = np.arange(-3, 3, 0.25) + 0.125  # codes are drawn given the cell of this grid that holds the burden
CONTEXTS = ("medical", "surgical", "cancer", "birth")
OF_A_CHAPTER = 1500  # the most codes per chapter; some (injuries) have tens of thousands


@dataclass(frozen=True)
class Urn:
    """Groups of items with probabilities. A draw is one binary search in the groups, end to end."""

    items: np.ndarray
    cumulative: np.ndarray  # cumulative probabilities; group g goes from g to g + 1

    @classmethod
    def of(cls, groups: list[tuple[np.ndarray, np.ndarray]]) -> "Urn":
        """Make an urn from the (items, weights) of each group."""
        ends = [g + np.cumsum(weights) / np.sum(weights) for g, (_, weights) in enumerate(groups)]
        for g, end in enumerate(ends):
            end[-1] = g + 1
        return cls(np.concatenate([items for items, _ in groups]), np.concatenate(ends))

    def draw(self, group: np.ndarray, uniform: np.ndarray) -> np.ndarray:
        # Less than 1 by more than the rounding error of `group + uniform`, which must not reach the next group.
        return self.items[np.searchsorted(self.cumulative, group + uniform * (1 - 1e-9), side="right")]


@dataclass(frozen=True)
class World:
    """The codes of one ICD version, and the urns that they are drawn from."""

    codes: np.ndarray
    principal: Urn  # by reason for admission and acute burden
    complication: Urn  # by context and acute burden
    chronic: Urn  # by sex and chronic burden


def rows_of(name: str) -> list[dict[str, str]]:
    """Return the rows of a table of `data/`."""
    return list(csv.DictReader((DATA / name).read_text("utf-8").splitlines()))


@dataclass(frozen=True)
class _Catalogue:
    """The codes that occur, each with its category (three characters), chapter and condition (or -1)."""

    codes: np.ndarray
    categories: int
    category: np.ndarray
    chapter: np.ndarray
    named: np.ndarray
    chapters: list[dict[str, str]]
    conditions: list[dict[str, str]]

    @property
    def group(self) -> np.ndarray:
        """The condition of each code, or else its chapter: a row of `about`."""
        return np.where(self.named >= 0, self.named, len(self.conditions) + self.chapter)

    @property
    def about(self) -> list[dict[str, str]]:
        return [*self.conditions, *self.chapters]


@cache
def world(version: int) -> World:
    rng = np.random.default_rng(version)  # the world is one, whatever the hospital's seed
    found = _catalogue(rng, version)
    common = _common(rng, found, version)
    # A code's slope on the burden: that of its condition, or one that the codes of a category share.
    slope = np.where(
        found.named >= 0,
        np.array([float(row["slope"]) for row in found.conditions])[found.named],
        rng.normal(0, 0.30, found.categories)[found.category],
    ) + rng.normal(0, 0.12, len(found.codes))
    twist = rng.normal(0, 0.35, (len(CONTEXTS), found.categories))[:, found.category]
    sexes = np.array([row["sex"] for row in found.about])[found.group]
    chronic = np.array([row["kind"] == "chronic" for row in found.about])[found.group]
    births = common * np.where(sexes == "F", 10, 1)
    principal, complication, others = [], [], []
    for chapter in range(len(found.chapters)):
        principal += _by_burden(found.chapter == chapter, slope, common)
    for context, turn in zip(CONTEXTS, twist):
        allowed = np.isin(sexes, ["", "F"] if context == "birth" else "")
        complication += _by_burden(~chronic & allowed, slope + turn, births)
    for sex in "FM":
        others += _by_burden(chronic & np.isin(sexes, ["", sex]), slope, common)
    return World(found.codes, Urn.of(principal), Urn.of(complication), Urn.of(others))


def _by_burden(rows: np.ndarray, slopes: np.ndarray, common: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """Weight codes by burden so that, over normally distributed burdens, each has its share whatever its slope."""
    rows = np.flatnonzero(rows)
    return [(rows, common[rows] * np.exp(slopes[rows] * burden - slopes[rows] ** 2 / 2)) for burden in GRID]


def _catalogue(rng: np.random.Generator, version: int) -> _Catalogue:
    chapters, conditions = rows_of("chapters.csv"), rows_of("conditions.csv")
    billable = pq.read_table(icd.DATA / "titles.parquet", filters=[("version", "=", version), ("billable", "=", True)])
    codes = billable["code"].to_numpy()
    categories, category = np.unique([code[:3] for code in codes], return_inverse=True)
    of = [next((n for n, row in enumerate(chapters) if _in_chapter(name, row, version)), -1) for name in categories]
    chapter = np.array(of)[category]
    rank = rng.random(len(codes))
    keep = np.concatenate(
        [np.flatnonzero(chapter == c)[np.argsort(rank[chapter == c])][:OF_A_CHAPTER] for c in range(len(chapters))]
    )
    prefixes = {prefix: n for n, row in enumerate(conditions) for prefix in row[f"icd{version}"].split()}
    named = np.array([_longest(code, prefixes) for code in codes])
    keep = np.union1d(keep, np.flatnonzero((named >= 0) & (chapter >= 0)))
    return _Catalogue(codes[keep], len(categories), category[keep], chapter[keep], named[keep], chapters, conditions)


def _common(rng: np.random.Generator, found: _Catalogue, version: int) -> np.ndarray:
    """Divide the share of each condition among its codes; unspecified codes (..9, ..0) are more common."""
    codes, group = found.codes, found.group
    share = np.array([float(row["share"]) for row in found.about])
    # If a condition's first entry is itself a code, it is the most common one.
    typical = [row[f"icd{version}"].split()[0] for row in found.conditions]
    order = rng.random(len(codes)) - 0.5 * np.array([code[-1] in "09" for code in codes]) - 2 * np.isin(codes, typical)
    common = np.empty(len(codes))
    for g in np.unique(group):
        member = np.flatnonzero(group == g)
        place = np.argsort(np.argsort(order[member]))
        tail = 1 / (place + 1.5) ** 1.6 if g < len(found.conditions) else 1 / (place + 4) ** 1.25
        common[member] = share[g] * tail / tail.sum()
    return common


def _in_chapter(category: str, chapter: dict[str, str], version: int) -> bool:
    if version == 10:
        return category.startswith(tuple(chapter["icd10"].split()))
    low, _, high = chapter["icd9"].partition("-")
    return low <= category <= high if high else category.startswith(low)


def _longest(code: str, prefixes: dict[str, int]) -> int:
    """Return the condition of the longest prefix of a code, or -1."""
    return next((prefixes[code[:n]] for n in range(len(code), 1, -1) if code[:n] in prefixes), -1)
