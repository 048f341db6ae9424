"""One self-contained HTML page about groups compared: computed in `mlci.judging.compare`, drawn and rendered here."""

from mlci.judging.compare import Comparison
from mlci.showing.compare._draw import draw
from mlci.showing.compare._render import render

__all__ = ["build"]


def build(found: Comparison, *, command: str) -> str:
    """The page as HTML; `command` is shown as what made it."""
    return render(found, draw(found), command=command)
