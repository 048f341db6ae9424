"""Recalibrate an index to a hospital without a new fit: its risks, percentiles and cutoff, and optionally its weights.

Turn a model and a cohort with outcomes into a model with risks fitted to the cohort, and report calibration and
discrimination on held-out patients before and after. Each risk is recalibrated logistically: shift and slope are
estimated with a prior at the original that ten events outweigh. An outcome that is new to the model gets a risk curve
over the score. Outcomes with too few events stay as they are. Weights stay too, or move as far as the cohort supports
it (`_update`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from mlci.base.blas import single_thread
from mlci.base.errors import InputError
from mlci.cohort import Cohort
from mlci.fitting._calibrate import calibrate, line_errors
from mlci.fitting._people import People
from mlci.index._aggregates import LEAST, event_counts, quantiles, without_small_cells
from mlci.index._held_out import held_out
from mlci.index._missing_outcomes import masking
from mlci.index._people import of_data
from mlci.index._reading import Reading
from mlci.index._update import update as move_weights
from mlci.index.model import Model
from mlci.index.shift import makeup_of
from mlci.judging.kept import EDGE, Isotonic, log_odds
from mlci.judging.smooth import smooth
from mlci.judging.theory import Cutoff, cutoff
from mlci.measures.design import numbered
from mlci.measures.discrimination import auroc

EVENTS = 20  # least number of admissions with an outcome, and without it, to recalibrate a risk
UPDATES = ("risks", "weights")


@dataclass(frozen=True)
class Recalibrated:
    """The new model, the outcomes left unchanged, and a table of performance on held-out patients."""

    model: Model
    kept: tuple[str, ...]  # outcomes with too few events, whose risks are unchanged
    table: pd.DataFrame  # outcome, events, held_out, observed; expected, log_loss and auroc before and after


@single_thread()  # rounding depends on the number of threads; with one, the file is identical on every machine
def recalibrate(model: Model, cohort: Cohort, *, update: str = "risks") -> Recalibrated:
    """Fit the model's risks, percentiles and cutoff to a cohort.

    Args:
        model: of any recipe; to update weights, of the recipe `table`.
        cohort: admissions with outcomes. The splits train and valid are fitted, the split test is held out for
            evaluation. Outcomes of the model are recalibrated; other outcomes get a curve over the score.
        update: `risks` leaves the weights, and so the scores, as they are. `weights` also updates the weights, shrunk
            towards the model's, and gives new outcomes weights of their own.

    Returns:
        The new model, the outcomes left unchanged, and a table of performance before and after.

    >>> from mlci.index.estimator import load
    >>> visits = pd.DataFrame({"visit_id": range(200), "codes": [["I50.9"], ["E11.9"]] * 100, "died": [1, 0] * 100})
    >>> cohort = Cohort.from_frame(visits, icd_version=10, outcomes={"mortality": "died"})
    >>> recalibrated = recalibrate(load("us2010").model_, cohort)
    >>> row = recalibrated.table.iloc[0]
    >>> bool(row["expected_before"] < row["expected_after"]), float(row["observed"]) > 0.3  # more die here
    (True, True)
    """
    if update not in UPDATES:
        raise InputError(f"update is {update!r}; allowed are {' and '.join(UPDATES)}.")
    cohort = model.of_cohort(cohort)
    learn, test = (_rows(cohort, parts) for parts in (("train", "valid"), ("test",)))
    names = list(cohort.outcomes)
    labels, admissions = cohort.labels()[learn], cohort.admissions().take(learn)
    if not len(learn):
        raise InputError("the cohort has no admission in its splits train and valid; risks are fitted to those.")
    enough = {name: min(np.nansum(column), np.nansum(1 - column)) >= EVENTS for name, column in zip(names, labels.T)}
    if not any(enough.values()):
        raise InputError(
            f"none of {', '.join(names)} has {EVENTS} admissions with it and {EVENTS} without it in the splits train "
            "and valid; fewer are too few to recalibrate a risk."
        )
    chosen = [name for name in names if enough[name]]
    known = {name: labels[:, names.index(name)] for name in chosen}
    people = of_data(cohort, model.people, len(cohort))
    if update == "weights":
        if model.people:
            raise InputError("the model's risks depend on age and sex; updating its weights needs a new fit.")
        updated = move_weights(model, admissions, known, numbered(cohort.column("subject_id")[learn]))
        fitted, score = updated.model, updated.score
    else:
        reading = model.read(admissions)
        fitted, score = _fitted(model, reading, known), reading.score
        if model.people:
            adjusted = reading if people is None else model.read(admissions, people[learn])
            fitted = _with_people(fitted, model, adjusted, known)
    columns = np.column_stack(list(known.values()))
    weights = [model.card.get("weights", {}).get(name, 1.0) for name in chosen]  # the task weights of the fit
    weights = weights if any(weights) else None
    chosen_cut = cutoff(score, columns, chosen, weights=weights)
    fitted = replace(
        fitted,
        outcomes={**fitted.outcomes, **{name: cohort.outcomes[name] for name in chosen}},
        quantiles=quantiles(score),
        cutoff=without_small_cells(chosen_cut),
        card={
            **fitted.card,
            "fitted_on": f"training and validation admissions of the cohort “{cohort.source}”",
            "in_sample": [],
            "makeup": makeup_of(admissions, model.vocabulary.ignored),
            **_notes(chosen_cut, chosen, columns),
            "recalibrated": {
                "source": cohort.source,
                "admissions": len(learn),
                "positives": event_counts(chosen, columns),
            },
        },
    )
    tested, outcomes = cohort.admissions().take(test), cohort.labels()[test]
    own = None if people is None else people[test]
    after = fitted.read(tested, own)
    risks = {"before": model.risks(model.read(tested, own)), "after": fitted.risks(after)}
    reached = held_out(after.score, risks["after"], outcomes, names, least=LEAST)
    fitted = replace(fitted, card={**fitted.card, "validation": reached, "judged_on": "test"})
    table = _evaluate(risks, outcomes, names, labels)
    return Recalibrated(fitted, tuple(name for name in names if not enough[name]), table)


def _notes(chosen: Cutoff, names: list[str], outcomes: np.ndarray) -> dict[str, Any]:
    """Return what the model's card says of the outcomes by which the cutoff was chosen."""
    places = [place for place, name in enumerate(names) if name not in chosen.left_out]
    masked = masking([names[place] for place in places], outcomes[:, places])
    return {"no_part_in_cutoff": dict(chosen.left_out), "masked": masked}


def _rows(cohort: Cohort, parts: tuple[str, ...]) -> np.ndarray:
    return np.flatnonzero(np.isin(cohort.column("split"), parts))


def _fitted(model: Model, reading: Reading, labels: dict[str, np.ndarray]) -> Model:
    """Return the model with shift and slope of each outcome's risk fitted to the labels."""
    before, state, curves, bands = model.risks(reading), dict(model.state), dict(model.curves), dict(model.bands)
    own = 0 if reading.log_odds is None else reading.log_odds.shape[1] - len(model.numbers)
    for name, label in labels.items():
        if name not in before:
            curves[name] = smooth(reading.score, label, least=LEAST)
            continue
        odds = log_odds(before[name])
        shift, slope = line = calibrate(odds, label, rising=True)
        errors = partial(line_errors, odds, label, line)
        if name in curves:
            curve = curves[name]
            plain = isinstance(curve, Isotonic)
            curves[name] = curve.moved(shift, slope) if plain else curve.moved(shift, slope, errors(curve.logit))
        place = list(model.outcomes).index(name)
        if place < own:
            former = state["calibration"][place]
            if name in bands:
                bands[name] = bands[name].moved(shift, slope, errors(former[0] + former[1] * bands[name].score))
            changed = state["calibration"].copy()
            changed[place] = shift + slope * former[0], slope * former[1]
            state["calibration"] = changed
    return replace(model, state=state, curves=curves, bands=bands)


def _with_people(fitted: Model, before: Model, reading: Reading, labels: dict[str, np.ndarray]) -> Model:
    """Return the model with its risks by age and sex recalibrated too, on the log-odds of `reading`."""
    former, people = before.risks(reading), People(before.state["people"])
    for name, label in labels.items():
        place = list(before.outcomes).index(name) if name in before.outcomes else len(people.values[0])
        if place < len(people.values[0]):
            people = people.recalibrated(place, *calibrate(log_odds(former[name]), label, rising=True))
    return replace(fitted, state={**fitted.state, "people": people.values})


def _evaluate(
    risks: Mapping[str, Mapping[str, np.ndarray]], labels: np.ndarray, names: list[str], learned: np.ndarray
) -> pd.DataFrame:
    """Return observed and expected rates, log loss and AUROC of the risks before and after, on held-out admissions."""
    rows = []
    for place, name in enumerate(names):
        label = labels[:, place]
        known = ~np.isnan(label)
        row: dict[str, object] = {
            "outcome": name,
            "events": int(np.nansum(learned[:, place])),
            "held_out": int(known.sum()),
            "observed": float(label[known].mean()) if known.any() else float("nan"),
        }
        for when, found in risks.items():
            risk = np.clip(found[name][known], EDGE, 1 - EDGE) if name in found else np.full(known.sum(), np.nan)
            loss = -np.where(label[known] == 1, np.log(risk), np.log1p(-risk))
            row[f"expected_{when}"] = float(risk.mean()) if known.any() else float("nan")
            row[f"log_loss_{when}"] = float(loss.mean()) if known.any() else float("nan")
            both_classes = name in found and 0 < label[known].sum() < known.sum()
            row[f"auroc_{when}"] = auroc(risk, label[known]) if both_classes else float("nan")
        rows.append(row)
    return pd.DataFrame(rows)


def moved_words(updated: Mapping[str, Any]) -> str:
    """Return a sentence on the mixture that the new weights are; `updated` is the entry of the model's card.

    >>> moved_words({"shares": {"as it was": 0.25, "own": 0.75, "moved": 0.0}})
    'The weights are a mixture, chosen on left-out patients: the table as it was 25%; own 75%.'
    """
    parts = [f"{name} {share:.0%}" for name, share in updated["shares"].items() if share > 0]
    return f"The weights are a mixture, chosen on left-out patients: the table {'; '.join(parts)}."
