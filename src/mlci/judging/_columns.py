"""Turn scores or outcomes in any form (a mapping, a frame, an array) into columns by name."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from mlci.base.errors import InputError


def columns_of(data: Any, name: str) -> dict[str, Any]:
    """Return columns by name; columns without names are called `name`, and numbered if there are several.

    >>> columns_of(np.eye(2), "score")["score_2"]
    array([0., 1.])
    """
    if isinstance(data, Mapping) or hasattr(data, "columns"):
        found = dict(data) if isinstance(data, Mapping) else {str(column): data[column] for column in data.columns}
        if not found:
            raise InputError(f"{name}s: there are none; at least one is needed.")
        return found
    array = np.asarray(data)
    return {name: data} if array.ndim == 1 else {f"{name}_{i + 1}": column for i, column in enumerate(array.T)}
