"""Sentences from findings: red flags, headline, verdicts, weak points, and what figures mean.

A sentence claims no more than its interval holds: the index is better or worse than another only where the 95% interval
of the paired difference leaves out 0, and otherwise it is too close to call.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from mlci.base.names import label, phrase, words
from mlci.index._enough import in_words
from mlci.judging import theory
from mlci.judging.rivals import CLASSIC
from mlci.showing._words import listing, number, percent, rounded, spread, versions
from mlci.showing.report._findings import Cut, Findings, Judgement, OutcomeFigures

FEW = 100  # events, or admissions without one: below it every figure of an outcome is rough
SLOPE = 0.1  # how far from 1 a calibration slope is worth a word, if its interval leaves out 1
TOP = 0.1  # and the observed risk of the top tenth from the predicted one, as a share of it
UNKNOWN = 0.1  # share of unknown codes that is a red flag
UNSCORED = 0.01  # share of admissions left unscored that is one
SIDES = ("better", "too close to call", "worse")
ORDER = {
    "better": "puts admissions in a better order for {}",
    "too close to call": "is too close to call for {}",
    "worse": "puts them in a worse order for {}",
}


def flags(findings: Findings) -> list[str]:
    """Return what a reader must know before any figure."""
    people, found = findings.people, []
    if "synthetic" in people.source.lower():
        found.append("The admissions are synthetic: nobody was ever in this hospital; no figure holds for patients.")
    elif "synthetic" in str(findings.made.get("source", "")).lower():
        found.append("The index was learned from synthetic admissions; it is no index for patients.")
    if people.foreign:
        version, many = max(people.foreign.items(), key=lambda item: item[1])
        found.append(
            f"ICD mismatch: {many:,} of {people.codes:,} recorded codes are ICD-{version}, and the index was made for "
            f"{versions(findings.model_versions)}."
        )
    if people.codes and people.unknown >= UNKNOWN * people.codes:
        found.append(
            f"{people.unknown:,} of {people.codes:,} recorded codes ({percent(people.unknown / people.codes)}) are "
            f"unknown to the index; what it does not understand it cannot weigh."
        )
    if people.unscored >= UNSCORED * people.admissions:
        found.append(
            f"{people.unscored:,} of {people.admissions:,} admissions have fewer than half of their codes understood. "
            f"They are not scored, and no figure below counts them."
        )
    found += in_words(findings.made, called=label)
    found += [f"{told[:1].upper()}{told[1:]}" for told in people.shifts]
    if people.others:
        found.append(
            f"Not judged: {listing(list(people.others))}. The index knows {listing(list(people.rules))} here, by these "
            f"names; build the cohort with them (--outcome), or let `mlci recalibrate` add an outcome."
        )
    if not people.held_out:
        found.append(
            "This cohort has no test split: every figure is from all of its admissions, and flatters the index where "
            "it was fitted on some of them."
        )
    if findings.judgement is None:
        found.append(f"No verdict: {findings.why_not}.")
    return found


def side(gaps: Sequence[tuple[float, float]]) -> str:
    """Return whether the index is better than every one of some rivals, worse than one at least, or too close to call.

    >>> side([(0.01, 0.03)]), side([(0.01, 0.03), (-0.01, 0.02)])  # how far it lies above each, from and to
    ('better', 'too close to call')
    """
    if all(low > 0 for low, _ in gaps):
        return SIDES[0]
    return SIDES[2] if any(high < 0 for _, high in gaps) else SIDES[1]


def verdicts(aurocs: pd.DataFrame, rivals: Sequence[str]) -> dict[str, list[str]]:
    """Return better, too close to call and worse → the outcomes, by the paired intervals of AUROC.

    >>> aurocs = pd.DataFrame({"model": ["Charlson"], "outcome": ["mortality"], "gap_low": [0.01], "gap_high": [0.03]})
    >>> verdicts(aurocs, ["Charlson"])["better"]
    ['mortality']
    """
    found: dict[str, list[str]] = {name: [] for name in SIDES}
    for outcome, part in aurocs[aurocs["model"].isin(rivals)].groupby("outcome", sort=False):
        found[side([*zip(part["gap_low"], part["gap_high"])])].append(str(outcome))
    return found


def headline(judgement: Judgement) -> list[str]:
    """Return the report in a few sentences."""
    said = []
    people = [name for name in judgement.aurocs["model"].unique() if name in ("Age and sex", "Age", "Sex")]
    for beside, rivals in (
        ("Charlson and Elixhauser", list(CLASSIC)),
        *((f"{name.lower()} alone", [name]) for name in people),
    ):
        found = verdicts(judgement.aurocs, rivals)
        parts = [
            ORDER[name].format(listing(list(map(words, outcomes)))) for name, outcomes in found.items() if outcomes
        ]
        if parts:
            said.append(f"Beside {beside}, the index {'; '.join(parts)}.")
    first = next((contrast for contrast in judgement.cut.contrasts if contrast.above.n and contrast.below.n), None)
    if first:
        above, below = percent(first.above.rate), percent(first.below.rate)
        said.append(f"At or above its cutoff {above} {phrase(first.outcome)}; below it {below}.")
    return said


def weak(outcomes: Sequence[OutcomeFigures]) -> list[str]:
    """Return what is weak, outcome by outcome."""
    found = []
    for outcome in outcomes:
        said = []
        rarer = min(outcome.positives, outcome.n - outcome.positives)
        if rarer < FEW:
            kind = "events" if outcome.positives == rarer else "admissions without it"
            said.append(f"only {rarer:,} {kind}, so every figure is rough")
        slope = outcome.figures.get("slope")
        if slope and np.isfinite(slope.value) and abs(slope.value - 1) > SLOPE and not slope.low <= 1 <= slope.high:
            way = "too far apart" if slope.value < 1 else "too close together"
            said.append(
                f"risks lie {way} (calibration slope {number(slope.value, 2)}, {spread(slope.low, slope.high, 2)})"
            )
        top = -1
        predicted, observed = outcome.groups.score[top], outcome.groups.risk[top]
        outside = not outcome.groups.low[top] <= predicted <= outcome.groups.high[top]
        if len(outcome.groups.n) > 1 and outside and abs(observed - predicted) > TOP * predicted:
            said.append(
                f"in the top tenth of risk {percent(observed)} were observed and {percent(predicted)} predicted"
            )
        if said:
            found.append(f"{label(outcome.name)}: {'; '.join(said)}.")
    return found


def trends(outcomes: Sequence[OutcomeFigures]) -> str:
    ways = {"increasing": "rises", "weakly increasing": "rises weakly", "flat": "hardly changes"}
    said = []
    for verdict, way in ways.items():
        found = [
            f"{words(outcome.name)} (by {100 * outcome.trend.mean:.1f} points)"
            for outcome in outcomes
            if outcome.trend.verdict == verdict
        ]
        if found:
            said.append(f"{way} for {listing(found)}")
    return f"From the 5th to the 95th percentile of the score, the fitted risk {'; it '.join(said)}."


def cutoff(cut: Cut) -> str:
    if not any(contrast.above.n for contrast in cut.contrasts):
        return f"No admission scores {rounded(cut.cutoff.score)} or more: the cutoff sets nobody apart here."
    shown = [contrast for contrast in cut.contrasts if contrast.above.n and contrast.below.n]
    if not shown:
        return f"Every admission scores {rounded(cut.cutoff.score)} or more: the cutoff sets nobody apart here."
    said = listing([f"{percent(contrast.above.rate)} {phrase(contrast.outcome)}" for contrast in shown])
    rest = listing([percent(contrast.below.rate) for contrast in shown])
    return (
        f"Among the {percent(cut.share)} of admissions at or above {rounded(cut.cutoff.score)}, {said}; below it "
        f"{rest}{', in the same order' if len(shown) > 1 else ''}."
    )


def certificate(cut: Cut) -> str:
    """Return what the model's cutoff reaches on the judged admissions, and whom it could not serve."""
    said = []
    if cut.certificate is not None and cut.certificate == cut.certificate:
        said.append(f"On the admissions judged here the same cut reaches {cut.certificate:.3f}.")
    said += [f"The choice had to leave out {words(name)}: {why}." for name, why in cut.cutoff.left_out.items()]
    return " ".join(said)


def cutoff_range(cut: Cut) -> str:
    if cut.anew is None:
        return ""
    again = f"Chosen anew on these admissions by the same rule and weights, it would be {rounded(cut.anew.value, 3)}"
    if not np.isfinite(cut.anew.low):
        return f"{again}."
    low, high = rounded(cut.anew.low, 3), rounded(cut.anew.high, 3)
    return f"{again}; over resampled admissions it lies between {low} and {high} (95%)."


def weighting(weights: Mapping[str, float]) -> str:
    """Return how the outcomes are weighted in every cutoff on the page."""
    if len(set(weights.values())) == 1:
        return "outcomes weighted equally" if len(weights) > 1 else "one outcome"
    said = [f"{words(name)} {weight:.2f}" for name, weight in weights.items()]
    return f"outcomes weighted as in the fit: {listing(said)}"


def theory_sentences(found: theory.Diagnosis) -> list[str]:
    count, cut, joint = len(found.outcomes), found.shared.threshold, found.best_objective
    unrelated = max(found.weights) / sum(found.weights)
    first = (
        f"The {count} outcomes have one direction in common that holds {percent(found.energy)} of their joint "
        f"variation ({percent(unrelated)} if they were unrelated, 100% if they were one). Of what the "
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
    steps = [words(task.name) for task in found.tasks if task.threshold.rho2 > 0.9 * task.monotone]
    smooth = [words(task.name) for task in found.tasks if task.threshold.rho2 <= 0.9 * task.monotone]
    third = []
    if steps:
        third.append(f"One cut captures nearly all (over 90%) of what this order can say about {listing(steps)}.")
    if smooth:
        third.append(f"Risk rises more smoothly, beyond what one cut can say, for {listing(smooth)}.")
    return [first, second, " ".join(third)]
