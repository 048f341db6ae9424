"""Draw the report's figures from its findings: each an inline SVG with its text alternative.

A figure shows one outcome, so that a phone shows it whole; the page lays several side by side where there is room.
"""

import pandas as pd

from mlci.base.names import label
from mlci.judging.theory import Diagnosis
from mlci.showing import plots
from mlci.showing._pages import Album, Picture
from mlci.showing._words import number, percent, signed
from mlci.showing.report._findings import Codes, Findings, OutcomeFigures, Part


class ReportPictures:
    """Pictures by section: of parts of the findings as they are found, and at last of what the whole alone shows."""

    def __init__(self, cutoff: float) -> None:
        self.album, self.cutoff = Album(), cutoff

    def part(self, found: Part) -> None:
        """Draw a part of the judgement."""
        if isinstance(found, OutcomeFigures):
            _outcome(self.album, found, self.cutoff)
        elif isinstance(found, Codes):
            _codes(self.album, found)
        elif isinstance(found, Diagnosis):
            _theory(self.album, found)
        else:
            _aurocs(self.album, found)

    def whole(self, findings: Findings) -> dict[str, list[Picture]]:
        """Draw whom the report is about and how the index was made: section → pictures, with those of the parts."""
        if findings.people.attrition:
            steps = [(step.rule, step.removed, step.left) for step in findings.people.attrition]
            gone, last = sum(step[1] for step in steps), steps[-1][2]
            said = f"{gone:,} admissions were left out and {last:,} kept."
            self.album.add("attrition", plots.attrition(steps), said)
        for curve in findings.made.get("record", {}).get("curves", ()):
            lines = plots.learning_curves(curve["lines"], best=curve["kept"], ylabel=curve["unit"])
            self.album.add("learning", lines, curve["title"])
        return self.album.pictures


def _outcome(album: Album, outcome: OutcomeFigures, cut: float) -> None:
    name = label(outcome.name)
    album.add(
        "risk",
        plots.risk_curve(outcome.name, outcome.rates, outcome.fit, cutoff=cut),
        f"{name}: observed risk in {len(outcome.rates.n)} groups along the score, and the monotone fit, which "
        f"rises by {number(100 * outcome.trend.mean, 1)} points from the 5th to the 95th percentile of the score.",
    )
    album.add(
        "calibration",
        plots.calibration(outcome.name, outcome.groups, outcome.smooth),
        f"{name}: mean predicted risk {percent(outcome.predicted)}, observed {percent(outcome.rate)}.",
    )
    if 0 < outcome.positives < outcome.n:
        edges, *shares = outcome.share
        counts = (outcome.n - outcome.positives, outcome.positives)
        without, having = (number(median, 2) for median in outcome.medians)
        album.add(
            "distribution",
            plots.score_distribution(outcome.name, edges, shares, counts, cutoff=cut),
            f"{name}: the median score is {having} with and {without} without the outcome.",
        )


def _aurocs(album: Album, aurocs: pd.DataFrame) -> None:
    for name, part in aurocs.groupby("outcome", sort=False):
        values = ", ".join(f"{row.model} {row.value:.3f}" for row in part.itertuples())
        frame = part.assign(metric="auroc")
        album.add("auroc", plots.benchmark(frame, "auroc"), f"{label(str(name))}, AUROC: {values}.", caption=False)


def _codes(album: Album, codes: Codes) -> None:
    charts: dict[str, pd.DataFrame] = {"": codes.every}
    if any(codes.every["tells"]):
        charts = {"with codes that tell an outcome (hollow, †)": codes.every, "without them": codes.plain}
    for which, frame in charts.items():
        if not len(frame):
            continue
        names = [f"{row.code}{' †' if row.tells else ''} {row.title}".strip() for row in frame.itertuples()]
        effects = frame["mean_effect"].to_numpy()
        said = (
            f"Mean change of the score by code{', ' + which if which else ''}; most: {names[0]} ({signed(effects[0])})."
        )
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
