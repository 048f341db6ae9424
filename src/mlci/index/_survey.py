"""The survey design of a fit: check weights and clusters, given as columns or values, and describe them in the card."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mlci.base.errors import InputError
from mlci.cohort import Cohort
from mlci.fitting._data import Splits
from mlci.measures.design import numbered
from mlci.measures.weighted import effective

WEIGHTED = ("table",)  # recipes that accept survey weights


def survey_columns(
    data: Any, weights: str | Sequence[float] | None, cluster: str | Sequence | None, *, recipe: str, many: int
) -> dict[str, Any]:
    """Return `weight` and `clusters` of each admission; None if not given."""
    if weights is not None and recipe not in WEIGHTED:
        raise InputError(f"the recipe {recipe} does not accept weights; the recipe {', '.join(WEIGHTED)} does.")
    found: dict[str, Any] = {"weight": None, "clusters": None}
    for name, source in (("weight", weights), ("clusters", cluster)):
        if source is None:
            continue
        if isinstance(source, str):
            if not isinstance(data, Cohort):
                raise InputError(
                    f"{name}: {source!r} can only name a column of a cohort; with codes, pass one value per admission."
                )
            from mlci.judging._carried import column, weights_of

            found[name] = weights_of(data, source) if name == "weight" else column(data, source)
            continue
        values = np.asarray(source)
        if values.ndim != 1:
            raise InputError(f"{name}: has {values.ndim} dimensions; pass one value per admission.")
        if len(values) != many:
            raise InputError(f"{name}: has {values.size} values for {many} admissions.")
        found[name] = values
    if found["clusters"] is not None:
        found["clusters"] = numbered(found["clusters"])
    weight = found["weight"]
    if weight is not None:
        try:
            weight = np.asarray(weight, np.float64)
        except (TypeError, ValueError):
            raise InputError("weights: some are not numbers; a weight is a number of 0 or more.") from None
        if not (np.isfinite(weight).all() and (weight >= 0).all() and weight.any()):
            raise InputError("weights: some are missing or negative, or all are 0; a weight is a number of 0 or more.")
        found["weight"] = weight
    return found


def survey_entry(splits: Splits, weights: Any, cluster: Any) -> dict[str, Mapping[str, Any]]:
    """Return the card's entry on the design: the columns, and the effective number of admissions (Kish)."""
    weight, facts = splits.train.weight, {}
    if weight is not None:
        facts |= {"weights": weights if isinstance(weights, str) else "given", "worth": round(effective(weight))}
        facts |= {"weightless": splits.weightless} if splits.weightless else {}
    if splits.train.clusters is not None:
        facts["cluster"] = cluster if isinstance(cluster, str) else "given"
    return {"survey": facts} if facts else {}


def survey_words(card: Mapping[str, Any]) -> str:
    """Describe the survey design that a model's card records; empty if there is none.

    >>> survey_words({"survey": {"weights": "weight", "worth": 60_000}})
    'weighted by weight, effective sample size 60,000'
    """
    facts, parts = card.get("survey", {}), []
    if "weights" in facts:
        parts.append(f"weighted by {facts['weights']}, effective sample size {facts['worth']:,}")
    if "weightless" in facts:
        parts.append(f"{facts['weightless']:,} admissions of weight 0 left out")
    if "cluster" in facts:
        parts.append(f"clusters by {facts['cluster']}")
    return "; ".join(parts)
