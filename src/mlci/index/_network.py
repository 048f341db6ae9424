"""Score with any other network through torch: for encoders whose codes look at one another, as in a Set Transformer.

In come the weights of a trained encoder and flat tokens; out comes one float64 per admission. torch is optional
(`mlci[deep]`), and such an index cannot be scored without it; it is also the slow way. Sums are torch's own: their last
digits may depend on the company that an admission is scored in.
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
    """The encoder's weights by name, and which encoder it is."""

    state: Mapping[str, np.ndarray]
    encoder: EncoderConfig
    vocabulary: Vocabulary

    def encode(self, admissions: Admissions) -> Tokens:
        """Return every token of every code."""
        return self.vocabulary.encode(admissions)

    def read(self, tokens: Tokens) -> Reading:
        """Return scores alone: what the encoder learned is one number."""
        self._prepare()
        from mlci.fitting.encoders import score

        return Reading(score(self.encoder, self.state, tokens).astype(np.float64))

    @property
    def risky(self) -> int:
        """How many outcomes have a risk of their own: none."""
        return 0

    def risks(self, reading: Reading) -> np.ndarray:
        """Return no columns: nothing was learned of an outcome by itself."""
        return self.risk_log_odds(reading)

    def risk_log_odds(self, reading: Reading) -> np.ndarray:
        """Return no columns: this network has one score and no log-odds of outcomes."""
        return np.empty((len(reading.score), self.risky))

    def check(self, outcomes: int) -> None:
        """Refuse arrays that do not fit together, of a file that somebody made by hand."""
        self._prepare()
        from mlci.fitting.encoders import shapes

        wanted = shapes(self.encoder, len(self.vocabulary))
        found = {name: values.shape for name, values in self.state.items()}
        if found != wanted:
            raise ValueError(f"tensors {found}, wanted {wanted}")
        if not all(values.dtype == np.float32 and np.isfinite(values).all() for values in self.state.values()):
            raise ValueError("weights that are not finite 32-bit numbers")

    def _prepare(self) -> None:
        """Say that torch is missing, or let it find what it looks for."""
        need("deep", to=f"score with the encoder {self.encoder.name}")
        reveal()
