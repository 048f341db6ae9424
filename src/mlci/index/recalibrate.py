"""Make an index this hospital's own without a new fit: its risks, percentiles and cutoff.

In come a model and a cohort with outcomes; out comes a model whose weights are the same and whose risks are those of
the cohort, and how well they fit patients who were kept apart, before and after. Shift and slope of each risk are drawn
towards the original by a prior that ten events outweigh. An outcome that the model does not know gets a curve over the
score. What has too few events stays as it was.
"""

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from scipy.special import expit, logit

from mlci.base.errors import InputError
from mlci.codes.admissions import Admissions
from mlci.cohort import Cohort
from mlci.fitting.table import calibrate
from mlci.index._aggregates import counted, quantiles, without_small_cells
from mlci.index._reading import Reading
from mlci.index.model import Model
from mlci.judging.curves import Isotonic
from mlci.judging.theory import cutoff
from mlci.tokens import positions

EVENTS = 20  # admissions with an outcome, and without it, that a risk is recalibrated from at least
POINTS = 200  # of the curve of a new outcome
EDGE = 1e-9  # a risk is never 0 or 1


@dataclass(frozen=True)
class Recalibrated:
    """The model, what was left as it was, and a row per outcome with the fit on patients kept apart."""

    model: Model
    kept: tuple[str, ...]  # outcomes with too few events: their risks are the former ones
    table: pd.DataFrame  # outcome, events, held_out, observed, expected and log_loss before and after


def recalibrate(model: Model, cohort: Cohort) -> Recalibrated:
    """Fit the model's risks, percentiles and cutoff to a cohort; its weights stay.

    Args:
        model: of any recipe.
        cohort: admissions with outcomes, of which train and valid are learned from and test is kept to judge by.
            Outcomes that the model has are recalibrated, others get a curve over the score.

    Returns:
        The new model, the outcomes that stayed as they were, and a table of the fit before and after.

    >>> from mlci.index.estimator import load
    >>> visits = pd.DataFrame({"visit_id": range(200), "codes": [["I50.9"], ["E11.9"]] * 100, "died": [1, 0] * 100})
    >>> cohort = Cohort.from_frame(visits, icd_version=10, outcomes={"mortality": "died"})
    >>> recalibrated = recalibrate(load("us2010").model_, cohort)
    >>> row = recalibrated.table.iloc[0]
    >>> bool(row["expected_before"] < row["expected_after"]), float(row["observed"]) > 0.3  # more die here
    (True, True)
    """
    learn, test = (_rows(cohort, parts) for parts in (("train", "valid"), ("test",)))
    names = list(cohort.outcomes)
    labels, reading = cohort.labels()[learn], model.read(_some(cohort.admissions(), learn))
    if not len(learn):
        raise InputError("the cohort has no admission in its splits train and valid; risks are fitted on those.")
    enough = {name: min(np.nansum(column), np.nansum(1 - column)) >= EVENTS for name, column in zip(names, labels.T)}
    if not any(enough.values()):
        raise InputError(
            f"none of {', '.join(names)} has {EVENTS} admissions with it and {EVENTS} without in the splits train and "
            "valid; fewer say too little to change a risk."
        )
    chosen = [name for name in names if enough[name]]
    fitted = _fitted(model, reading, {name: labels[:, names.index(name)] for name in chosen})
    known = [place for place, name in enumerate(names) if name in chosen]
    cut = cutoff(reading.score, labels[:, known], chosen)
    fitted = replace(
        fitted,
        outcomes={**model.outcomes, **{name: cohort.outcomes[name] for name in chosen}},
        quantiles=quantiles(reading.score),
        cutoff=without_small_cells(cut),
        card={
            **model.card,
            "recalibrated": {
                "source": cohort.source,
                "admissions": len(learn),
                "positives": counted(chosen, labels[:, known]),
            },
        },
    )
    judged = _judge(model, fitted, _some(cohort.admissions(), test), cohort.labels()[test], names, labels)
    return Recalibrated(fitted, tuple(name for name in names if not enough[name]), judged)


def _rows(cohort: Cohort, parts: tuple[str, ...]) -> np.ndarray:
    return np.flatnonzero(np.isin(cohort.column("split"), parts))


def _some(admissions: Admissions, rows: np.ndarray) -> Admissions:
    flat, offsets = positions(admissions.offsets[rows], np.diff(admissions.offsets)[rows])
    return replace(admissions, ids=admissions.ids[rows], indices=admissions.indices[flat], offsets=offsets)


def _fitted(model: Model, reading: Reading, labels: dict[str, np.ndarray]) -> Model:
    """The model with shift and slope of each outcome's risk fitted to the labels."""
    before, state, curves = model.risks(reading), dict(model.state), dict(model.curves)
    own = 0 if reading.log_odds is None else reading.log_odds.shape[1]
    for name, label in labels.items():
        if name not in before:
            rate = float(np.nanmean(label))
            shift, slope = calibrate(logit(rate) + reading.score, label)
            points = np.unique(np.quantile(reading.score, np.linspace(0, 1, POINTS)))
            curves[name] = Isotonic(points, expit(shift + max(slope, 0) * (logit(rate) + points)))
            continue
        shift, slope = calibrate(_log_odds(before[name]), label)
        slope = max(slope, 0.0)
        if name in curves:
            curve = curves[name]
            curves[name] = Isotonic(curve.score, expit(shift + slope * _log_odds(curve(curve.score))))
        place = list(model.outcomes).index(name)
        if place < own:
            former = state["calibration"][place]
            changed = state["calibration"].copy()
            changed[place] = shift + slope * former[0], slope * former[1]
            state["calibration"] = changed
    return replace(model, state=state, curves=curves)


def _log_odds(risk: np.ndarray) -> np.ndarray:
    return logit(np.clip(risk, EDGE, 1 - EDGE))


def _judge(
    before: Model, after: Model, held: Admissions, labels: np.ndarray, names: list[str], learned: np.ndarray
) -> pd.DataFrame:
    rows, risks = [], {"before": before.risks(before.read(held)), "after": after.risks(after.read(held))}
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
        rows.append(row)
    return pd.DataFrame(rows)
