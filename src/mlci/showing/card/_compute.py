"""Make a card: a fitted index and a cohort in, points and everything the card says about itself out.

Points are fitted on the training split; what they are worth is measured on another, beside the index, Charlson,
Elixhauser, and age and sex. Codes that tell an outcome (cardiac arrest, palliative care) bring no points unless asked.
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
CELL = 10  # admissions behind every rate


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
    """What so many points meant in the judged admissions."""

    low: int
    high: int | None  # None: or more
    admissions: int
    rates: tuple[theory.Rate | None, ...]  # in the order of the outcomes; None where too few


@dataclass(frozen=True)
class Card:
    """The points, heaviest first, and what they are worth."""

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
    sex: tuple[tuple[str, int], ...]  # F and M -> points; one of the two brings none
    without: tuple[str, ...]  # of age and sex, which the index's risks take: those that bring no points here
    ignored: bool  # whether codes that tell an outcome bring no points
    example: tuple[tuple[Line, str], ...]  # a line and one of its codes
    cutoff: int  # points from which severity is high
    facts: Mapping[str, str]  # the model card of the index behind the points, in words
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
        """Return the points that codes bring; on a card that ignores them, codes that tell an outcome bring none."""
        present, names = groups(without(admissions, telling()) if self.ignored else admissions)
        worth = {(line.version, line.category): line.points for line in self.lines}
        return np.asarray(present @ np.array([worth.get(name, 0) for name in names], dtype=np.int64)).ravel()

    def age_points(self, years: np.ndarray) -> np.ndarray:
        """Return the points that age brings; none where it is not known."""
        starts, worth = [start for start, _ in self.age], [0, *(points for _, points in self.age)]
        return np.array(worth)[np.searchsorted(starts, np.nan_to_num(years, nan=-1), side="right")]

    def frame(self) -> pd.DataFrame:
        """Return the lines as a table."""
        return pd.DataFrame(self.lines)


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
    """Fit a card on the training split and judge it on another.

    Args:
        index: whose score the points stand for.
        cohort: the admissions.
        size: groups of codes at most.
        split: the split that judges.
        name: what stands on the card; without it the cohort's name.
        people: whether `age` and `sex` bring points; without it, where the risks of the index take them and the cohort
            knows them.
        outcome_codes: whether codes that tell an outcome bring points.
        made: the date on the card; without it today.

    Returns:
        The card.

    >>> import mlci
    >>> card = make_card(mlci.load("us2010"), mlci.build_cohort("synthetic", 300, seed=1), size=5)
    >>> len(card.lines), card.trained, card.judged  # groups of codes; admissions
    (5, 215, 55)
    """
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
        facts=facts(model),
    )
    return _judged(card, index, cohort, judged, total)


def _check(parts: Mapping[str, Cohort], outcomes: Mapping[str, str], index: MLCI) -> None:
    """Refuse a cohort that a card cannot be made of."""
    for name, part in parts.items():
        if not len(part):
            raise InputError(f"the cohort has no admission in the split {name}; a card needs it.")
    if not outcomes:
        raise InputError(f"the cohort has none of the model's outcomes ({', '.join(index.model_.outcomes)}).")


def _counted(cohort: Cohort, taken: Sequence[str], asked: Mapping[str, bool]) -> set[str]:
    """Return which of age and sex bring points: those asked for, or that the risks take and the cohort knows."""
    table = cohort.table
    known = {name for name in COLUMNS if name in table.column_names and table[name].null_count < len(cohort)}
    for name, wish in asked.items():
        if wish and name not in known:
            raise InputError(f"the cohort knows no {name}; a card with points for {name} needs it.")
    return {name for name in COLUMNS if asked.get(name, name in taken and name in known)}


def _with_people(present: sparse.csr_array, train: Cohort, counted: set[str]) -> sparse.csr_array:
    """Return the groups of each admission, with the bands of its age and its sex before them where these count."""
    personal = [ages(_years(train))] if "age" in counted else []
    personal += [sexes(_sexes(train))] if "sex" in counted else []
    return sparse.hstack([*personal, present]).tocsr() if personal else present


def _judged(card: Card, index: MLCI, cohort: Cohort, judged: Cohort, trained: np.ndarray) -> Card:
    """Return the card with what it is worth on admissions that it was not fitted on, in bands of the fitted ones."""
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
        bands=_bands(points, trained, labels, card.cutoff),
        aurocs=aurocs.replace({"model": {rivals.OWN: "Card"}}),
        correlation=float("nan") if alike else float(np.asarray(spearmanr(points, score))[0]),
    )


def _bands(points: np.ndarray, trained: np.ndarray, labels: np.ndarray, cutoff: int) -> tuple[Band, ...]:
    """Return bands of points that hold about the shares `BANDS` of training admissions; one begins at the cutoff."""
    starts = np.unique(np.concatenate([[0, cutoff], np.quantile(trained, BANDS, method="lower") + 1])).astype(int)
    result = []
    for place, start in enumerate(starts):
        end = int(starts[place + 1]) - 1 if place + 1 < len(starts) else None
        inside = (points >= start) & (points <= (np.inf if end is None else end))
        rates = []
        for column in labels.T:
            known = column[inside & ~np.isnan(column)]
            low, high = wilson(known.sum(), len(known))
            rate = theory.Rate(int(known.sum()), len(known), float(low), float(high))
            rates.append(rate if len(known) >= CELL else None)
        result.append(Band(int(start), end, int(inside.sum()), tuple(rates)))
    return tuple(result)


def _weights(given, names: list[str]) -> list[float]:
    """Return the fit's weights of the outcomes; equal ones where the model keeps none."""
    weights = [float((given or {}).get(name, 1.0)) for name in names]
    return weights if any(weights) else [1.0] * len(names)


def _years(cohort: Cohort) -> np.ndarray:
    return cohort.table["age"].to_pandas().to_numpy(dtype=float)


def _sexes(cohort: Cohort) -> np.ndarray:
    return cohort.table["sex"].to_numpy()


def _title(admissions: Admissions, codes: Counter, group: tuple[int, str]) -> str:
    """Return the category in clinical words; where nobody named it, the title of its commonest code, and others."""
    version, category = group
    if version not in VERSIONS:
        return ""
    words = title(_commonest(admissions, codes, group), version)
    return category_words(category, version) or (f"{words}, and others of {category}" if words else "")


def _commonest(admissions: Admissions, codes: Counter, group: tuple[int, str]) -> str:
    """Return the code of a group that is recorded most often."""
    version, category = group
    own = [
        place
        for place, (value, v) in enumerate(zip(admissions.values, admissions.versions))
        if v == version and value.startswith(category)
    ]
    code = str(admissions.values[max(own, key=lambda place: (codes[place], -place))])
    return dotted(code, version) if version in VERSIONS else code
