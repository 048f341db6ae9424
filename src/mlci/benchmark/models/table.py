"""The recipe `table` in the benchmark: a weight for each token and outcome, and a monotone curve per outcome."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from mlci.benchmark.models import Learned, State
from mlci.config import PenaltyConfig, TableConfig, TokenConfig
from mlci.fitting import Split
from mlci.fitting._weighting import with_classes

if TYPE_CHECKING:
    from mlci.fitting._result import Fit


@dataclass(frozen=True, kw_only=True)
class TableBaseline(Learned):
    """The recipe `table` with its own tokens, on the outcomes that have both classes in the training split."""

    recipe: ClassVar = "table"
    folds: int = 5

    def default_config(self) -> TableConfig:
        return TableConfig(penalty=PenaltyConfig(folds=self.folds))

    @property
    def tokens(self) -> TokenConfig:
        return self.config().tokens

    def fits(self, train: Split, valid: Split, *, seeds: Sequence[int], device: str) -> list["Fit"]:
        from mlci.fitting.table import fit

        mixed = with_classes(train, omit=True)
        return [fit(train.only(mixed), valid.only(mixed), config=self.config(), seed=seed) for seed in seeds]

    def score(self, state: State, part: Split) -> np.ndarray:
        from mlci.fitting.table import score

        return score(state, part.tokens)


MODELS = (TableBaseline(name="table", title="MLCI (table)", family="mlci"),)
