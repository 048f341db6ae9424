"""Build one self-contained HTML page about an index on a cohort.

Computing, drawing and rendering are separate files. A part is drawn as soon as it is computed, while threads compute
the others.
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
    from mlci.index.estimator import MLCI  # imports scikit-learn, which is slow

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
        index: the index, or its model.
        cohort: the cohort whose test split evaluates it.
        command: the command line shown on the page.
        study: the authors' answers to items of TRIPOD+AI, as `read_study` reads them.
        album: draws the figures; a new one if None.
        options: `by`, columns of the cohort that define subgroups (None: sex and age band, if the cohort has them);
            `resamples` of the bootstrap; `resample_training`, how often the index is refitted on resampled training
            patients (0: not at all), with `refitting`, the `state` and `on_fit` of `mlci.index.vary`; `seed` of the
            draws; `drawn`, the survey columns `weights`, `cluster` and `strata`.

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
