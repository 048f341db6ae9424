"""The argument MODEL: a file, a run of the benchmark, or a ready-made index by name; and what options take of it."""

from typing import Any

import click


class ModelFile(click.ParamType):
    """Turns a name into the path of its file."""

    name = "model"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        from mlci.index.ready import model_path

        return str(model_path(value))


MODEL = ModelFile()


class Bandwidth(click.ParamType):
    """A number above 0, or a model file whose trained bandwidth is taken."""

    name = "number|model"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        from mlci.base.errors import InputError

        try:
            number = float(value)
        except ValueError:
            return self._trained(value)
        if not 0 < number < float("inf"):
            raise InputError(f"sigma: {value} is not a number above 0, nor a model file.")
        return number

    @staticmethod
    def _trained(name: str) -> float:
        from mlci.base.errors import InputError
        from mlci.index.model import load_model
        from mlci.index.ready import model_path

        model = load_model(model_path(name))
        if model.card.get("bandwidth") is None:
            recipe = model.card["recipe"]
            raise InputError(f"{name}: keeps no trained bandwidth; the recipe paper has one, and this is of {recipe}.")
        return float(model.card["bandwidth"])


BANDWIDTH = Bandwidth()
