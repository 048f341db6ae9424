"""A card as a page that adds up by itself: tick boxes, a few lines of script, nothing from outside."""

import base64
import hashlib
from functools import cache
from importlib.resources import files

from mlci.base.names import label
from mlci.showing.card import _words as say
from mlci.showing.card._compute import Card


def page(card: Card) -> str:
    """Return the page as text; without its script it is still the card, to be added up by hand."""
    script = files("mlci.showing.card").joinpath("card.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return _template().render(card=card, say=say, label=label, script=script, digest=digest)


@cache
def _template():
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("mlci.showing.card", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("card.html.j2")
