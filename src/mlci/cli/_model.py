"""Parameter types that take a model: a file, a benchmark run, or the name of a ready-made index."""

from typing import Any

import click


class ModelFile(click.ParamType):
    """A model, converted to the path of its file."""

    name = "model"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        from mlci.index.ready import model_path

        return str(model_path(value))


MODEL = ModelFile()


class Bandwidth(click.ParamType):
    """A number above 0, or a model file with a trained bandwidth."""

    name = "number|model"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        from mlci.base.errors import InputError

        try:
            number = float(value)
        except ValueError:
            return self._trained(value)
        if not 0 < number < float("inf"):
            raise InputError(f"sigma: {value} is neither a number above 0 nor a model file.")
        return number

    @staticmethod
    def _trained(name: str) -> float:
        from mlci.base.errors import InputError
        from mlci.index.model import load_model
        from mlci.index.ready import model_path

        model = load_model(model_path(name))
        if model.card.get("bandwidth") is None:
            recipe = model.card["recipe"]
            raise InputError(
                f"{name}: has no trained bandwidth; only the recipe paper trains one, and its recipe is {recipe}."
            )
        return float(model.card["bandwidth"])


BANDWIDTH = Bandwidth()
