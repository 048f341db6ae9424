"""Model files of format 1: their card squeezed every recipe into the two stages of the paper's."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from mlci.base.names import FORMER_RECIPES
from mlci.fitting._result import DeepRecord, Epoch, PaperRecord, TrainingLog

GONE = ("stage1", "stage2", "orientation", "bandwidth", "anchor")


def renewed(card: Mapping[str, Any]) -> dict[str, Any]:
    """Give a card of format 1 the recipe's name of today and, in the place of the stages, its record."""
    recipe = FORMER_RECIPES.get(card["recipe"], card["recipe"])
    rest = {name: value for name, value in card.items() if name not in GONE}
    if "stage2" not in card:  # made by hand, or by somebody else's program
        return {**rest, "recipe": recipe}
    stage1 = {name: _trained(stage) for name, stage in card["stage1"].items()}
    stage2, weights = _trained(card["stage2"]), {name: card["weights"][name] for name in stage1}
    if recipe == "deep":
        strength = {name: stage.quality for name, stage in stage1.items()}
        record = DeepRecord(card["config"]["posterior"]["members"], strength, weights, stage2.history)
    else:
        record = PaperRecord(stage1, stage2, weights, card["orientation"])
    return {**rest, "recipe": recipe, "record": asdict(record.shown())}


def _trained(facts: Mapping[str, Any]) -> TrainingLog:
    return TrainingLog(**{**facts, "history": tuple(Epoch(**epoch) for epoch in facts["history"])})
