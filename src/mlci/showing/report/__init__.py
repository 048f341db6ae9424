"""One self-contained HTML page about an index on a cohort: computed, drawn, rendered, each in a file of its own.

A part is drawn as soon as it is found, while threads compute the others.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from mlci.cohort import Cohort
from mlci.index.model import Model
from mlci.showing._elsewhere import DrawnElsewhere
from mlci.showing._pages import Album, Sketch
from mlci.showing.report._compute import compute
from mlci.showing.report._draw import of_part, of_rest
from mlci.showing.report._render import render
from mlci.showing.report._tripod import read_study

if TYPE_CHECKING:
    from mlci.index.estimator import MLCI  # imports scikit-learn, which takes longer than many a report

__all__ = ["build", "read_study"]


def build(
    index: "MLCI | Model",
    cohort: Cohort,
    *,
    command: str,
    study: Mapping[str, str] | None = None,
    album: Album | DrawnElsewhere | None = None,
    **options: Any,
) -> str:
    """Build the report as HTML.

    Args:
        index: the index it is about, or its model.
        cohort: whose test split judges it.
        command: shown as what made the page.
        study: the authors' answers to items of TRIPOD+AI, as `read_study` reads them.
        album: where the pictures are drawn, a new one if None.
        options: `by`, the cohort's columns to tell subgroups by (None: sex and age band where the cohort knows them);
            `resamples` of the bootstrap; `resample_training`, how often the index is fitted again on resampled training
            patients (0: not at all), with `refitting`, the `state` and `on_fit` of `mlci.index.vary`; `seed` of the
            draws; `drawn`, the columns of `weights`, `cluster` and `strata` where the cohort is a sample.

    Returns:
        The page.

    >>> import mlci
    >>> cohort = mlci.build_cohort("synthetic", 100, seed=1)
    >>> build(mlci.load("us2010"), cohort, command="an example", resamples=2)[:15]
    '<!doctype html>'
    """
    model = index if isinstance(index, Model) else index.model_

    album = album or Album()

    def draw(sketches: Iterable[Sketch]) -> None:
        for sketch in sketches:
            album.draw(sketch)

    findings = compute(model, cohort, shown=lambda part: draw(of_part(part, model.cutoff.score)), **options)
    draw(of_rest(findings))
    return render(findings, album.pictures, command=command, study=study or {})
