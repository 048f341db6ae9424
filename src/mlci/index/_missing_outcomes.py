"""Missing outcomes: report how many admissions and events they remove from the choice of the cutoff (complete cases).

The cutoff rests on the admissions where all its outcomes are known. Admissions that lack an outcome are rarely like the
others: a patient who died was not discharged home. So the model's card keeps how many admissions and events are left
out, as counts of at least ten, and the report states them.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from mlci.index._aggregates import LEAST

TOLERATED = 0.05  # share of admissions that missing outcomes may remove without a report


def masking(names: Sequence[str], outcomes: np.ndarray) -> dict[str, Any]:
    """Count the admissions where all outcomes are known, the missing values, and the events that remain.

    Args:
        names: of the outcomes that take part.
        outcomes: one column per outcome, NaN if unknown.

    Returns:
        Counts, without those below ten; empty if at most one admission in twenty lacks an outcome.

    >>> died, home = [1, 0, 0, 0] * 20, [np.nan, 1, 0, 1] * 20
    >>> masking(["died", "home"], np.column_stack([died, home]))
    {'known': 60, 'of': 80, 'missing': {'home': 20}, 'events': {'died': [0, 20]}}
    """
    unknown = np.isnan(outcomes)
    rows = ~unknown.any(axis=1)
    if rows.mean() >= 1 - TOLERATED:
        return {}
    counts = dict(zip(names, map(int, unknown.sum(axis=0))))
    events = {
        name: [_suppressed(np.nansum(y[rows])), int(np.nansum(y))]
        for name, y in zip(names, outcomes.T)
        if np.nansum(y) >= LEAST and 2 * np.nansum(y[rows]) < np.nansum(y)
    }
    missing = {name: many for name, many in counts.items() if many >= LEAST}
    return {"known": _suppressed(rows.sum()), "of": len(outcomes), "missing": missing, "events": events}


def missing_notes(card: Mapping[str, Any], *, called: Callable[[str], str] = str) -> list[str]:
    """Return sentences on the missing outcomes that a model's card records.

    Args:
        card: of the model.
        called: maps an outcome to its display name.

    >>> missing_notes({"masked": {"known": 60, "of": 80, "missing": {"home": 20}, "events": {"died": [0, 20]}}})[1]
    'Those admissions hold few of the events of some outcomes: died fewer than 10 of 20.'
    """
    facts = card.get("masked")
    if not facts:
        return []
    missing = ", ".join(f"{called(name)} is missing for {many:,}" for name, many in facts["missing"].items())
    complete_cases = card.get("config", {}).get("objective", {}).get("validity") == "intersection"
    complete_cases = complete_cases and "recalibrated" not in card  # whose counts are of other admissions
    weights = " The weights were learned from such admissions only." if complete_cases else ""
    rests = f"The cutoff of high severity rests on {_many(facts['known'])} of {facts['of']:,} admissions, those where"
    sentences = [f"{rests} all its outcomes are known{': ' if missing else ''}{missing}.{weights}"]
    lost = ", ".join(f"{called(name)} {_many(left)} of {all_of:,}" for name, (left, all_of) in facts["events"].items())
    if lost:
        sentences.append(f"Those admissions hold few of the events of some outcomes: {lost}.")
    return sentences


def _suppressed(many: float) -> int:
    """Return a count, with 0 for fewer than ten."""
    return int(many) if many >= LEAST else 0


def _many(count: int) -> str:
    return f"{count:,}" if count else f"fewer than {LEAST}"
