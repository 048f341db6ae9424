"""Draw the report's figures from its findings: each an inline SVG with its text alternative.

A figure shows one outcome, so that a phone shows it whole; the page lays several side by side where there is room.
"""

import pandas as pd

from mlci.base.names import label
from mlci.judging.theory import Diagnosis
from mlci.showing import plots
from mlci.showing._pages import Album, Picture
from mlci.showing._words import percent
from mlci.showing.report._compute import Findings, Judgement


def draw(findings: Findings) -> dict[str, list[Picture]]:
    """Section → pictures; a section without anything to show is missing."""
    album = Album()
    if findings.people.attrition:
        steps = [(step.rule, step.removed, step.left) for step in findings.people.attrition]
        gone, last = sum(step[1] for step in steps), steps[-1][2]
        album.add("attrition", plots.attrition(steps), f"{gone:,} admissions were left out and {last:,} kept.")
    if findings.judgement is not None:
        _judgement(album, findings.judgement)
    for curve in findings.made.get("record", {}).get("curves", ()):
        album.add(
            "learning", plots.learning_curves(curve["lines"], best=curve["kept"], ylabel=curve["unit"]), curve["title"]
        )
    return album.pictures


def _judgement(album: Album, judgement: Judgement) -> None:
    cut = judgement.cut.cutoff.score
    for outcome in judgement.outcomes:
        name = label(outcome.name)
        album.add(
            "risk",
            plots.risk_curve(outcome.name, outcome.rates, outcome.fit, cutoff=cut),
            f"{name}: observed risk in {len(outcome.rates.n)} groups along the score, and the monotone fit, which "
            f"rises by {100 * outcome.trend.mean:.1f} points from the 5th to the 95th percentile of the score.",
        )
        album.add(
            "calibration",
            plots.calibration(outcome.name, outcome.groups, outcome.smooth),
            f"{name}: mean predicted risk {percent(outcome.predicted)}, observed {percent(outcome.rate)}.",
        )
        if 0 < outcome.positives < outcome.n:
            edges, *shares = outcome.share
            album.add(
                "distribution",
                plots.score_distribution(
                    outcome.name, edges, shares, (outcome.n - outcome.positives, outcome.positives), cutoff=cut
                ),
                f"{name}: the median score is {outcome.medians[1]:.2f} with and {outcome.medians[0]:.2f} without the "
                "outcome.",
            )
    for name, part in judgement.aurocs.groupby("outcome", sort=False):
        values = ", ".join(f"{row.model} {row.value:.3f}" for row in part.itertuples())
        frame = part.assign(metric="auroc")
        album.add("auroc", plots.benchmark(frame, "auroc"), f"{label(str(name))}, AUROC: {values}.", caption=False)
    _codes(album, judgement)
    if judgement.diagnosis is not None:
        _theory(album, judgement.diagnosis)


def _codes(album: Album, judgement: Judgement) -> None:
    codes = judgement.codes
    charts: dict[str, pd.DataFrame] = {"": codes.every}
    if any(codes.every["tells"]):
        charts = {"with codes that tell an outcome (hollow, †)": codes.every, "without them": codes.plain}
    for which, frame in charts.items():
        if not len(frame):
            continue
        names = [f"{row.code}{' †' if row.tells else ''} {row.title}".strip() for row in frame.itertuples()]
        effects = frame["mean_effect"].to_numpy()
        said = f"Mean change of the score by code{', ' + which if which else ''}; most: {names[0]} ({effects[0]:+.3f})."
        album.add("codes", plots.influence(names, effects, marked=frame["tells"].to_numpy() != ""), said)


def _theory(album: Album, diagnosis: Diagnosis) -> None:
    unrelated = max(diagnosis.weights) / sum(diagnosis.weights)
    album.add(
        "theory",
        plots.singular_values(diagnosis.singular_values, unrelated=unrelated),
        f"The first direction holds {percent(diagnosis.energy)} of the outcomes' joint variation; "
        f"{percent(unrelated)}, the dotted line, is what unrelated outcomes would have.",
    )
    best = diagnosis.shared.threshold
    album.add(
        "theory",
        plots.threshold_scan(diagnosis.scan, ["Shared direction", *diagnosis.outcomes]),
        f"Squared cosine of every cut with the shared direction and each outcome; the shared direction's best is "
        f"{best.rho2:.3f}, with {percent(best.share)} of admissions beyond the cut.",
    )
