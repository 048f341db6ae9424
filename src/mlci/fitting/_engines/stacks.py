"""Several encoders as one: their weights stacked, with a leading axis for the models.

In come encoders and tokens, out come scores, models x admissions. A single encoder leaves a GPU idle: its kernels are
shorter than their launches. Stacked, a step is one set of kernels for all models.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import cast

import torch
from torch import Tensor, nn, vmap
from torch.func import functional_call
from torch.nn import functional as F

from mlci.fitting._engines.layout import Resident
from mlci.fitting._pooling import Largest, averaged
from mlci.fitting.encoders import DeepSets, Encoder, RiskHeads, SetTransformer, dropping
from mlci.tokens import UNK

SCORED = 2**21  # admissions scored at once, counted for each model: what the device holds does not grow with the split


def kernels():
    from mlci.fitting._engines import kernels

    return kernels


def layer(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Compute ReLU(x W' + b) for each fit."""
    if x.is_cuda:
        return kernels().layer(x, weight, bias)
    return torch.baddbmm(bias[:, None], x, weight.mT).relu_()


def layer_back(
    gradient: Tensor, saved: tuple[Tensor, ...], further: bool
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Give the gradients by x, where it goes `further`, by the weight and by the bias; `saved` are these and y."""
    if gradient.is_cuda:
        return kernels().layer_back(gradient, saved, further)
    x, weight, _, y = saved
    gradient = gradient * (y > 0)
    return torch.bmm(gradient, weight) if further else None, torch.bmm(gradient.mT, x), gradient.sum(1)


class Layer(torch.autograd.Function):
    """`layer`, with its gradients."""

    @staticmethod
    def forward(ctx, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        y = layer(x, weight, bias)
        ctx.save_for_backward(x, weight, bias, y)
        return y

    @staticmethod
    def backward(ctx, gradient: Tensor):  # pyright: ignore[reportIncompatibleMethodOverride]
        return layer_back(gradient, ctx.saved_tensors, ctx.needs_input_grad[0])


class Pick(torch.autograd.Function):
    """Rows of a table, each at most once except for rows without a gradient, so that it is a copy both ways."""

    @staticmethod
    def forward(ctx, table: Tensor, rows: Tensor) -> Tensor:
        ctx.save_for_backward(rows)
        ctx.rows = len(table)
        return table.index_select(0, rows)

    @staticmethod
    def backward(ctx, gradient: Tensor):  # pyright: ignore[reportIncompatibleMethodOverride]
        (rows,) = ctx.saved_tensors
        return gradient.new_zeros(ctx.rows, gradient.shape[1]).index_copy_(0, rows, gradient), None


def pooled(
    table: Tensor, logits: Tensor | None, where: Tensor, offsets: Tensor, weight: Tensor, bias: Tensor,
    sums: bool, most: bool,
) -> Tensor:  # fmt: skip
    """Average each bag's rows, with their max beside it, and normalise: fits x admissions x features.

    The average is by a softmax of `logits` if given; with `sums` it is the sum instead.
    """
    where = where[: int(offsets[-1])]
    features = averaged("sum" if sums else "mean", table, logits, where, offsets)
    features = torch.cat([features, Largest.apply(where, table, offsets)], dim=1) if most else features
    features = features.view(len(weight), -1, weight.shape[1])
    return torch.addcmul(bias[:, None], F.layer_norm(features, features.shape[-1:]), weight[:, None])


class Stack(ABC):
    """The weights of several encoders, with a leading axis for the fits."""

    padded = False  # an admission takes as many places as the longest
    dropout = 0.0  # share of hidden units
    tables: tuple[str, ...] = ()  # weights with a row for each token, of which a step uses those of its own alone
    looked_up: Callable[[Tensor, str], Tensor] | None = None  # an optimiser's way to give these rows

    def __init__(self, models: Sequence[Encoder], longest: int) -> None:
        self.longest = longest  # codes of an admission in training
        states = [model.state_dict() for model in models]
        self.weights = {name: torch.stack([state[name] for state in states]).requires_grad_() for name in states[0]}

    @abstractmethod
    def _features(self, rows: Callable[[str], Tensor]) -> tuple[Tensor, ...]:
        """Give the features of tokens; `rows` gives theirs of a weight that has one for each (fits x tokens x ...)."""

    @abstractmethod
    def _scores(self, features: tuple[Tensor, ...], where: Tensor, offsets: Tensor, longest: int) -> Tensor:
        """Score admissions, fits x admissions; `where` counts the tokens of all fits."""

    def scores(self, tokens: Tensor, where: Tensor, offsets: Tensor) -> Tensor:
        """Score one step of a layout, fits x batch."""
        return self._scores(self._features(partial(self._pick, tokens)), where, offsets, self.longest)

    def _pick(self, tokens: Tensor, name: str) -> Tensor:
        """Give the rows of a weight that belong to tokens of all fits."""
        if self.looked_up and name in self.tables:
            return self.looked_up(tokens, name)
        return Pick.apply(self.weights[name].flatten(0, 1), tokens.flatten()).view(*tokens.shape, -1)

    @torch.no_grad()
    def predict(self, data: Resident) -> Tensor:
        """Score a split, fits x admissions, from the features of the whole vocabulary."""
        features = self._features(self.weights.__getitem__)
        fits, size = self.weights["embedding.weight"].shape[:2]
        fit = torch.arange(fits, device=data.ids.device)[:, None]
        longest = max(1, int(data.counts.max()))
        rows, scores = max(1, SCORED // (fits * (longest if self.padded else 1))), []
        for start in range(0, len(data), rows):
            offsets = data.starts[start : start + rows + 1]
            ids = data.ids[int(offsets[0]) : int(offsets[-1])]
            bags = (offsets[:-1] - offsets[0] + fit * len(ids)).flatten()
            where = (ids + fit * size).flatten()
            scores.append(self._scores(features, where, F.pad(bags, (0, 1), value=fits * len(ids)), longest))
        return torch.cat(scores, dim=1)

    def state_dict(self) -> dict[str, Tensor]:
        return {name: weight.detach() for name, weight in self.weights.items()}

    @torch.no_grad()
    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        for name, weight in self.weights.items():
            weight.copy_(state[name])


class Sets(Stack):
    """Several DeepSets; with several outputs, scores are fits x admissions x outputs.

    Hidden units are dropped where a gradient is wanted; in a recorded step, torch draws them anew at each replay.
    """

    tables = ("embedding.weight",)

    def __init__(self, models: Sequence[DeepSets], longest: int) -> None:
        super().__init__(models, longest)
        self.dropout = models[0].dropout.p
        device = models[0].embedding.weight.device
        self.sums, self.most = models[0].poolings[0] == "sum", "max" in models[0].poolings
        self._pool = kernels().Pool.apply if device.type == "cuda" else pooled

    def _features(self, rows: Callable[[str], Tensor]) -> tuple[Tensor, ...]:
        """Give phi's features, and the logits of the softmax where tokens are averaged by one; all fits' rows."""
        table = self._mlp("phi", rows("embedding.weight"), 2)
        if "query" in self.weights:
            logits = torch.bmm(table, self.weights["query"][..., None]) / math.sqrt(table.shape[-1])
        elif "gate.0.weight" in self.weights:
            logits = F.logsigmoid(self._linear("gate.2", self._mlp("gate", table, 1)))
        else:
            return (table.flatten(0, 1),)
        return table.flatten(0, 1), logits.flatten()

    def _scores(self, features: tuple[Tensor, ...], where: Tensor, offsets: Tensor, longest: int) -> Tensor:
        return self._linear("rho.4", self._hidden(features, where, offsets)).squeeze(2)

    def _hidden(self, features: tuple[Tensor, ...], where: Tensor, offsets: Tensor) -> Tensor:
        """Give what enters the last layer."""
        table, logits = features if len(features) == 2 else (*features, None)
        norm = (self.weights["norm.weight"], self.weights["norm.bias"])
        normed = self._pool(table, logits, where, offsets, *norm, self.sums, self.most)
        return self._mlp("rho", normed, 2, self.dropout if torch.is_grad_enabled() else 0.0)

    def _mlp(self, name: str, x: Tensor, layers: int, dropout: float = 0.0) -> Tensor:
        for layer in range(0, 2 * layers, 2):
            if dropout:
                x = F.dropout(x, dropout) if x.is_cuda else x * dropping(torch.empty_like(x), dropout)
            x = Layer.apply(x, self.weights[f"{name}.{layer}.weight"], self.weights[f"{name}.{layer}.bias"])
        return x

    def _linear(self, name: str, x: Tensor) -> Tensor:
        return torch.baddbmm(self.weights[f"{name}.bias"][:, None], x, self.weights[f"{name}.weight"].mT)


class Heads(Sets):
    """Several DeepSets that stay as they are, with heads that learn: scores are fits x admissions x outcomes."""

    tables = ("tokens",)

    def __init__(self, models: Sequence[RiskHeads], longest: int) -> None:
        super().__init__([model.encoder for model in models], longest)
        for weight in self.weights.values():
            weight.requires_grad_(False)
        for name in RiskHeads.LEARNED:
            own = torch.stack([model.get_parameter(name).detach() for model in models])
            self.weights[name] = own.requires_grad_()

    def _features(self, rows: Callable[[str], Tensor]) -> tuple[Tensor, ...]:
        return *super()._features(rows), rows("tokens").flatten(0, 1)

    def _scores(self, features: tuple[Tensor, ...], where: Tensor, offsets: Tensor, longest: int) -> Tensor:
        *encoded, table = features
        with torch.no_grad():
            hidden = self._hidden(tuple(encoded), where, offsets)
        # What fills the places of a step belongs to no admission: it is summed in a last row, which is left out.
        bag = torch.searchsorted(offsets, torch.arange(len(where), device=where.device), right=True) - 1
        sums = table.new_zeros(len(offsets), table.shape[1]).index_add(0, bag, table.index_select(0, where))[:-1]
        linear = torch.baddbmm(self.weights["bias"][:, None], hidden, self.weights["weight"].mT)
        return linear + sums.view_as(linear)


class Transformers(Stack):
    """Several Set Transformers. A graph has fixed shapes, so here admissions are padded to the longest of all."""

    padded = True

    def __init__(self, models: Sequence[SetTransformer], longest: int) -> None:
        super().__init__(models, longest)
        self._read = vmap(partial(functional_call, _Reader(models[0])), in_dims=(0, (0, 0, None, 0)))

    def _features(self, rows: Callable[[str], Tensor]) -> tuple[Tensor, ...]:
        """Give the embeddings, before them UNK's: an admission without codes has a single UNK."""
        return (torch.cat([self.weights["embedding.weight"][:, UNK, None], rows("embedding.weight")], dim=1),)

    def _scores(self, features: tuple[Tensor, ...], where: Tensor, offsets: Tensor, longest: int) -> Tensor:
        (table,) = features
        fits, rows, _ = table.shape
        begin, count = (bags.view(fits, -1, 1) for bags in (offsets[:-1], offsets.diff()))
        rank = torch.arange(longest, device=where.device)
        fit = torch.arange(fits, device=where.device)[:, None, None]
        own = F.pad(where, (0, 1))[(begin + rank).clamp(max=len(where))] - fit * (rows - 1) + 1
        row = torch.where(rank < count, own, 0).flatten(1)
        weights = {f"model.{name}": weight for name, weight in self.weights.items()}
        place = torch.arange(row.shape[1], device=where.device)
        return self._read(weights, (table, row, place, rank >= count.clamp(min=1)))


class _Reader(nn.Module):
    """`SetTransformer.read` as a module's call."""

    def __init__(self, model: SetTransformer) -> None:
        super().__init__()
        self.model = model

    def forward(self, *tensors: Tensor) -> Tensor:
        return self.model.read(*tensors)


def build(models: Sequence[Encoder | RiskHeads], longest: int) -> Stack:
    """Stack models, which learn from admissions of at most `longest` codes."""
    if isinstance(models[0], DeepSets):
        return Sets(cast(Sequence[DeepSets], models), longest)
    if isinstance(models[0], RiskHeads):
        return Heads(cast(Sequence[RiskHeads], models), longest)
    return Transformers(cast(Sequence[SetTransformer], models), longest)
