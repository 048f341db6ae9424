"""Fit an index: turn admissions with outcomes into a `Model`.

`MLCI.fit` and `mlci fit` both call `learn`. The command does not import scikit-learn, whose import can take as long as
a fit on a GPU. Torch is imported for `deep` and `paper` only.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from numbers import Integral
from pathlib import Path
from typing import Any

from mlci.base.errors import InputError
from mlci.base.extras import need
from mlci.base.threads import threads
from mlci.cohort import Cohort, cohort_head, read_cohort
from mlci.config import RECIPES, config_from, current_recipe, read_config
from mlci.fitting._data import Splits, in_memory
from mlci.fitting._mapped import map_cohort
from mlci.fitting._processes import check_device, world
from mlci.fitting._result import Fit
from mlci.fitting._waking import wake
from mlci.index._few_events import refuse_few
from mlci.index._inputs import FitArguments, fit_inputs
from mlci.index._look_back import look_back_entry
from mlci.index._numbers import numbers_of
from mlci.index._people import needed, wanted
from mlci.index._survey import survey_columns, survey_entry
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
        if not isinstance(self.seed, Integral) or not 0 <= self.seed < 2**64:
            raise InputError(f"seed is {self.seed!r}; allowed are whole numbers from 0, of up to 64 bits.")
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
    **arguments: Any,
) -> Model:
    """Fit an index to admissions with outcomes.

    Args:
        settings: the recipe and its settings.
        data: a `Cohort`, the name of a cohort file, or codes.
        outcomes: of the admissions, if `data` are codes.
        memory_map: a folder for the tokens of a cohort file.
        checkpoint: a file from which an interrupted fit resumes.
        on_event: called with each event of the fit's progress.
        **arguments: `split`, `subjects`, `icd_version`, `weights`, `cluster` and `numeric`, as in `MLCI.fit`.

    Returns:
        The model.

    >>> model = learn(FitSettings(), [["I50.9"], ["E11.9"]] * 40, {"mortality": [1, 0] * 40}, icd_version=10)
    >>> list(model.outcomes)
    ['mortality']
    """
    recipe, config = settings.resolve()
    seed = int(settings.seed)  # a NumPy number has no form in JSON
    given = FitArguments(outcomes, **arguments)
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
            splits = _in_memory(data, given, settings.outcomes, recipe, config)
        else:
            _check_mapped(data, given, config)
            splits = map_cohort(data, memory_map, outcomes=settings.outcomes, tokens=config.tokens, group=group)
            data = cohort_head(data)
        if not settings.few_events:
            refuse_few(list(splits.outcomes), splits.train.outcomes)
        fit_splits, making = importing.result(), background.submit(import_module, "mlci.index._model_of_fit")
        fit = fit_splits(
            splits,
            config=config,
            seed=seed,
            device=settings.device,
            group=group,
            checkpoint=None if checkpoint is None else Path(checkpoint),
            on_event=on_event,
        )
    card = {"recipe": recipe, "seed": seed, "config": asdict(config)}
    card |= survey_entry(splits, given.weights, given.cluster)
    card |= look_back_entry(data.look_back if isinstance(data, Cohort) else 0)
    return making.result().model_of(fit, splits, card)


def _fit_function(name: str, device: str) -> Callable[..., Fit]:
    """Check that this machine has the device, then import the recipe and return its function `fit_splits`."""
    check_device(device)
    return import_module(f"mlci.fitting.{name}").fit_splits


def _check_mapped(data: Any, given: FitArguments, config: Any) -> None:
    """Raise an error for what does not go with a cohort file, or needs the whole cohort in memory."""
    if not isinstance(data, str | Path):
        raise InputError("memory_map needs the name of a cohort file.")
    given.check_for_cohort()
    if wanted(asdict(config)):
        raise InputError("people.age and people.sex need the cohort in memory; leave memory_map out.")
    if given.weights is not None or given.cluster is not None or given.numeric:
        raise InputError("weights, clusters and numeric outcomes need the cohort in memory; leave memory_map out.")


def _in_memory(data: Any, given: FitArguments, chosen: Sequence[str] | None, recipe: str, config: Any) -> Splits:
    """Return both splits, encoded; `chosen` names the outcomes to learn from, None takes all."""
    found = fit_inputs(data, given, chosen=chosen, poa=config.tokens.poa)
    survey = survey_columns(data, given.weights, given.cluster, recipe=recipe, many=len(found["labels"]))
    train = (found["split"] == "train") & (True if survey["weight"] is None else survey["weight"] > 0)
    numbers = numbers_of(data, given.numeric, recipe=recipe, train=train)
    people = needed(data, wanted(asdict(config)))
    return in_memory(**found, tokens=config.tokens, people=people, numbers=numbers, **survey)
