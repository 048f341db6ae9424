"""Set encoders: flat tokens in, one score per admission out.

A token's features depend on its id alone, so they are computed once per distinct token of a batch and looked up from
there; admissions are pooled by offsets, without padding. Every encoder ends in `rho`, whose last layer is linear.
"""

from itertools import pairwise
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mlci.config import EncoderConfig
from mlci.errors import InputError
from mlci.tokens import PAD


def mlp(*widths: int) -> list[nn.Module]:
    """Linear layers from width to width with a ReLU after each."""
    return [layer for a, b in pairwise(widths) for layer in (nn.Linear(a, b), nn.ReLU())]


def distinct(ids: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """The distinct ids (padding always among them, so that there is one) and where each of `ids` stands in them."""
    present = torch.zeros(size, dtype=torch.bool, device=ids.device)
    present[ids] = True
    present[PAD] = True
    return present.nonzero().squeeze(1), (present.cumsum(0) - 1)[ids]


class Encoder(nn.Module):
    """What the training loop needs: `forward(ids, offsets)`, and a last layer that can turn the score around."""

    rho: nn.Sequential

    def negate(self) -> None:
        """Make every score its negative."""
        last = cast(nn.Linear, self.rho[-1])
        with torch.no_grad():
            last.weight.neg_()
            last.bias.neg_()


class DeepSets(Encoder):
    """rho(LayerNorm(pool(phi(embedding)))); the paper pools by mean and max, side by side.

    An admission without codes pools to zero, the least value that phi can take.
    """

    POOLINGS = ("mean", "max", "sum")

    def __init__(self, vocabulary_size: int, *, width: int = 128, pooling: str = "mean+max") -> None:
        super().__init__()
        self.poolings = pooling.split("+")
        if not set(self.poolings) <= set(self.POOLINGS):
            raise InputError(f"pooling is '{pooling}'; allowed is {', '.join(self.POOLINGS)}, joined by +.")
        pooled = width * len(self.poolings)
        self.embedding = nn.Embedding(vocabulary_size, width, padding_idx=PAD)
        self.phi = nn.Sequential(*mlp(width, width, width))
        self.norm = nn.LayerNorm(pooled)
        self.rho = nn.Sequential(*mlp(pooled, width, width), nn.Linear(width, 1))

    def forward(self, ids: Tensor, offsets: Tensor) -> Tensor:
        tokens, where = distinct(ids, self.embedding.num_embeddings)
        table = self.phi(self.embedding(tokens))
        pooled = [F.embedding_bag(where, table, offsets, mode=how, include_last_offset=True) for how in self.poolings]
        return self.rho(self.norm(torch.cat(pooled, dim=1))).squeeze(1)


def build(config: EncoderConfig, vocabulary_size: int) -> Encoder:
    """A freshly initialised encoder, drawn from torch's current random state."""
    encoders = {"deepsets": lambda: DeepSets(vocabulary_size, width=config.width, pooling=config.pooling)}
    if config.name not in encoders:
        raise InputError(f"encoder is '{config.name}'; allowed is {', '.join(encoders)}.")
    return encoders[config.name]()
