"""Check that each outcome of a fit has enough events: report the sample size it would need, raise an error below five.

The required sample size follows the criteria of Riley et al. for a logistic regression on the 31 Elixhauser conditions.
That is the least that a comorbidity index should be able to learn; thousands of tokens under one penalty have far fewer
effective parameters than tokens.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from mlci.base.errors import InputError
from mlci.index._missing_outcomes import missing_notes
from mlci.measures.sample_size import needed

FLOOR = 5  # training admissions with an outcome, and as many without it: one for each fold of a cross-validation
CONDITIONS = 31  # of Elixhauser


def shortfalls(names: Sequence[str], outcomes: np.ndarray) -> dict[str, dict[str, int]]:
    """Return the sample size that each outcome with too few events would need by Riley's criteria.

    >>> shortfalls(["died", "stayed"], np.array([[1, 0]] + [[0, 1]] * 49 + [[0, 0]] * 50))["died"]
    {'admissions': 17399, 'events': 174}
    """
    found = {}
    for name, column in zip(names, np.asarray(outcomes, dtype=float).T, strict=True):
        known, events = int((~np.isnan(column)).sum()), float(np.nansum(column))
        if not 0 < events < known:
            continue
        wanted = needed(events / known, CONDITIONS)
        if wanted > known:
            found[name] = {"admissions": wanted, "events": int(np.ceil(wanted * events / known))}
    return found


def refuse_few(names: Sequence[str], outcomes: np.ndarray) -> None:
    """Raise an error if there are no training admissions, or fewer than `FLOOR` of them have an outcome or lack it.

    >>> refuse_few(["died"], np.array([[1], [0]] * 10))
    >>> refuse_few(["died"], np.array([[1], [0]]))
    Traceback (most recent call last):
    mlci.base.errors.InputError: died: fewer than 5 training admissions have it, or lack it; nothing can be learned
    from so few. Leave it out (--outcome names the others), or allow it with --few-events.
    """
    if not len(outcomes):
        raise InputError("no admission is in the split train; an index is learned from those.")
    for name, column in zip(names, np.asarray(outcomes, dtype=float).T, strict=True):
        events = int(np.nansum(column))
        if np.isnan(column).all():
            raise InputError(
                f"{name} is not known for any training admission; leave it out (--outcome names the others)."
            )
        if min(events, int((~np.isnan(column)).sum()) - events) < FLOOR:
            raise InputError(
                f"{name}: fewer than {FLOOR} training admissions have it, or lack it; nothing can be learned from so "
                "few. Leave it out (--outcome names the others), or allow it with --few-events."
            )


def outcome_notes(card: Mapping, *, called: Callable[[str], str] = str) -> list[str]:
    """Return sentences on outcomes with missing values, without influence on the cutoff, or with too few events.

    Args:
        card: of the model.
        called: maps an outcome to its display name.

    >>> outcome_notes({"no_part_in_cutoff": {"died": "it is never present in 40 admissions"}})
    ['died has no part in the cutoff of high severity: it is never present in 40 admissions.']
    """
    left_out = card.get("no_part_in_cutoff", {}).items()
    few = [
        f"{called(name)} has few events{_counted(card, name)}: by Riley's criteria a regression on Elixhauser's "
        f"{CONDITIONS} conditions would need {wanted['admissions']:,} admissions, {wanted['events']:,} of them with "
        "the outcome. Its risks are shrunk towards the mean and would differ much in another sample."
        for name, wanted in card.get("needed", {}).items()
    ]
    absent = [f"{called(name)} has no part in the cutoff of high severity: {why}." for name, why in left_out]
    return absent + missing_notes(card, called=called) + few


def _counted(card: Mapping, name: str) -> str:
    many = card.get("positives", {}).get(name)
    trained = card.get("admissions", {}).get("train")
    return "" if many is None or trained is None else f" ({many:,} in {trained:,} training admissions)"
