"""How the admissions of a fit were drawn: weights and clusters of a cohort, or beside codes; and what its card says.

Names of columns or plain values come in, checked arrays go out. A recipe that cannot take them says so.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mlci.base.errors import InputError
from mlci.cohort import Cohort
from mlci.fitting._data import Splits
from mlci.measures.weighted import effective

WEIGHTED = ("table",)  # recipes that learn from admissions which count unequally


def drawn_by(
    data: Any, weights: str | Sequence[float] | None, cluster: str | Sequence | None, *, recipe: str, many: int
) -> dict[str, Any]:
    """Return `weight` and `clusters` of each admission, None where nobody asked."""
    if weights is not None and recipe not in WEIGHTED:
        raise InputError(f"the recipe {recipe} counts every admission once; weights are for {', '.join(WEIGHTED)}.")
    found: dict[str, Any] = {"weight": None, "clusters": None}
    for name, given in (("weight", weights), ("clusters", cluster)):
        if given is None:
            continue
        if isinstance(given, str):
            if not isinstance(data, Cohort):
                raise InputError(f"{name}: {given} names a column of a cohort; beside codes give a value for each.")
            from mlci.judging._carried import column, weights_of

            found[name] = weights_of(data, given) if name == "weight" else column(data, given)
            continue
        values = np.asarray(given)
        if values.shape != (many,):
            raise InputError(f"{name}: has {len(values)} values for {many} admissions.")
        found[name] = values
    weight = found["weight"]
    if weight is not None:
        weight = weight.astype(np.float64)
        if not (np.isfinite(weight).all() and (weight >= 0).all() and weight.any()):
            raise InputError("weights: some are empty or negative, or all are 0; a weight is a number from 0.")
        found["weight"] = weight
    return found


def in_words(splits: Splits, weights: Any, cluster: Any) -> dict[str, Mapping[str, Any]]:
    """Return what a model's card says of it: names of columns, and how many equal admissions the weights are worth."""
    weight, facts = splits.train.weight, {}
    if weight is not None:
        facts |= {"weights": weights if isinstance(weights, str) else "given", "worth": round(effective(weight))}
    if splits.train.clusters is not None:
        facts["cluster"] = cluster if isinstance(cluster, str) else "given"
    return {"survey": facts} if facts else {}


def told(card: Mapping[str, Any]) -> str:
    """Return what a model's card says of how its admissions were drawn, in words; nothing where each counted once.

    >>> told({"survey": {"weights": "weight", "worth": 60_000}})
    'weighted by weight, worth 60,000 of equal weight'
    """
    facts = card.get("survey", {})
    said = [f"weighted by {facts['weights']}, worth {facts['worth']:,} of equal weight"] if "weights" in facts else []
    return "; ".join(said + ([f"clusters by {facts['cluster']}"] if "cluster" in facts else []))
