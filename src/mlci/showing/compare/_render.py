"""Render the page of a comparison: tables and pictures in, one HTML text without script or outside request out."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

import mlci
from mlci.base.names import label, listing, words
from mlci.judging._carried import left_out_words
from mlci.judging.compare import ALARM, FAR, HIDDEN, LEAST, TOO_FEW, VERDICTS, Comparison
from mlci.measures.ratios import Dispersion
from mlci.showing._pages import Picture, environment
from mlci.showing._words import number, percent, some, spread

WEAK = 0.55  # AUROC of recalibrated risks below which a score hardly adjusts

ROOM = {
    "additive": "allowing for usual differences between groups (an additive variance; Spiegelhalter)",
    "multiplicative": "allowing for usual differences between groups (a factor on the variance; Spiegelhalter)",
    "shmi": "allowing for usual differences between groups (as in the Summary Hospital-level Mortality Indicator)",
    "none": "of chance alone",
}


def render(found: Comparison, pictures: Mapping[str, Sequence[Picture]], *, command: str) -> str:
    """Return the page as text."""
    models = [
        {
            "name": row.model,
            "summary": _summary(found, row),
            "pictures": pictures.get(f"model{place}", ()),
            "rows": [_row(line) for line in found.of(row.model).itertuples()],
        }
        for place, row in enumerate(found.models.itertuples())
    ]
    view = {
        "found": found,
        "title": f"{label(found.outcome)} by {words(found.by)}",
        "by": label(found.by),
        "flags": _flags(found),
        "lead": _lead(found),
        "tiles": _tiles(found),
        "models": models,
        "summary": found.models.to_dict("records"),
        "changes": found.changes.to_dict("records"),
        "differing": _differing(found),
        "coding": _coding(found.coding),
        "room": ROOM[found.overdispersion],
        "least": LEAST,
        "far": FAR,
        "version": mlci.__version__,
        "command": command,
    }
    return environment("compare").get_template("compare.html.j2").render(view)


def _names(frame: pd.DataFrame, verdict: str) -> list[str]:
    return frame.loc[frame["verdict"] == verdict, "group"].astype(str).tolist()


def _lead(found: Comparison) -> str:
    """Summarise the comparison by the first model."""
    model = found.models["model"][0]
    frame = found.of(model)
    high, low = (_names(frame, word) for word in (VERDICTS[2], VERDICTS[0]))
    judged = int(frame["ranked"].sum())
    if not judged:
        return f"Adjusted by {model}, no group has the {LEAST} expected events that a verdict and a rank need."
    if not high and not low:
        return f"Adjusted by {model}, none of {judged} groups lies beyond the 99.8% limits."
    parts = [
        f"{side} events than expected in {some(names)}" for side, names in (("more", high), ("fewer", low)) if names
    ]
    return f"Of {judged} groups, adjusted by {model}, these lie beyond the 99.8% limits: {'; '.join(parts)}."


def _flags(found: Comparison) -> list[str]:
    """Return the warnings that a reader must see before any figure."""
    flags = []
    if "synthetic" in found.source.lower():
        flags.append("The admissions are synthetic, so no figure applies to real patients.")
    frame = found.of(found.models["model"][0])
    few, hidden = _names(frame, TOO_FEW), _names(frame, HIDDEN)
    if few:
        flags.append(f"Groups with fewer than {LEAST} expected events are shown but not ranked: {some(few)}.")
    if hidden:
        flags.append(f"Figures that would reveal fewer than {LEAST} admissions are hidden, for {some(hidden)}.")
    if found.left_out:
        flags.append(left_out_words(found.left_out, "group", found.weighted_by))
    weak = [f"{row.model} (AUROC {number(row.auroc)})" for row in found.models.itertuples() if row.auroc < WEAK]
    if weak:
        flags.append(f"The ratios are hardly adjusted for case mix: {listing(weak)} hardly ranks these admissions.")
    coders = _names(found.coding, "many")
    if coders:
        flags.append(
            f"More codes per admission than others record for the same kind of patient: {some(coders)}. Their "
            "patients may look sicker than they are, and their ratios lower."
        )
    return flags


def _tiles(found: Comparison) -> list[dict[str, str]]:
    first = found.models.iloc[0]
    frame = found.of(first["model"])
    out = sum((frame["verdict"] == word).sum() for word in (VERDICTS[0], VERDICTS[2]))
    return [
        {"name": "Admissions", "value": f"{found.admissions:,}", "note": found.source},
        {"name": label(found.outcome), "value": percent(found.rate), "note": f"{found.events:,} admissions"},
        {"name": "Groups", "value": f"{len(frame):,}", "note": f"{int(frame['ranked'].sum()):,} of them ranked"},
        {"name": "Beyond 99.8% limits", "value": str(out), "note": f"by {first['model']}"},
    ]


def _summary(found: Comparison, row) -> str:
    """Return a paragraph about all groups, adjusted by one model."""
    frame = found.of(row.model)
    room = Dispersion(found.overdispersion, row.phi, row.tau2).found
    differ = f"Groups differ {'more' if row.tau2 > 0 else 'no more'} than expected by chance"
    outer = "without" if found.overdispersion == "shmi" else "winsorised at"
    out = int(frame["verdict"].isin([VERDICTS[0], VERDICTS[2]]).sum())
    limits = f"the 99.8% limits, {ROOM[found.overdispersion]}" if room else f"the 99.8% limits {ROOM['none']}"
    if not row.ranked:
        return f"No group has {LEAST} expected events. The recalibrated risks have an AUROC of {row.auroc:.3f}."
    sentences = [
        f"{differ} (mean squared z-score, {outer} the outer tenths: {row.phi:.2f})." if np.isfinite(row.phi) else "",
        f"The true ratios have an estimated standard deviation of {row.spread:.2f}.",
        f"{out} of {row.ranked} groups {'lies' if out == 1 else 'lie'} beyond {limits}; by chance, "
        f"{_about((1 - ALARM) * row.ranked)} would.",
        f"The recalibrated risks have an AUROC of {row.auroc:.3f}.",
    ]
    return " ".join(filter(None, sentences))


def _row(line) -> dict[str, Any]:
    """Return the cells of a group as text; hidden values are dashes."""

    def ranged(value: float, low: float, high: float, digits: int) -> tuple[str, str]:
        return number(value, digits), spread(low, high, digits)

    rate = (100 * line.adjusted, 100 * line.adjusted_low, 100 * line.adjusted_high)
    rank = (f"{line.rank:.0f}", f"{line.rank_low:.0f} to {line.rank_high:.0f}" if np.isfinite(line.rank_low) else "")
    return {
        "group": str(line.group),
        "n": f"{line.n:,.0f}" if np.isfinite(line.n) else f"under {LEAST}",
        "observed": _count(line.observed, 0) if line.verdict != HIDDEN else "hidden",
        "expected": _count(line.expected, 1),
        "ratio": ranged(line.ratio, line.low, line.high, 2),
        "rate": ranged(*rate, 2),
        "shrunk": ranged(line.shrunk, line.shrunk_low, line.shrunk_high, 2),
        "rank": rank if line.ranked else ("–", ""),
        "verdict": line.verdict,
        "beyond": line.verdict in (VERDICTS[0], VERDICTS[2]),
    }


def _about(value: float) -> str:
    """Return an expected number of groups, never as 0.0."""
    return f"about {value:.1f}" if value >= 0.05 else "fewer than 0.1"


def _count(value: float, digits: int) -> str:
    """Return a number of events with thousands separators; a dash if it is not finite."""
    return f"{value:,.{digits}f}" if np.isfinite(value) else "–"


def _differing(found: Comparison) -> list[dict]:
    """Return the groups whose verdict differs between models."""
    wide = found.table.pivot(index="group", columns="model", values="verdict")[list(found.models["model"])]
    apart = wide[wide.apply(lambda row: len(set(row)) > 1, axis=1)]
    return [{"group": str(group), "verdicts": list(row)} for group, row in zip(apart.index, apart.to_numpy())]


def _coding(frame: pd.DataFrame) -> list[dict[str, str]]:
    ordered = frame.sort_values("ratio", ascending=False)
    return [
        {
            "group": str(row.group),
            "codes": number(row.codes, 1),
            "expected": number(row.expected, 1),
            "ratio": number(row.ratio, 2),
            "verdict": row.verdict,
        }
        for row in ordered.itertuples()
    ]
