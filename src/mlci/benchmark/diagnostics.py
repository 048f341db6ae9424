"""The theory's tables of a benchmark: test scores of our models in, the paper's Tables 3, 4, 5 and 8 out.

They follow the authors' protocol (`mlci.judging.theory`, protocol "paper"), seed by seed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mlci.base.errors import InputError
from mlci.base.grids import Grid
from mlci.benchmark.runs import Run
from mlci.benchmark.tables import test_scores
from mlci.cohort import Cohort
from mlci.judging import paper_tables, theory
from mlci.judging.curves import Trend, trends

OURS = "mlci"  # the family whose scores are diagnosed
PROTOCOL = "By the authors' protocol: n admissions of the test split, scores scaled to [-1, 1], J and J₁ unfloored."


@dataclass(frozen=True)
class Diagnosed:
    """One model: its figures by seed, and how far each risk rises over all seeds."""

    figures: Mapping[int, dict[tuple[str, str], float]]
    trends: tuple[Trend, ...]


def diagnose(
    runs: Sequence[Run], cohort: Cohort, *, sample: int | None = None
) -> tuple[dict[str, Diagnosed], list[str]]:
    """The figures of every model of ours that has finished, and why some have none."""
    ours = {run.model.name for run in runs if run.model.family == OURS}
    test, found, notes = cohort.split("test"), {}, []
    labels, names = test.labels(), list(cohort.outcomes)
    for model, seeds in test_scores(runs, cohort).items():
        if model not in ours:
            continue
        try:
            figures = {seed: _figures(score, labels, names, sample) for seed, score in seeds.items()}
        except InputError as error:
            notes.append(f"{model}: has no diagnostics: {error}")
            continue
        found[model] = Diagnosed(figures, trends(list(seeds.values()), labels, names))
    return found, notes


def _figures(score: np.ndarray, labels: np.ndarray, names: list[str], sample: int | None) -> dict:
    return paper_tables.figures(theory.diagnose(score, labels, names, protocol="paper", sample=sample))


def tables(found: Mapping[str, Diagnosed], *, paper: Mapping[str, Mapping] | None = None) -> list[Grid]:
    """Tables 3, 4, 5 and 8: a row for each model and seed, then for their mean, then for what the paper prints.

    Args:
        found: models, as `diagnose` gives them.
        paper: rows that the paper prints, by name: "figures" by quantity and outcome, "changes" by outcome.
    """
    if not found:
        return []
    rows: dict[str, paper_tables.Figures] = {}
    for model, diagnosed in found.items():
        rows |= {f"{model}, seed {seed}": figures for seed, figures in diagnosed.figures.items()}
        if len(diagnosed.figures) > 1:
            rows[f"{model}, mean ± SD"] = paper_tables.averages(list(diagnosed.figures.values()))
    changes = {model: paper_tables.changes(diagnosed.trends) for model, diagnosed in found.items()}
    for name, printed in (paper or {}).items():
        rows[name], changes[name] = printed["figures"], printed["changes"]
    return [*paper_tables.diagnostic_tables(rows, PROTOCOL), paper_tables.curve_table(changes)]
