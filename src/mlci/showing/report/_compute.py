"""Compute the content of the report: a fitted index and a cohort in, one frozen `Findings` out.

Sentences, figures and the page are made elsewhere, from these findings. The index is evaluated on the test split of the
cohort, which was not used for its weights or its cutoff. A part for which there are too few data (no code in ten
admissions, one class, no age) is empty or None, never an error.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from mlci.base.blas import single_thread
from mlci.base.errors import InputError
from mlci.base.threads import Crew, threads
from mlci.codes.icd import VERSIONS, dotted
from mlci.codes.outcome import tells
from mlci.cohort import Cohort
from mlci.index import vary
from mlci.index._look_back import look_back_warnings
from mlci.index._people import absence_warning, absent, of_data
from mlci.index._understanding import LEAST_UNDERSTOOD
from mlci.index.importance import importance
from mlci.index.model import Model
from mlci.index.modelcard import facts, limits
from mlci.index.provenance import refitted
from mlci.index.shift import count_makeup, shifts
from mlci.index.tally import Tally
from mlci.judging import curves, rivals, theory
from mlci.judging._carried import design_of, design_words
from mlci.judging.cutoffs import cutoff_range
from mlci.judging.evaluate import judge, subgroup
from mlci.judging.groups import by_group, interactions
from mlci.judging.rivals import OWN, Areas, compare
from mlci.measures import weighted
from mlci.measures.design import Design
from mlci.measures.distributions import normal_quantile, normal_share
from mlci.measures.intervals import Interval, area
from mlci.measures.registry import reported
from mlci.showing.report._findings import (
    ALONG,
    LEAST,
    Codes,
    Cut,
    Findings,
    Judgement,
    OutcomeFigures,
    Part,
    Population,
)
from mlci.tokens import telling, without

BY = ("sex", "age_band")  # default subgroups, if the cohort has them
EXPLAINED = 5_000  # admissions that the influence of codes is averaged over
CODES = 25  # listed
ORDER = ("auroc", "risk_auroc")
FIGURES = (
    *(*ORDER, "deviance", "nagelkerke", "brier_skill"),
    *("slope", "intercept", "calibration_error", "brier"),
)
STEPS = 24  # groups along the score, evenly spaced on the scale of the figure


@dataclass(frozen=True)
class _Asked:
    """What to evaluate, on which admissions, and how."""

    model: Model
    cohort: Cohort
    judged: Cohort  # the evaluated part of the cohort
    columns: Mapping[str, np.ndarray]  # the model's columns for the judged admissions
    names: Sequence[str]  # of outcomes
    by: Sequence[str]  # columns that define subgroups
    drawn: Mapping[str, str]  # survey columns
    options: Mapping[str, Any]  # of resampling


def compute(
    model: Model,
    cohort: Cohort,
    *,
    by: Sequence[str] | None = None,
    resamples: int = 200,
    resample_training: int = 0,
    seed: int = 12345,
    drawn: Mapping[str, str | None] | None = None,
    refitting: Mapping[str, Any] | None = None,
    shown: Callable[[Part], object] = lambda part: None,
) -> Findings:
    """Return all findings about a model on a cohort.

    Args:
        model: the index.
        cohort: the cohort whose test split evaluates it.
        by: columns that define subgroups; `BY` if None.
        resamples: of the bootstrap.
        resample_training: how often to refit the index on resampled training patients.
        seed: of resamples and draws.
        drawn: the survey columns: weights, cluster, strata.
        refitting: options of `vary.resample_training`.
        shown: called with each part that has figures as soon as it is found, so that it can be drawn while others are
            computed.
    """
    drawn = {name: column for name, column in (drawn or {}).items() if column}
    cohort = model.of_cohort(cohort)
    names = [name for name in model.outcomes if name in cohort.outcomes]
    if not names:
        raise InputError(
            f"the cohort has none of the model's outcomes ({', '.join(model.outcomes)}); "
            f"it has {', '.join(cohort.outcomes) or 'none'}."
        )
    test = cohort.split("test")
    judged = test if len(test) else cohort
    if not len(judged):
        raise InputError("the cohort has no admissions to report on.")
    if by is None:
        by = [name for name in BY if name.removesuffix("_band") in cohort.table.column_names]
    judgement, why_not = None, ""
    with single_thread(), threads() as pool:
        admissions, people = judged.admissions(), of_data(judged, model.people, len(judged))
        everyone = pool.submit(_everyone, model, cohort, people)
        columns = model.columns(admissions, people=people)
        doubtful = model.understanding(admissions).share < LEAST_UNDERSTOOD
        tally = Tally(model).add(admissions)
        if tally.unknown > tally.codes * (1 - LEAST_UNDERSTOOD):
            why_not = "fewer than half of the recorded codes are known to the model"
        else:
            scored = judged.where(~doubtful) if doubtful.any() else judged
            columns = {name: np.asarray(values)[~doubtful] for name, values in columns.items()}
            why_not = _unjudgeable(columns["score"], scored.labels(*names))
            if not why_not:
                asked = _Asked(model, cohort, scored, columns, names, by, drawn, {"resamples": resamples, "seed": seed})
                judgement = _judge(asked, pool, shown)
    return Findings(
        people=_people(cohort, judged, names, int(doubtful.sum()), tally, everyone.result()),
        **_about(model),
        judgement=judgement,
        why_not=why_not,
        resamples=resamples,
        by=tuple(by),
        refits=resample_training,
        varied=vary.resample_training(model, cohort, judged, times=resample_training, seed=seed, **(refitting or {}))
        if judgement and resample_training
        else None,
        survey=design_words(judged, **drawn),
    )


def _about(model: Model) -> dict[str, Any]:
    """Return the fields of `Findings` that describe the model."""
    return {
        "made": model.card,
        "facts": facts(model),
        "limits": tuple(limits(model)),
        "model_versions": model.icd_versions,
        "model_outcomes": tuple(model.outcomes),
        "vocabulary": len(model.vocabulary.tokens),
        "ignored": len(model.vocabulary.ignored),
        "refitted": refitted(model),
    }


def _everyone(model: Model, cohort: Cohort, people: np.ndarray | None) -> dict[str, Any]:
    """Return the fields of `Population` that describe the whole cohort; `people` are the judged ones' age and sex."""
    whole = cohort.admissions()
    found = count_makeup(whole, model.vocabulary.leaves(whole))  # the whole cohort: a test split may be too small
    different = (*shifts(model.card.get("makeup", {}), found), *look_back_warnings(model, cohort.look_back))
    lacking = absence_warning(model.people, absent(model.people, people))
    return {"table_one": cohort.describe(), "shifts": (*different, *[lacking] * bool(lacking))}


def _people(
    cohort: Cohort, judged: Cohort, names, unscored: int, tally: Tally, everyone: Mapping[str, Any]
) -> Population:
    admissions, patients = judged.admissions(), len(np.unique(judged.column("subject_id")))
    return Population(
        source=cohort.source,
        rules={name: cohort.outcomes[name] for name in names},
        notes=cohort.notes,
        attrition=cohort.attrition,
        held_out=judged is not cohort,
        admissions=len(judged),
        patients=patients if patients < len(judged) else None,
        icd_versions=tuple(np.unique(admissions.versions[admissions.indices]).tolist()),
        codes=tally.codes,
        unknown=tally.unknown,
        foreign=dict(tally.foreign),
        unscored=unscored,
        others=tuple(name for name in cohort.outcomes if name not in names),
        **everyone,
    )


def _unjudgeable(score: np.ndarray, labels: np.ndarray) -> str:
    """Return why the index cannot be evaluated, or an empty text."""
    if not len(score):
        return "no admission could be scored"
    if np.ptp(score) == 0:
        return f"all {len(score):,} admissions have the same score"
    if all(len(np.unique(column[~np.isnan(column)])) < 2 for column in labels.T):
        return "every outcome is present in all of these admissions, or in none"
    return ""


def _judge(asked: _Asked, pool: Crew, shown: Callable[[Part], object]) -> Judgement:
    """Return all figures, computed in parallel; parts with figures come first."""
    model, judged, names = asked.model, asked.judged, asked.names
    score, labels, patients = asked.columns["score"], judged.labels(*names), design_of(judged, **asked.drawn)
    counts = True if patients.weight is None else patients.weight > 0
    known = {name: y for name, y in zip(names, labels.T) if (counts & ~np.isnan(y)).any()}
    risks = {name: asked.columns[f"risk_{name}"] for name in known if f"risk_{name}" in asked.columns}
    weights = _weights(model.card.get("weights"), names)
    parts = {name: subgroup(judged, name) for name in asked.by}
    alone = patients if asked.drawn else None  # without a survey, curves treat admissions as independent
    points = pool.submit(rivals.classic, judged)
    outcomes = [pool.submit(_outcome, name, score, y, risks.get(name), alone) for name, y in known.items()]
    codes = pool.submit(_codes, model, judged, asked.options["seed"])
    diagnosis = pool.submit(_diagnosis, asked, score, labels, weights, patients)
    areas = Areas(known, patients)
    compared = pool.submit(_compared, asked, points, score, known, risks, areas)
    metrics = pool.submit(_metrics, asked, points, score, known, risks, patients)
    along = pool.submit(_along, asked, score, known, patients)
    groups = pool.submit(by_group, score, risks, known, parts, patients=patients)
    tests = pool.submit(interactions, risks, known, parts, patients=patients)
    for part in (*outcomes, codes):
        shown(part.result())
    diagnosed, chosen_here, certificate = diagnosis.result()
    if diagnosed is not None:
        shown(diagnosed)
    aurocs, gains = compared.result()
    shown(aurocs)
    table = pd.concat([metrics.result(), along.result()], ignore_index=True)
    figures = {name: _order(areas, name, score, risks.get(name)) | _figures(name, table) for name in known}
    return Judgement(
        outcomes=tuple(replace(part.result(), figures=figures[part.result().name]) for part in outcomes),
        aurocs=aurocs,
        gains=gains,
        metrics=table,
        groups=groups.result(),
        interactions=tests.result(),
        cut=_cut(model, score, known, chosen_here, certificate, patients.weight),
        diagnosis=diagnosed,
        codes=codes.result(),
        spread=float(weighted.spread(score, patients.weight)),
    )


def _metrics(asked: _Asked, points: Future, score, known, risks, patients: Design) -> pd.DataFrame:
    """Return the metrics of the index and of the published indices."""
    options = {"groups": patients, "kernel": "energy", **asked.options}  # nHSIC is taken from the diagnosis
    models = {OWN: score, **points.result()}
    wanted = {*FIGURES, *reported()} - {*ORDER}  # which the comparison with rivals gives
    return judge(models, known, risks={OWN: risks}, metrics=wanted, **options).table


def _along(asked: _Asked, score, known, patients: Design) -> pd.DataFrame | None:
    """Return the deviance explained by the curves over the score, if the model's risks are not read from them."""
    model = asked.model
    risks = {name: curve(score) for name, curve in model.curves.items() if name in known and name in model.learned}
    if not risks:
        return None
    options = {"groups": patients, "kernel": "energy", **asked.options}
    found = judge({OWN: score}, known, risks={OWN: risks}, metrics={"deviance"}, **options)
    return found.table.assign(metric=ALONG)


def _diagnosis(asked: _Asked, score, labels, weights: Mapping[str, float], patients: Design):
    """Return the diagnosis, the cut chosen on these admissions, and the certificate of the model's cutoff on them.

    All three are None if no outcome has both classes.
    """
    options: dict[str, Any] = {"weights": list(weights.values())}
    cut = asked.model.cutoff.score
    try:
        diagnosis = theory.diagnose(score, labels, asked.names, **options)
        chosen_here = cutoff_range(score, labels, asked.names, patients=patients, **options, **asked.options)
        return diagnosis, chosen_here, theory.certify(score, labels, asked.names, cut, mass=patients.weight, **options)
    except InputError:  # no outcome has both classes among the admissions where all are known
        return None, None, None


def _order(areas: Areas, name: str, score: np.ndarray, risk: np.ndarray | None) -> dict[str, Interval]:
    """Return the AUROC of the score, and of the risk if there is one."""
    columns = zip(ORDER, (score, risk))
    found = {metric: areas.of(column, name) for metric, column in columns if column is not None}
    return {metric: area(*of, areas.outcomes[name], areas.design) for metric, of in found.items()}


def _figures(name: str, metrics: pd.DataFrame) -> dict[str, Interval]:
    """Return those of `FIGURES` that the index has for an outcome, except those of `ORDER`."""
    own = metrics[(metrics["model"] == OWN) & (metrics["outcome"] == name)].set_index("metric")
    return {
        metric: Interval(*own.loc[metric, ["value", "low", "high"]].astype(float))
        for metric in (*FIGURES, ALONG)
        if metric in own.index
    }


def _cut(model, score, known: Mapping[str, np.ndarray], chosen_here, certificate, weight: np.ndarray | None) -> Cut:
    beyond, labels = model.cutoff.flag(score), np.column_stack(list(known.values()))

    def share(kind: int, flags: np.ndarray) -> tuple[theory.Rate, ...]:
        """Return how many of the admissions with (or without) each outcome are so flagged."""
        rows = (y == kind for y in known.values())
        return tuple(theory.rate_of(flags[row], None if weight is None else weight[row]) for row in rows)

    return Cut(
        cutoff=model.cutoff,
        weights=_cutoff_weights(model),
        share=float(weighted.mean(beyond.astype(float), weight)),
        contrasts=theory.contrasts(score, labels, list(known), model.cutoff.score, mass=weight),
        sensitivities=share(1, beyond),
        specificities=share(0, ~beyond),
        chosen_here=chosen_here,
        certificate=certificate,
        chosen_on=model.card.get("fitted_on", "training and validation admissions"),
    )


def _compared(asked: _Asked, points: Future, score, known, risks, areas: Areas) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the AUROCs of the index and its rivals, and what it gains over rivals with age and sex."""
    found, options = _rivals(asked, points, score, known, risks), {"patients": areas.design, "areas": areas}
    return compare(score, found, known, **options), rivals.increments(found, known, **options)


def _rivals(asked: _Asked, points: Future, score, known, risks) -> dict[str, dict[str, np.ndarray]]:
    """Return the scores of all rivals on the same admissions, by name and outcome."""
    model, cohort, judged = asked.model, asked.cohort, asked.judged
    weights = asked.drawn.get("weights")
    found: dict[str, dict[str, np.ndarray]] = {}
    order = np.argsort(score, kind="stable")
    if any((np.diff(risk[order]) < -1e-12).any() for risk in risks.values()):  # risks rank differently from the score
        found[f"{OWN}, own risks"] = risks
    found |= {name: dict.fromkeys(known, values) for name, values in points.result().items()}
    scorer = lambda part: score if part is judged else model.score(part.admissions())  # noqa: E731
    found |= rivals.refitted(cohort.split("train"), judged, list(known), index=scorer, weights=weights)
    admissions = judged.admissions()
    rest = without(admissions, telling())
    if len(rest.indices) < len(admissions.indices) and not model.vocabulary.ignored:
        without_telling: np.ndarray = model.score(rest)
        found[f"{OWN} without † codes"] = dict.fromkeys(known, without_telling)
    return found


def _weights(given: Mapping[str, float] | None, names: Sequence[str]) -> dict[str, float]:
    """Return the weights of the outcomes in the fit, which chose the model's cutoff; equal ones if it keeps none."""
    weights = {name: float((given or {}).get(name, 1.0)) for name in names}
    return weights if any(weights.values()) else dict.fromkeys(names, 1.0)


def _cutoff_weights(model: Model) -> dict[str, float]:
    """Return the weights of the outcomes by which the model's cutoff was chosen, at its fit or its recalibration."""
    fitted = model.card.get("recalibrated", {}).get("positives", model.outcomes)
    weights = _weights(model.card.get("weights"), list(fitted))
    return {name: weight for name, weight in weights.items() if name not in model.cutoff.left_out}


def _outcome(
    name: str, score: np.ndarray, y: np.ndarray, risk: np.ndarray | None, drawn: Design | None
) -> OutcomeFigures:
    """Return the curves of an outcome along score and risk, without its figures."""
    weight = None if drawn is None else drawn.weight
    fit = curves.isotonic(score, y, weight=weight)
    risk = fit(score) if risk is None else risk
    known = ~np.isnan(y)
    low, high = np.quantile(score, [0.001, 0.999])
    edges = np.linspace(low, high, 31)
    shares, medians = zip(*(_spread_of(score, y == value, edges, weight) for value in (0, 1)))
    return OutcomeFigures(
        name=name,
        n=int(known.sum()),
        positives=int(np.nansum(y)),
        rates=curves.binned(score, y, levels=levels(int(known.sum())), patients=drawn),
        fit=fit,
        trend=curves.trends([score], y, [name], patients=drawn)[0],
        groups=curves.binned(risk, y, bins=10, patients=drawn),
        smooth=curves.calibration_curve(risk, y, patients=drawn),
        predicted=float(weighted.mean(risk[known], None if weight is None else weight[known])),
        rate=theory.rate_of(y[known], None if weight is None else weight[known]).rate,
        figures={},
        medians=(medians[0], medians[1]),
        share=(edges, *shares),
    )


def _spread_of(score: np.ndarray, rows: np.ndarray, edges: np.ndarray, weight: np.ndarray | None):
    """Return the histogram of the scores of some admissions, as shares, and their median."""
    mass = None if weight is None else weight[rows]
    total = rows.sum() if mass is None else mass.sum()
    counts = np.histogram(score[rows], edges, weights=mass)[0]
    median = float(weighted.quantile(score[rows], [0.5], mass)[0]) if rows.any() and total else float("nan")
    return counts / (total or 1), median


def levels(n: int) -> np.ndarray:
    """Return the quantiles between groups: even on the normal scale, with at least 20 admissions at each end."""
    end = normal_quantile(1 - max(20, n / 500) / n) if n > 40 else 0.0
    return np.array([*map(normal_share, np.linspace(-end, end, STEPS - 1))]) if end > 0 else np.array([0.5])


def _codes(model: Model, judged: Cohort, seed: int) -> Codes:
    """Return the codes with the largest influence, over a sample of admissions."""
    some = judged.sample(EXPLAINED, seed=seed)
    frame = importance(model, some.admissions())
    frame = frame[frame["admissions"] >= LEAST]
    versions = [version if version in VERSIONS else 10 for version in frame["icd_version"]]
    frame = frame.assign(
        share=frame["admissions"] / len(some),
        total=frame["mean_absolute_effect"] * frame["admissions"],
        title=frame["title"].fillna(""),
        tells=[tells(code, version) or "" for code, version in zip(frame["code"], frame["icd_version"])],
        code=[dotted(code, version) for code, version in zip(frame["code"], versions)],
    )
    every, plain = (_weightiest(part) for part in (frame, frame[frame["tells"] == ""]))
    return Codes(every, plain, len(some))


def _weightiest(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the codes with the largest total effect, sorted by their mean effect."""
    return frame.nlargest(CODES, "total").sort_values(by="mean_effect", ascending=False, ignore_index=True)
