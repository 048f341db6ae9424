"""Hand-written forward and backward pass of DeepSets with mean and max pooling (the default encoder), for the CPU.

A step there is so short that recording it for autograd, and filling a gradient as large as the vocabulary, would cost
as much as the matrix products.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from mlci.fitting._pooling import max_pool
from mlci.fitting.encoders import DeepSets
from mlci.tokens import PAD, Tokens

aten = torch.ops.aten


@dataclass(frozen=True)
class Batch:
    """The tokens of a minibatch, prepared for a step; made of the tokens alone, so that it can be prepared ahead."""

    tokens: np.ndarray  # the distinct tokens
    where: Tensor  # for each token, its index among the distinct ones
    offsets: Tensor  # where each admission begins in `where`, and the end
    holders: Tensor  # the admissions that have each distinct token, one token after another
    held: Tensor  # where the admissions of each distinct token begin in `holders`, and the end
    share: Tensor  # 1 / (number of tokens) of each admission, as a column
    masks: tuple[Tensor, ...]  # dropout masks of the inputs of the hidden layers; empty without dropout


class ByHand:
    """Forward through a DeepSets, and backward from the gradient by the scores to all weights.

    `sparse`: nothing else adds to the gradients, so only the embedding rows of the last step need to be set back to
    zero.
    """

    def __init__(self, model: DeepSets, *, sparse: bool = True) -> None:
        self.model, self.sparse, self.parameters = model, sparse, list(model.parameters())
        for parameter in self.parameters:
            parameter.grad = torch.zeros_like(parameter)
        self.embedding = model.embedding.weight.detach()
        self.gradient: np.ndarray = model.embedding.weight.grad.numpy()  # pyright: ignore
        self.phi = [_Linear(model.phi[place]) for place in (0, 2)]
        self.rho = [_Linear(model.rho[place]) for place in (0, 2, 4)]
        self.columns = torch.arange(model.embedding.embedding_dim)
        self.batch: Batch | None = None

    def lay_out(self, tokens: Tokens) -> Batch:
        """Prepare a batch: find the distinct tokens, and which admissions have each; draw the dropout masks."""
        number = np.full(len(self.embedding), -1)
        number[PAD] = 0  # padding is always included, so that there is at least one
        number[tokens.ids] = 0
        distinct = np.flatnonzero(number == 0)
        number[distinct] = np.arange(len(distinct))
        where, counts = number[tokens.ids], tokens.counts
        order = np.argsort(where.astype(np.min_scalar_type(len(distinct))), kind="stable")
        ends = np.cumsum(np.bincount(where, minlength=len(distinct)))
        holders, held = np.repeat(np.arange(len(counts)), counts)[order], np.concatenate([[0], ends])
        share = torch.from_numpy(1 / np.maximum(counts, 1)[:, None]).to(self.embedding.dtype)
        drop = self.model.dropout
        widths = [layer.weight.shape[1] for layer in self.rho[:2]] if drop.p else []
        masks = [drop.mask(self.embedding.new_empty(len(counts), width)) for width in widths]
        flat, offsets, holders, held = map(torch.from_numpy, (where, tokens.offsets, holders, held))
        return Batch(distinct, flat, offsets, holders, held, share, tuple(masks))

    @torch.no_grad()
    def forward(self, batch: Batch) -> Tensor:
        if self.batch is not None:
            self.gradient[self.batch.tokens if self.sparse else slice(None)] = 0
        self.batch = batch
        self.first = self.embedding.index_select(0, torch.from_numpy(batch.tokens))
        self.second = self.phi[0].forward(self.first).relu_()
        self.table = self.phi[1].forward(self.second).relu_()
        bags = (self.table, batch.where, batch.offsets)
        mean = torch.embedding_bag(*bags, mode=0, include_last_offset=True)[0]
        best, self.winners = max_pool(batch.where, self.table, batch.offsets)
        self.pooled = torch.cat([mean.mul_(batch.share), best], dim=1)
        norm = self.model.norm
        self.normed, *self.moments = torch.native_layer_norm(
            self.pooled, norm.normalized_shape, norm.weight, norm.bias, norm.eps
        )
        self.entered = [self._dropped(0, self.normed)]
        self.third = self.rho[0].forward(self.entered[0]).relu_()
        self.entered.append(self._dropped(1, self.third))
        self.fourth = self.rho[1].forward(self.entered[1]).relu_()
        return self.rho[2].forward(self.fourth).squeeze(1)

    def _dropped(self, layer: int, x: Tensor) -> Tensor:
        """Apply the dropout mask of a hidden layer, to its input or to the gradient by its input."""
        assert self.batch is not None
        return x * self.batch.masks[layer] if self.batch.masks else x

    @torch.no_grad()
    def backward(self, gradient: Tensor) -> None:
        back = self.rho[2].back(self.fourth, gradient.view(len(self.fourth), len(self.rho[2].bias)))
        back = self.rho[1].back(self.entered[1], aten.threshold_backward(back, self.fourth, 0))
        back = aten.threshold_backward(self._dropped(1, back), self.third, 0)
        back = self._dropped(0, self.rho[0].back(self.entered[0], back))
        norm = self.model.norm
        back, *own = aten.native_layer_norm_backward(
            back, self.pooled, norm.normalized_shape, *self.moments, norm.weight, norm.bias, [True, True, True]
        )
        for part, value in zip((norm.weight, norm.bias), own):
            part.grad.copy_(value)  # pyright: ignore
        back = self._unpooled(back)
        back = self.phi[1].back(self.second, aten.threshold_backward(back, self.table, 0))
        back = self.phi[0].back(self.first, aten.threshold_backward(back, self.second, 0))
        assert self.batch is not None
        self.gradient[self.batch.tokens] = back.numpy()

    def _unpooled(self, back: Tensor) -> Tensor:
        """Return the gradient by the distinct tokens' features: the mean passes it to all tokens, the max to winners.

        The gradient through a maximum of 0 is 0, as for a ReLU.
        """
        batch, width = self.batch, len(self.columns)
        assert batch is not None
        best = aten.threshold_backward(back[:, width:], self.pooled[:, width:], 0).reshape(-1)
        places = torch.add(self.columns, self.winners, alpha=width).view(-1)
        bags = (back[:, :width] * batch.share, batch.holders, batch.held)
        found = torch.embedding_bag(*bags, mode=0, include_last_offset=True)[0]
        found.view(-1).scatter_add_(0, places, best)
        return found


class _Linear:
    """A linear layer with direct references to its weights and gradients.

    Attribute lookups in a module cost as much as a small matrix product.
    """

    def __init__(self, layer) -> None:
        self.weight, self.bias = layer.weight.detach(), layer.bias.detach()
        self.transposed = self.weight.T
        self.by_weight, self.by_bias = layer.weight.grad, layer.bias.grad

    def forward(self, x: Tensor) -> Tensor:
        return torch.addmm(self.bias, x, self.transposed)

    def back(self, x: Tensor, gradient: Tensor) -> Tensor:
        """Write the gradients by weight and bias; return the gradient by the input."""
        torch.mm(gradient.T, x, out=self.by_weight)
        torch.sum(gradient, 0, out=self.by_bias)
        return torch.mm(gradient, self.weight)


def supports(model: nn.Module) -> bool:
    """Return whether the hand-written passes cover this model."""
    if not isinstance(model, DeepSets) or model.poolings != ["mean", "max"]:
        return False
    if (len(model.phi), len(model.rho)) != (4, 5):  # two and three linear layers, each but the last with a ReLU
        return False
    return model.embedding.weight.device.type == "cpu"
