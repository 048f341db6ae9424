"""The argument MODEL: a file, or the name of a ready-made index."""

from typing import Any

import click


class ModelFile(click.ParamType):
    """Turns a name into the path of its file."""

    name = "model"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        from mlci.index.ready import model_path

        return str(model_path(value))


MODEL = ModelFile()
