"""Clinical indices: Charlson and Elixhauser with published weights, and the sum of their z-scores."""

from dataclasses import dataclass

import numpy as np

from mlci.benchmark.models import Baseline, State
from mlci.fitting import Split


def _indices(part: Split) -> np.ndarray:
    """Return Charlson (1987) and Elixhauser (van Walraven), one column each."""
    from mlci.codes.comorbidity import Coder

    assert part.admissions is not None
    found = Coder().scores(part.admissions, ["cci_charlson", "eci_vw"])
    return np.column_stack(list(found.values())).astype(float)


@dataclass(frozen=True, kw_only=True)
class ClinicalIndex(Baseline):
    """A weighted sum of the two indices; `standardise` first turns each into z-scores of the training split."""

    family: str = "clinical"
    seed: int | None = 0
    weights: tuple[float, float]
    standardise: bool = False

    def fit(self, train: Split, valid: Split, *, seed: int, device: str = "cpu") -> State:
        if not self.standardise:
            return {"mean": np.zeros(2), "scale": np.ones(2)}
        points = _indices(train)
        scale = points.std(axis=0)
        return {"mean": points.mean(axis=0), "scale": np.where(scale > 0, scale, 1.0)}

    def score(self, state: State, part: Split) -> np.ndarray:
        return ((_indices(part) - state["mean"]) / state["scale"]) @ np.asarray(self.weights)


MODELS = (
    ClinicalIndex(name="charlson", title="Charlson (CCI)", weights=(1.0, 0.0)),
    ClinicalIndex(name="elixhauser", title="Elixhauser (ECI)", weights=(0.0, 1.0)),
    ClinicalIndex(name="cci_eci", title="CCI+ECI (scalar)", weights=(1.0, 1.0), standardise=True),
)
