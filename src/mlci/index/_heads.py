"""An encoder's heads: the log-odds of each outcome, from further outputs of its last layer plus a sum over tokens.

Turn the heads' arrays of a model file into a matrix for the last layer and a weight for each token. The weights are
whole numbers, so their sums depend on neither the order of the codes nor the other admissions. Needs only NumPy.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mlci.index._whole import in_steps
from mlci.tokens import Vocabulary

MOST = 12.0  # largest log-odds of a risk, so that no risk is 0 or 1


@dataclass(frozen=True)
class OutcomeHeads:
    """The heads of the outcomes with their own log-odds; empty if a model file has none."""

    matrix: np.ndarray  # weights of the inputs of the last layer
    start: np.ndarray  # intercept of each outcome
    whole: np.ndarray  # what a row of the pooling table adds, in multiples of `step`
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
        """Make the heads, with the last ReLU's bias (without hidden layers, LayerNorm's) folded into their intercepts.

        `layers` are rho's matrices and biases as the scorer uses them. With `codes`, rows of codes follow those of
        tokens.
        """
        if "heads.bias" not in state:
            return cls(np.empty((0, 0)), np.empty(0), np.empty((0, 0)), 1.0)
        matrix, weights = (state[f"heads.{name}"].astype(np.float64) for name in ("weight", "tokens"))
        start = state["heads.bias"] + matrix @ (layers[-2][1] if len(layers) > 1 else state["norm.bias"])
        matrix = matrix if len(layers) > 1 else centred(matrix * state["norm.weight"])
        whole, step = in_steps(weights, vocabulary.longest)
        rows = [whole, whole[vocabulary.prefixes].sum(axis=1)] if codes else [whole]
        return cls(np.ascontiguousarray(matrix.astype(np.float32).T), start, np.concatenate(rows), step)

    def added(self, ids: np.ndarray) -> np.ndarray:
        """Return what rows of the pooling table add, in steps; each admission is a column of `ids`."""
        many = self.whole.shape[1]
        flat = self.whole.take(ids, axis=0, mode="clip").reshape(len(ids), many * ids.shape[1])
        return flat.sum(axis=0).reshape(-1, many)  # long rows are summed faster than short ones

    def log_odds(self, added: np.ndarray, by_layer: np.ndarray) -> np.ndarray:
        """Return the log-odds of each outcome, in the memory of `added`: tokens plus last layer plus intercept."""
        added *= self.step
        added += self.start
        added += by_layer
        return added


def centred(matrix: np.ndarray) -> np.ndarray:
    """Return a matrix whose product with a row is this matrix's product with the row minus its mean.

    >>> centred(np.array([[1.0, 3.0]])).tolist()
    [[-1.0, 1.0]]
    """
    return (matrix - matrix.mean(axis=1, keepdims=True, dtype=np.float64)).astype(matrix.dtype)


def shapes(state: Mapping[str, np.ndarray], entering: int, tokens: int) -> dict[str, tuple[int, ...]]:
    """Return the shapes that the heads' arrays must have; `entering` is the number of inputs of the last layer."""
    if "heads.bias" not in state:
        return {}
    many = len(state["heads.bias"])
    return {
        "heads.bias": (many,),
        "heads.tokens": (tokens, many),
        "heads.weight": (many, entering),
        "calibration": (many, 2),
    }
