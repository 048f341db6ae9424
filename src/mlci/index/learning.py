"""Learn an index: admissions with outcomes in, a `Model` out.

`MLCI.fit` and `mlci fit` end here; the command does without scikit-learn, whose import takes as long as many a fit on a
GPU. Torch is imported for `deep` and `paper` alone.
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
from mlci.index._enough import refuse_few
from mlci.index._looking import card_entry
from mlci.index._numbers import numbers_of
from mlci.index._people import needed, wanted
from mlci.index._survey import drawn_by, in_words
from mlci.index._taken import given
from mlci.index.model import Model


@dataclass(frozen=True)
class Asked:
    """How an index is to be learned; the fields are the parameters of `MLCI`."""

    recipe: str | None = None
    config: Any = None
    outcomes: Sequence[str] | None = None
    anchor: str | None = None
    seed: int = 11
    device: str = "cpu"
    few_events: bool = True

    def settled(self) -> tuple[str, Any]:
        """Return the recipe's name and its config, in whatever way they were said.

        >>> recipe, config = Asked(config={"penalty": {"folds": 3}}).settled()
        >>> recipe, config.penalty.folds
        ('table', 3)
        """
        recipe = self.recipe or next((name for name, kind in RECIPES.items() if isinstance(self.config, kind)), "table")
        recipe = current_recipe(recipe)
        if recipe not in RECIPES:
            raise InputError(f"recipe is {recipe!r}; allowed is {', '.join(RECIPES)}.")
        kind, config = RECIPES[recipe], self.config or RECIPES[recipe]()
        if isinstance(self.config, str | Path):
            config = read_config(self.config, recipe=recipe)
        elif isinstance(self.config, Mapping):
            config = config_from(dict(self.config), recipe=recipe, where="config")
        if not isinstance(config, kind):
            raise InputError(f"recipe {recipe} takes a {kind.__name__}, not a {type(config).__name__}.")
        return recipe, config if self.anchor is None else config.anchored(self.anchor)


def learn(
    asked: Asked,
    data: Any,
    outcomes: Any = None,
    *,
    memory_map: str | Path | None = None,
    checkpoint: str | Path | None = None,
    on_event: Callable[[Any], None] | None = None,
    weights: str | Sequence[float] | None = None,
    cluster: str | Sequence | None = None,
    **handed: Any,
) -> Model:
    """Learn an index from admissions with outcomes.

    Args:
        asked: the recipe and its settings.
        data: a `Cohort`, the name of its file, or codes.
        outcomes: of the admissions, where `data` are codes.
        memory_map: a folder for the tokens of a cohort file.
        checkpoint: a file; an interrupted fit goes on from it.
        on_event: called with what happens while the fit runs.
        weights: of admissions.
        cluster: what belongs together beyond a patient.
        handed: `split`, `subjects`, `icd_version` and `numeric`, as `MLCI.fit` has them.

    Returns:
        The model.

    >>> model = learn(Asked(), [["I50.9"], ["E11.9"]] * 40, {"mortality": [1, 0] * 40}, icd_version=10)
    >>> list(model.outcomes)
    ['mortality']
    """
    recipe, config = asked.settled()
    if config.extra:
        need(config.extra, to=f"fit the recipe {recipe}")
    group = world()
    wake(asked.device)
    # What is imported comes while the cohort is read, and then while the fit waits for its device. A stop must not wait
    # for it: if it came amid an import, it left Python's lock of imports taken, and no other thread imports any more.
    with threads(1) as beside:
        coming = beside.submit(_recipe, recipe, asked.device)
        if memory_map is None:
            data = read_cohort(data) if isinstance(data, str | Path) else data
            data = data.in_order() if isinstance(data, Cohort) else data
            splits = _in_memory(asked, recipe, config, data, outcomes, weights, cluster, handed)
        else:
            _check_mapped(config, data, weights, cluster, handed)
            splits = map_cohort(data, memory_map, outcomes=asked.outcomes, tokens=config.tokens, group=group)
        if not asked.few_events:
            refuse_few(list(splits.outcomes), splits.train.outcomes)
        fit_splits, making = coming.result(), beside.submit(import_module, "mlci.index._making")
        fit = fit_splits(
            splits,
            config=config,
            seed=asked.seed,
            device=asked.device,
            group=group,
            checkpoint=None if checkpoint is None else Path(checkpoint),
            on_event=on_event,
        )
    survey = {**in_words(splits, weights, cluster), **card_entry(data)}
    card = {"recipe": recipe, "seed": asked.seed, "config": asdict(config), **survey}
    return making.result().model_of(fit, splits, card)


def _recipe(name: str, device: str) -> Callable[..., Fit]:
    """Import what fits by a recipe, if this machine has the device."""
    check_device(device)
    return import_module(f"mlci.fitting.{name}").fit_splits


def _check_mapped(config: Any, data: Any, weights: Any, cluster: Any, handed: Mapping[str, Any]) -> None:
    """Refuse what needs the whole cohort in memory."""
    if not isinstance(data, str | Path):
        raise InputError("memory_map is for the name of a cohort file.")
    if wanted(asdict(config)):
        raise InputError("people.age and people.sex are for a cohort in memory; leave memory_map out.")
    if weights is not None or cluster is not None or handed.get("numeric"):
        raise InputError("weights, clusters and numbers are for a cohort in memory; leave memory_map out.")


def _in_memory(
    asked: Asked, recipe: str, config: Any, data: Any, outcomes: Any, weights: Any, cluster: Any, handed: dict[str, Any]
) -> Splits:
    """Return both splits of what was handed over, encoded."""
    split, subjects, icd_version = (handed.get(name) for name in ("split", "subjects", "icd_version"))
    found = given(data, outcomes, asked.outcomes, split, subjects, icd_version, config.tokens.poa)
    drawn = drawn_by(data, weights, cluster, recipe=recipe, many=len(found["labels"]))
    numbers = numbers_of(data, handed.get("numeric", ()), recipe=recipe)
    people = needed(data, wanted(asdict(config)))
    return in_memory(**found, tokens=config.tokens, people=people, numbers=numbers, **drawn)
