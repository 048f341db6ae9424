"""Compare two treatments with adjustment for an index: inverse probability weighting by propensity scores.

Turn a cohort, scores of its admissions, a treatment column and an outcome into treatment effects. For each score, the
propensity of treatment is fitted from the score, age and sex, and admissions are weighted by the inverse probability of
the treatment they received. The results are standardised differences of every score and covariate before and after
weighting, and effects: unadjusted, weighted, and by regression. Intervals are clustered by patient and allow for the
estimation of the propensities (influence functions).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from mlci.base.errors import InputError
from mlci.base.shown import Shown
from mlci.cohort import Cohort
from mlci.judging._carried import column, weights_of
from mlci.judging._columns import columns_of
from mlci.judging._crossfit import LogisticModel, design, fit
from mlci.measures._arrays import as_scores, unit_of
from mlci.measures.design import numbered
from mlci.measures.discrimination import expit

Z = 1.959964
LEAST = 10  # admissions of each treatment with the outcome, and without it
RARE = 0.005  # lower bound of a propensity and its complement, so that no weight exceeds 200
UNADJUSTED = "unadjusted"
MEASURES = {"difference": "risk difference", "ratio": "risk ratio", "odds": "odds ratio"}


@dataclass(frozen=True, repr=False)
class Balance(Shown):
    """A treatment's effect on an outcome.

    - `effects`: one row per model, method (weighting, regression) and measure.
    - `differences`: one row per covariate, with its standardised difference before weighting and, in one column per
      model, after weighting.
    - `arms`: counts of the two groups.
    - `models`: the propensity model's AUROC and the effective sample sizes after weighting, one row per score.
    """

    treatment: str
    treated: str  # the value that counts as treated
    outcome: str
    adjusted_by: tuple[str, ...]
    weighted_by: str | None
    left_out: int
    source: str
    arms: pd.DataFrame
    effects: pd.DataFrame
    differences: pd.DataFrame
    models: pd.DataFrame

    def cells(self) -> tuple[list[str], list[list[str]]]:
        """Return headings and rows of the effects for a terminal."""
        rows = [
            [row.model, row.method, MEASURES[row.measure], f"{row.value:.3f}", f"{row.low:.3f} to {row.high:.3f}"]
            for row in self.effects.itertuples()
        ]
        return ["model", "method", "effect", "value", "95% interval"], rows


def balance(
    cohort: Cohort,
    scores: Any,
    *,
    treatment: str,
    outcome: str,
    adjust: Sequence[str] | None = None,
    weights: str | None = None,
) -> Balance:
    """Estimate the effect of a treatment, unadjusted and adjusted by each score.

    Args:
        cohort: the admissions.
        scores: one number per admission, or a frame or mapping of several scores.
        treatment: a column with two values; true, 1, or the later of two words in sort order is the treatment.
        outcome: the outcome that the treatment may change.
        adjust: columns to adjust for in addition to the score; by default age and sex, if the cohort has them.
        weights: a column of survey weights.

    Returns:
        The balance of the two groups, and the effect, unadjusted and adjusted by each score.

    >>> visits = pd.DataFrame({"visit_id": range(400), "drug": [0, 1] * 200, "codes": [["I50.9"]] * 400})
    >>> visits["died"] = [0, 0, 1, 0, 0, 1, 1, 1] * 50
    >>> cohort = Cohort.from_frame(visits, icd_version=10, keep=["drug"])
    >>> found = balance(cohort, {"points": range(400)}, treatment="drug", outcome="mortality")
    >>> found.effects[["model", "method", "measure"]].drop_duplicates("method")
            model      method     measure
    0  unadjusted        none  difference
    3      points   weighting  difference
    6      points  regression        odds
    """
    adjust = [adjust] if isinstance(adjust, str) else adjust
    if adjust is None:
        adjust = [name for name in ("age", "sex") if name in cohort.table.column_names and name != treatment]
    if treatment in adjust:
        raise InputError(f"column {treatment}: is the treatment; it cannot be adjusted for as well.")
    arms = _arms(cohort, treatment, outcome, weights)
    models = {name: as_scores(values, name) for name, values in columns_of(scores, "score").items()}
    for name, values in models.items():
        if len(values) != len(cohort):
            raise InputError(f"{name}: has {len(values)} admissions, but the cohort has {len(cohort)}.")
    others = [(name, column(cohort, name)[arms.rows]) for name in adjust]
    covariates = _covariates({name: values[arms.rows] for name, values in models.items()}, others)
    effects = _measured(UNADJUSTED, "none", arms, _risks(arms, None))
    differences = {"before": _differences(covariates, arms, np.ones(len(arms.rows)))}
    summary = []
    for name, values in models.items():
        plan = design(values[arms.rows], others)
        chance = np.clip(expit(plan.columns @ fit(plan, arms.treated, arms.weight)), RARE, 1 - RARE)
        inverse = np.where(arms.treated == 1, 1 / chance, 1 / (1 - chance))
        effects += _measured(name, "weighting", arms, _risks(arms, _Propensity(plan, chance)))
        effects.append((name, "regression", "odds", *_regressed(arms, plan)))
        differences[name] = _differences(covariates, arms, inverse)
        summary.append((name, *_effective(arms, inverse), float(np.max(inverse)), _separation(chance, arms)))
    return Balance(
        treatment=treatment,
        treated=arms.word,
        outcome=outcome,
        adjusted_by=tuple(adjust),
        weighted_by=weights,
        left_out=len(cohort) - len(arms.rows),
        source=cohort.source,
        arms=arms.counts(),
        effects=pd.DataFrame(effects, columns=["model", "method", "measure", "value", "low", "high"]),
        differences=pd.DataFrame({"covariate": list(covariates), **differences}),
        models=pd.DataFrame(summary, columns=["model", "worth_treated", "worth_others", "largest", "auroc"]),
    )


@dataclass(frozen=True)
class _Arms:
    """The admissions whose treatment and outcome are known."""

    rows: np.ndarray
    treated: np.ndarray
    outcome: np.ndarray
    weight: np.ndarray  # of mean 1
    patient: np.ndarray
    word: str
    other: str

    def counts(self) -> pd.DataFrame:
        rows = []
        for word, arm in ((self.word, self.treated == 1), (self.other, self.treated == 0)):
            rate = float(np.average(self.outcome[arm], weights=self.weight[arm]))
            rows.append((word, int(arm.sum()), int(self.outcome[arm].sum()), rate))
        return pd.DataFrame(rows, columns=["arm", "n", "events", "rate"])


def _arms(cohort: Cohort, treatment: str, outcome: str, weights: str | None) -> _Arms:
    y = cohort.labels(outcome)[:, 0]
    number, words = pd.factorize(column(cohort, treatment), sort=True)
    if len(words) != 2:
        raise InputError(f"column {treatment}: has {len(words):,} different values; a treatment has two.")
    weight = np.ones(len(cohort)) if weights is None else weights_of(cohort, weights)
    rows = np.flatnonzero(~np.isnan(y) & (number >= 0) & (weight > 0))
    treated, y = number[rows].astype(float), y[rows]
    for value in (0, 1):
        happened = int(y[treated == value].sum())
        if min(happened, int((treated == value).sum()) - happened) < LEAST:
            few = f"has fewer than {LEAST} admissions with or without {outcome}"
            raise InputError(f"column {treatment}: one of its two groups {few}.")
    patient = numbered(cohort.column("subject_id"))[rows]
    share = weight[rows] / weight[rows].mean()
    return _Arms(rows, treated, y, share, patient, str(words[1]), str(words[0]))


@dataclass(frozen=True)
class _Propensity:
    plan: LogisticModel
    chance: np.ndarray


def _risks(arms: _Arms, propensity: _Propensity | None) -> tuple[np.ndarray, np.ndarray]:
    """Return the risks of the treated and the others, and the influence of each admission on them, admissions x 2."""
    risks, moved = np.empty(2), np.empty((len(arms.rows), 2))
    for place, received in enumerate((arms.treated, 1 - arms.treated)):
        share = arms.weight * received
        if propensity is not None:
            chance = propensity.chance if place == 0 else 1 - propensity.chance
            share = share / chance
        risks[place] = share @ arms.outcome / share.sum()
        moved[:, place] = share * (arms.outcome - risks[place]) / share.sum()
        if propensity is not None:
            # Correct the influence, to first order, for the estimation of the propensity.
            columns, sign = propensity.plan.columns, 1 if place == 0 else -1
            slope = -sign * columns.T @ (moved[:, place] * (1 - chance))
            spread = arms.weight * propensity.chance * (1 - propensity.chance)
            bend = (columns.T * spread) @ columns + propensity.plan.penalty
            lean = arms.weight * (arms.treated - propensity.chance)
            moved[:, place] += lean * (columns @ np.linalg.solve(bend, slope))
    return risks, moved


def _measured(model: str, method: str, arms: _Arms, found: tuple[np.ndarray, np.ndarray]) -> list[tuple]:
    """Return difference, ratio and odds ratio of two risks, with intervals from influence values summed by patient."""
    (treated, others), moved = found
    by_patient = np.column_stack([np.bincount(arms.patient, moved[:, place]) for place in (0, 1)])
    covariance = by_patient.T @ by_patient

    def row(measure: str, value: float, slope: tuple[float, float], *, logged: bool) -> tuple:
        reach = Z * float(np.sqrt(np.array(slope) @ covariance @ np.array(slope)))
        low, high = value - reach, value + reach
        return (model, method, measure, *(np.exp([value, low, high]) if logged else (value, low, high)))

    odds = [1 / (risk * (1 - risk)) for risk in (treated, others)]
    log_odds = [np.log(risk / (1 - risk)) for risk in (treated, others)]
    return [
        row("difference", treated - others, (1, -1), logged=False),
        row("ratio", np.log(treated / others), (1 / treated, -1 / others), logged=True),
        row("odds", log_odds[0] - log_odds[1], (odds[0], -odds[1]), logged=True),
    ]


def _regressed(arms: _Arms, plan: LogisticModel) -> tuple[float, float, float]:
    """Return the odds ratio of treatment in a logistic model of the outcome, with an interval clustered by patient."""
    columns = np.column_stack([plan.columns, arms.treated])
    penalty = np.zeros((columns.shape[1], columns.shape[1]))
    penalty[:-1, :-1] = plan.penalty
    beta = fit(LogisticModel(columns, penalty), arms.outcome, arms.weight)
    risk = expit(columns @ beta)
    bread = np.linalg.inv((columns.T * (arms.weight * risk * (1 - risk))) @ columns + penalty)
    moved = np.bincount(arms.patient, (columns @ bread[:, -1]) * arms.weight * (arms.outcome - risk))
    reach = Z * float(np.sqrt(moved @ moved))
    value, low, high = np.exp([beta[-1], beta[-1] - reach, beta[-1] + reach])
    return float(value), float(low), float(high)


def _covariates(scores: dict[str, np.ndarray], others: list[tuple[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Return the covariates to balance, as numbers: scores, numeric columns, and dummies of categories."""
    found = {name: values / unit_of(values) for name, values in scores.items()}
    for name, values in others:
        series = pd.Series(values)
        if pd.api.types.is_numeric_dtype(series) and not pd.api.types.is_bool_dtype(series):
            found[name] = series.fillna(series.median()).to_numpy(dtype=float)
            continue
        codes, words = pd.factorize(series, sort=True)
        for code, word in list(enumerate(words))[len(words) == 2 :]:
            found[f"{name}: {word}"] = (codes == code).astype(float)
    return found


def _differences(covariates: dict[str, np.ndarray], arms: _Arms, inverse: np.ndarray) -> np.ndarray:
    """Return standardised differences of weighted means, by the standard deviations before weighting."""
    found = []
    for values in covariates.values():
        parts = [arms.treated == 1, arms.treated == 0]
        means = [np.average(values[part], weights=(arms.weight * inverse)[part]) for part in parts]
        plain = [np.average(values[part], weights=arms.weight[part]) for part in parts]
        spread = [np.average((values[p] - m) ** 2, weights=arms.weight[p]) for p, m in zip(parts, plain)]
        pooled = np.sqrt(np.mean(spread))
        found.append((means[0] - means[1]) / pooled if pooled > 1e-12 else 0.0)
    return np.array(found)


def _effective(arms: _Arms, inverse: np.ndarray) -> list[float]:
    """Return the effective sample size of each group under the weights (Kish)."""
    weight = arms.weight * inverse
    return [
        float(weight[part].sum() ** 2 / (weight[part] ** 2).sum()) for part in (arms.treated == 1, arms.treated == 0)
    ]


def _separation(chance: np.ndarray, arms: _Arms) -> float:
    """Return the AUROC of the propensity for the treatment."""
    from mlci.measures.discrimination import auroc

    return float(auroc(chance, arms.treated, weight=arms.weight))
