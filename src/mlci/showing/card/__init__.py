"""The index as a card: a short list of code groups with whole points to be added up, in Charlson's manner.

`make_card` computes it, `write` renders it: a page that adds up by itself (.html), two sides of paper (.pdf), or the
points alone (.csv).
"""

from pathlib import Path

from mlci.base.errors import InputError
from mlci.base.files import atomic
from mlci.showing.card._compute import Card, make_card

__all__ = ["Card", "make_card", "write"]


def write(card: Card, path: str | Path) -> None:
    """Write a card as .html, .pdf or .csv, by the name."""
    kind = Path(path).suffix.lower()
    if kind == ".html":
        from mlci.showing.card._html import page

        content = page(card).encode()
    elif kind == ".pdf":
        from mlci.showing.card._pdf import draw

        content = draw(card)
    elif kind == ".csv":
        content = card.frame().to_csv(index=False).encode()
    else:
        raise InputError(f"{path}: a card is written as .html, .pdf or .csv.")
    with atomic(path) as temporary:
        temporary.write_bytes(content)
