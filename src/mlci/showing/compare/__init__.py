"""Self-contained pages about groups and treatments compared: computed in `mlci.judging`, drawn and rendered here."""

from mlci.judging.balance import Balance
from mlci.judging.compare import Comparison
from mlci.showing.compare import _balance
from mlci.showing.compare._draw import draw
from mlci.showing.compare._render import render

__all__ = ["build"]


def build(found: Comparison | Balance, *, command: str) -> str:
    """The page of groups, or of two treatments, as HTML; `command` is shown as what made it."""
    if isinstance(found, Balance):
        return _balance.build(found, command=command)
    return render(found, draw(found), command=command)
