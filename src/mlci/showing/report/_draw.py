"""Sketch the report's figures from its findings, with their text alternatives; `Album` draws them.

Each figure shows one outcome, so that it fits on a phone; the page shows several side by side if there is room.
"""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from mlci.base.names import label, words
from mlci.judging.theory import Diagnosis
from mlci.showing._pages import Sketch
from mlci.showing._words import number, percent, signed
from mlci.showing.report._findings import Codes, Findings, OutcomeFigures, Part


def of_part(found: Part, cutoff: float) -> Iterator[Sketch]:
    """Sketch a part of the judgement of a model with this cutoff."""
    if isinstance(found, OutcomeFigures):
        return _outcome(found, cutoff)
    if isinstance(found, Codes):
        return _codes(found)
    return _theory(found) if isinstance(found, Diagnosis) else _aurocs(found)


def of_rest(findings: Findings) -> Iterator[Sketch]:
    """Sketch the attrition of the cohort and the training of the index."""
    if findings.people.attrition:
        steps = [(step.rule, step.removed, step.left) for step in findings.people.attrition]
        gone, last = sum(step[1] for step in steps), steps[-1][2]
        yield Sketch("attrition", f"{gone:,} admissions were left out, {last:,} were kept.", "attrition", (steps,))
    for curve in findings.made.get("record", {}).get("curves", ()):
        options = {"best": curve["kept"], "ylabel": curve["unit"]}
        yield Sketch("learning", curve["title"], "learning_curves", (curve["lines"],), options)


def _outcome(outcome: OutcomeFigures, cut: float) -> Iterator[Sketch]:
    name = label(outcome.name)
    yield Sketch(
        "risk",
        f"{name}: observed risk in {len(outcome.rates.n)} groups along the score, and the nondecreasing fit, which "
        f"rises by {number(100 * outcome.trend.mean, 1)} percentage points from the 5th to the 95th percentile.",
        "risk_curve",
        (outcome.name, outcome.rates, outcome.fit),
        {"cutoff": cut},
    )
    yield Sketch(
        "calibration",
        f"{name}: mean predicted risk {percent(outcome.predicted)}, observed {percent(outcome.rate)}.",
        "calibration",
        (outcome.name, outcome.groups, outcome.smooth),
    )
    if 0 < outcome.positives < outcome.n:
        edges, *shares = outcome.share
        counts = (outcome.n - outcome.positives, outcome.positives)
        without, having = (number(median, 2) for median in outcome.medians)
        yield Sketch(
            "distribution",
            f"{name}: the median score is {having} with the outcome and {without} without it.",
            "score_distribution",
            (outcome.name, edges, shares, counts),
            {"cutoff": cut},
        )


def _aurocs(aurocs: pd.DataFrame) -> Iterator[Sketch]:
    for name, part in aurocs.groupby("outcome", sort=False):
        values = ", ".join(f"{row.model} {row.value:.3f}" for row in part.itertuples())
        columns = (part[column].to_numpy(float) for column in ("value", "low", "high"))
        given = "auroc", name, part["model"].tolist(), *columns
        yield Sketch("auroc", f"{label(str(name))}, AUROC: {values}.", "estimates", given, caption=False)


def _codes(codes: Codes) -> Iterator[Sketch]:
    charts: dict[str, pd.DataFrame] = {"": codes.every}
    if any(codes.every["tells"]):
        charts = {
            ", including codes that reveal an outcome (hollow, †)": codes.every,
            ", without codes that reveal an outcome": codes.plain,
        }
    for which, frame in charts.items():
        if not len(frame):
            continue
        names = [f"{row.code}{' †' if row.tells else ''} {row.title}".strip() for row in frame.itertuples()]
        effects = frame["mean_effect"].to_numpy()
        most = int(np.abs(effects).argmax())
        caption = f"Mean change in the score by code{which}; the largest is {names[most]} ({signed(effects[most])})."
        yield Sketch("codes", caption, "influence", (names, effects), {"marked": frame["tells"].to_numpy() != ""})


def _theory(diagnosis: Diagnosis) -> Iterator[Sketch]:
    if len(diagnosis.outcomes) > 1:
        unrelated = max(diagnosis.weights) / sum(diagnosis.weights)
        yield Sketch(
            "theory",
            f"The first direction accounts for {percent(diagnosis.energy)} of the joint variation of the outcomes; for "
            f"unrelated outcomes it would be {percent(unrelated)} (dotted line).",
            "singular_values",
            (diagnosis.singular_values,),
            {"unrelated": unrelated},
        )
    best, shared = diagnosis.shared.threshold, ["Shared direction"] if len(diagnosis.outcomes) > 1 else []
    of = "the shared direction and with each outcome" if shared else words(diagnosis.tasks[0].name)
    yield Sketch(
        "theory",
        f"Squared cosine of every cut with {of}. The best {'for the shared direction ' if shared else ''}is "
        f"{best.rho2:.3f}, with {percent(best.share)} of admissions at or above the cut.",
        "threshold_scan",
        (diagnosis.scan, [*shared, *diagnosis.outcomes]),
    )
