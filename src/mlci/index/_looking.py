"""How far the codes of a model look back: what a fit writes into its file, and what a user must be told.

An index that learned with codes of earlier admissions expects them: by an admission's own codes alone every patient
looks healthier. An index that learned without them takes every patient with them for sicker.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mlci.index.model import Model

CARD = "look_back"  # days, in the card of a model


def card_entry(data: Any) -> dict[str, float]:
    """Return what a fit writes into its card; nothing where only an admission's own codes count."""
    days = days_of_file(data) if isinstance(data, str | Path) else getattr(data, "look_back", 0)  # of a cohort
    return {CARD: float(days)} if days else {}


def days_of(model: "Model") -> float:
    """Return how many days the codes of a model look back."""
    return float(model.card.get(CARD) or 0)


def days_of_file(path: str | Path) -> float | None:
    """Return how many days a cohort file looks back; None where the file is none, and so does not say."""
    if not str(path).lower().endswith(".parquet"):
        return None
    from pyarrow.parquet import read_schema

    facts = (read_schema(path).metadata or {}).get(b"mlci")
    return None if facts is None else float(json.loads(facts).get("look_back", 0))


def doubt(model: "Model", days: float | None) -> list[str]:
    """Return what to say if admissions look back otherwise than those of a model; `days` is None if not known."""
    made = days_of(model)
    if made == days or (days is None and not made):
        return []
    own = f"of codes of the last {made:g} days too" if made else "of an admission's own codes alone"
    here = "see that these do" if days is None else f"these look back {days:g} days"
    return [f"the model was made {own}; {here} (mlci cohort --look-back)."]
