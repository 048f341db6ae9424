"""Make a card: a fitted index and a cohort in, points and all other content of the card out.

Points are fitted on the training split and evaluated on another split, compared with the index, Charlson, Elixhauser,
and age and sex. Codes that reveal an outcome (cardiac arrest, palliative care) have no points unless requested.
"""

import datetime
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd
from scipy import sparse
from scipy.stats import spearmanr

from mlci.base.errors import InputError
from mlci.codes.admissions import Admissions
from mlci.codes.categories import category_words
from mlci.codes.icd import VERSIONS, dotted, title
from mlci.cohort import Cohort
from mlci.index._people import COLUMNS, of_data
from mlci.index.estimator import MLCI
from mlci.index.modelcard import facts
from mlci.judging import rivals, theory
from mlci.measures._proportion import wilson
from mlci.showing.card._points import AGES, SEXES, ages, fit_points, groups, sexes, target
from mlci.tokens import telling, without

LEAST = 50  # training admissions that a group must occur in
BANDS = (0.5, 0.75, 0.9, 0.95, 0.99)  # of training admissions, between bands of points


@dataclass(frozen=True)
class Line:
    """One group of codes."""

    version: int
    category: str
    title: str
    points: int
    admissions: int  # of the training split


@dataclass(frozen=True)
class Band:
    """A range of points, with the outcomes of the judged admissions in it."""

    low: int
    high: int | None  # None: or more
    admissions: int
    rates: tuple[theory.Rate, ...]  # in the order of the outcomes


@dataclass(frozen=True)
class Card:
    """The points, highest first, and how well they work."""

    name: str
    made: datetime.date
    source: str  # the cohort
    recipe: str
    icd_versions: tuple[int, ...]
    trained: int  # admissions that the points were fitted on
    judged: int
    split: str  # judged
    outcomes: dict[str, str]  # name -> rule in words
    lines: tuple[Line, ...]
    age: tuple[tuple[int, int], ...]  # from so many years -> points, each band's whole points
    sex: tuple[tuple[str, int], ...]  # F and M -> points; one of the two has none
    without: tuple[str, ...]  # those of age and sex that the risks of the index use, but that have no points here
    ignored: bool  # whether codes that reveal an outcome have no points
    example: tuple[tuple[Line, str], ...]  # a line and one of its codes
    cutoff: int  # points from which severity is high
    facts: Mapping[str, str]  # the model card of the underlying index, in words
    contrasts: tuple[theory.Contrast, ...] = ()  # at and above the cutoff, and below it, judged
    bands: tuple[Band, ...] = ()
    aurocs: pd.DataFrame = field(default_factory=pd.DataFrame)  # of `rivals.compare`, the card first
    correlation: float = float("nan")  # of ranks, with the index

    def points(self, cohort: Cohort) -> np.ndarray:
        """Return the card's points of each admission."""
        total = self.code_points(cohort.admissions())
        total = total + self.age_points(_years(cohort)) if self.age else total
        return total + sexes(_sexes(cohort)) @ np.array([points for _, points in self.sex]) if self.sex else total

    def code_points(self, admissions: Admissions) -> np.ndarray:
        """Return the points of codes; codes that reveal an outcome have none if the card ignores them."""
        present, names = groups(without(admissions, telling()) if self.ignored else admissions)
        worth = {(line.version, line.category): line.points for line in self.lines}
        return np.asarray(present @ np.array([worth.get(name, 0) for name in names], dtype=np.int64)).ravel()

    def age_points(self, years: np.ndarray) -> np.ndarray:
        """Return the points of age; 0 if it is unknown."""
        starts, worth = [start for start, _ in self.age], [0, *(points for _, points in self.age)]
        return np.array(worth)[np.searchsorted(starts, np.nan_to_num(years, nan=-1), side="right")]


def make_card(
    index: MLCI,
    cohort: Cohort,
    *,
    size: int = 40,
    split: str = "test",
    name: str | None = None,
    people: Mapping[str, bool] | None = None,
    outcome_codes: bool = False,
    made: datetime.date | None = None,
) -> Card:
    """Fit a card on the training split and evaluate it on another.

    Args:
        index: the index that the points approximate.
        cohort: the admissions.
        size: maximum number of code groups.
        split: the split that evaluates the card.
        name: the title of the card; by default the cohort's name.
        people: whether `age` and `sex` have points; by default, if the risks of the index use them and the cohort has
            them.
        outcome_codes: whether codes that reveal an outcome have points.
        made: the date on the card; by default today.

    Returns:
        The card.

    >>> import mlci
    >>> card = make_card(mlci.load("us2010"), mlci.build_cohort("synthetic", 300, seed=1), size=5)
    >>> len(card.lines), card.trained, card.judged  # groups of codes; admissions
    (5, 215, 55)
    """
    if split == "train":
        raise InputError("the points of a card are fitted on the split train; evaluate it on another split.")
    model = index.model_
    cohort = model.of_cohort(cohort)
    train, judged = cohort.split("train"), cohort.split(split)
    outcomes = {key: cohort.outcomes[key] for key in model.outcomes if key in cohort.outcomes}
    _check({"train": train, split: judged}, outcomes, index)
    counted = _counted(cohort, model.people, people or {})
    ignored = () if outcome_codes else telling()
    admissions = without(train.admissions(), (*model.vocabulary.ignored, *ignored))
    present, names = groups(admissions)
    counts = np.asarray(present.sum(axis=0)).ravel()
    common = np.flatnonzero(counts >= min(LEAST, len(train) / 10))
    present = present[:, common]
    labels, own = train.labels(*outcomes), _weights(model.card.get("weights"), list(outcomes))
    aged = len(AGES) if "age" in counted else 0
    first = aged + (len(SEXES) if "sex" in counted else 0)
    present = _with_people(present, train, counted)
    aim = target(present, labels, model.score(admissions), own)
    points = fit_points(present, aim, size=size, free=first)
    codes = Counter(admissions.indices.tolist())
    found = ((names[column], int(worth), int(counts[column])) for column, worth in zip(common, points[first:]) if worth)
    lines = sorted(
        (Line(*name, _title(admissions, codes, name), worth, many) for name, worth, many in found),
        key=lambda line: (-line.points, line.version, line.category),
    )
    total = np.asarray(present @ points).ravel()
    cutoff = theory.cutoff(total, labels, list(outcomes), weights=own)
    chosen = dict.fromkeys(lines[round(share * (len(lines) - 1))] for share in (0.1, 0.5, 0.9) if lines)
    card = Card(
        name=name or f"Comorbidity points: {cohort.source}",
        made=made or datetime.datetime.now(datetime.UTC).date(),
        source=cohort.source,
        recipe=str(model.card.get("recipe", "")),
        icd_versions=tuple(sorted({line.version for line in lines})),
        trained=len(train),
        judged=len(judged),
        split=split,
        outcomes=outcomes,
        lines=tuple(lines),
        age=tuple(zip(AGES, np.cumsum(points[:aged]).tolist())),
        sex=tuple(zip(SEXES, points[aged:first].tolist())),
        without=tuple(name for name in model.people if name not in counted),
        ignored=not outcome_codes,
        example=tuple((line, _commonest(admissions, codes, (line.version, line.category))) for line in chosen),
        cutoff=int(cutoff.score),
        facts={name: text.replace("`", "") for name, text in facts(model).items()},
    )
    return _judged(card, index, cohort, judged, total)


def _check(parts: Mapping[str, Cohort], outcomes: Mapping[str, str], index: MLCI) -> None:
    """Raise an error if a card cannot be made from the cohort."""
    for name, part in parts.items():
        if not len(part):
            raise InputError(f"the cohort has no admission in the split {name}; a card needs it.")
    if not outcomes:
        raise InputError(f"the cohort has none of the model's outcomes ({', '.join(index.model_.outcomes)}).")


def _counted(cohort: Cohort, taken: Sequence[str], asked: Mapping[str, bool]) -> set[str]:
    """Return which of age and sex have points: those requested, or used by the risks and known in the cohort."""
    table = cohort.table
    known = {name for name in COLUMNS if name in table.column_names and table[name].null_count < len(cohort)}
    for name, wish in asked.items():
        if wish and name not in known:
            raise InputError(f"the cohort has no {name}; a card with points for {name} needs it.")
    return {name for name in COLUMNS if asked.get(name, name in taken and name in known)}


def _with_people(present: sparse.csr_array, train: Cohort, counted: set[str]) -> sparse.csr_array:
    """Return the groups of each admission, preceded by its age bands and its sex if these have points."""
    personal = [ages(_years(train))] if "age" in counted else []
    personal += [sexes(_sexes(train))] if "sex" in counted else []
    return sparse.hstack([*personal, present]).tocsr() if personal else present


def _judged(card: Card, index: MLCI, cohort: Cohort, judged: Cohort, trained: np.ndarray) -> Card:
    """Return the card with its evaluation on admissions that it was not fitted on."""
    names, labels = list(card.outcomes), judged.labels(*card.outcomes)
    points, score = card.points(judged).astype(float), index.model_.score(judged.admissions())
    others = {"Index": score, **rivals.classic(judged)}
    columns: dict[str, Mapping[str, np.ndarray]] = {name: dict.fromkeys(names, other) for name, other in others.items()}
    if index.model_.people:
        people = of_data(judged, index.model_.people, len(judged))
        columns["Index, own risks"] = index.model_.risks(index.model_.read(judged.admissions(), people))
    columns |= {
        name: found
        for name, found in rivals.refitted(cohort.split("train"), judged, names).items()
        if "flags" not in name
    }
    aurocs = rivals.compare(points, columns, dict(zip(names, labels.T)), patients=judged.column("subject_id"))
    alike = np.ptp(points) == 0 or np.ptp(score) == 0
    return replace(
        card,
        contrasts=theory.contrasts(points, labels, names, card.cutoff),
        bands=_bands(points, trained, labels, card.cutoff, most=_most(card)),
        aurocs=aurocs.replace({"model": {rivals.OWN: "Card"}}),
        correlation=float("nan") if alike else float(np.asarray(spearmanr(points, score))[0]),
    )


def _most(card: Card) -> int:
    """Return the most points that an admission can have."""
    personal = [max((points for _, points in rows), default=0) for rows in (card.age, card.sex)]
    return sum(line.points for line in card.lines) + sum(personal)


def _bands(points: np.ndarray, trained: np.ndarray, labels: np.ndarray, cutoff: int, *, most: int) -> tuple[Band, ...]:
    """Return bands of points between the quantiles `BANDS` of training admissions; one begins at the cutoff.

    None begins above the `most` points that an admission can have.
    """
    starts = np.unique(np.concatenate([[0, cutoff], np.quantile(trained, BANDS, method="lower") + 1])).astype(int)
    starts = starts[starts <= most]
    result = []
    for place, start in enumerate(starts):
        end = int(starts[place + 1]) - 1 if place + 1 < len(starts) else None
        inside = (points >= start) & (points <= (np.inf if end is None else end))
        rates = []
        for column in labels.T:
            known = column[inside & ~np.isnan(column)]
            low, high = wilson(known.sum(), len(known))
            rates.append(theory.Rate(int(known.sum()), len(known), float(low), float(high)))
        result.append(Band(int(start), end, int(inside.sum()), tuple(rates)))
    return tuple(result)


def _weights(given, names: list[str]) -> list[float]:
    """Return the weights of the outcomes in the fit; equal ones if the model keeps none."""
    weights = [float((given or {}).get(name, 1.0)) for name in names]
    return weights if any(weights) else [1.0] * len(names)


def _years(cohort: Cohort) -> np.ndarray:
    return cohort.table["age"].to_pandas().to_numpy(dtype=float)


def _sexes(cohort: Cohort) -> np.ndarray:
    return cohort.table["sex"].to_numpy()


def _title(admissions: Admissions, codes: Counter, group: tuple[int, str]) -> str:
    """Return the title of a category, or if it has none, that of its most frequent code."""
    version, category = group
    if version not in VERSIONS:
        return ""
    words = title(_commonest(admissions, codes, group), version)
    return category_words(category, version) or (f"{words}, and others of {category}" if words else "")


def _commonest(admissions: Admissions, codes: Counter, group: tuple[int, str]) -> str:
    """Return the most frequent code of a group."""
    version, category = group
    own = [
        place
        for place, (value, v) in enumerate(zip(admissions.values, admissions.versions))
        if v == version and value.startswith(category)
    ]
    code = str(admissions.values[max(own, key=lambda place: (codes[place], -place))])
    return dotted(code, version) if version in VERSIONS else code
