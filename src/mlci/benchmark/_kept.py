"""Save the model of a run as `model.safetensors`.

A model fitted by a recipe is saved as an index, which `mlci score` and `mlci report` can use. Other models (trees,
neighbours, naive Bayes, ...), and fits without enough data for an index, are saved as plain arrays.
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
        except InputError:  # too few data for risk curves or a cutoff
            baselines.save(path, model, result.state)
        return
    baselines.save(path, model, result.state)


def _splits(parts: Parts, names: list[str], cohort: Cohort) -> Splits:
    """Return the splits for an index, restricted to the outcomes of the fit."""
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
