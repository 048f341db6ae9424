"""What a person changes of the benchmark's models: a TOML file in, models with other settings out.

A table of the file is named after a model or a family of models, and holds their own settings (`k = 20` of `knn`). Of
a model that a recipe fits it may hold sections of the recipe's config too, as `mlci fit --config` takes them:

    [knn]
    k = 20

    [ablation.objective]
    validity = "outcome"
"""

import json
import tomllib
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from mlci.base.errors import InputError, reading
from mlci.benchmark.models import FAMILIES, Baseline, Learned, discover, merged

FIXED = ("name", "title", "family", "needs", "constants")  # what a model is, not how it is fitted


def read_changes(path: str | Path) -> dict[str, dict[str, Any]]:
    """Read a TOML file of other settings; a model, family or setting that is not known is an `InputError`.

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
    with reading(path, "a TOML file"):
        try:
            found = tomllib.loads(Path(path).read_text())
        except tomllib.TOMLDecodeError as error:
            raise InputError(f"{path}: is not TOML: {error}.") from None
    models = discover()
    for name, given in found.items():
        if not isinstance(given, dict) or (name not in models and name not in FAMILIES):
            known = f"families {', '.join(FAMILIES)}; models {', '.join(models)}"
            raise InputError(f"{path}: '{name}' is no table of a model or a family; known are {known}.")
        for model in models.values():
            if name in (model.name, model.family):
                changed(model, {name: given}, where=f"{path}: {name}")
    return found


def changed(model: Baseline, changes: Mapping[str, Mapping[str, Any]], *, where: str = "config") -> Baseline:
    """Return a model with other settings: those of its family, and over them its own.

    Args:
        model: any model of the benchmark.
        changes: settings by model or family, as `read_changes` returns them.
        where: what a message calls their place.

    >>> [knn] = [model for model in discover().values() if model.name == "knn"]
    >>> changed(knn, {"knn": {"k": 20}}).k
    20
    """
    given: dict[str, Any] = {}
    for table in (model.family, model.name):
        given = merged(given, changes.get(table, {}))
    own = {field.name for field in fields(model)} - set(FIXED)
    plain = {name: value for name, value in given.items() if name in own and not isinstance(value, dict)}
    rest = {name: value for name, value in given.items() if name not in plain}
    for name, value in plain.items():
        usual = getattr(model, name)
        if type(value) is not type(usual) and not (isinstance(usual, float) and isinstance(value, int)):
            raise InputError(f"{where}: {name} is {value!r}; it must be of the kind of {usual!r}.")
    if rest and not isinstance(model, Learned):
        raise InputError(
            f"{where}: {next(iter(rest))} is no setting of {model.name}; allowed is {', '.join(sorted(own))}."
        )
    made = replace(model, **plain, **({"constants": json.dumps(rest, sort_keys=True)} if rest else {}))
    if isinstance(made, Learned):
        made.config()  # an unknown section, or a value out of range, is told now
    return made
