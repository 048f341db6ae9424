"""Turn scores or outcomes in any form (a mapping, a frame, an array) into columns by name."""

from collections.abc import Mapping
from typing import Any

import numpy as np


def columns_of(data: Any, name: str) -> dict[str, Any]:
    """Return columns by name; columns without names are called `name`, and numbered if there are several.

    >>> columns_of(np.eye(2), "score")["score_2"]
    array([0., 1.])
    """
    if isinstance(data, Mapping):
        return dict(data)
    if hasattr(data, "columns"):
        return {str(column): data[column] for column in data.columns}
    array = np.asarray(data)
    return {name: data} if array.ndim == 1 else {f"{name}_{i + 1}": column for i, column in enumerate(array.T)}
