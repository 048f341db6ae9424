"""Several encoders as one: their weights stacked, with a leading axis for the models.

A single encoder leaves a GPU idle, because its kernels are shorter than their launches. Stacked, a step is one set of
kernels for all models. Scores are models x admissions.
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
from mlci.fitting._pooling import MaxPool, average_pool
from mlci.fitting.encoders import DeepSets, Encoder, RiskHeads, SetTransformer, dropout_mask
from mlci.tokens import UNK

SCORED = 2**21  # admissions (times models) scored at once, which bounds the memory on the device


def kernels():
    from mlci.fitting._engines import kernels

    return kernels


def layer(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Compute ReLU(x W' + b) for each model."""
    if x.is_cuda:
        return kernels().layer(x, weight, bias)
    return torch.baddbmm(bias[:, None], x, weight.mT).relu_()


def layer_back(
    gradient: Tensor, saved: tuple[Tensor, ...], further: bool
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Return the gradients of `layer` by x (if `further`), weight and bias; `saved` are x, weight, bias and y."""
    if gradient.is_cuda:
        return kernels().layer_back(gradient, saved, further)
    x, weight, _, y = saved
    gradient = gradient * (y > 0)
    return torch.bmm(gradient, weight) if further else None, torch.bmm(gradient.mT, x), gradient.sum(1)


class Layer(torch.autograd.Function):
    """`layer` as a torch function."""

    @staticmethod
    def forward(ctx, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        y = layer(x, weight, bias)
        ctx.save_for_backward(x, weight, bias, y)
        return y

    @staticmethod
    def backward(ctx, gradient: Tensor):  # pyright: ignore[reportIncompatibleMethodOverride]
        return layer_back(gradient, ctx.saved_tensors, ctx.needs_input_grad[0])


class GatherRows(torch.autograd.Function):
    """Rows of a table, each at most once (except padding, which has no gradient): backward is a copy as well."""

    @staticmethod
    def forward(ctx, table: Tensor, rows: Tensor) -> Tensor:
        ctx.save_for_backward(rows)
        ctx.rows = len(table)
        return table.index_select(0, rows)

    @staticmethod
    def backward(ctx, gradient: Tensor):  # pyright: ignore[reportIncompatibleMethodOverride]
        (rows,) = ctx.saved_tensors
        return gradient.new_zeros(ctx.rows, gradient.shape[1]).index_copy_(0, rows, gradient), None


def pool_and_normalise(
    table: Tensor, logits: Tensor | None, where: Tensor, offsets: Tensor, weight: Tensor, bias: Tensor,
    sums: bool, most: bool,
) -> Tensor:  # fmt: skip
    """Pool each admission's rows (an average, and the max if `most`), then LayerNorm: models x admissions x features.

    The average is weighted by a softmax of `logits` if given; with `sums` it is the sum instead.
    """
    where = where[: int(offsets[-1])]
    features = average_pool("sum" if sums else "mean", table, logits, where, offsets)
    features = torch.cat([features, MaxPool.apply(where, table, offsets)], dim=1) if most else features
    features = features.view(len(weight), -1, weight.shape[1])
    return torch.addcmul(bias[:, None], F.layer_norm(features, features.shape[-1:]), weight[:, None])


class Stack(ABC):
    """The weights of several encoders, with a leading axis for the models."""

    padded = False  # whether admissions are padded to the longest
    dropout = 0.0  # share of hidden units that are dropped
    tables: tuple[str, ...] = ()  # weights with one row per token, of which a step uses those of its tokens
    row_lookup: Callable[[Tensor, str], Tensor] | None = None  # the optimiser's function that returns these rows

    def __init__(self, models: Sequence[Encoder], longest: int) -> None:
        self.longest = longest  # number of codes of the longest training admission
        states = [model.state_dict() for model in models]
        self.weights = {name: torch.stack([state[name] for state in states]).requires_grad_() for name in states[0]}

    @abstractmethod
    def _features(self, rows: Callable[[str], Tensor]) -> tuple[Tensor, ...]:
        """Return the features of tokens; `rows` returns the tokens' rows of a weight (models x tokens x ...)."""

    @abstractmethod
    def _scores(self, features: tuple[Tensor, ...], where: Tensor, offsets: Tensor, longest: int) -> Tensor:
        """Return the scores of admissions, models x admissions; `where` counts the tokens of all models."""

    def scores(self, tokens: Tensor, where: Tensor, offsets: Tensor) -> Tensor:
        """Return the scores of one step of a layout, models x batch."""
        return self._scores(self._features(partial(self._pick, tokens)), where, offsets, self.longest)

    def _pick(self, tokens: Tensor, name: str) -> Tensor:
        """Return the rows of a weight that belong to the tokens of all models."""
        if self.row_lookup and name in self.tables:
            return self.row_lookup(tokens, name)
        return GatherRows.apply(self.weights[name].flatten(0, 1), tokens.flatten()).view(*tokens.shape, -1)

    @torch.no_grad()
    def predict(self, data: Resident) -> Tensor:
        """Return the scores of a split, models x admissions, from the features of the whole vocabulary."""
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


class StackedDeepSets(Stack):
    """Several DeepSets; with several outputs, scores are models x admissions x outputs.

    Dropout applies where a gradient is wanted; in a recorded step, torch draws a new mask at each replay.
    """

    tables = ("embedding.weight",)

    def __init__(self, models: Sequence[DeepSets], longest: int) -> None:
        super().__init__(models, longest)
        self.dropout = models[0].dropout.p
        device = models[0].embedding.weight.device
        self.sums, self.most = models[0].poolings[0] == "sum", "max" in models[0].poolings
        self._pool = kernels().Pool.apply if device.type == "cuda" else pool_and_normalise

    def _features(self, rows: Callable[[str], Tensor]) -> tuple[Tensor, ...]:
        """Return phi's features, and the logits of the softmax if tokens are averaged with one, of all models."""
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
        """Return the input of the last layer."""
        table, logits = features if len(features) == 2 else (*features, None)
        norm = (self.weights["norm.weight"], self.weights["norm.bias"])
        normed = self._pool(table, logits, where, offsets, *norm, self.sums, self.most)
        return self._mlp("rho", normed, 2, self.dropout if torch.is_grad_enabled() else 0.0)

    def _mlp(self, name: str, x: Tensor, layers: int, dropout: float = 0.0) -> Tensor:
        for layer in range(0, 2 * layers, 2):
            if dropout:
                x = F.dropout(x, dropout) if x.is_cuda else x * dropout_mask(torch.empty_like(x), dropout)
            x = Layer.apply(x, self.weights[f"{name}.{layer}.weight"], self.weights[f"{name}.{layer}.bias"])
        return x

    def _linear(self, name: str, x: Tensor) -> Tensor:
        return torch.baddbmm(self.weights[f"{name}.bias"][:, None], x, self.weights[f"{name}.weight"].mT)


class StackedRiskHeads(StackedDeepSets):
    """Several frozen DeepSets with heads that are trained: scores are models x admissions x outcomes."""

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
        # The filling at the end of a step belongs to no admission: it is summed into a last row, which is dropped.
        bag = torch.searchsorted(offsets, torch.arange(len(where), device=where.device), right=True) - 1
        sums = table.new_zeros(len(offsets), table.shape[1]).index_add(0, bag, table.index_select(0, where))[:-1]
        linear = torch.baddbmm(self.weights["bias"][:, None], hidden, self.weights["weight"].mT)
        return linear + sums.view_as(linear)


class StackedSetTransformers(Stack):
    """Several Set Transformers, padded to the longest training admission because a CUDA graph has fixed shapes."""

    padded = True

    def __init__(self, models: Sequence[SetTransformer], longest: int) -> None:
        super().__init__(models, longest)
        self._read = vmap(partial(functional_call, _Reader(models[0])), in_dims=(0, (0, 0, None, 0)))

    def _features(self, rows: Callable[[str], Tensor]) -> tuple[Tensor, ...]:
        """Return the embeddings, preceded by that of UNK: an admission without codes has a single UNK."""
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
    """`SetTransformer.read` as the forward of a module, for `functional_call`."""

    def __init__(self, model: SetTransformer) -> None:
        super().__init__()
        self.model = model

    def forward(self, *tensors: Tensor) -> Tensor:
        return self.model.read(*tensors)


def build(models: Sequence[Encoder | RiskHeads], longest: int) -> Stack:
    """Stack models, which are trained on admissions of at most `longest` codes."""
    if isinstance(models[0], DeepSets):
        return StackedDeepSets(cast(Sequence[DeepSets], models), longest)
    if isinstance(models[0], RiskHeads):
        return StackedRiskHeads(cast(Sequence[RiskHeads], models), longest)
    return StackedSetTransformers(cast(Sequence[SetTransformer], models), longest)
