"""Change the settings of the benchmark's models by a TOML file.

A table of the file is named after a model or a family of models, and holds their settings (such as `k = 20` for `knn`).
For a model that is fitted by a recipe, it may also hold sections of the recipe's config, as in `mlci fit --config`:

    [knn]
    k = 20

    [ablation.objective]
    validity = "outcome"
"""

import json
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from mlci.base.errors import InputError
from mlci.base.toml import read_toml
from mlci.benchmark.models import FAMILIES, Baseline, Learned, discover, merged

FIXED = ("name", "title", "family", "needs", "constants")  # fields that cannot be changed


def read_changes(path: str | Path) -> dict[str, dict[str, Any]]:
    """Read a TOML file of settings; an unknown model, family or setting raises an `InputError`.

    Args:
        path: the file.

    Returns:
        The settings by model or family.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, "changes.toml").write_text("[knn]\\nk = 20")
    ...     read_changes(Path(folder, "changes.toml"))
    {'knn': {'k': 20}}
    """
    found, models = read_toml(path), discover()
    for name, settings in found.items():
        if not isinstance(settings, dict) or (name not in models and name not in FAMILIES):
            known = f"families {', '.join(FAMILIES)}; models {', '.join(models)}"
            raise InputError(f"{path}: {name!r} is not a table of a model or a family; allowed are {known}.")
        for model in models.values():
            if name in (model.name, model.family):
                changed(model, {name: settings}, where=f"{path}: {name}")
    return found


def changed(model: Baseline, changes: Mapping[str, Mapping[str, Any]], *, where: str = "config") -> Baseline:
    """Return a model with the settings of its family, overridden by its own.

    Args:
        model: any model of the benchmark.
        changes: settings by model or family, from `read_changes`.
        where: their place, for error messages.

    >>> [knn] = [model for model in discover().values() if model.name == "knn"]
    >>> changed(knn, {"knn": {"k": 20}}).k
    20
    """
    settings: dict[str, Any] = {}
    for table in (model.family, model.name):
        settings = merged(settings, changes.get(table, {}))
    own = {field.name for field in fields(model)} - set(FIXED)
    plain = {name: value for name, value in settings.items() if name in own and not isinstance(value, dict)}
    sections = {name: value for name, value in settings.items() if name not in plain}
    for name, value in plain.items():
        default = getattr(model, name)
        if type(value) is not type(default) and not (isinstance(default, float) and isinstance(value, int)):
            raise InputError(f"{where}: {name} is {value!r}; it must have the same type as {default!r}.")
    if sections and not isinstance(model, Learned):
        raise InputError(
            f"{where}: {next(iter(sections))} is not a setting of {model.name}; allowed are {', '.join(sorted(own))}."
        )
    result = replace(model, **plain, **({"constants": json.dumps(sections, sort_keys=True)} if sections else {}))
    if isinstance(result, Learned):
        result.config()  # raises an error for an unknown section or a value out of range
    return result
