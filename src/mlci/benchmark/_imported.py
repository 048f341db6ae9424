"""Read runs that were computed on another machine: the NPZ file of `benchmarks/gpu_models.py`, validated before use.

Models and seeds in the file become names of folders, so only known models and integers are accepted.
"""

import json
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mlci.base.complaints import complaint
from mlci.base.errors import InputError, name_of, reading
from mlci.base.tensors import refuse_constant
from mlci.benchmark import models as baselines
from mlci.benchmark.models import Baseline

MOST_FACTS, MOST_CELL = 16 << 20, 16  # bytes of the facts, and of one score


class _Checked(BaseModel):
    model_config = ConfigDict(strict=True, allow_inf_nan=False, frozen=True)


class CostFacts(_Checked):
    model_config = ConfigDict(strict=True, allow_inf_nan=False, frozen=True, extra="allow")

    seconds: float = Field(ge=0)


class RunFacts(_Checked):
    model: dict[str, Any]
    seed: int = Field(ge=0, lt=2**63)
    cost: CostFacts


class ArchiveFacts(_Checked):
    digest: str = Field(max_length=64)
    runs: dict[str, RunFacts] = Field(max_length=10_000)


@dataclass(frozen=True)
class Imported:
    """One run of the file."""

    model: Baseline
    seed: int
    scores: dict[str, np.ndarray]
    cost: dict[str, Any]


def read_archive(path: str | Path, *, digest: str, admissions: int) -> Iterator[Imported]:
    """Yield the runs of a file, after a check that it belongs to the cohort with this digest and size."""
    where = name_of(path)
    with reading(path, "an archive of runs"):
        try:
            with zipfile.ZipFile(path) as members:
                if any(member.file_size > MOST_FACTS + MOST_CELL * admissions for member in members.infolist()):
                    raise InputError(f"{where}: holds more than the scores of {admissions:,} admissions.")
            with np.load(path, allow_pickle=False) as archive:
                facts = ArchiveFacts.model_validate(json.loads(str(archive["facts"]), parse_constant=refuse_constant))
                if facts.digest != digest:
                    raise InputError(f"{where}: holds the scores of another cohort.")
                for key, run in facts.runs.items():
                    scores = {part: archive[f"{key}/{part}"].astype(np.float64) for part in ("valid", "test")}
                    yield Imported(_model(run.model), run.seed, scores, run.cost.model_dump())
        except InputError:
            raise
        except ValidationError as error:
            reason = complaint(
                error.errors(include_url=False, include_input=False, include_context=False), whole="its facts"
            )
            raise InputError(f"{where}: {reason}.") from None
        # Errors of NumPy, zipfile and a model's own checks on arbitrary bytes.
        except (KeyError, ValueError, TypeError, AttributeError, NotImplementedError, zipfile.BadZipFile):
            raise InputError(f"{where}: is not an archive of runs written by benchmarks/gpu_models.py.") from None


def _model(fields: dict[str, Any]) -> Baseline:
    """Return the model of a known name with these hyperparameters."""
    found = baselines.discover().get(fields.get("name", ""))
    if found is None:
        raise ValueError("a model that is not known")
    model = type(found)(**fields)
    if model.name != found.name:
        raise ValueError("a model of another name")
    return model
