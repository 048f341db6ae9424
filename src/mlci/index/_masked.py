"""What missing outcomes take from an index: its cutoff rests on the admissions where all its outcomes are known.

In come outcomes of the admissions that a cutoff was chosen on (NaN where not known); out come counts for the model's
card, none below ten, and sentences. Those who lack one outcome are seldom like the others (who died was not discharged
home), so a person should hear how many they are and whose events went with them.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from mlci.index._aggregates import LEAST

TOLD = 0.05  # share of admissions that missing outcomes may take without a word


def masking(names: Sequence[str], outcomes: np.ndarray) -> dict[str, Any]:
    """Count the admissions where all outcomes are known, what is missing, and the events that are left of all.

    Args:
        names: of the outcomes that take part.
        outcomes: a column for each, NaN where not known.

    Returns:
        Nothing where at most one admission in twenty lacks an outcome. Counts below ten are left out.

    >>> died, home = [1, 0, 0, 0] * 20, [np.nan, 1, 0, 1] * 20
    >>> masking(["died", "home"], np.column_stack([died, home]))
    {'known': 60, 'of': 80, 'missing': {'home': 20}, 'events': {'died': [0, 20]}}
    """
    unknown = np.isnan(outcomes)
    rows = ~unknown.any(axis=1)
    if rows.mean() >= 1 - TOLD:
        return {}
    counts = dict(zip(names, map(int, unknown.sum(axis=0))))
    events = {
        name: [_told(np.nansum(y[rows])), int(np.nansum(y))]
        for name, y in zip(names, outcomes.T)
        if np.nansum(y) >= LEAST and 2 * np.nansum(y[rows]) < np.nansum(y)
    }
    missing = {name: many for name, many in counts.items() if many >= LEAST}
    return {"known": _told(rows.sum()), "of": len(outcomes), "missing": missing, "events": events}


def in_words(card: Mapping[str, Any], *, called: Callable[[str], str] = str) -> list[str]:
    """Say what a model's card tells of missing outcomes, a sentence each.

    Args:
        card: of the model.
        called: gives an outcome the name that its reader knows it by.

    >>> in_words({"masked": {"known": 60, "of": 80, "missing": {"home": 20}, "events": {"died": [0, 20]}}})[1]
    'It hardly sees some events, as few are among those admissions: died fewer than 10 of 20.'
    """
    facts = card.get("masked")
    if not facts:
        return []
    missing = ", ".join(f"{called(name)} is missing for {many:,}" for name, many in facts["missing"].items())
    learned = card.get("config", {}).get("objective", {}).get("validity") == "intersection"
    alone = " The weights were learned from such admissions alone." if learned else ""
    rests = f"The cutoff of high severity rests on {_many(facts['known'])} of {facts['of']:,} admissions, those where"
    said = [f"{rests} all its outcomes are known{': ' if missing else ''}{missing}.{alone}"]
    lost = ", ".join(f"{called(name)} {_many(left)} of {all_of:,}" for name, (left, all_of) in facts["events"].items())
    return said + ([f"It hardly sees some events, as few are among those admissions: {lost}."] if lost else [])


def _told(many: float) -> int:
    """Return a count; 0 stands for fewer than ten."""
    return int(many) if many >= LEAST else 0


def _many(count: int) -> str:
    return f"{count:,}" if count else f"fewer than {LEAST}"
