"""Model files of format 1: convert their card, which described every recipe by the two stages of the recipe `paper`."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from mlci.base.names import FORMER_RECIPES
from mlci.fitting._result import DeepRecord, Epoch, PaperRecord, TrainingLog

REMOVED = ("stage1", "stage2", "orientation", "bandwidth", "anchor")


def converted(card: Mapping[str, Any]) -> dict[str, Any]:
    """Return a card of format 1 with the current name of its recipe, and a record in place of the stages."""
    recipe = FORMER_RECIPES.get(card["recipe"], card["recipe"])
    rest = {name: value for name, value in card.items() if name not in REMOVED}
    if "stage2" not in card:  # written by hand or by another program
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
