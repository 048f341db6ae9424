"""An encoder's heads: the log-odds of each outcome, by further outputs of its last layer and a sum over tokens.

In come the heads' arrays of a model file; out come a matrix for the last layer, and what tokens add. Sums are taken of
whole numbers, so neither the order of the codes nor the company of an admission changes a bit. Needs NumPy alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mlci.index._whole import in_steps
from mlci.tokens import Vocabulary

MOST = 12.0  # log-odds of a risk: nothing is said beyond, so that none is 0 or 1


@dataclass(frozen=True)
class OutcomeHeads:
    """Of outcomes that have log-odds of their own; of none where a model file has no heads."""

    matrix: np.ndarray  # what the numbers that enter the last layer add
    start: np.ndarray  # of each outcome
    whole: np.ndarray  # what a row of the table of pooling adds, in multiples of `step`
    step: float

    @classmethod
    def of(
        cls,
        state: Mapping[str, np.ndarray],
        layers: Sequence[tuple[np.ndarray, np.ndarray]],
        vocabulary: Vocabulary,
        *,
        codes: bool,
    ) -> "OutcomeHeads":
        """Fold what the pass leaves out into the heads: the bias of the last ReLU, or of LayerNorm where there is none.

        `layers` are rho's matrices and biases as the pass has them; with `codes`, rows of codes follow those of tokens.
        """
        if "heads.bias" not in state:
            return cls(np.empty((0, 0)), np.empty(0), np.empty((0, 0)), 1.0)
        matrix, weights = (state[f"heads.{name}"].astype(np.float64) for name in ("weight", "tokens"))
        start = state["heads.bias"] + matrix @ (layers[-2][1] if len(layers) > 1 else state["norm.bias"])
        matrix = matrix if len(layers) > 1 else centred(matrix * state["norm.weight"])
        whole, step = in_steps(weights, vocabulary.longest)
        rows = [whole, whole[vocabulary.beginnings].sum(axis=1)] if codes else [whole]
        return cls(np.ascontiguousarray(matrix.astype(np.float32).T), start, np.concatenate(rows), step)

    def added(self, ids: np.ndarray) -> np.ndarray:
        """Return what rows of the table of pooling add, in steps; a column of `ids` for each admission."""
        many = self.whole.shape[1]
        flat = self.whole.take(ids, axis=0, mode="clip").reshape(len(ids), many * ids.shape[1])
        return flat.sum(axis=0).reshape(-1, many)  # long rows are summed faster than short ones

    def log_odds(self, added: np.ndarray, by_layer: np.ndarray) -> np.ndarray:
        """Return the log-odds of each outcome, in the place of what tokens bring; the last layer brings the rest."""
        added *= self.step
        added += self.start
        added += by_layer
        return added


def centred(matrix: np.ndarray) -> np.ndarray:
    """Give a matrix that makes of a row what this one makes of the row less its mean.

    >>> centred(np.array([[1.0, 3.0]])).tolist()
    [[-1.0, 1.0]]
    """
    return (matrix - matrix.mean(axis=1, keepdims=True, dtype=np.float64)).astype(matrix.dtype)


def shapes(state: Mapping[str, np.ndarray], entering: int, tokens: int) -> dict[str, tuple[int, ...]]:
    """Give the shapes that the heads' arrays must have, where there are heads; so many numbers enter the last layer."""
    if "heads.bias" not in state:
        return {}
    many = len(state["heads.bias"])
    return {
        "heads.bias": (many,),
        "heads.tokens": (tokens, many),
        "heads.weight": (many, entering),
        "calibration": (many, 2),
    }
