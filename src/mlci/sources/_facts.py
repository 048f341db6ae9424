"""Read and check the metadata of a cohort file, which anybody may have written."""

from typing import Annotated

import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mlci.base.complaints import complaint
from mlci.base.errors import InputError
from mlci.sources._cohort_file import KEY

MOST_FACTS = 16 << 20  # bytes
Name = Annotated[str, Field(min_length=1, max_length=200)]
Text = Annotated[str, Field(max_length=20_000)]


class _Checked(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True)


class StepFacts(_Checked):
    rule: Text
    removed: int = Field(ge=0)
    left: int = Field(ge=0)


class CohortFacts(_Checked):
    source: Text
    outcomes: dict[Name, Text] = Field(max_length=1000)
    attrition: list[StepFacts] = Field(max_length=1000)
    notes: list[Text] = Field(max_length=1000)
    version: Name
    look_back: float = Field(default=0, ge=0, allow_inf_nan=False)


def read_facts(schema: pa.Schema, where: str) -> CohortFacts:
    """Return the facts of a cohort file, from the metadata of its schema."""
    text = (schema.metadata or {}).get(KEY)
    if text is None:
        raise InputError(f"{where}: is not a cohort file; `mlci cohort` makes one.")
    try:
        if len(text) > MOST_FACTS:
            raise ValueError
        return CohortFacts.model_validate_json(text)
    except ValidationError as error:
        reason = complaint(error.errors(include_url=False, include_input=False, include_context=False))
        raise InputError(f"{where}: the metadata is not that of a cohort file ({reason}).") from None
    except ValueError:
        raise InputError(f"{where}: the metadata is not that of a cohort file.") from None
