"""The passes of the paper's encoder, DeepSets with mean and max pooling, written out for the CPU.

There a step is so short that recording it for autograd and filling a gradient of the whole vocabulary would cost as
much as the matrix products.
"""

from typing import cast

import numpy as np
import torch
from torch import Tensor, nn

from mlci.fitting.encoders import DeepSets, largest
from mlci.tokens import PAD, Tokens

aten = torch.ops.aten


class ByHand:
    """Forward through a DeepSets, and the scores' gradient back into every weight.

    `sparse`: nobody else adds to the gradients, so that only the last step's rows of the embeddings' are not zero.
    """

    def __init__(self, model: DeepSets, *, sparse: bool = True) -> None:
        self.model, self.sparse, self.parameters = model, sparse, list(model.parameters())
        for parameter in self.parameters:
            parameter.grad = torch.zeros_like(parameter)
        self.tokens = np.array([PAD])
        self.embedding = model.embedding.weight.detach()
        self.gradient: np.ndarray = model.embedding.weight.grad.numpy()  # pyright: ignore
        self.phi = [_Linear(model.phi[place]) for place in (0, 2)]
        self.rho = [_Linear(model.rho[place]) for place in (0, 2, 4)]
        self.columns = torch.arange(model.embedding.embedding_dim)

    @torch.no_grad()
    def forward(self, tokens: Tokens) -> Tensor:
        self._lay_out(tokens)
        self.first = self.embedding.index_select(0, torch.from_numpy(self.tokens))
        self.second = self.phi[0].forward(self.first).relu_()
        self.table = self.phi[1].forward(self.second).relu_()
        sums = torch.embedding_bag(self.table, self.where, self.offsets, mode=0, include_last_offset=True)[0]
        best, self.winners = largest(self.where, self.table, self.offsets)
        self.pooled = torch.cat([sums.mul_(self.share), best], dim=1)
        norm = self.model.norm
        self.normed, *self.moments = torch.native_layer_norm(
            self.pooled, norm.normalized_shape, norm.weight, norm.bias, norm.eps
        )
        self.third = self.rho[0].forward(self.normed).relu_()
        self.fourth = self.rho[1].forward(self.third).relu_()
        return self.rho[2].forward(self.fourth).squeeze(1)

    def _lay_out(self, tokens: Tokens) -> None:
        """Find the distinct tokens, where each token stands among them, and who has each of them."""
        number = np.full(len(self.embedding), -1)
        number[PAD] = 0  # always among them, so that there is one
        number[tokens.ids] = 0
        self.gradient[self.tokens[number[self.tokens] < 0] if self.sparse else slice(None)] = 0
        self.tokens = distinct = np.flatnonzero(number == 0)
        number[distinct] = np.arange(len(distinct))
        where = number[tokens.ids]
        counts = tokens.counts
        order = np.argsort(where.astype(np.min_scalar_type(len(distinct))), kind="stable")
        ends = np.cumsum(np.bincount(where, minlength=len(distinct)))
        holders, held = np.repeat(np.arange(len(counts)), counts)[order], np.concatenate([[0], ends])
        laid_out = (where, tokens.offsets, holders, held)
        self.where, self.offsets, self.holders, self.held = map(torch.from_numpy, laid_out)
        self.share = torch.from_numpy(1 / np.maximum(counts, 1)[:, None]).to(self.embedding.dtype)

    @torch.no_grad()
    def backward(self, gradient: Tensor) -> None:
        width = len(self.columns)
        back = self.rho[2].back(self.fourth, gradient[:, None])
        back = self.rho[1].back(self.third, aten.threshold_backward(back, self.fourth, 0))
        back = self.rho[0].back(self.normed, aten.threshold_backward(back, self.third, 0))
        norm = self.model.norm
        back, *own = aten.native_layer_norm_backward(
            back, self.pooled, norm.normalized_shape, *self.moments, norm.weight, norm.bias, [True, True, True]
        )
        for part, value in zip((norm.weight, norm.bias), own):
            part.grad.copy_(value)  # pyright: ignore
        # A mean's gradient goes to all who have a token, a maximum's to its winner; at zero, ReLU lets nothing through.
        mean = back[:, :width] * self.share
        best = aten.threshold_backward(back[:, width:], self.pooled[:, width:], 0)
        back = torch.embedding_bag(mean, self.holders, self.held, mode=0, include_last_offset=True)[0]
        places = torch.add(self.columns, self.winners, alpha=width)
        back.view(-1).scatter_add_(0, places.view(-1), best.reshape(-1))
        back = self.phi[1].back(self.second, aten.threshold_backward(back, self.table, 0))
        back = self.phi[0].back(self.first, aten.threshold_backward(back, self.second, 0))
        self.gradient[self.tokens] = back.numpy()


class _Linear:
    """A linear layer with weights and gradients at hand: to find them in the model takes as long as a small product."""

    def __init__(self, layer) -> None:
        self.weight, self.bias = layer.weight.detach(), layer.bias.detach()
        self.turned = self.weight.T
        self.by_weight, self.by_bias = layer.weight.grad, layer.bias.grad

    def forward(self, x: Tensor) -> Tensor:
        return torch.addmm(self.bias, x, self.turned)

    def back(self, x: Tensor, gradient: Tensor) -> Tensor:
        """Into the weights' gradients, and on to what it was given."""
        torch.mm(gradient.T, x, out=self.by_weight)
        torch.sum(gradient, 0, out=self.by_bias)
        return torch.mm(gradient, self.weight)


def takes(model: nn.Module) -> bool:
    """Say whether this is a model that goes by hand."""
    if not isinstance(model, DeepSets) or model.poolings != ["mean", "max"] or model.dropout.p:
        return False
    if (len(model.phi), len(model.rho)) != (4, 5):  # two layers and three, each but the last with its ReLU
        return False
    return model.embedding.weight.device.type == "cpu" and cast(nn.Linear, model.rho[-1]).out_features == 1
