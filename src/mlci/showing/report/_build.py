"""Compute everything the report says, then render it.

In come a fitted index and a cohort; out comes one HTML text without script or outside request. The index is judged on
the cohort's test split, which neither its weights nor its cutoff have seen, beside Charlson and Elixhauser.
"""

import platform
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from importlib.resources import files

import numpy as np
import pandas as pd

import mlci
from mlci.base import names as labels
from mlci.base.errors import InputError
from mlci.codes.admissions import Admissions
from mlci.codes.comorbidity import charlson, elixhauser
from mlci.cohort import Cohort
from mlci.index.estimator import MLCI
from mlci.judging import curves, theory
from mlci.judging.evaluate import Evaluation, judge, subgroup
from mlci.measures.registry import METRICS, reported
from mlci.showing import plots

OWN = "MLCI"
BY = ("sex", "age_band")  # subgroups, where the cohort knows them
OF_GROUPS = ("auroc", "dcorr", "ece")
RESAMPLES = 200
EXPLAINED = 5_000  # admissions that the influence of codes is averaged over
LEAST = 10  # admissions behind any figure about a code
CODES = 25  # listed
PACKAGES = ("mlci", "numpy", "pandas", "pyarrow", "scikit-learn", "matplotlib")


@dataclass(frozen=True)
class Picture:
    """A drawing with its text alternative, ready for the page."""

    svg: str
    caption: str


def build(
    index: MLCI,
    cohort: Cohort,
    *,
    command: str,
    by: Sequence[str] | None = None,
    resamples: int = RESAMPLES,
    seed: int = 12345,
) -> str:
    """The report as HTML; `by` names the cohort's columns to tell subgroups by (without it, `BY`)."""
    model = index.model_
    names = [name for name in model.outcomes if name in cohort.outcomes]
    if not names:
        raise InputError(
            f"the cohort has none of the model's outcomes ({', '.join(model.outcomes)}); "
            f"it has {', '.join(cohort.outcomes) or 'none'}."
        )
    test = cohort.split("test")
    held_out = len(test) > 0
    judged = test if held_out else cohort
    if not len(judged):
        raise InputError("the cohort has no admissions to report on.")
    admissions, outcomes = judged.admissions(), judged.labels(*names)
    score = index.score(admissions)
    if np.ptp(score) == 0:
        raise InputError(f"all {len(score):,} admissions have the same score; there is nothing to report.")
    scores = {OWN: score, **_indices(admissions)}
    options = {
        "groups": judged.column("subject_id"),
        "risks": {OWN: {name: model.curves[name](score) for name in names}},
        "kernel": "energy",  # this page shows nHSIC of the index alone, from the diagnosis; resampling it costs most
        "resamples": resamples,
        "seed": seed,
    }
    evaluation = judge(scores, dict(zip(names, outcomes.T)), **options)
    both = [name for name, column in zip(names, outcomes.T) if len(np.unique(column[~np.isnan(column)])) == 2]
    metrics = evaluation.table[evaluation.table["outcome"].isin(both)]
    if by is None:
        by = [name for name in BY if name.removesuffix("_band") in cohort.table.column_names]
    parts = {name: subgroup(judged, name) for name in by}
    subgroups = judge({OWN: score}, dict(zip(names, outcomes.T)), by=parts, **options).table if parts else None
    diagnosis = theory.diagnose(score, outcomes, names)
    contrasts = theory.contrasts(score, outcomes, names, model.cutoff.score)
    rng = np.random.default_rng(seed)
    some = judged if len(judged) <= EXPLAINED else judged.where(_draw(len(judged), EXPLAINED, rng))
    codes, trends = _codes(index, some), curves.trends([score], outcomes, names)
    view = {
        "summary": _summary(metrics, contrasts[0]),
        "tiles": _tiles(metrics, judged, score, index, diagnosis),
        "trend_sentence": _trend_sentence(trends),
        "cutoff_sentence": _cutoff_sentence(contrasts, score, model.cutoff.score),
        "theory_sentences": _theory_sentences(diagnosis),
        "version": mlci.__version__,
        "source": cohort.source,
        "rules": {labels.label(name): cohort.outcomes[name] for name in names},
        "notes": cohort.notes,
        "held_out": held_out,
        "n": len(judged),
        "patients": len(np.unique(judged.column("subject_id"))),
        "card": model.card,
        "table_one": _table_one(cohort),
        "attrition": cohort.attrition,
        "metrics": _metric_tables(metrics, list(scores)),
        "verdicts": [_verdict(evaluation, both, metric) for metric in ("auroc", "rank_dcorr", "dcorr")],
        "calibration": _calibration(metrics),
        "subgroups": [] if subgroups is None else _subgroup_tables(subgroups, both),
        "trends": trends,
        "cutoff": model.cutoff,
        "contrasts": contrasts,
        "diagnosis": diagnosis,
        "left_out": {labels.label(name): why for name, why in diagnosis.left_out.items()},
        "codes": codes,
        "explained": len(some),
        "least": LEAST,
        "spread": float(score.std()),
        "command": command,
        "packages": {name: version(name) for name in PACKAGES if name != "mlci"},
        "python": platform.python_version(),
        "resamples": resamples,
        "figures": _figures(index, cohort, score, outcomes, names, metrics, diagnosis, codes),
    }
    return _environment().get_template("report.html.j2").render(view)


def _indices(admissions: Admissions) -> dict[str, np.ndarray]:
    """The classic indices, computed on the fly."""
    return {
        "Elixhauser": elixhauser(admissions)["eci_vw"].to_numpy(float),
        "Charlson": charlson(admissions)["cci_charlson"].to_numpy(float),
    }


def _draw(n: int, size: int, rng: np.random.Generator) -> np.ndarray:
    chosen = np.zeros(n, dtype=bool)
    chosen[rng.choice(n, size, replace=False)] = True
    return chosen


def _table_one(cohort: Cohort) -> dict[str, list[str]]:
    """The cohort's Table 1 with the outcomes in words; a line that counts nothing is left out."""
    words = {name: labels.label(name) for name in cohort.outcomes}
    words |= {f"{name}: not known": f"{labels.label(name)}: not known" for name in cohort.outcomes}
    lines = {words.get(name, name[:1].upper() + name[1:]): cells for name, cells in cohort.describe().items()}
    return {name: cells for name, cells in lines.items() if set(cells) != {"0"}}


def _metric_tables(metrics: pd.DataFrame, models: Sequence[str]) -> list[dict]:
    """One table per metric: models down, outcomes across, value with interval."""
    tables = []
    for metric, about in reported().items():
        part = metrics[metrics["metric"] == metric]
        outcomes = list(part["outcome"].unique())
        cells = part.set_index(["model", "outcome"])
        best = part.loc[part.groupby("outcome")["value"].idxmax()].set_index("outcome")["model"]
        rows = [
            {
                "model": model,
                "cells": [
                    {**cells.loc[(model, outcome), ["value", "low", "high"]], "best": best[outcome] == model}
                    for outcome in outcomes
                ],
            }
            for model in models
        ]
        titles = [labels.label(outcome) for outcome in outcomes]
        tables.append({"metric": f"{about.heading} ({about.depends})", "outcomes": titles, "rows": rows})
    return tables


def _verdict(evaluation: Evaluation, names: Sequence[str], metric: str) -> str:
    """On which outcomes the index lies above or below the better of the classic two, by paired resamples."""
    sides: dict[str, list[str]] = {"above": [], "below": [], "near": []}
    values = evaluation.table[evaluation.table["metric"] == metric].set_index(["outcome", "model"])["value"]
    gaps = evaluation.differences[evaluation.differences["metric"] == metric].set_index(["outcome", "model"])
    for name in names:
        rival = values[name].drop(OWN).idxmax()
        gap = gaps.loc[(name, rival)]  # of the rival over the index
        side = "above" if gap["high"] < 0 else "below" if gap["low"] > 0 else "near"
        sides[side].append(f"{labels.words(name)} ({values[name, OWN]:.3f} against {values[name, rival]:.3f})")
    said = [
        f"the index is {side} the better of Charlson and Elixhauser for {listing(sides[side])}"
        for side in ("above", "below")
        if sides[side]
    ]
    if sides["near"]:
        said.append(f"too close to call for {listing(sides['near'])}")
    return f"{METRICS[metric].heading} ({METRICS[metric].depends}): {'; '.join(said)}."


def _calibration(metrics: pd.DataFrame) -> pd.DataFrame:
    part = metrics[(metrics["model"] == OWN) & metrics["metric"].isin(["slope", "intercept", "ece", "brier"])]
    return part.pivot(index="outcome", columns="metric", values="value").reindex(part["outcome"].unique())


def _subgroup_tables(table: pd.DataFrame, outcomes: Sequence[str]) -> list[dict]:
    """One table per column and figure: groups down, outcomes across; None where either class is too small to tell."""
    tables = []
    for by, metric in table.loc[table["by"] != "", ["by", "metric"]].drop_duplicates().itertuples(index=False):
        if metric not in OF_GROUPS:
            continue
        part = table[(table["by"] == by) & (table["metric"] == metric)]
        cells = part.set_index(["group", "outcome"])
        rows = []
        for group in part["group"].unique():
            found = [cells.loc[(group, outcome)] for outcome in outcomes]
            enough = [min(one["positives"], one["n"] - one["positives"]) >= LEAST for one in found]
            rows.append({"group": group, "cells": [one if ok else None for one, ok in zip(found, enough)]})
        titles = [labels.label(outcome) for outcome in outcomes]
        tables.append({"by": labels.words(by), "metric": METRICS[metric].label, "outcomes": titles, "rows": rows})
    return tables


def _summary(metrics: pd.DataFrame, contrast: theory.Contrast) -> str:
    """The report in two sentences."""
    cells = metrics[metrics["metric"] == "auroc"].pivot(index="outcome", columns="model", values="value")
    wins = cells[OWN].to_numpy() > cells.drop(columns=OWN).to_numpy().max(axis=1)
    where = f"all {len(wins)} outcomes" if wins.all() else f"{int(wins.sum())} of {len(wins)} outcomes"
    if len(wins) == 1:
        where = labels.words(str(cells.index[0]))
    first = f"By AUROC, the index orders admissions better than Charlson and Elixhauser do for {where}."
    if not wins.any():
        first = "By AUROC, the index orders admissions no better than Charlson or Elixhauser does for any outcome."
    above, below = percent(contrast.above.rate), percent(contrast.below.rate)
    return f"{first} At or above its cutoff {above} {labels.phrase(contrast.outcome)}; below it {below}."


def _tiles(metrics: pd.DataFrame, judged: Cohort, score, index: MLCI, diagnosis: theory.Diagnosis) -> list[dict]:
    own = metrics[(metrics["model"] == OWN) & (metrics["metric"] == "auroc")]
    cut = index.model_.cutoff.score
    return [
        {"name": "Admissions judged", "value": f"{len(judged):,}", "note": judged.source},
        {
            "name": "AUROC",
            "value": f"{own['value'].min():.2f} to {own['value'].max():.2f}",
            "note": f"over {len(own)} outcomes",
        },
        {
            "name": "High severity from",
            "value": f"{cut:.3g}",
            "note": f"{percent(np.mean(score >= cut))} of admissions",
        },
        {"name": "Shared direction", "value": percent(diagnosis.energy), "note": "of the outcomes' joint variation"},
    ]


def _trend_sentence(trends: Sequence[curves.Trend]) -> str:
    words = {"inc.": "rises", "weakly inc.": "rises weakly", "flat": "hardly changes"}
    said = []
    for verdict, word in words.items():
        found = [f"{labels.words(t.outcome)} (by {100 * t.mean:.1f} points)" for t in trends if t.verdict == verdict]
        if found:
            said.append(f"{word} for {listing(found)}")
    return f"From the 5th to the 95th percentile of the score, the fitted risk {'; it '.join(said)}."


def _cutoff_sentence(contrasts: Sequence[theory.Contrast], score: np.ndarray, cut: float) -> str:
    high = score >= cut
    if not high.any():
        return f"No admission scores {cut:.4g} or more: the cutoff sets nobody apart here."
    said = listing([f"{percent(one.above.rate)} {labels.phrase(one.outcome)}" for one in contrasts if one.above.n])
    rest = listing([percent(one.below.rate) for one in contrasts if one.above.n])
    return (
        f"Among the {percent(high.mean())} of admissions at or above {cut:.4g}, {said}; below it "
        f"{rest}{', in the same order' if len(contrasts) > 1 else ''}."
    )


def _theory_sentences(found: theory.Diagnosis) -> list[str]:
    count, cut, joint = len(found.outcomes), found.shared.threshold, found.best_objective
    first = (
        f"The {count} outcomes, weighted equally, have one direction in common that holds {percent(found.energy)} of "
        f"their joint variation ({percent(1 / count)} if they were unrelated, 100% if they were one). Of what the "
        f"score achieves for all of them (J = {found.objective:.3f}), {percent(found.retention)} is along it."
    )
    if count == 1:
        first = f"With one outcome there is nothing to share; the score's nHSIC with it is {found.objective:.3f}."
    same = "the same cut" if joint.split == cut.split else f"a cut with {percent(joint.share)} beyond it"
    second = (
        f"The cut most aligned with the shared direction leaves {percent(cut.share)} of admissions beyond it and "
        f"reaches {percent(cut.rho2)} of the bound; the best spacing of this order would reach "
        f"{percent(found.shared.monotone)}. "
        f"For all outcomes together the best is {same}."
    )
    steps = [labels.words(t.name) for t in found.tasks if t.threshold.rho2 > 0.9 * t.monotone]
    smooth = [labels.words(t.name) for t in found.tasks if t.threshold.rho2 <= 0.9 * t.monotone]
    third = []
    if steps:
        third.append(f"One cut captures nearly all (over 90%) of what this order can say about {listing(steps)}.")
    if smooth:
        third.append(f"Risk rises more smoothly, beyond what one cut can say, for {listing(smooth)}.")
    return [first, second, " ".join(third)]


def _codes(index: MLCI, cohort: Cohort) -> pd.DataFrame:
    """Codes by their total influence on these admissions' scores."""
    frame = index.importance(cohort)
    frame = frame[frame["admissions"] >= LEAST]
    total = frame["mean_absolute_effect"] * frame["admissions"]
    return frame.assign(share=frame["admissions"] / len(cohort), total=total).nlargest(CODES, "total")


def _figures(
    index: MLCI, cohort: Cohort, score, outcomes, names, metrics, diagnosis, codes
) -> dict[str, list[Picture]]:
    model, cut = index.model_, index.model_.cutoff.score
    columns = {name: column for name, column in zip(names, outcomes.T) if not np.isnan(column).all()}
    pictures: dict[str, list[Picture]] = {}

    def add(section: str, figure, said: str, *, caption: bool = True) -> None:
        shown = pictures.setdefault(section, [])
        drawn = plots.svg(figure, prefix=f"{section}{len(shown)}", alternative=said)
        shown.append(Picture(drawn, said if caption else ""))

    if cohort.attrition:
        steps = [(step.rule, step.removed, step.left) for step in cohort.attrition]
        gone, last = sum(step.removed for step in cohort.attrition), cohort.attrition[-1].left
        add("attrition", plots.attrition(steps), f"{gone:,} admissions were left out and {last:,} kept.")
    for name, column in columns.items():
        rates, fit = curves.binned(score, column), curves.isotonic(score, column)
        change = curves.delta(fit, score[~np.isnan(column)])
        add(
            "risk",
            plots.risk_curves({name: (rates, fit)}, cutoff=cut, legend=False),
            f"{labels.label(name)}: observed risk in {len(rates.n)} groups of equal size along the score, and the "
            f"monotone fit, which rises by {100 * change:.1f} points from the 5th to the 95th percentile of the score.",
        )
        with_it, without = score[column == 1], score[column == 0]
        if len(with_it) and len(without):
            add(
                "distribution",
                plots.score_distribution(score, column[:, None], [name], cutoff=cut),
                f"{labels.label(name)}: the median score is {np.median(with_it):.2f} with and "
                f"{np.median(without):.2f} without the outcome.",
            )
        predicted = model.curves[name](score)
        groups = curves.binned(predicted, column, bins=10)
        add(
            "calibration",
            plots.calibration({name: (groups.score, groups)}),
            f"{labels.label(name)}: mean predicted risk {percent(float(predicted[~np.isnan(column)].mean()))}, "
            f"observed {percent(float(np.nanmean(column)))}; points on the dotted line agree.",
        )
    for metric in ("auroc", "dcorr"):
        for name in metrics["outcome"].unique():
            part = metrics[(metrics["metric"] == metric) & (metrics["outcome"] == name)]
            values = ", ".join(f"{row.model} {row.value:.3f}" for row in part.itertuples())
            said = f"{labels.label(name)}, {METRICS[metric].heading}: {values}."
            add(f"compare_{metric}", plots.benchmark(part, metric), said, caption=False)  # the tables say it
    if len(codes):
        said = [f"{row.code} {row.title or ''}".strip() for row in codes.itertuples()]
        add(
            "codes",
            plots.influence(said, codes["mean_effect"].to_numpy()),
            f"Mean change of the score by code; most influential: {said[0]} ({codes['mean_effect'].iloc[0]:+.3f}).",
        )
    for curve in model.card.get("record", {}).get("curves", ()):
        picture = plots.learning_curves(curve["lines"], best=curve["kept"], ylabel=curve["unit"])
        add("learning", picture, curve["title"])
    best = diagnosis.shared.threshold
    add(
        "scan",
        plots.threshold_scan(diagnosis.scan, ["Shared direction", *diagnosis.outcomes]),
        f"Squared cosine of every cut with the shared direction and each outcome; the shared direction's best is "
        f"{best.rho2:.3f}, with {percent(best.share)} of admissions beyond the cut.",
    )
    add(
        "singular",
        plots.singular_values(diagnosis.singular_values),
        f"The first direction holds {percent(diagnosis.energy)} of the outcomes' joint variation; "
        f"{percent(1 / len(diagnosis.singular_values))}, the dotted line, is what unrelated outcomes would have.",
    )
    return pictures


def percent(share: float) -> str:
    """A share as people write it: three digits at most, and a rare event never as 0%."""
    if np.isnan(share):
        return "not known"
    value = 100 * share
    if value == 0 or value >= 99.95:
        return f"{value:.0f}%"
    if value < 0.01:
        return "under 0.01%"
    return f"{value:.{0 if value >= 19.95 else 1 if value >= 0.995 else 2}f}%"


def listing(words: Sequence[str]) -> str:
    """a, b and c."""
    words = list(words)
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _environment():
    from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

    environment = Environment(
        loader=PackageLoader("mlci.showing.report", "."),
        autoescape=select_autoescape(["html", "j2"]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"percent": percent, "listing": listing, "verb": labels.phrase, "label": labels.label}
    environment.filters["cell"] = labels.cell
    environment.globals["style"] = files("mlci.showing.report").joinpath("style.css").read_text()
    return environment
