"""How much an index varies with the admissions it happened to be learned from.

An index and the cohort that it was learned from come in. Its recipe is fitted again on patients drawn with replacement
from the training and validation splits, and every new index is judged on the same admissions; out comes how far their
figures, risks and scores lie apart. The interval of a figure tells what other patients would change in judging; this
tells what they would change in learning. A resample holds about 63 % of the patients, some of them several times, so
that new indices are on average a little worse than the own one.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from mlci.base.errors import InputError
from mlci.base.tensors import digest
from mlci.cohort import Cohort
from mlci.config import config_from
from mlci.fitting._checkpoint import Checkpoint
from mlci.index._people import of_data
from mlci.index.learning import Asked, learn
from mlci.index.model import Model
from mlci.judging._carried import weights_of
from mlci.measures._arrays import midranks
from mlci.measures.design import numbered
from mlci.measures.discrimination import auroc, calibration
from mlci.measures.weighted import mean

FIGURES = ("auroc", "risk_auroc", "deviance")
MOVED = "risk moved"
FAR = 0.1  # of all ranks: how far an admission's place must move to be told
TRIES = 1000  # of draws in which each outcome keeps both classes


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
    """Fit an index again on resampled patients, and judge each new one on the same admissions.

    Args:
        model: of a fitted index; its recipe, constants, outcomes and seed are those of every new fit.
        cohort: what it was learned from: the splits train and valid are resampled, each by itself.
        judged: the admissions to judge by.
        times: how many new fits.
        seed: of the resampling.
        state: a file that keeps what is done, so that the same call goes on from there if it is stopped.
        on_fit: called with the number of fits done.

    Returns:
        A row per outcome and figure (AUROC of score and risk, deviance explained): the index's own value, and mean, sd,
        least and largest of the new ones; `risk moved` is the mean distance of the new risks from the own ones. A row
        `score` has the rank correlation of the new scores with the own, and one the share of admissions whose place
        moved by more than a tenth of all.

    >>> from mlci import MLCI, build_cohort
    >>> cohort = build_cohort("synthetic", 100)
    >>> model = MLCI(outcomes=["long_stay"]).fit(cohort).model_
    >>> frame = resample_training(model, cohort, cohort.split("test"), times=2)
    >>> frame["figure"].tolist()
    ['auroc', 'risk_auroc', 'deviance', 'risk moved', 'rank correlation', 'moved by a tenth']
    """
    if times < 2:
        raise InputError(f"resample_training: {times} fits tell no spread; allowed are 2 and more.")
    names = [name for name in model.outcomes if name in cohort.outcomes]
    splits = _learned_from(model, cohort)
    drawn, weight = _drawn_by(model, judged)
    recipe = model.card["recipe"]
    config = config_from(model.card["config"], recipe=recipe, where="the model")
    asked = Asked(recipe=recipe, config=config, outcomes=names, seed=model.card["seed"])
    own = _Judged(model, judged, names, weight)
    kept = Checkpoint(state, _fingerprint(own, cohort, seed))
    for draw in range(times):
        if str(draw) not in kept.entries:
            rng = np.random.default_rng([seed, draw])
            parts = (_drawn(split, rng, drawn.get("cluster", "subject_id"), names) for split in splits)
            again = learn(asked, replace(cohort, table=pa.concat_tables(parts)), **drawn)
            kept.keep(str(draw), None, {"figures": _Judged(again, judged, names, weight).beside(own)})
        if on_fit is not None:
            on_fit(draw + 1)
    table = np.array([kept.entries[str(draw)].arrays["figures"] for draw in range(times)])
    values = own.beside(own)
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
        """What `beside` gives: outcome and figure."""
        figures = [(name, figure) for name in self.names for figure in (*FIGURES, MOVED)]
        return [*figures, ("score", "rank correlation"), ("score", "moved by a tenth")]

    def beside(self, own: "_Judged") -> np.ndarray:
        """Return the figures, and how far risks and places lie from those of the own index."""
        values = []
        for name, y in zip(self.names, self.labels.T):
            risk, weight = self.risks[name], self.weight
            values += [auroc(self.score, y, weight=weight), auroc(risk, y, weight=weight)]
            values += [calibration(risk, y, weight=weight).deviance, mean(np.abs(risk - own.risks[name]), weight)]
        ranks, places = midranks(self.score), midranks(own.score)
        far = np.mean(np.abs(ranks - places) > FAR * len(ranks))
        return np.array([*values, np.corrcoef(ranks, places)[0, 1], far], dtype=float)


def _fingerprint(own: _Judged, cohort: Cohort, seed: int) -> str:
    """Return what refits depend on: they go on only where nothing of it has changed."""
    admissions = cohort.admissions()
    facts = [own.card["recipe"], own.card["seed"], own.card["config"], own.names, seed]
    return digest(facts, {"score": own.score, "codes": admissions.indices, "labels": cohort.labels()})


def _learned_from(model: Model, cohort: Cohort) -> list[Cohort]:
    """Return the splits to draw from, if they are those that the index was learned from."""
    splits = [cohort.split(part) for part in ("train", "valid")]
    if not all(map(len, splits)):
        raise InputError("the cohort lacks a split train or valid; a new fit needs both.")
    learned = model.card.get("admissions", {}).get("train", len(splits[0]))
    if learned != len(splits[0]):
        raise InputError(
            f"the index was learned from {learned:,} training admissions and the cohort has {len(splits[0]):,}; to fit "
            "it again takes the cohort that it was learned from."
        )
    return splits


def _drawn_by(model: Model, judged: Cohort) -> tuple[dict[str, Any], np.ndarray | None]:
    """Return the columns of weights, cluster and numbers of the fit, and the weights of the judged admissions."""
    facts = model.card.get("survey", {})
    if "given" in facts.values():
        raise InputError("the index was fitted with weights or clusters given beside codes; it cannot be fitted again.")
    drawn = {name: facts[name] for name in ("weights", "cluster") if name in facts}
    weight = weights_of(judged, drawn["weights"]) if "weights" in drawn else None
    return drawn | {"numeric": model.numbers}, weight


def _drawn(split: Cohort, rng: np.random.Generator, together: str, names: list[str]) -> pa.Table:
    """Draw as many patients as there are, with replacement; one who is drawn twice stays one patient to the folds.

    A draw in which an outcome loses one of its classes could not be learned from, and is made again.
    """
    patient, labels = numbered(split.column(together)), split.labels(*names)
    has = [labels == value for value in (0, 1)]
    for _ in range(TRIES):
        many = np.bincount(rng.integers(patient.max() + 1, size=patient.max() + 1), minlength=patient.max() + 1)[
            patient
        ]
        if all((kind[many > 0].any(axis=0) == kind.any(axis=0)).all() for kind in has):
            return split.table.take(np.repeat(np.arange(len(split)), many))
    raise InputError("an outcome is so rare that resamples of the training admissions lack it; leave it out.")


def _spread(values: np.ndarray) -> tuple[float, float, float, float]:
    return float(values.mean()), float(values.std(ddof=1)), float(values.min()), float(values.max())
