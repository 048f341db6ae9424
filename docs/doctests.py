"""An extension of griffe: the examples of a docstring (`>>>`) are shown as code, where Markdown sees quotations."""

import re

import griffe

EXAMPLE = re.compile(r"^>>>.*?(?=\n\s*\n(?!>>>)|\Z)", flags=re.S | re.M)


class Doctests(griffe.Extension):
    """Fences each run of lines that begins with a prompt, up to the next empty line."""

    def on_object(self, *, obj: griffe.Object, **_: object) -> None:
        if obj.docstring and ">>>" in obj.docstring.value:
            text = obj.docstring.value
            obj.docstring.value = EXAMPLE.sub(lambda found: f"```pycon\n{found[0].rstrip()}\n```", text)
