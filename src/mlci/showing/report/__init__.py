"""One self-contained HTML page about an index on a cohort: computed, drawn, rendered, each in a file of its own."""

from collections.abc import Mapping, Sequence

from mlci.cohort import Cohort
from mlci.index.estimator import MLCI
from mlci.showing.report._compute import compute
from mlci.showing.report._draw import draw
from mlci.showing.report._render import render
from mlci.showing.report._tripod import read_study

RESAMPLES = 200

__all__ = ["build", "read_study"]


def build(
    index: MLCI,
    cohort: Cohort,
    *,
    command: str,
    by: Sequence[str] | None = None,
    study: Mapping[str, str] | None = None,
    resamples: int = RESAMPLES,
    resample_training: int = 0,
    seed: int = 12345,
) -> str:
    """Build the report as HTML.

    Args:
        index: the index it is about.
        cohort: whose test split judges it.
        command: shown as what made the page.
        by: the cohort's columns to tell subgroups by (None: sex and age band where the cohort knows them).
        study: the authors' answers to items of TRIPOD+AI, as `read_study` reads them.
        resamples: of the bootstrap.
        resample_training: how often the index is fitted again on resampled training patients (0: not at all).
        seed: of the draws.

    >>> import mlci
    >>> cohort = mlci.build_cohort("synthetic", 600, seed=1)
    >>> build(mlci.load("us2010"), cohort, command="an example", resamples=20)[:15]
    '<!doctype html>'
    """
    findings = compute(index, cohort, by=by, resamples=resamples, resample_training=resample_training, seed=seed)
    return render(findings, draw(findings), command=command, study=study or {})
