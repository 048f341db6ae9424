"""What a fit gave becomes a model: percentiles, risk curves, cutoff and card from the admissions that it saw.

In come a recipe's `Fit` and its splits; out comes a `Model`. Brings SciPy with it, which fits of networks do without:
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
from mlci.index._aggregates import LEAST, as_shipped, counted, quantiles, tokens_of_one_patient, without_small_cells
from mlci.index._enough import shortfalls
from mlci.index._evidence import Evidence, halved
from mlci.index._held_out import held_out
from mlci.index._masked import masking
from mlci.index._reading import Reading
from mlci.index.model import Model, scorer_of
from mlci.index.modelcard import about
from mlci.index.shift import learned
from mlci.judging.kept import Smooth
from mlci.judging.smooth import smooth


def _read(scorer: Any, split: Split) -> Reading:
    """Return what the scorer makes of a split, with age and sex where risks take them."""
    reading = scorer.read(split.tokens)
    if split.people is None:
        return reading
    return replace(reading, people=People(scorer.state["people"]).added(split.people))


@single_thread()  # several would round the last digit of some figure otherwise, and the file is the same on any machine
def model_of(fit: Fit, splits: Splits, card: dict[str, Any]) -> Model:
    """Return the model of a fit, with the percentiles, risks and cutoff of the admissions that it saw.

    Args:
        fit: of a recipe.
        splits: what it learned from.
        card: recipe, seed and config, to which the facts of the fit are added.
    """
    names = list(splits.outcomes)
    data = {"train": splits.train, "valid": splits.valid}
    scorer = scorer_of(fit.state, splits.vocabulary, card["config"])
    # What was cross-fitted takes the place of what the index itself says of admissions that it learned from.
    known = {} if fit.out_of_fold is None else {"train": Reading(fit.out_of_fold, fit.log_odds)}
    readings = {part: known.get(part) or _read(scorer, taken) for part, taken in data.items()}
    scores = {part: reading.score for part, reading in readings.items()}
    mass = {part: taken.weight for part, taken in data.items()}
    scores["train"] = as_shipped(scores["train"], scores["valid"], fit.valid_by_fold, mass["train"], mass["valid"])
    labels = {part: taken.outcomes.astype(np.float64) for part, taken in data.items()}
    halves = halved(splits.valid.fold_groups, len(splits.valid))
    weights = list(fit.weights.values())
    evidence = Evidence(scores, labels, names, weights, honest=fit.out_of_fold is not None, halves=halves, mass=mass)
    own = scorer.risks(readings["valid"]) if fit.valid_risks is None else fit.valid_risks
    chosen, judged = evidence.cutoff(), dict(zip(names, own.T))
    for place, name in enumerate(names):
        risk = evidence.judged(labels["valid"][:, place], place) if name not in judged else None
        judged |= {} if risk is None else {name: risk}
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
            "makeup": learned(splits.vocabulary, splits.train.tokens),
            "admissions": {part: len(taken) for part, taken in data.items()},
            "validation": held_out(scores["valid"], judged, labels["valid"], names, least=LEAST, drawn=splits.valid),
            "positives": counted(names, splits.train.outcomes),
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
    """Return how sure a recipe's own log-odds are, by the validation split, or else by what was cross-fitted."""
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
