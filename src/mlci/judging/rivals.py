"""Rivals that a reviewer asks for: age and sex alone, and the flags of Charlson and Elixhauser refitted with them.

In come the training and the judged admissions of a cohort; out comes one score (log-odds) per rival, outcome and judged
admission. A learned index that beats published weights may still lose to what every hospital knows without a code.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from mlci.base.blas import single_thread
from mlci.base.shares import md5_split
from mlci.base.threads import threads
from mlci.codes.comorbidity import Coder
from mlci.cohort import Cohort
from mlci.judging._carried import weights_of
from mlci.judging._crossfit import LogisticModel, fit
from mlci.judging.smooth import smooth
from mlci.measures import discrimination, weighted
from mlci.measures.alignment import alike
from mlci.measures.design import Design, as_design, numbered
from mlci.measures.discrimination import expit, log_losses, skill
from mlci.measures.intervals import Reach, area
from mlci.measures.weighted import effective

LEARNED = 50_000  # training admissions at most: forty weights need no more
LEAST = 10  # training admissions with and without an outcome, or no rival is fitted for it
KNOTS = (45, 65, 80)  # years at which the line of age may bend
FOLDS = 5  # of patients, where rivals are learned from the admissions they are judged on
OWN = "MLCI"
CLASSIC = {"Elixhauser": "eci_vw", "Charlson": "cci_charlson"}


def classic(cohort: Cohort) -> dict[str, np.ndarray]:
    """Score a cohort by Elixhauser (van Walraven) and Charlson as published.

    Args:
        cohort: the admissions to score.

    Returns:
        One array of points per index, in the order of the admissions.

    >>> import pandas as pd
    >>> visits = pd.DataFrame({"visit_id": [1, 2], "codes": [["I50.9"], ["J18.9"]], "died": [1, 0]})
    >>> {name: points.tolist() for name, points in classic(Cohort.from_frame(visits, icd_version=10)).items()}
    {'Elixhauser': [7.0, 0.0], 'Charlson': [1.0, 0.0]}
    """
    found = Coder().scores(cohort.admissions(), list(CLASSIC.values()))
    return {name: found[column].astype(float) for name, column in CLASSIC.items()}


def curved(
    train: Cohort, judged: Cohort, outcomes: Sequence[str], *, weights: str | None = None
) -> dict[str, dict[str, np.ndarray]]:
    """Tell risks along the points of published indices, by curves that a cohort gave.

    Args:
        train: the admissions that give the curves.
        judged: the admissions whose risks are wanted.
        outcomes: names of outcomes; one that no training admission knows is left out.
        weights: a column of `train`: how much each admission counts.

    Returns:
        Index → outcome → risk of each judged admission; nothing where there is no training admission.

    >>> from mlci.cohort import build_cohort
    >>> cohort = build_cohort("synthetic", 600)
    >>> risks = curved(cohort.split("train"), cohort.split("test"), ["long_stay"])
    >>> [*risks], bool((risks["Charlson"]["long_stay"] > 0).all())
    (['Elixhauser', 'Charlson'], True)
    """
    if not len(train):
        return {}
    points, weight = classic(judged), None if weights is None else weights_of(train, weights)
    known = dict(zip(outcomes, train.labels(*outcomes).T))
    return {
        index: {
            name: smooth(taught, y, weight=weight)(points[index]) for name, y in known.items() if not np.isnan(y).all()
        }
        for index, taught in classic(train).items()
    }


def refitted(
    train: Cohort,
    judged: Cohort,
    outcomes: Sequence[str],
    *,
    index: Callable[[Cohort], np.ndarray] | None = None,
    name: str = OWN,
    weights: str | None = None,
    seed: int = 0,
) -> dict[str, dict[str, np.ndarray]]:
    """Learn simple rivals from a cohort by logistic regression, and score others with them.

    The rivals are age and sex, Charlson's and Elixhauser's flags without and with age and sex, and the index with age
    and sex. A cohort that knows neither age nor sex has the flags alone.

    Args:
        train: the admissions to learn from, 50,000 of them at most.
        judged: the admissions to score.
        outcomes: names of outcomes; one that fewer than ten training admissions have, or lack, is left out.
        index: scores a cohort; None leaves out the index with age and sex.
        name: of the index.
        weights: a column of `train`: how much each admission counts.
        seed: of the draw where `train` is larger.

    Returns:
        Rival → outcome → log-odds of each judged admission.

    >>> import pandas as pd
    >>> visits = pd.DataFrame({"visit_id": range(40), "age": [50, 80] * 20, "codes": [["I50.9"]] * 40})
    >>> cohort = Cohort.from_frame(visits.assign(died=[0, 1] * 20), icd_version=10, outcomes={"mortality": "died"})
    >>> log_odds = refitted(cohort, cohort, ["mortality"])["Age"]["mortality"]
    >>> bool(log_odds[0] < 0 < log_odds[1])
    True
    """
    train = train.sample(LEARNED, seed=seed)
    weight = None if weights is None else weights_of(train, weights)
    if weight is not None and not weight.all():  # who stands for nobody teaches nothing
        train, weight = train.where(weight > 0), weight[weight > 0]
    if not len(train):
        return {}
    designs, labels = _designs(train, judged, index, name), train.labels(*outcomes)
    counts = np.stack([(labels == kind).sum(axis=0) for kind in (0, 1)])
    groups = [
        (known, [column for column in columns if counts[:, column].min() >= LEAST]) for known, columns in alike(labels)
    ]
    tasks = [(rival, known, columns) for known, columns in groups for rival in designs]

    def learn(task: tuple[str, np.ndarray, list[int]]) -> np.ndarray:
        rival, known, columns = task
        counted = None if weight is None else weight[known] / weight[known].mean()
        learned, y = designs[rival][0], labels[:, columns]
        if not known.all():
            learned, y = learned[known], y[known]
        return _logistic(learned, y, designs[rival][1], counted)

    with single_thread(), threads() as pool:
        found = pool.map(learn, tasks)
    learned = {
        (rival, column): y for (rival, _, columns), fits in zip(tasks, found) for column, y in zip(columns, fits)
    }
    ordered = {
        rival: {
            outcome: learned[rival, column] for column, outcome in enumerate(outcomes) if (rival, column) in learned
        }
        for rival in designs
    }
    return {rival: columns for rival, columns in ordered.items() if columns}


def cross_refitted(
    judged: Cohort, outcomes: Sequence[str], *, folds: int = FOLDS, **options: Any
) -> dict[str, dict[str, np.ndarray]]:
    """Learn the rivals from the judged admissions themselves: those of a patient by rivals that other patients taught.

    Args:
        judged: the admissions to learn from and to score, where no training split is set apart from them.
        outcomes: names of outcomes; one that is too rare in a fold's training admissions is left out.
        folds: of patients.
        options: those of `refitted`.

    Returns:
        Rival → outcome → log-odds of each admission.

    >>> import pandas as pd
    >>> visits = pd.DataFrame({"visit_id": range(80), "age": [50, 80] * 40, "codes": [["I50.9"]] * 80})
    >>> cohort = Cohort.from_frame(visits.assign(died=[0, 1] * 40), icd_version=10, outcomes={"mortality": "died"})
    >>> log_odds = cross_refitted(cohort, ["mortality"])["Age"]["mortality"]
    >>> bool(log_odds[0] < 0 < log_odds[1])
    True
    """
    fold = md5_split(map(str, numbered(judged.column("subject_id"))), [1 / folds] * folds)
    found: dict[str, dict[str, np.ndarray]] = {}
    level = _levels(judged, outcomes)
    for place in np.unique(fold):
        inside = fold == place
        # Where a fold has many events the others have few, and so their level would order the folds the wrong way.
        others = _levels(judged.where(~inside), outcomes)
        learned = refitted(judged.where(~inside), judged.where(inside), outcomes, **options)
        for rival, columns in learned.items():
            for outcome, log_odds in columns.items():
                column = found.setdefault(rival, {}).setdefault(outcome, np.full(len(judged), np.nan))
                column[inside] = log_odds + level[outcome] - others[outcome]
    whole = {
        rival: {name: y for name, y in columns.items() if not np.isnan(y).any()} for rival, columns in found.items()
    }
    return {rival: columns for rival, columns in whole.items() if columns}


def _levels(cohort: Cohort, outcomes: Sequence[str]) -> dict[str, float]:
    """Return the log-odds of each outcome's rate."""
    y = cohort.labels(*outcomes)
    with np.errstate(divide="ignore", invalid="ignore"):  # where all have an outcome, or none has
        return dict(zip(outcomes, np.log(np.nansum(y, axis=0)) - np.log((y == 0).sum(axis=0))))


@dataclass(frozen=True)
class Areas:
    """AUROC of scores for `outcomes`, with the influence of each admission: each found once, each score sorted once."""

    outcomes: Mapping[str, np.ndarray]
    design: Design
    _kept: dict[tuple[int, str], tuple] = field(default_factory=dict)  # with the scores, whose number nobody else gets

    def of(self, scores: np.ndarray, outcome: str) -> tuple[float, np.ndarray]:
        """Return AUROC of `scores` for an `outcome`, and how far each admission moves it.

        >>> Areas({"died": np.array([0, 1])}, as_design([0, 1])).of(np.array([1.0, 2.0]), "died")
        (1.0, array([0., 0.]))
        """
        if (id(scores), outcome) not in self._kept:
            weight = self.design.weight
            order = self._order(scores) if weight is None else None
            found = discrimination.area(scores, self.outcomes[outcome], weight=weight, order=order)
            self._kept[id(scores), outcome] = found, scores
        return self._kept[id(scores), outcome][0]

    def _order(self, scores: np.ndarray) -> np.ndarray:
        if (id(scores), "") not in self._kept:
            self._kept[id(scores), ""] = np.argsort(scores), scores
        return self._kept[id(scores), ""][0]


def increments(
    found: Mapping[str, Mapping[str, np.ndarray]],
    outcomes: Mapping[str, np.ndarray],
    *,
    patients: np.ndarray | Design,
    name: str = OWN,
    areas: Areas | None = None,
) -> pd.DataFrame:
    """Say what the index with age and sex adds to age and sex, and to flags with age and sex.

    Args:
        found: rival → outcome → log-odds, of `refitted`.
        outcomes: name → 0, 1 or NaN of each admission.
        patients: whose admission each one is, or a `Design`.
        name: of the index.
        areas: those of the same outcomes and patients that were found before.

    Returns:
        One row per outcome and base: AUROC of the base, how much higher that of the index with age and sex is (gain,
        with its 95% interval), and the deviance that the two explain; empty where a cohort knows neither age nor sex.

    >>> died, age = np.array([0, 0, 0, 1, 0, 1, 1, 1]), np.arange(8.0)
    >>> found = {"Age": {"died": age[::-1] - 4}, "MLCI, age": {"died": age - 4}}
    >>> increments(found, {"died": died}, patients=np.arange(8))[["base", "gain"]].to_dict("records")
    [{'base': 'Age', 'gain': 0.875}]
    """
    short = next((short for short in ("age, sex", "age", "sex") if f"{name}, {short}" in found), "")
    whole, people = f"{name}, {short}", " and ".join(short.split(", ")).capitalize()
    bases = [rival for rival in found if rival == people or rival.endswith(f" flags, {short}")]
    areas = areas or Areas(outcomes, as_design(patients))
    rows, weight = [], areas.design.weight
    for outcome, y in outcomes.items():
        if outcome not in found.get(whole, {}):
            continue
        beside = {base: {outcome: found[base][outcome]} for base in bases}
        compared = compare(found[whole][outcome], beside, {outcome: y}, patients=patients, name=whole, areas=areas)
        shares = {rival: _deviance(expit(found[rival][outcome]), y, weight) for rival in (*bases, whole)}
        for row in compared[compared["model"] != whole].itertuples():
            gained = row.gap, row.gap_low, row.gap_high
            rows.append((outcome, row.model, row.value, *gained, shares[row.model], shares[whole]))
    columns = ["outcome", "base", "auroc", "gain", "gain_low", "gain_high", "deviance", "deviance_with"]
    return pd.DataFrame(rows, columns=columns)


def compare(
    own: np.ndarray,
    rivals: Mapping[str, Mapping[str, np.ndarray]],
    outcomes: Mapping[str, np.ndarray],
    *,
    patients: np.ndarray | Design,
    name: str = OWN,
    areas: Areas | None = None,
) -> pd.DataFrame:
    """Compare the AUROC of an index with that of its rivals.

    Intervals (95%) rest on DeLong's influences, with the admissions of a patient taken together: those of
    `mlci.measures.intervals` for AUROC, paired and wider (Student's t) the fewer events there are for the gap.

    Args:
        own: the index's score of each admission.
        rivals: name → outcome → score of each admission.
        outcomes: name → 0, 1 or NaN of each admission; an outcome of one class is left out.
        patients: whose admission each one is, or a `Design`.
        name: of the index.
        areas: those of the same outcomes and patients that were found before.

    Returns:
        One row per outcome and model: AUROC with its interval, and how far the index lies above it (gap).

    >>> died, score = np.array([0, 0, 0, 1, 0, 1, 1, 1]), np.arange(8.0)
    >>> frame = compare(score, {"Age": {"died": -score}}, {"died": died}, patients=np.arange(8))
    >>> frame[["model", "outcome", "value", "gap"]]
      model outcome   value    gap
    0  MLCI    died  0.9375  0.000
    1   Age    died  0.0625  0.875
    """
    areas = areas or Areas(outcomes, as_design(patients))
    design, rows = areas.design, []
    for outcome, y in outcomes.items():
        positives, n = int(np.nansum(y)), int((~np.isnan(y)).sum())
        if not 0 < positives < n:
            continue
        reach = Reach(_events(y, design)).quantile
        columns = {name: own, **{rival: scores[outcome] for rival, scores in rivals.items() if outcome in scores}}
        first: tuple[float, np.ndarray] | None = None  # of the index, which comes first
        for model, scores in columns.items():
            value, influence = areas.of(scores, outcome)
            first = first or (value, influence)
            gap, apart = first[0] - value, reach * _root(first[1] - influence, design)
            found = area(value, influence, y, design)
            sides = (gap - apart, gap + apart) if apart > 0 else (np.nan, np.nan)
            rows.append((model, outcome, value, found.low, found.high, gap, *sides, n, positives))
    columns = ["model", "outcome", "value", "low", "high", "gap", "gap_low", "gap_high", "n", "positives"]
    return pd.DataFrame(rows, columns=columns)


def _events(y: np.ndarray, design: Design) -> int:
    """Return admissions of the rarer kind, or as many as weighted ones are worth."""
    kinds = (y == 1, y == 0)
    return round(min(rows.sum() if design.weight is None else effective(design.weight[rows]) for rows in kinds))


def _root(moved: np.ndarray, design: Design) -> float:
    """Return the standard error from the influence of each patient."""
    made_up = 1.0 if design.stratum is not None else design.clusters / max(design.clusters - 1, 1)
    return float(np.sqrt(design.variance(moved) * made_up))


def _designs(
    train: Cohort, judged: Cohort, index: Callable[[Cohort], np.ndarray] | None, name: str
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    people = _people(train, judged)
    parts = [_flags(cohort) for cohort in (train, judged)]
    flags = {f"{kind} flags": (parts[0][kind], parts[1][kind]) for kind in CLASSIC}
    if people is None:
        return flags
    words, columns = people
    short = words.lower().replace(" and ", ", ")
    designs = {words: columns}
    for kind, columned in flags.items():
        learned, asked = (np.hstack(pair) for pair in zip(columned, columns))
        designs |= {kind: columned, f"{kind}, {short}": (learned, asked)}
    if index is not None:
        scores = index(train), index(judged)
        knots = np.quantile(scores[0], [0.5, 0.9])
        learned, asked = (np.hstack([_bent(score, knots), part]) for score, part in zip(scores, columns))
        designs[f"{name}, {short}"] = learned, asked
    return designs


def _flags(cohort: Cohort) -> dict[str, np.ndarray]:
    """Return the flags of each admission, as 0 and 1, for each of the published indices."""
    coder = Coder()
    found = coder.rules.flags(coder.rules.settled(coder(cohort.admissions())))
    return {
        kind: np.column_stack([flag for name, flag in found.items() if name[:4] == of[:4]]).astype(float)
        for kind, of in CLASSIC.items()
    }


def _people(train: Cohort, judged: Cohort) -> tuple[str, tuple[np.ndarray, np.ndarray]] | None:
    """Return what the cohort knows of age and sex, in words and as columns of both parts."""
    names = train.table.column_names
    known = [name for name in ("age", "sex") if name in names and train.table[name].null_count < len(train)]
    if not known:
        return None
    parts: list[list[np.ndarray]] = [[], []]
    for place, cohort in enumerate((train, judged)):
        if "age" in known:
            age = cohort.table["age"].to_pandas().to_numpy(dtype=float)
            missing = np.isnan(age)
            parts[place] += [_bent(np.where(missing, 60.0, age), KNOTS), missing[:, None].astype(float)]
        if "sex" in known:
            sex = cohort.table["sex"].to_pandas().to_numpy(dtype=object)
            parts[place].append(np.column_stack([sex == "F", sex == "M"]).astype(float))
    return " and ".join(known).capitalize(), (np.hstack(parts[0]), np.hstack(parts[1]))


def _bent(values: np.ndarray, knots) -> np.ndarray:
    """Return a line that may bend at the knots, as columns."""
    return np.column_stack([values, *(np.maximum(values - knot, 0) for knot in knots)])


def _logistic(learned: np.ndarray, labels: np.ndarray, wanted: np.ndarray, weight: np.ndarray | None) -> np.ndarray:
    """Return log-odds of each outcome by logistic regression on standardised columns, lightly shrunk.

    Admissions with the same columns, as many as have few flags, are learned from together.
    """
    mean, spread = learned.mean(axis=0), learned.std(axis=0)
    spread[spread < 1e-9] = 1
    first, place = _distinct(learned)
    mass = np.bincount(place, weight)
    columns = np.column_stack([np.ones(len(first)), (learned[first] - mean) / spread])
    model = LogisticModel(columns, np.diag(np.append(0.0, np.ones(len(mean)))))
    fits = [fit(model, np.bincount(place, y if weight is None else weight * y) / mass, mass) for y in labels.T]
    apart = wanted - mean
    return np.array([at[0] + apart @ (at[1:] / spread) for at in fits]).reshape(len(fits), len(wanted))


def _distinct(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the first of each kind of row, and the kind of every row; flags are packed, so that little is sorted."""
    flags = ((rows == 0) | (rows == 1)).all(axis=0)
    others = np.ascontiguousarray(rows[:, ~flags]).view(np.uint8).reshape(len(rows), -1)
    packed = np.hstack([np.packbits(rows[:, flags] == 1, axis=1), others])
    _, first, place = np.unique(packed.view(f"V{packed.shape[1]}").ravel(), return_index=True, return_inverse=True)
    return first, place


def _deviance(risk: np.ndarray, y: np.ndarray, weight: np.ndarray | None) -> float:
    """Return share of the bare rate's deviance that a risk takes away."""
    known = ~np.isnan(y)
    weight = None if weight is None else weight[known]
    losses = weighted.mean(log_losses(risk[known], y[known]), weight)
    return float(skill(0.0, losses, weighted.mean(y[known], weight))[1])
