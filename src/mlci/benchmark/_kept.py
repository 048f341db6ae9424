"""What a run keeps of its fit: an index where a recipe made it, so that `mlci score` and `mlci report` take it.

In come a model's result and the splits it learned from; out comes `model.safetensors`. A model that no recipe made
(trees, neighbours, Bayes, ...), or whose fit gives no index, is kept as its arrays alone.
"""

from dataclasses import asdict
from pathlib import Path

import numpy as np

from mlci.base.errors import InputError
from mlci.benchmark import models as baselines
from mlci.benchmark.models import Baseline, Learned, Parts, Result
from mlci.cohort import Cohort
from mlci.fitting._data import Splits
from mlci.index._model_of_fit import model_of


def keep(path: Path, model: Baseline, seed: int, result: Result, parts: Parts, cohort: Cohort) -> None:
    """Write a run's model."""
    if isinstance(model, Learned) and result.fit is not None:
        card = {"recipe": model.recipe, "seed": seed, "config": asdict(model.config()), "baseline": asdict(model)}
        try:
            model_of(result.fit, _splits(parts, list(result.fit.weights), cohort), card).save(path)
        except InputError:  # too little for curves or a cutoff: its scores stand nevertheless
            baselines.save(path, model, result.state)
        return
    baselines.save(path, model, result.state)


def _splits(parts: Parts, names: list[str], cohort: Cohort) -> Splits:
    """Return what an index says it learned from: the outcomes of the fit alone."""
    recorded = parts["train"].admissions
    versions = () if recorded is None else np.unique(recorded.versions[recorded.indices]).tolist()
    return Splits(
        vocabulary=parts.vocabulary,
        icd_versions=tuple(versions),
        outcomes={name: cohort.outcomes[name] for name in names},
        source=cohort.source,
        train=parts["train"].only(names),
        valid=parts["valid"].only(names),
    )
