"""How much an index varies with the admissions it happened to be learned from.

An index and the cohort that it was learned from come in. Its recipe is fitted again on patients drawn with replacement
from the training and validation splits, and every new index is judged on the same admissions; out comes how far their
figures and scores lie apart. The interval of a figure tells what other patients would change in judging; this tells
what they would change in learning.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from scipy.stats import rankdata

from mlci.base.errors import InputError
from mlci.cohort import Cohort
from mlci.index.estimator import MLCI
from mlci.judging._carried import weights_of
from mlci.measures.design import numbered
from mlci.measures.discrimination import auroc, calibration

FIGURES = ("auroc", "risk_auroc", "deviance")
FAR = 0.1  # of all ranks: how far an admission's place must move to be told


def resample_training(
    index: MLCI,
    cohort: Cohort,
    judged: Cohort,
    *,
    times: int,
    seed: int = 0,
    on_fit: Callable[[int], None] | None = None,
) -> pd.DataFrame:
    """Fit an index again on resampled patients, and judge each new one on the same admissions.

    Args:
        index: a fitted index; its recipe, constants, outcomes and seed are those of every new fit.
        cohort: what it was learned from: the splits train and valid are resampled, each by itself.
        judged: the admissions to judge by.
        times: how many new fits.
        seed: of the resampling.
        on_fit: called with the number of fits done.

    Returns:
        A row per outcome and figure (AUROC of score and risk, deviance explained): the index's own value, and mean, sd,
        least and largest of the new ones; and a row `score` with the rank correlation of the new scores with the own,
        and one with the share of admissions whose place moved by more than a tenth of all.

    >>> from mlci.cohort import build_cohort
    >>> cohort = build_cohort("synthetic", 600)
    >>> index = MLCI(outcomes=["long_stay"]).fit(cohort)
    >>> frame = resample_training(index, cohort, cohort.split("test"), times=2)
    >>> frame["figure"].tolist()
    ['auroc', 'risk_auroc', 'deviance', 'rank correlation', 'moved by a tenth']
    """
    if times < 2:
        raise InputError(f"resample_training: {times} fits tell no spread; allowed are 2 and more.")
    names = [name for name in index.model_.outcomes if name in cohort.outcomes]
    splits = [cohort.split(part) for part in ("train", "valid")]
    if not all(map(len, splits)):
        raise InputError("the cohort lacks a split train or valid; a new fit needs both.")
    drawn, weight = _drawn_by(index, judged)
    own, own_scores = _figures(index, judged, names, weight)
    found, places = [], []
    for draw in range(times):
        rng = np.random.default_rng([seed, draw])
        again = MLCI(recipe=index.recipe, config=index.config, outcomes=names, anchor=index.anchor, seed=index.seed)
        parts = (_drawn(split, rng, drawn.get("cluster", "subject_id")) for split in splits)
        again.fit(replace(cohort, table=pa.concat_tables(parts)), **drawn)
        figures, scores = _figures(again, judged, names, weight)
        found.append(figures)
        places.append((_correlation(own_scores, scores), _moved(own_scores, scores)))
        if on_fit is not None:
            on_fit(draw + 1)
    table = np.array([[*figures.values()] for figures in found])
    rows = [(*key, value, *_spread(column)) for (key, value), column in zip(own.items(), table.T)]
    for words, column in zip(("rank correlation", "moved by a tenth"), np.array(places).T):
        rows.append(("score", words, np.nan, *_spread(column)))
    return pd.DataFrame(rows, columns=["outcome", "figure", "value", "mean", "sd", "least", "largest"])


def _drawn_by(index: MLCI, judged: Cohort) -> tuple[dict[str, Any], np.ndarray | None]:
    """The columns of weights, cluster and numbers that the index was fitted with; weights of the judged admissions."""
    facts = index.model_.card.get("survey", {})
    if "given" in facts.values():
        raise InputError("the index was fitted with weights or clusters given beside codes; it cannot be fitted again.")
    drawn = {name: facts[name] for name in ("weights", "cluster") if name in facts}
    weight = weights_of(judged, drawn["weights"]) if "weights" in drawn else None
    return drawn | {"numeric": index.model_.numbers}, weight


def _figures(
    index: MLCI, judged: Cohort, names: list[str], weight: np.ndarray | None
) -> tuple[dict[tuple[str, str], float], np.ndarray]:
    model = index.model_
    reading = model.read(judged.admissions())
    risks, figures = model.risks(reading), {}
    for name, y in zip(names, judged.labels(*names).T):
        areas = (auroc(column, y, weight=weight) for column in (reading.score, risks[name]))
        values = (*areas, calibration(risks[name], y, weight=weight).deviance)
        figures |= {(name, figure): value for figure, value in zip(FIGURES, values)}
    return figures, reading.score


def _drawn(split: Cohort, rng: np.random.Generator, together: str) -> pa.Table:
    """As many patients as there are, drawn with replacement; one who is drawn twice stays one patient to the folds."""
    patient = numbered(split.column(together))
    many = np.bincount(rng.integers(patient.max() + 1, size=patient.max() + 1), minlength=patient.max() + 1)
    return split.table.take(np.repeat(np.arange(len(split)), many[patient]))


def _correlation(first: np.ndarray, second: np.ndarray) -> float:
    return float(np.corrcoef(rankdata(first), rankdata(second))[0, 1])


def _moved(first: np.ndarray, second: np.ndarray) -> float:
    return float(np.mean(np.abs(rankdata(first) - rankdata(second)) > FAR * len(first)))


def _spread(values: np.ndarray) -> tuple[float, float, float, float]:
    return float(values.mean()), float(values.std(ddof=1)), float(values.min()), float(values.max())
