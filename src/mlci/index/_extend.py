"""Add rows for new codes to a table, each with its weights and its number of training admissions."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from mlci.index.model import Model
from mlci.tokens import SPECIAL


def extended(model: Model, rows: Mapping[tuple[int, str], tuple[np.ndarray, int]]) -> Model:
    """Return the model with new tokens; `rows` maps ICD version and text to a weight per outcome and the support."""
    if not rows:
        return model
    vocabulary, more = model.vocabulary, sorted(rows)
    names = [*zip(vocabulary.versions, vocabulary.tokens), *more]
    order = sorted(range(len(names)), key=names.__getitem__)
    support = [*(vocabulary.support or (0,) * len(vocabulary.tokens)), *(rows[name][1] for name in more)]
    weights = np.concatenate([model.state["weights"][len(SPECIAL) :], [rows[name][0] for name in more]])[order]
    wider = replace(
        vocabulary,
        tokens=tuple(names[place][1] for place in order),
        versions=tuple(names[place][0] for place in order),
        support=tuple(support[place] for place in order),
    )
    state = {**model.state, "weights": np.concatenate([model.state["weights"][: len(SPECIAL)], weights])}
    return replace(model, vocabulary=wider, state=state)
