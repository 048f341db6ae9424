"""A step's two passes: the scores of a batch's tokens forward, and their gradient back into every weight.

`passes(model)` gives what goes through any encoder by autograd, or, for the paper's encoder on the CPU, what goes by
hand: there a step is so short that recording it, filling a gradient of the whole vocabulary and visiting weight after
weight would cost as much as the matrix products. All weights lie in one tensor, and so do their gradients.
"""

import numpy as np
import torch
from torch import Tensor, nn

from mlci import processes
from mlci.encoders import DeepSets, Encoder, largest
from mlci.tokens import PAD, Tokens

aten = torch.ops.aten


def on(device: torch.device, tokens: Tokens) -> tuple[Tensor, Tensor]:
    ids, offsets = (torch.tensor(array, dtype=torch.int64) for array in (tokens.ids, tokens.offsets))
    return ids.to(device), offsets.to(device)


class Passes:
    """Through any encoder. `weights` are all of its weights, with their gradients."""

    def __init__(self, model: Encoder) -> None:
        self.model = model
        parts = list(model.parameters())
        self.weights = nn.Parameter(torch.cat([part.detach().flatten() for part in parts]))
        self.weights.grad = torch.zeros_like(self.weights)
        self.device = self.weights.device
        sizes = [part.numel() for part in parts]
        for part, weight, gradient in zip(parts, self.weights.detach().split(sizes), self.weights.grad.split(sizes)):
            part.data, part.grad = weight.view_as(part), gradient.view_as(part)

    def forward(self, tokens: Tokens) -> Tensor:
        self.scores = self.model(*on(self.device, tokens))
        return self.scores.detach()

    def backward(self, gradient: Tensor) -> None:
        """Of the last forward pass."""
        assert self.weights.grad is not None
        self.weights.grad.zero_()
        self.scores.backward(gradient)


class ByHand(Passes):
    """Through DeepSets with mean and max pooling."""

    model: DeepSets

    def __init__(self, model: DeepSets) -> None:
        super().__init__(model)
        self.tokens = torch.tensor([PAD])

    @torch.no_grad()
    def forward(self, tokens: Tokens) -> Tensor:
        model, width = self.model, self.model.embedding.embedding_dim
        self._lay_out(tokens)
        self.first = model.embedding.weight.index_select(0, self.tokens)
        self.second = _linear(model.phi[0], self.first).relu_()
        self.table = _linear(model.phi[2], self.second).relu_()
        sums = torch.embedding_bag(self.table, self.where, self.offsets, mode=0, include_last_offset=True)[0]
        best, self.winners = largest(self.where, self.table, self.offsets)
        self.pooled = torch.cat([sums.mul_(self.share), best], dim=1)
        norm = model.norm
        self.normed, *self.moments = torch.native_layer_norm(self.pooled, [2 * width], norm.weight, norm.bias, norm.eps)
        self.third = _linear(model.rho[0], self.normed).relu_()
        self.fourth = _linear(model.rho[2], self.third).relu_()
        return _linear(model.rho[4], self.fourth).squeeze(1)

    def _lay_out(self, tokens: Tokens) -> None:
        """The distinct tokens, where each token stands among them, and the other way round: who has each of them."""
        number = np.full(self.model.embedding.num_embeddings, -1)
        number[PAD] = 0  # always among them, so that there is one
        number[tokens.ids] = 0
        # Only the last step's rows of the gradient are not zero (unless others added theirs).
        gone = self.tokens[torch.from_numpy(number)[self.tokens] < 0] if processes.count() == 1 else slice(None)
        self.model.embedding.weight.grad[gone] = 0  # pyright: ignore
        distinct = np.flatnonzero(number == 0)
        number[distinct] = np.arange(len(distinct))
        where = number[tokens.ids]
        counts = tokens.counts
        order = np.argsort(where.astype(np.min_scalar_type(len(distinct))), kind="stable")
        ends = np.cumsum(np.bincount(where, minlength=len(distinct)))
        self.tokens, self.where, self.offsets, self.holders, self.held = map(
            torch.from_numpy,
            (
                distinct,
                where,
                tokens.offsets,
                np.repeat(np.arange(len(counts)), counts)[order],
                np.concatenate([[0], ends]),
            ),
        )
        self.share = torch.from_numpy(1 / np.maximum(counts, 1)[:, None]).to(self.weights.dtype)

    @torch.no_grad()
    def backward(self, gradient: Tensor) -> None:
        model, width = self.model, self.model.embedding.embedding_dim
        back = _back(model.rho[4], self.fourth, gradient[:, None])
        back = _back(model.rho[2], self.third, aten.threshold_backward(back, self.fourth, 0))
        back = _back(model.rho[0], self.normed, aten.threshold_backward(back, self.third, 0))
        norm = model.norm
        back, *own = aten.native_layer_norm_backward(
            back, self.pooled, [2 * width], *self.moments, norm.weight, norm.bias, [True, True, True]
        )
        for part, value in zip((norm.weight, norm.bias), own):
            part.grad.copy_(value)  # pyright: ignore
        # A mean's gradient goes to all who have a token, a maximum's to its winner; at zero, ReLU lets nothing through.
        mean = back[:, :width] * self.share
        best = aten.threshold_backward(back[:, width:], self.pooled[:, width:], 0)
        back = torch.embedding_bag(mean, self.holders, self.held, mode=0, include_last_offset=True)[0]
        places = torch.add(torch.arange(width), self.winners, alpha=width)
        back.view(-1).scatter_add_(0, places.view(-1), best.reshape(-1))
        back = _back(model.phi[2], self.second, aten.threshold_backward(back, self.table, 0))
        back = _back(model.phi[0], self.first, aten.threshold_backward(back, self.second, 0))
        model.embedding.weight.grad.numpy()[self.tokens.numpy()] = back.numpy()  # pyright: ignore


def _linear(layer, x: Tensor) -> Tensor:
    return torch.addmm(layer.bias, x, layer.weight.T)


def _back(layer, x: Tensor, gradient: Tensor) -> Tensor:
    """Into a linear layer's weights, and on to what it was given."""
    torch.mm(gradient.T, x, out=layer.weight.grad)
    torch.sum(gradient, 0, out=layer.bias.grad)
    return gradient @ layer.weight


def passes(model: Encoder) -> Passes:
    plain = isinstance(model, DeepSets) and model.poolings == ["mean", "max"] and not model.dropout.p
    return ByHand(model) if plain and next(model.parameters()).device.type == "cpu" else Passes(model)
