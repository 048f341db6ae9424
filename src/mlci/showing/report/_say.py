"""The sentences of the report: red flags, headline, verdicts, weak points, and what figures mean.

A sentence claims no more than its interval supports: the index is called better or worse than another only if the 95%
interval of the paired difference excludes 0; otherwise it is too close to call.
"""

from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd

from mlci.base.names import label, listing, phrase, words
from mlci.index._few_events import outcome_notes
from mlci.judging import theory
from mlci.judging.rivals import CLASSIC
from mlci.showing._words import number, percent, rounded, spread, versions
from mlci.showing.report._findings import Cut, Findings, Judgement, OutcomeFigures

FEW = 100  # events, or admissions without one, below which every figure of an outcome is rough
SLOPE = 0.1  # distance of a calibration slope from 1 that is reported, if its interval excludes 1
TOP = 0.1  # relative difference of observed and predicted risk in the top tenth that is reported
UNKNOWN = 0.1  # share of unknown codes that is a red flag
UNSCORED = 0.01  # share of unscored admissions that is a red flag
SIDES = ("better", "too close to call", "worse")
ORDER = {
    "better": "ranks admissions better for {}",
    "too close to call": "is neither clearly better nor clearly worse for {}",
    "worse": "ranks admissions worse for {}",
}


def flags(findings: Findings) -> list[str]:
    """Return the warnings that a reader must see before any figure."""
    people, found = findings.people, []
    if "synthetic" in people.source.lower():
        found.append("The admissions are synthetic, so no figure applies to real patients.")
    elif "synthetic" in str(findings.made.get("source", "")).lower():
        found.append("The index was learned from synthetic admissions; do not use it for patients.")
    if people.foreign:
        version, many = max(people.foreign.items(), key=lambda item: item[1])
        found.append(
            f"ICD mismatch: {many:,} of {people.codes:,} recorded codes are ICD-{version}, but the index was made for "
            f"{versions(findings.model_versions)}."
        )
    if people.codes and people.unknown >= UNKNOWN * people.codes:
        found.append(
            f"{people.unknown:,} of {people.codes:,} recorded codes ({percent(people.unknown / people.codes)}) are "
            f"unknown to the index and do not count."
        )
    if people.unscored >= UNSCORED * people.admissions:
        found.append(
            f"In {people.unscored:,} of {people.admissions:,} admissions, fewer than half of the codes are understood. "
            f"These admissions have no score and are not included in any figure below."
        )
    sentences = [*outcome_notes(findings.made, called=words), *people.shifts]
    found += [f"{sentence[:1].upper()}{sentence[1:]}" for sentence in sentences]
    if people.others:
        found.append(
            f"Not evaluated: {listing(list(people.others))}, because the index has no risk by "
            f"{'that name' if len(people.others) == 1 else 'those names'}. It has "
            f"{listing(list(findings.model_outcomes))}. Build the cohort with these names (--outcome), or add an "
            f"outcome with `mlci recalibrate`."
        )
    if not people.held_out:
        found.append(
            "This cohort has no test split: every figure is from all of its admissions, and looks too good if the "
            "index was fitted on some of them."
        )
    if findings.judgement is None:
        found.append(f"The index could not be evaluated: {findings.why_not}.")
    return found


def side(gaps: Sequence[tuple[float, float]]) -> str:
    """Return whether the index is better than all rivals, worse than at least one, or too close to call.

    >>> side([(0.01, 0.03)]), side([(0.01, 0.03), (-0.01, 0.02)])  # intervals of the difference from each rival
    ('better', 'too close to call')
    """
    if all(low > 0 for low, _ in gaps):
        return SIDES[0]
    return SIDES[2] if any(high < 0 for _, high in gaps) else SIDES[1]


def verdicts(aurocs: pd.DataFrame, rivals: Sequence[str]) -> dict[str, list[str]]:
    """Return the outcomes for which the index is better, too close to call or worse, by paired intervals of AUROC.

    >>> aurocs = pd.DataFrame({"model": ["Charlson"], "outcome": ["mortality"], "gap_low": [0.01], "gap_high": [0.03]})
    >>> verdicts(aurocs, ["Charlson"])["better"]
    ['mortality']
    """
    found: dict[str, list[str]] = {name: [] for name in SIDES}
    for outcome, part in aurocs[aurocs["model"].isin(rivals)].groupby("outcome", sort=False):
        found[side([*zip(part["gap_low"], part["gap_high"])])].append(str(outcome))
    return found


def headline(judgement: Judgement) -> list[str]:
    """Summarise the report in a few sentences."""
    sentences = []
    people = [name for name in judgement.aurocs["model"].unique() if name in ("Age and sex", "Age", "Sex")]
    for others, rivals in (
        ("Charlson and Elixhauser", list(CLASSIC)),
        *((f"{name.lower()} alone", [name]) for name in people),
    ):
        found = verdicts(judgement.aurocs, rivals)
        parts = [
            ORDER[name].format(listing(list(map(words, outcomes)))) for name, outcomes in found.items() if outcomes
        ]
        if parts:
            sentences.append(f"Compared with {others}, the index {'; '.join(parts)}.")
    shown = (contrast for contrast in judgement.cut.contrasts if contrast.above.n and contrast.below.n)
    first = next((contrast for contrast in shown if contrast.above.positives + contrast.below.positives), None)
    if first:
        above, below = percent(first.above.rate), percent(first.below.rate)
        sentences.append(f"At or above its cutoff, {above} {phrase(first.outcome)}; below it, {below}.")
    return sentences


def weak(outcomes: Sequence[OutcomeFigures]) -> list[str]:
    """Return the weak points of the index, one sentence for each outcome that has any."""
    found = []
    for outcome in outcomes:
        points = []
        rarer = min(outcome.positives, outcome.n - outcome.positives)
        if rarer < FEW:
            kind, end = ("event", "") if outcome.positives == rarer else ("admission", " without it")
            many = f"only {rarer}" if rarer else "no"
            points.append(f"{many} {kind}{'s' * (rarer != 1)}{end}, so every figure is rough")
        slope = outcome.figures.get("slope")
        if slope and np.isfinite(slope.value) and abs(slope.value - 1) > SLOPE and not slope.low <= 1 <= slope.high:
            way = "too extreme" if slope.value < 1 else "not extreme enough"
            points.append(
                f"predicted risks are {way} (calibration slope {number(slope.value, 2)}, "
                f"{spread(slope.low, slope.high, 2)})"
            )
        top = -1
        predicted, observed = outcome.groups.score[top], outcome.groups.risk[top]
        outside = not outcome.groups.low[top] <= predicted <= outcome.groups.high[top]
        if len(outcome.groups.n) > 1 and outside and abs(observed - predicted) > TOP * predicted:
            points.append(
                f"in the top tenth of predicted risk, {percent(observed)} had the outcome and {percent(predicted)} "
                "was predicted"
            )
        if points:
            found.append(f"{label(outcome.name)}: {'; '.join(points)}.")
    return found


def trends(outcomes: Sequence[OutcomeFigures]) -> str:
    ways = {"increasing": "rises", "weakly increasing": "rises weakly", "flat": "hardly changes"}
    clauses = []
    for verdict, way in ways.items():
        found = [
            f"{words(outcome.name)} (by {100 * outcome.trend.mean:.1f} percentage points)"
            for outcome in outcomes
            if outcome.trend.verdict == verdict
        ]
        if found:
            clauses.append(f"{way} for {listing(found)}")
    return f"From the 5th to the 95th percentile of the score, the fitted risk {'; it '.join(clauses)}."


def cutoff(cut: Cut) -> str:
    if not any(contrast.above.n for contrast in cut.contrasts):
        return f"No admission scores {rounded(cut.cutoff.score)} or more, so none has high severity here."
    shown = [contrast for contrast in cut.contrasts if contrast.above.n and contrast.below.n]
    if not shown:
        return f"Every admission scores {rounded(cut.cutoff.score)} or more, so all have high severity here."
    above = listing([f"{percent(contrast.above.rate)} {phrase(contrast.outcome)}" for contrast in shown])
    below = listing([percent(contrast.below.rate) for contrast in shown])
    return (
        f"Of the {percent(cut.share)} of admissions at or above {rounded(cut.cutoff.score)}, {above}. Below it, the "
        f"{'rates are' if len(shown) > 1 else 'rate is'} {below}{', in the same order' if len(shown) > 1 else ''}."
    )


def certificate(cut: Cut) -> str:
    """Return the certificate of the cutoff on the judged admissions, and the outcomes left out when it was chosen."""
    sentences = []
    if cut.certificate is not None and cut.certificate == cut.certificate:
        sentences.append(f"On the admissions of this report{_others(cut)}, the same cut reaches {cut.certificate:.3f}.")
    sentences += [
        f"The choice of the cutoff left out {words(name)}: {why}." for name, why in cut.cutoff.left_out.items()
    ]
    return " ".join(sentences)


def cutoff_range(cut: Cut) -> str:
    """Return the cutoff that the same rule chooses on the judged admissions, with its interval."""
    if cut.chosen_here is None:
        return ""
    value, low, high = (
        rounded(bound, 3) for bound in (cut.chosen_here.value, cut.chosen_here.low, cut.chosen_here.high)
    )
    sentence = f"Chosen on these admissions{_others(cut)}, by the same rule and weights, the cutoff would be {value}"
    if not np.isfinite(cut.chosen_here.low):
        return f"{sentence}."
    return f"{sentence} (95% interval over resamples: {low} to {high})."


def _others(cut: Cut) -> str:
    """Return the outcomes of the judged admissions if these are not the ones by which the cutoff was chosen."""
    judged = [contrast.outcome for contrast in cut.contrasts]
    return "" if {*judged} == {*cut.weights} else f" (for {listing(list(map(words, judged)))})"


def weighting(names: Iterable[str], weights: Iterable[float]) -> str:
    """Return how several outcomes are weighted."""
    if len(set(weights)) == 1:
        return "outcomes weighted equally"
    shares = [f"{words(name)} {weight:.2f}" for name, weight in zip(names, weights)]
    return f"outcomes weighted as in the fit: {listing(shares)}"


def theory_sentences(found: theory.Diagnosis) -> list[str]:
    count, cut, joint = len(found.outcomes), found.shared.threshold, found.best_objective
    unrelated = max(found.weights) / sum(found.weights)
    first = (
        f"The {count} outcomes share one direction that accounts for {percent(found.energy)} of their joint "
        f"variation ({percent(unrelated)} if they were unrelated, 100% if they were identical). "
        f"{percent(found.retention)} of the objective that the score reaches for all outcomes (J = "
        f"{found.objective:.3f}) is along this direction."
    )
    if count == 1:
        return [
            f"With one outcome there is no shared direction. The nHSIC of the score with {words(found.outcomes[0])} is "
            f"{found.tasks[0].nhsic:.3f}. The best single cut has {percent(cut.share)} of admissions at or above it "
            f"and reaches {percent(cut.rho2)} of the bound; the best spacing of this order would reach "
            f"{percent(found.shared.monotone)}."
        ]
    same = "the same cut" if joint.split == cut.split else f"one with {percent(joint.share)} at or above it"
    if joint.split != cut.split and percent(joint.share) == percent(cut.share):
        same = "nearly the same"
    second = (
        f"The cut most aligned with the shared direction has {percent(cut.share)} of admissions at or above it and "
        f"reaches {percent(cut.rho2)} of the bound; the best spacing of this order would reach "
        f"{percent(found.shared.monotone)}. "
        f"For all outcomes together, the best cut is {same}."
    )
    steps = [words(task.name) for task in found.tasks if task.threshold.rho2 > 0.9 * task.monotone]
    smooth = [words(task.name) for task in found.tasks if task.threshold.rho2 <= 0.9 * task.monotone]
    third = []
    if steps:
        third.append(f"A single cut captures over 90% of what this order can tell about {listing(steps)}.")
    if smooth:
        third.append(f"For {listing(smooth)}, risk rises more smoothly than a single cut can show.")
    return [first, second, " ".join(third)]
