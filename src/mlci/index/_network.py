"""Score with torch: for encoders with attention between codes, such as a Set Transformer.

Turn the weights of a trained encoder and flat tokens into one float64 per admission. Scoring such an index needs torch
(`mlci[deep]`) and is slower than scoring with NumPy. The last digits of a score may depend on which other admissions
are in the batch.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from mlci.base.extras import need
from mlci.base.hidden import reveal
from mlci.codes.admissions import Admissions
from mlci.config import EncoderConfig
from mlci.index._reading import Reading
from mlci.tokens import Tokens, Vocabulary


@dataclass(frozen=True)
class NetworkScorer:
    """The encoder's weights by name, and its configuration."""

    state: Mapping[str, np.ndarray]
    encoder: EncoderConfig
    vocabulary: Vocabulary

    def encode(self, admissions: Admissions) -> Tokens:
        """Return every token of every code."""
        return self.vocabulary.encode(admissions)

    def read(self, tokens: Tokens) -> Reading:
        """Return scores only: the encoder has one output."""
        self._prepare()
        from mlci.fitting.encoders import score

        return Reading(score(self.encoder, self.state, tokens).astype(np.float64))

    @property
    def risky(self) -> int:
        """The number of outcomes with a risk of their own: none."""
        return 0

    def risks(self, reading: Reading) -> np.ndarray:
        """Return no columns: the network has no output for single outcomes."""
        return self.risk_log_odds(reading)

    def risk_log_odds(self, reading: Reading) -> np.ndarray:
        """Return no columns: the network has no log-odds of outcomes."""
        return np.empty((len(reading.score), self.risky))

    def check(self, outcomes: int) -> None:
        """Raise ValueError if the arrays are inconsistent, as in a handmade file."""
        self._prepare()
        from mlci.fitting.encoders import shapes

        wanted = shapes(self.encoder, len(self.vocabulary))
        found = {name: values.shape for name, values in self.state.items()}
        if found != wanted:
            raise ValueError(f"tensors {found}, wanted {wanted}")
        if not all(values.dtype == np.float32 and np.isfinite(values).all() for values in self.state.values()):
            raise ValueError("weights that are not finite 32-bit numbers")

    def _prepare(self) -> None:
        """Raise an error if torch is missing; make the modules that it looks for importable."""
        need("deep", to=f"score with the encoder {self.encoder.name}")
        reveal()
