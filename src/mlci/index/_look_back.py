"""The look-back period of a model: the days of earlier admissions whose codes count too, and a warning if data differ.

An index that was fitted with codes of earlier admissions expects them; without them every patient looks healthier. An
index that was fitted without them scores every patient too high if they are included.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mlci.index.model import Model

CARD = "look_back"  # days, in the card of a model


def look_back_entry(days: float) -> dict[str, float]:
    """Return the card's entry on the look-back period of a cohort; empty if only an admission's own codes count."""
    return {CARD: float(days)} if days else {}


def days_of(model: "Model") -> float:
    """Return the look-back period of a model in days."""
    return float(model.card.get(CARD) or 0)


def days_of_file(path: str | Path) -> float | None:
    """Return the look-back period of a cohort file in days; None if the file is not a cohort file."""
    if not str(path).lower().endswith(".parquet"):
        return None
    from pyarrow.parquet import read_schema

    facts = (read_schema(path).metadata or {}).get(b"mlci")
    return None if facts is None else float(json.loads(facts).get("look_back", 0))


def look_back_warnings(model: "Model", days: float | None) -> list[str]:
    """Return a warning if the admissions' look-back period differs from the model's; `days` is None if unknown."""
    made = days_of(model)
    if made == days or (days is None and not made):
        return []
    own = f"with codes of the last {made:g} days" if made else "with each admission's own codes only"
    here = "make sure that these data include them" if days is None else f"these data look back {days:g} days"
    return [f"the model was fitted {own}; {here} (mlci cohort --look-back)."]
