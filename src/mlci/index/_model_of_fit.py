"""Make a model of a fit: percentiles, risk curves, cutoff and card from the admissions that the fit used.

Turn a recipe's `Fit` and its splits into a `Model`. This module imports SciPy, which the fits of networks do not need;
`learning` imports it while they run.
"""

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from mlci.base.blas import single_thread
from mlci.fitting._data import Split, Splits
from mlci.fitting._people import People
from mlci.fitting._result import Fit
from mlci.index._aggregates import (
    LEAST,
    as_shipped,
    event_counts,
    quantiles,
    tokens_of_one_patient,
    without_small_cells,
)
from mlci.index._evidence import Evidence, halved
from mlci.index._few_events import shortfalls
from mlci.index._held_out import held_out
from mlci.index._missing_outcomes import masking
from mlci.index._reading import Reading
from mlci.index.model import Model, scorer_of
from mlci.index.modelcard import about
from mlci.index.shift import makeup_of_tokens
from mlci.judging.kept import Smooth
from mlci.judging.smooth import smooth


def _read(scorer: Any, split: Split) -> Reading:
    """Return the scorer's reading of a split, with age and sex if the risks depend on them."""
    reading = scorer.read(split.tokens)
    if split.people is None:
        return reading
    return replace(reading, people=People(scorer.state["people"]).added(split.people))


@single_thread()  # rounding depends on the number of threads; with one, the file is identical on every machine
def model_of(fit: Fit, splits: Splits, card: dict[str, Any]) -> Model:
    """Return the model of a fit, with the percentiles, risks and cutoff of the admissions that the fit used.

    Args:
        fit: of a recipe.
        splits: the admissions that it was fitted to.
        card: recipe, seed and config, to which the facts of the fit are added.
    """
    names = list(splits.outcomes)
    data = {"train": splits.train, "valid": splits.valid}
    scorer = scorer_of(fit.state, splits.vocabulary, card["config"])
    # Of the training admissions take the cross-fitted readings if there are any, not the index's own.
    cross_fitted = {} if fit.out_of_fold is None else {"train": Reading(fit.out_of_fold, fit.log_odds)}
    readings = {part: cross_fitted.get(part) or _read(scorer, split) for part, split in data.items()}
    scores = {part: reading.score for part, reading in readings.items()}
    mass = {part: split.weight for part, split in data.items()}
    scores["train"] = as_shipped(scores["train"], scores["valid"], fit.valid_by_fold, mass["train"], mass["valid"])
    labels = {part: split.outcomes.astype(np.float64) for part, split in data.items()}
    halves = halved(splits.valid.fold_groups, len(splits.valid))
    weights = list(fit.weights.values())
    evidence = Evidence(
        scores, labels, names, weights, cross_fitted=fit.out_of_fold is not None, halves=halves, mass=mass
    )
    own = scorer.risks(readings["valid"]) if fit.valid_risks is None else fit.valid_risks
    chosen, risks = evidence.cutoff(), dict(zip(names, own.T))
    for place, name in enumerate(names):
        risk = evidence.held_out_risk(labels["valid"][:, place], place) if name not in risks else None
        risks |= {} if risk is None else {name: risk}
    reference = "train" if "train" in evidence.splits else "valid"
    return Model(
        state=fit.state,
        vocabulary=splits.vocabulary,
        icd_versions=splits.icd_versions,
        outcomes=splits.outcomes,
        quantiles=quantiles(scores[reference], mass[reference]),
        curves=evidence.curves(least=LEAST),
        bands=_bands(readings, labels, names, mass),
        cutoff=without_small_cells(chosen),
        card={
            **card,
            "weights": fit.weights,
            **({} if fit.bandwidth is None else {"bandwidth": fit.bandwidth}),
            "record": asdict(fit.record.shown()),
            "source": splits.source,
            "fitted_on": evidence.words,
            "in_sample": evidence.in_sample(),
            "about": about(splits.source),
            "makeup": makeup_of_tokens(splits.vocabulary, splits.train.tokens),
            "admissions": {part: len(taken) for part, taken in data.items()},
            "validation": held_out(scores["valid"], risks, labels["valid"], names, least=LEAST, drawn=splits.valid),
            "positives": event_counts(names, splits.train.outcomes),
            "needed": shortfalls(names, splits.train.outcomes),
            "no_part_in_cutoff": dict(chosen.left_out),
            **({"masked": masked} if (masked := masking(*evidence.took_part(chosen))) else {}),
            "tokens_of_one_patient": tokens_of_one_patient(splits.train),
            **({} if splits.train.numbers is None else {"numbers": splits.train.numbers.by_kind}),
        },
    )


def _bands(
    readings: Mapping[str, Reading],
    labels: Mapping[str, np.ndarray],
    names: list[str],
    mass: Mapping[str, np.ndarray | None],
) -> dict[str, Smooth]:
    """Return confidence bands of a recipe's own log-odds, from the validation split or else from cross-fitted ones."""
    part = "valid" if len(labels["valid"]) else "train"
    own = readings[part].log_odds
    if own is None:
        return {}
    columns = zip(names, own.T, labels[part].T)
    return {
        name: smooth(x, column, least=LEAST, weight=mass[part])
        for name, x, column in columns
        if (~np.isnan(column)).any()
    }
