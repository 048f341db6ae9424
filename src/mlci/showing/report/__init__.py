"""One self-contained HTML page about an index on a cohort: computed, drawn, rendered, each in a file of its own."""

from collections.abc import Sequence

from mlci.cohort import Cohort
from mlci.index.estimator import MLCI
from mlci.showing.report._compute import compute
from mlci.showing.report._draw import draw
from mlci.showing.report._render import render

RESAMPLES = 200

__all__ = ["build"]


def build(
    index: MLCI,
    cohort: Cohort,
    *,
    command: str,
    by: Sequence[str] | None = None,
    resamples: int = RESAMPLES,
    seed: int = 12345,
) -> str:
    """The report as HTML.

    `command` is shown as what made the page. `by` names the cohort's columns to tell subgroups by (without it, sex and
    age band where the cohort knows them), `resamples` the bootstrap's size, `seed` its draws.
    """
    findings = compute(index, cohort, by=by, resamples=resamples, seed=seed)
    return render(findings, draw(findings), command=command)
