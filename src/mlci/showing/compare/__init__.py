"""Self-contained pages that compare groups or treatments: computed in `mlci.judging`, drawn and rendered here."""

from mlci.judging.balance import Balance
from mlci.judging.compare import Comparison
from mlci.showing.compare import _balance
from mlci.showing.compare._draw import draw
from mlci.showing.compare._render import render

__all__ = ["build"]


def build(found: Comparison | Balance, *, command: str) -> str:
    """Return the page that compares groups, or two treatments, as HTML.

    Args:
        found: what `compare` or `balance` of `mlci.judging` returned.
        command: shown as what made the page.

    >>> import mlci
    >>> cohort = mlci.build_cohort("synthetic", 300, hospitals=2)
    >>> score = cohort.column("true_severity")
    >>> found = mlci.compare(cohort, score, by="hospital", outcome="long_stay", resamples=0)
    >>> "<h1>" in build(found, command="mlci compare ...")
    True
    """
    if isinstance(found, Balance):
        return _balance.build(found, command=command)
    return render(found, draw(found), command=command)
