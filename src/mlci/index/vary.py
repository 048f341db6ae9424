"""Measure how much an index varies with its training sample, by refitting it on bootstrap samples of patients.

Turn an index and its training cohort into a table of the spread of its figures, risks and scores. The recipe is fitted
again on patients drawn with replacement from the training and validation splits, and every new index is evaluated on
the same admissions. The confidence interval of a figure reflects the sampling of the evaluated patients; this spread
reflects the sampling of the training patients. A bootstrap sample holds about 63 % of the patients, some of them more
than once, so new indices are slightly worse on average than the original.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

import mlci
from mlci.base.errors import InputError
from mlci.base.tensors import digest
from mlci.cohort import Cohort
from mlci.config import config_from
from mlci.fitting._checkpoint import Checkpoint
from mlci.index._people import of_data
from mlci.index.learning import FitSettings, learn
from mlci.index.model import Model
from mlci.judging._carried import column, weights_of
from mlci.measures._arrays import midranks
from mlci.measures.design import numbered
from mlci.measures.discrimination import auroc, calibration
from mlci.measures.weighted import mean

FIGURES = ("auroc", "risk_auroc", "deviance")
MOVED = "risk moved"
FAR = 0.1  # of all ranks: the least move of an admission's rank that is counted
TRIES = 1000  # draws to find a sample in which each outcome keeps both classes


def resample_training(
    model: Model,
    cohort: Cohort,
    judged: Cohort,
    *,
    times: int,
    seed: int = 0,
    state: Path | None = None,
    on_fit: Callable[[int], None] | None = None,
) -> pd.DataFrame:
    """Refit an index on bootstrap samples of patients, and evaluate each refit on the same admissions.

    Args:
        model: of a fitted index. Each refit has the same recipe, config, outcomes and seed.
        cohort: its training cohort; the splits train and valid are resampled separately.
        judged: the admissions to evaluate on.
        times: number of refits.
        seed: of the resampling.
        state: a file that keeps finished refits, so that the same call resumes after an interruption.
        on_fit: called with the number of finished refits.

    Returns:
        One row per outcome and figure (AUROC of score and risk, deviance explained): the index's own value, and the
        mean, sd, least and largest value of the refits. `risk moved` is the mean absolute difference between new and
        own risks. Two rows `score` hold the rank correlation of new and own scores, and the share of admissions whose
        rank moved by more than a tenth of all ranks.

    >>> from mlci import MLCI, build_cohort
    >>> cohort = build_cohort("synthetic", 100)
    >>> model = MLCI(outcomes=["long_stay"]).fit(cohort).model_
    >>> frame = resample_training(model, cohort, cohort.split("test"), times=2)
    >>> frame["figure"].tolist()
    ['auroc', 'risk_auroc', 'deviance', 'risk moved', 'rank correlation', 'moved by a tenth']
    """
    if times < 2:
        raise InputError(f"resample_training: times is {times}; a spread needs 2 or more.")
    names = [name for name in model.outcomes if name in cohort.outcomes]
    design, weight = _design(model, judged)
    if weight is not None:  # a fit leaves out admissions of weight 0
        cohort = cohort.where(weights_of(cohort, design["weights"]) > 0)
    splits = _learned_from(model, cohort)
    recipe = model.card["recipe"]
    config = config_from(model.card["config"], recipe=recipe, where="the model")
    settings = FitSettings(recipe=recipe, config=config, outcomes=names, seed=model.card["seed"])
    own = _Judged(model, judged, names, weight)
    used = ["split", "subject_id", *model.people, *model.numbers, *(design[key] for key in design if key != "numeric")]
    kept = Checkpoint(state, _fingerprint(own, cohort, used, seed))
    for draw in range(times):
        if str(draw) not in kept.entries:
            rng = np.random.default_rng([seed, draw])
            parts = (_bootstrap(split, rng, design.get("cluster", "subject_id"), names) for split in splits)
            again = learn(settings, replace(cohort, table=pa.concat_tables(parts)), **design)
            kept.keep(str(draw), None, {"figures": _Judged(again, judged, names, weight).compared_with(own)})
        if on_fit is not None:
            on_fit(draw + 1)
    table = np.array([kept.entries[str(draw)].arrays["figures"] for draw in range(times)])
    values = own.compared_with(own)
    values[[figure not in FIGURES for _, figure in own.keys]] = np.nan
    rows = [(*key, value, *_spread(column)) for key, value, column in zip(own.keys, values, table.T, strict=True)]
    return pd.DataFrame(rows, columns=["outcome", "figure", "value", "mean", "sd", "least", "largest"])


class _Judged:
    """The scores, risks and figures of an index on the judged admissions."""

    def __init__(self, model: Model, judged: Cohort, names: list[str], weight: np.ndarray | None) -> None:
        reading = model.read(judged.admissions(), of_data(judged, model.people, len(judged)))
        self.names, self.labels, self.weight = names, judged.labels(*names), weight
        self.score, self.risks = reading.score, model.risks(reading)
        self.card = model.card

    @property
    def keys(self) -> list[tuple[str, str]]:
        """Outcome and figure of each value of `compared_with`."""
        figures = [(name, figure) for name in self.names for figure in (*FIGURES, MOVED)]
        return [*figures, ("score", "rank correlation"), ("score", "moved by a tenth")]

    def compared_with(self, own: "_Judged") -> np.ndarray:
        """Return the figures, and how far risks and ranks are from those of the original index."""
        values = []
        for name, y in zip(self.names, self.labels.T):
            risk, weight = self.risks[name], self.weight
            values += [auroc(self.score, y, weight=weight), auroc(risk, y, weight=weight)]
            values += [calibration(risk, y, weight=weight).deviance, mean(np.abs(risk - own.risks[name]), weight)]
        ranks, own_ranks = midranks(self.score), midranks(own.score)
        far = np.mean(np.abs(ranks - own_ranks) > FAR * len(ranks))
        with np.errstate(invalid="ignore"):  # a constant score has no correlation
            correlation = np.corrcoef(ranks, own_ranks)[0, 1]
        return np.array([*values, correlation, far], dtype=float)


def _fingerprint(own: _Judged, cohort: Cohort, columns: Sequence[str], seed: int) -> str:
    """Return a digest of everything that refits depend on; they resume only if it is unchanged."""
    admissions, card = cohort.admissions(), own.card
    facts = [mlci.__version__, card["recipe"], card["seed"], card["config"], own.names, seed, *columns]
    arrays = {"score": own.score, "labels": cohort.labels(*own.names)}
    arrays |= {name: getattr(admissions, name) for name in ("indices", "offsets", "versions")}
    arrays |= {f"column {name}": column(cohort, name).astype(str) for name in columns}
    return digest([*facts, admissions.values.tolist()], arrays)


def _learned_from(model: Model, cohort: Cohort) -> list[Cohort]:
    """Return the splits to resample, after a check that they are those that the index was fitted to."""
    splits = [cohort.split(part) for part in ("train", "valid")]
    if not all(map(len, splits)):
        raise InputError("the cohort lacks the split train or valid; a refit needs both.")
    learned = model.card.get("admissions", {}).get("train", len(splits[0]))
    if learned != len(splits[0]):
        raise InputError(
            f"the index was fitted to {learned:,} training admissions, but the cohort has {len(splits[0]):,}; a refit "
            "needs the cohort that the index was fitted to."
        )
    return splits


def _design(model: Model, judged: Cohort) -> tuple[dict[str, Any], np.ndarray | None]:
    """Return the columns of weights, cluster and numbers of the fit, and the weights of the judged admissions."""
    facts = model.card.get("survey", {})
    if "given" in facts.values():
        raise InputError("the index was fitted with weights or clusters given as values; it cannot be refitted.")
    columns = {name: facts[name] for name in ("weights", "cluster") if name in facts}
    weight = weights_of(judged, columns["weights"]) if "weights" in columns else None
    return columns | {"numeric": model.numbers}, weight


def _bootstrap(split: Cohort, rng: np.random.Generator, together: str, names: list[str]) -> pa.Table:
    """Draw as many patients as there are, with replacement; a patient drawn twice remains one patient to the folds.

    A draw in which an outcome loses one of its classes is repeated.
    """
    patient, labels = numbered(split.column(together)), split.labels(*names)
    patients, classes = patient.max() + 1, [labels == value for value in (0, 1)]
    for _ in range(TRIES):
        times = np.bincount(rng.integers(patients, size=patients), minlength=patients)[patient]
        if all((there[times > 0].any(axis=0) == there.any(axis=0)).all() for there in classes):
            return split.table.take(np.repeat(np.arange(len(split)), times))
    raise InputError("an outcome is so rare that bootstrap samples of the training admissions lack it; leave it out.")


def _spread(values: np.ndarray) -> tuple[float, float, float, float]:
    return float(values.mean()), float(values.std(ddof=1)), float(values.min()), float(values.max())
