"""Code importance: summarise the effects of each distinct code on the score over many admissions.

This is a module of its own because the report needs it without importing scikit-learn, as the estimator does.
"""

import numpy as np
import pandas as pd

from mlci.codes.admissions import Admissions
from mlci.index._explain import shares, titles_of
from mlci.index.model import Model


def importance(model: Model, admissions: Admissions) -> pd.DataFrame:
    """Summarise what each code contributes over many admissions, the largest mean absolute effect first.

    Args:
        model: of the index.
        admissions: to average over.

    Returns:
        One row per distinct code: the number of admissions that have it, its mean absolute effect and its mean effect.

    >>> from mlci.index.model import load_model
    >>> from mlci.index.ready import model_path
    >>> model = load_model(model_path("us2010"))
    >>> frame = importance(model, model.as_admissions([["I50.9", "N17.9"], ["I50.9"]], icd_version=10))
    >>> frame.set_index("code")["admissions"].to_dict()
    {'N179': 1, 'I509': 2}
    """
    effects = shares(model, admissions, model.read(admissions)).score
    size = len(admissions.values)
    recorded = np.maximum(admissions.mentions, 1)
    pairs = np.unique(
        np.repeat(np.arange(len(admissions)), admissions.counts) * np.int64(max(size, 1)) + admissions.indices
    )
    frame = pd.DataFrame(
        {
            "code": admissions.values,
            "icd_version": admissions.versions,
            "title": titles_of(model, admissions),
            "known": model.known(admissions),
            "admissions": np.bincount(pairs % max(size, 1), minlength=size),
            "mean_absolute_effect": np.bincount(admissions.indices, np.abs(effects), minlength=size) / recorded,
            "mean_effect": np.bincount(admissions.indices, effects, minlength=size) / recorded,
        }
    )
    frame = frame[frame["admissions"] > 0]  # `Admissions` that were taken from others have some of their codes
    return frame.sort_values(["mean_absolute_effect", "code"], ascending=[False, True], ignore_index=True)
