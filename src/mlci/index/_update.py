"""A table whose weights move towards a hospital's own admissions: `mlci recalibrate --update weights`.

In come a model that holds a table, and admissions with outcomes; out come the model with moved weights, risks and
curves, and scores of the admissions by regressions that have not seen them. Outcomes of the model that
the hospital does not have, or too seldom, keep their weights; outcomes that are new get weights of their own. Codes
that the model does not know become rows where at least ten admissions have them.
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

HALFWAY = 20_000  # own admissions that count as much for the curves of the score as those the model was made from
LEAST_SLOPE = 0.01  # of a calibration: a table that tells nothing of an outcome has no less


@dataclass(frozen=True)
class Updated:
    """The model, and the scores of the admissions it learned from, by regressions that have not seen them."""

    model: Model
    score: np.ndarray


def update(model: Model, admissions: Admissions, labels: Mapping[str, np.ndarray], subjects: np.ndarray) -> Updated:
    """Move the model's weights, risks and curves; `labels` are the outcomes to learn from, NaN where not known."""
    if not isinstance(model.scorer, TableScorer):
        recipe = model.card["recipe"]
        raise InputError(f"--update weights moves the weights of a table; a model of the recipe {recipe} has none.")
    if model.numbers:
        raise InputError(
            f"--update weights knows no outcomes that are numbers; the model has {', '.join(model.numbers)}."
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
    """Return the same model with its calibration inside weights, intercepts and curves."""
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
    """Return the model with rows of 0 for the tokens that it does not know and ten admissions have."""
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
    """Return the arrays of the new model; `places` says which moved outcome each of its outcomes is, None: none.

    Its curves are a mixture of the former ones, carried from the `shipped` log-odds to the new ones, and of those that
    the own admissions ask for: by how many these are, and at least by the share that learned from them alone.
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
        state["calibration"].append([0.0, 1.0])  # the former's is inside its weights, and what moved is calibrated
    found = {name: np.stack(columns) for name, columns in state.items()}
    return {**found, "weights": np.ascontiguousarray(found["weights"].T)}


def _carried(knots: np.ndarray, former: np.ndarray, log_odds: np.ndarray) -> np.ndarray:
    """Return knots among the former log-odds, put where as many standard deviations from the mean are now."""
    slope = log_odds.std() / max(float(former.std()), 1e-9)
    return log_odds.mean() + max(slope, LEAST_SLOPE) * (knots - former.mean())


def _apart(knots: np.ndarray) -> np.ndarray:
    """Return the knots in order, none upon another."""
    knots = np.sort(knots)
    steps = 1e-4 * max(float(np.ptp(knots)), 1e-6) * np.arange(len(knots))
    return np.maximum.accumulate(knots - steps) + steps
