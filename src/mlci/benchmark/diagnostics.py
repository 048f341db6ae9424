"""Make the paper's Tables 3, 4, 5 and 8 from the test scores of a benchmark's MLCI models.

They follow the authors' protocol (`mlci.judging.theory`, protocol "paper"), for each seed.
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
    """The diagnostics of one model: its figures by seed, and the trend of each risk over all seeds."""

    figures: Mapping[int, dict[tuple[str, str], float]]
    trends: tuple[Trend, ...]


def diagnose(
    runs: Sequence[Run], cohort: Cohort, *, sample: int | None = None
) -> tuple[dict[str, Diagnosed], list[str]]:
    """Diagnose the test scores of every finished model of the family `mlci`.

    Args:
        runs: from `run_benchmark`.
        cohort: of the runs.
        sample: number of test admissions to use; by default all.

    Returns:
        The figures by model, and a sentence for each model that has none.

    >>> import pandas as pd
    >>> visits = pd.DataFrame({"visit_id": range(9), "codes": [["I50.9"]] * 9, "died": [1, 0, 0] * 3})
    >>> diagnose([], Cohort.from_frame(visits.assign(split=["train", "valid", "test"] * 3), icd_version=10))
    ({}, [])
    """
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
    """Make the paper's Tables 3, 4, 5 and 8, with rows for each model and seed, for their mean, and for the paper.

    Args:
        found: models, from `diagnose`.
        paper: rows that the paper prints, by name: "figures" by quantity and outcome, "changes" by outcome.

    Returns:
        The tables; an empty list without models.

    >>> score, died = np.linspace(0, 1, 200), np.linspace(0, 1, 200)[:, None] > 0.6
    >>> found = Diagnosed({11: _figures(score, died, ["died"], None)}, trends([score], died, ["died"]))
    >>> [table.title.partition(". ")[0] for table in tables({"ward": found})]
    ['Table 3', 'Table 4', 'Table 5', 'Table 8']
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
