"""Update the weights of a table with a hospital's own admissions: `mlci recalibrate --update weights`.

Turn a model of the recipe `table`, and admissions with outcomes, into a model with new weights, risks and curves, and
cross-fitted scores of the admissions. Outcomes of the model that the hospital lacks, or has too few events of, keep
their weights; new outcomes get weights of their own. A code that is new to the model gets a row if at least ten
admissions have it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from mlci.base.errors import InputError
from mlci.codes.admissions import Admissions
from mlci.config import CurveConfig
from mlci.fitting._curves import fit_curves
from mlci.fitting._data import Split
from mlci.fitting._soft_labels import outcome_weights, soften
from mlci.fitting.move import Moved, move
from mlci.index._aggregates import LEAST
from mlci.index._extend import extended
from mlci.index._table import TableScorer, curve
from mlci.index.model import Model
from mlci.judging.smooth import smooth
from mlci.tokens import MANY, Vocabulary

HALFWAY = 20_000  # own admissions that count as much for the score's curves as the model's training admissions
LEAST_SLOPE = 0.01  # lower bound of a calibration slope


@dataclass(frozen=True)
class Updated:
    """The model, and the cross-fitted scores of the admissions that it was updated with."""

    model: Model
    score: np.ndarray


def update(model: Model, admissions: Admissions, labels: Mapping[str, np.ndarray], subjects: np.ndarray) -> Updated:
    """Update the model's weights, risks and curves; `labels` are the outcomes to learn from, NaN if unknown."""
    if not isinstance(model.scorer, TableScorer):
        recipe = model.card["recipe"]
        raise InputError(f"--update weights needs a model of the recipe table; this one is of the recipe {recipe}.")
    if model.numbers:
        raise InputError(
            f"--update weights does not support numeric outcomes; the model has {', '.join(model.numbers)}."
        )
    model = _with_new_rows(_calibrated(model), admissions)
    own, names = list(model.outcomes)[: len(model.state["intercepts"])], list(labels)
    outcomes, vocabulary = np.column_stack(list(labels.values())).astype(np.float32), model.vocabulary
    moved = move(
        Split(vocabulary.encode(admissions), outcomes, tuple(names), len(vocabulary), subjects),
        model.state["weights"],
        model.state["intercepts"],
        sources=[own.index(name) if name in own else None for name in names],
        parents=vocabulary.parents,
        least=LEAST,
        seed=int(model.card["seed"]),
    )
    columns, places = [*own, *(name for name in names if name not in own)], dict(zip(names, range(len(names))))
    shipped = model.read(admissions).log_odds
    assert shipped is not None  # a table has them
    state = _state(model.state, moved, [places.get(name) for name in columns], outcomes, shipped)
    log_odds = np.column_stack([shipped, moved.out_of_fold[:, [n not in own for n in names]]])
    log_odds[:, [columns.index(name) for name in names]] = moved.out_of_fold
    score = TableScorer(state, vocabulary).score(log_odds)
    bands = {name: smooth(moved.out_of_fold[:, place], labels[name], least=LEAST) for name, place in places.items()}
    after = replace(
        model,
        state=state,
        outcomes={name: model.outcomes.get(name, "") for name in columns},
        curves={name: smooth(score, column, least=LEAST) for name, column in labels.items()},
        bands={name: band for name, band in model.bands.items() if name in own} | bands,
        card={**model.card, "updated": {"shares": moved.shares, "unexplained": moved.unexplained}},
    )
    return Updated(after, score)


def _calibrated(model: Model) -> Model:
    """Return the same model with its calibration absorbed into weights, intercepts and curves."""
    shift, slope = model.state["calibration"].T
    slope = np.maximum(slope, LEAST_SLOPE)
    state = {
        "weights": model.state["weights"] * slope,
        "intercepts": model.state["intercepts"] * slope + shift,
        "knots": model.state["knots"] * slope[:, None] + shift[:, None],
        "heights": model.state["heights"],
        "calibration": np.tile([0.0, 1.0], (len(slope), 1)),
    }
    return replace(model, state=state)


def _with_new_rows(model: Model, admissions: Admissions) -> Model:
    """Return the model with rows of 0 for new tokens that at least ten admissions have."""
    known = model.vocabulary
    seen = Vocabulary.fit(
        admissions,
        depths=known.depths,
        max_codes=known.max_codes,
        min_admissions=LEAST,
        without_outcome_codes=bool(known.ignored),
        primary=known.primary,
        number_of_codes=known.number_of_codes,
    )
    have, nothing = set(zip(known.versions, known.tokens)), np.zeros(len(model.state["intercepts"]))
    named = zip(seen.versions, seen.tokens, seen.support)
    fresh = {(version, text): (nothing, support) for version, text, support in named if (version, text) not in have}
    versions = {*model.icd_versions, *(version for version, text in fresh if not text.startswith(MANY))}
    return replace(extended(model, fresh), icd_versions=tuple(sorted(versions)))


def _state(
    former: Mapping[str, np.ndarray], moved: Moved, places: list[int | None], outcomes: np.ndarray, shipped: np.ndarray
) -> dict[str, np.ndarray]:
    """Return the arrays of the new model; `places` maps each of its outcomes to a column of `moved`, or to None.

    Its curves are a mixture of the former curves, transformed from the `shipped` log-odds to the new ones, and of
    curves fitted to the own admissions. The share of the latter grows with the number of own admissions, and is at
    least the share of the weights that were learned from them alone.
    """
    options = CurveConfig()
    names = [str(place) for place in range(outcomes.shape[1])]
    weights = outcome_weights(outcomes, names, balance=options.balance, importance={})
    labels = soften(moved.out_of_fold, outcomes, observed=options.observed)
    fresh = fit_curves(moved.out_of_fold, labels, weights, points=options.points)
    share = moved.own + (1 - moved.own) * len(outcomes) / (len(outcomes) + HALFWAY)
    share = 0.0 if moved.stayed else share
    state = {name: [] for name in ("weights", "intercepts", "calibration", "knots", "heights")}
    for column, place in enumerate(places):
        source = column if place is None else moved.sources[place]
        known = column < len(former["intercepts"])
        before = former["knots"][source], former["heights"][source] * known
        if place is not None:
            before = _carried(before[0], shipped[:, source], moved.out_of_fold[:, place]), before[1]
        flat = np.linspace(before[0][0], before[0][-1], options.points), np.zeros(options.points)
        own = flat if place is None else (fresh.knots[place], fresh.heights[place])
        points = _apart(np.concatenate([before[0], own[0]]))
        state["knots"].append(points)
        state["heights"].append((1 - share) * curve(points, *before) + share * curve(points, *own))
        state["weights"].append(former["weights"][:, column] if place is None else moved.weights[:, place])
        state["intercepts"].append(former["intercepts"][column] if place is None else moved.intercepts[place])
        state["calibration"].append([0.0, 1.0])  # absorbed by the former weights; the new ones are calibrated
    found = {name: np.stack(columns) for name, columns in state.items()}
    return {**found, "weights": np.ascontiguousarray(found["weights"].T)}


def _carried(knots: np.ndarray, former: np.ndarray, log_odds: np.ndarray) -> np.ndarray:
    """Move knots of the former log-odds to the same number of standard deviations from the mean of the new ones."""
    slope = log_odds.std() / max(float(former.std()), 1e-9)
    return log_odds.mean() + max(slope, LEAST_SLOPE) * (knots - former.mean())


def _apart(knots: np.ndarray) -> np.ndarray:
    """Return the knots in strictly increasing order."""
    knots = np.sort(knots)
    steps = 1e-4 * max(float(np.ptp(knots)), 1e-6) * np.arange(len(knots))
    return np.maximum.accumulate(knots - steps) + steps
