"""A card as a page that adds up the points: tick boxes and a small script, no network access."""

import base64
import hashlib
from importlib.resources import files

from mlci.base.names import label
from mlci.showing._pages import environment
from mlci.showing.card import _words as say
from mlci.showing.card._compute import Card


def page(card: Card) -> str:
    """Return the page as text; without JavaScript it is still a card to add up by hand."""
    script = files("mlci.showing.card").joinpath("card.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    template = environment("card").get_template("card.html.j2")
    return template.render(card=card, say=say, label=label, script=script, digest=digest)
