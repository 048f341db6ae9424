"""Fit an index: turn admissions with outcomes into a `Model`.

`MLCI.fit` and `mlci fit` both call `learn`. The command does not import scikit-learn, whose import can take as long as
a fit on a GPU. Torch is imported for `deep` and `paper` only.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from mlci.base.errors import InputError
from mlci.base.extras import need
from mlci.base.threads import threads
from mlci.cohort import Cohort, read_cohort
from mlci.config import RECIPES, config_from, current_recipe, read_config
from mlci.fitting._data import Splits, in_memory
from mlci.fitting._mapped import map_cohort
from mlci.fitting._processes import check_device, world
from mlci.fitting._result import Fit
from mlci.fitting._waking import wake
from mlci.index._few_events import refuse_few
from mlci.index._inputs import fit_inputs
from mlci.index._look_back import card_entry
from mlci.index._numbers import numbers_of
from mlci.index._people import needed, wanted
from mlci.index._survey import design_of, in_words
from mlci.index.model import Model


@dataclass(frozen=True)
class FitSettings:
    """Recipe, config and other settings of a fit; the fields are the parameters of `MLCI`."""

    recipe: str | None = None
    config: Any = None
    outcomes: Sequence[str] | None = None
    anchor: str | None = None
    seed: int = 11
    device: str = "cpu"
    few_events: bool = True

    def resolve(self) -> tuple[str, Any]:
        """Return the recipe's name and its config as an object, from whatever form they were given in.

        >>> recipe, config = FitSettings(config={"penalty": {"folds": 3}}).resolve()
        >>> recipe, config.penalty.folds
        ('table', 3)
        """
        recipe = self.recipe or next((name for name, kind in RECIPES.items() if isinstance(self.config, kind)), "table")
        recipe = current_recipe(recipe)
        if recipe not in RECIPES:
            raise InputError(f"recipe is {recipe!r}; allowed are {', '.join(RECIPES)}.")
        kind, config = RECIPES[recipe], self.config or RECIPES[recipe]()
        if isinstance(self.config, str | Path):
            config = read_config(self.config, recipe=recipe)
        elif isinstance(self.config, Mapping):
            config = config_from(dict(self.config), recipe=recipe, where="config")
        if not isinstance(config, kind):
            raise InputError(f"recipe {recipe} takes a {kind.__name__}, not a {type(config).__name__}.")
        return recipe, config if self.anchor is None else config.anchored(self.anchor)


def learn(
    settings: FitSettings,
    data: Any,
    outcomes: Any = None,
    *,
    memory_map: str | Path | None = None,
    checkpoint: str | Path | None = None,
    on_event: Callable[[Any], None] | None = None,
    weights: str | Sequence[float] | None = None,
    cluster: str | Sequence | None = None,
    **inputs: Any,
) -> Model:
    """Fit an index to admissions with outcomes.

    Args:
        settings: the recipe and its settings.
        data: a `Cohort`, the name of a cohort file, or codes.
        outcomes: of the admissions, if `data` are codes.
        memory_map: a folder for the tokens of a cohort file.
        checkpoint: a file from which an interrupted fit resumes.
        on_event: called with each event of the fit's progress.
        weights: survey weights of the admissions.
        cluster: groups larger than a patient that the folds keep together.
        inputs: `split`, `subjects`, `icd_version` and `numeric`, as in `MLCI.fit`.

    Returns:
        The model.

    >>> model = learn(FitSettings(), [["I50.9"], ["E11.9"]] * 40, {"mortality": [1, 0] * 40}, icd_version=10)
    >>> list(model.outcomes)
    ['mortality']
    """
    recipe, config = settings.resolve()
    if config.extra:
        need(config.extra, to=f"fit the recipe {recipe}")
    group = world()
    wake(settings.device)
    # A thread imports modules while the cohort is read, and again while the fit waits for its device. An interrupt must
    # not wait for that thread: interrupted during an import, it would keep Python's import lock, and every later import
    # in another thread would block.
    with threads(1) as background:
        importing = background.submit(_fit_function, recipe, settings.device)
        if memory_map is None:
            data = read_cohort(data) if isinstance(data, str | Path) else data
            data = data.in_order() if isinstance(data, Cohort) else data
            splits = _in_memory(settings, recipe, config, data, outcomes, weights, cluster, inputs)
        else:
            _check_mapped(config, data, weights, cluster, inputs)
            splits = map_cohort(data, memory_map, outcomes=settings.outcomes, tokens=config.tokens, group=group)
        if not settings.few_events:
            refuse_few(list(splits.outcomes), splits.train.outcomes)
        fit_splits, making = importing.result(), background.submit(import_module, "mlci.index._model_of_fit")
        fit = fit_splits(
            splits,
            config=config,
            seed=settings.seed,
            device=settings.device,
            group=group,
            checkpoint=None if checkpoint is None else Path(checkpoint),
            on_event=on_event,
        )
    survey = {**in_words(splits, weights, cluster), **card_entry(data)}
    card = {"recipe": recipe, "seed": settings.seed, "config": asdict(config), **survey}
    return making.result().model_of(fit, splits, card)


def _fit_function(name: str, device: str) -> Callable[..., Fit]:
    """Check that this machine has the device, then import the recipe and return its function `fit_splits`."""
    check_device(device)
    return import_module(f"mlci.fitting.{name}").fit_splits


def _check_mapped(config: Any, data: Any, weights: Any, cluster: Any, inputs: Mapping[str, Any]) -> None:
    """Raise an error for options that need the whole cohort in memory."""
    if not isinstance(data, str | Path):
        raise InputError("memory_map needs the name of a cohort file.")
    if wanted(asdict(config)):
        raise InputError("people.age and people.sex need the cohort in memory; leave memory_map out.")
    if weights is not None or cluster is not None or inputs.get("numeric"):
        raise InputError("weights, clusters and numeric outcomes need the cohort in memory; leave memory_map out.")


def _in_memory(
    settings: FitSettings,
    recipe: str,
    config: Any,
    data: Any,
    outcomes: Any,
    weights: Any,
    cluster: Any,
    inputs: dict[str, Any],
) -> Splits:
    """Return both splits, encoded."""
    split, subjects, icd_version = (inputs.get(name) for name in ("split", "subjects", "icd_version"))
    found = fit_inputs(data, outcomes, settings.outcomes, split, subjects, icd_version, config.tokens.poa)
    design = design_of(data, weights, cluster, recipe=recipe, many=len(found["labels"]))
    numbers = numbers_of(data, inputs.get("numeric", ()), recipe=recipe)
    people = needed(data, wanted(asdict(config)))
    return in_memory(**found, tokens=config.tokens, people=people, numbers=numbers, **design)
