"""Baselines for an index: age and sex alone, and logistic regressions on the flags of Charlson and Elixhauser.

Turn the training and the evaluated admissions of a cohort into one score (log-odds) per baseline ("rival"), outcome and
evaluated admission. A learned index that beats published weights may still add little to age and sex, or to the same
flags with weights refitted to the cohort.
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
from mlci.measures.alignment import group_by_known
from mlci.measures.design import Design, as_design, numbered
from mlci.measures.discrimination import expit, log_losses, skill
from mlci.measures.intervals import Reach, area
from mlci.measures.metric import Pair

LEARNED = 50_000  # most training admissions; forty weights need no more
LEAST = 10  # training admissions with an outcome, and without it, that a rival needs
KNOTS = (45, 65, 80)  # years, of the linear spline of age
FOLDS = 5  # of patients, for cross-fitting without a training split
OWN = "MLCI"
CLASSIC = {"Elixhauser": "eci_vw", "Charlson": "cci_charlson"}


def classic(cohort: Cohort) -> dict[str, np.ndarray]:
    """Score a cohort by Elixhauser (van Walraven) and Charlson with their published weights.

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
    """Turn the points of published indices into risks, by risk curves fitted to a cohort.

    Args:
        train: the admissions to fit the curves to.
        judged: the admissions whose risks are returned.
        outcomes: names of outcomes; those unknown for every training admission are left out.
        weights: a column of `train` with survey weights.

    Returns:
        Index → outcome → risk of each judged admission; empty without training admissions.

    >>> from mlci.cohort import build_cohort
    >>> cohort = build_cohort("synthetic", 600)
    >>> risks = curved(cohort.split("train"), cohort.split("test"), ["long_stay"])
    >>> [*risks], bool((risks["Charlson"]["long_stay"] > 0).all())
    (['Elixhauser', 'Charlson'], True)
    """
    train, weight = _counting(train, weights)
    if not len(train):
        return {}
    points = classic(judged)
    known = dict(zip(outcomes, train.labels(*outcomes).T))
    return {
        index: {
            name: smooth(learned, y, weight=weight)(points[index]) for name, y in known.items() if not np.isnan(y).all()
        }
        for index, learned in classic(train).items()
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
    """Fit simple rivals to a cohort by logistic regression, and score other admissions with them.

    The rivals are age and sex, the flags of Charlson and of Elixhauser without and with age and sex, and the index with
    age and sex. Without age and sex in the cohort, only the flags remain.

    Args:
        train: the admissions to fit to, at most 50,000 of them.
        judged: the admissions to score.
        outcomes: names of outcomes; those that fewer than ten training admissions have, or lack, are left out.
        index: a function that scores a cohort; None leaves out the index with age and sex.
        name: of the index.
        weights: a column of `train` with survey weights.
        seed: of the random sample if `train` is larger.

    Returns:
        Rival → outcome → log-odds of each judged admission.

    >>> import pandas as pd
    >>> visits = pd.DataFrame({"visit_id": range(40), "age": [50, 80] * 20, "codes": [["I50.9"]] * 40})
    >>> cohort = Cohort.from_frame(visits.assign(died=[0, 1] * 20), icd_version=10, outcomes={"mortality": "died"})
    >>> log_odds = refitted(cohort, cohort, ["mortality"])["Age"]["mortality"]
    >>> bool(log_odds[0] < 0 < log_odds[1])
    True
    """
    train, weight = _counting(train.sample(LEARNED, seed=seed), weights)
    if not len(train):
        return {}
    designs, labels = _designs(train, judged, index, name), train.labels(*outcomes)
    counts = np.stack([(labels == kind).sum(axis=0) for kind in (0, 1)])
    groups = [
        (known, [column for column in columns if counts[:, column].min() >= LEAST])
        for known, columns in group_by_known(labels)
    ]
    tasks = [(rival, known, columns) for known, columns in groups if columns for rival in designs]

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


def _counting(train: Cohort, weights: str | None) -> tuple[Cohort, np.ndarray | None]:
    """Return the admissions whose weight is not 0, and their weights."""
    if weights is None:
        return train, None
    weight = weights_of(train, weights)
    return train.where(weight > 0), weight[weight > 0]


def cross_refitted(
    judged: Cohort, outcomes: Sequence[str], *, folds: int = FOLDS, **options: Any
) -> dict[str, dict[str, np.ndarray]]:
    """Fit and score the rivals on the same admissions by cross-fitting over patients.

    Args:
        judged: the admissions to fit to and to score, if there is no training split.
        outcomes: names of outcomes; those too rare in the training admissions of a fold are left out.
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
    weights = options.get("weights")
    level = _levels(judged, outcomes, weights)
    for place in np.unique(fold):
        inside = fold == place
        # If a fold has many events, the others have few: without this correction their level would bias the AUROC.
        others = _levels(judged.where(~inside), outcomes, weights)
        learned = refitted(judged.where(~inside), judged.where(inside), outcomes, **options)
        for rival, columns in learned.items():
            for outcome, log_odds in columns.items():
                column = found.setdefault(rival, {}).setdefault(outcome, np.full(len(judged), np.nan))
                column[inside] = log_odds + level[outcome] - others[outcome]
    whole = {
        rival: {name: y for name, y in columns.items() if not np.isnan(y).any()} for rival, columns in found.items()
    }
    return {rival: columns for rival, columns in whole.items() if columns}


def _levels(cohort: Cohort, outcomes: Sequence[str], weights: str | None) -> dict[str, float]:
    """Return the log-odds of each outcome's rate, weighted by the column `weights` if there is one."""
    y = cohort.labels(*outcomes)
    weight = np.ones(len(y)) if weights is None else weights_of(cohort, weights)
    with np.errstate(divide="ignore", invalid="ignore"):  # if all have an outcome, or none has
        return dict(zip(outcomes, np.log(weight @ (y == 1)) - np.log(weight @ (y == 0))))


@dataclass(frozen=True)
class Areas:
    """AUROC of scores for `outcomes` with influence values, cached so that each is computed once."""

    outcomes: Mapping[str, np.ndarray]
    design: Design
    # By id and outcome; keeping the scores with the result ensures that their id is not reused.
    _kept: dict[tuple[int, str], tuple] = field(default_factory=dict)

    def of(self, scores: np.ndarray, outcome: str) -> tuple[float, np.ndarray]:
        """Return AUROC of `scores` for an `outcome`, and the influence of each admission on it.

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
    """Measure the incremental value of the index over age and sex, and over flags with age and sex.

    Args:
        found: rival → outcome → log-odds, from `refitted`.
        outcomes: name → 0, 1 or NaN of each admission.
        patients: the patient of each admission, or a `Design`.
        name: of the index.
        areas: cached AUROCs for the same outcomes and patients.

    Returns:
        One row per outcome and base: AUROC of the base, the gain in AUROC of the index with age and sex with its 95%
        interval, and the deviance explained by both; empty if the cohort has neither age nor sex.

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

    The 95% intervals use DeLong's influence values, clustered by patient: `mlci.measures.intervals` for the AUROC, and
    a paired interval by Student's t, wider the fewer the events, for the gap.

    Args:
        own: the index's score of each admission.
        rivals: name → outcome → score of each admission.
        outcomes: name → 0, 1 or NaN of each admission; an outcome with one class is left out.
        patients: the patient of each admission, or a `Design`.
        name: of the index.
        areas: cached AUROCs for the same outcomes and patients.

    Returns:
        One row per outcome and model: AUROC with its interval, and the AUROC of the index minus it (gap).

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
        reach = Reach(Pair(own, y, patients=design).events).quantile
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


def _root(moved: np.ndarray, design: Design) -> float:
    """Return the standard error from influence values, clustered by patient."""
    correction = 1.0 if design.stratum is not None else design.clusters / max(design.clusters - 1, 1)
    return float(np.sqrt(design.variance(moved) * correction))


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
    """Return which of age and sex the cohort has, in words, and their columns for both parts; None if neither."""
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
    """Return the columns of a linear spline."""
    return np.column_stack([values, *(np.maximum(values - knot, 0) for knot in knots)])


def _logistic(learned: np.ndarray, labels: np.ndarray, wanted: np.ndarray, weight: np.ndarray | None) -> np.ndarray:
    """Return log-odds of each outcome by logistic regression on standardised columns with a small ridge penalty.

    Admissions with equal columns, which are many, are aggregated.
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
    """Return the position of each distinct row, and for every row the index of its distinct row."""
    # Flags are packed into bits, so that little is sorted.
    flags = ((rows == 0) | (rows == 1)).all(axis=0)
    others = np.ascontiguousarray(rows[:, ~flags]).view(np.uint8).reshape(len(rows), -1)
    packed = np.hstack([np.packbits(rows[:, flags] == 1, axis=1), others])
    _, first, place = np.unique(packed.view(f"V{packed.shape[1]}").ravel(), return_index=True, return_inverse=True)
    return first, place


def _deviance(risk: np.ndarray, y: np.ndarray, weight: np.ndarray | None) -> float:
    """Return the share of the null deviance that a risk explains."""
    known = ~np.isnan(y)
    weight = None if weight is None else weight[known]
    losses = weighted.mean(log_losses(risk[known], y[known]), weight)
    return float(skill(0.0, losses, weighted.mean(y[known], weight))[1])
