"""Several encoders as one: their weights stacked, the steps of all of them taken at once.

In come encoders and tokens, out come scores, fits x admissions. A single encoder leaves a GPU idle: its kernels are
shorter than their launches. With a leading axis for the fits a step is one set of kernels for all of them, and on CUDA
it is recorded once as a graph and replayed.

Steps are laid out on the device beforehand: which tokens stand in each, and where. They have fixed shapes, as a graph
needs them, without padding admissions: all tokens of a step lie end to end, only the end of the step is filled.
"""

import contextlib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol, cast

import torch
from torch import Tensor, nn, vmap
from torch.func import functional_call
from torch.nn import functional as F

from mlci.base.errors import InputError
from mlci.fitting.encoders import DeepSets, Encoder, Largest, SetTransformer, softmax_average
from mlci.fitting.training import Data
from mlci.tokens import PAD, UNK

GRAIN = 64  # buffers come in multiples of this, so that sums over them can be cut into equal parts
ROOM = 1.02  # and are so much larger than the first epoch needs, so that later ones rarely outgrow them
AHEAD = 16_384  # steps laid out at once, counted for each fit, and
SCORED = 2**21  # admissions scored at once, likewise: what the device must hold does not grow with the split


def kernels():
    from mlci.fitting import kernels

    return kernels


def enough(needed: int, room: int) -> int:
    """The room there is, or a larger one if it does not do; never none, also for admissions without codes."""
    return room if room and needed <= room else (int(needed * ROOM) // GRAIN + 1) * GRAIN


@dataclass(frozen=True)
class Resident:
    """A split on the device; its last admission is an empty one that fills the last batch."""

    ids: Tensor  # int32, flat
    starts: Tensor  # int64, of each admission
    counts: Tensor  # int64
    outcomes: Tensor  # float32, NaN where not known

    @classmethod
    def of(cls, data: Data, device: torch.device) -> "Resident":
        offsets = torch.from_numpy(data.tokens.offsets).to(device)
        return cls(
            ids=torch.from_numpy(data.tokens.ids).to(device),
            starts=offsets,
            counts=F.pad(offsets.diff(), (0, 1)),
            outcomes=F.pad(torch.from_numpy(data.outcomes).to(device), (0, 0, 0, 1), value=float("nan")),
        )

    def __len__(self) -> int:
        return len(self.counts) - 1


@dataclass(frozen=True)
class Layout:
    """The steps of an epoch, or some of them, each of fits x batch admissions whose tokens lie end to end."""

    tokens: Tensor  # steps x fits x distinct: the distinct tokens of each fit's batch, then padding
    where: Tensor  # steps x places: for each token, its row in the table of all fits' distinct tokens
    offsets: Tensor  # steps x (fits * batch + 1): of the admissions in the places
    labels: tuple[Tensor, ...]  # steps x fits x ...: what the objective needs of the outcomes

    @classmethod
    def of(
        cls,
        data: Resident,
        orders: Tensor,
        batch: int,
        vocabulary: int,
        labels: Callable[[Tensor], tuple[Tensor, ...]],
        room: tuple[int, int] = (0, 0),
    ) -> "Layout":
        """`orders` is fits x admissions; `room` is what the buffers hold so far (distinct tokens, places)."""
        fits, rows = orders.shape
        steps = -(-rows // batch)
        orders = F.pad(orders, (0, steps * batch - rows), value=len(data)).view(fits, steps, batch).transpose(0, 1)
        counts = data.counts[orders].reshape(steps, -1)
        offsets = F.pad(counts.cumsum(1), (1, 0))
        places = enough(int(offsets[:, -1].max()), room[1])
        # Every token of the epoch: the bag it is in, its place in the step, and its id.
        bag = torch.repeat_interleave(counts.view(-1))
        step, within = bag // counts.shape[1], bag % counts.shape[1]
        begin = F.pad(counts.view(-1).cumsum(0), (1, 0))[:-1]
        rank = torch.arange(len(bag), device=bag.device) - begin[bag]
        ids = data.ids[data.starts[orders].reshape(-1)[bag] + rank]
        place = step * places + offsets[:, :-1].reshape(-1)[bag] + rank
        # Which tokens each fit's batch has, and which of its distinct tokens each one is.
        table = step * fits + within // batch
        present = torch.zeros(steps * fits, vocabulary, dtype=torch.bool, device=ids.device)
        present[table, ids.long()] = True
        number = present.cumsum(1, dtype=torch.int32)
        distinct = enough(int(number[:, -1].max()), room[0])
        tokens = torch.full((steps * fits, distinct), PAD, dtype=torch.int32, device=ids.device)
        row, token = present.nonzero(as_tuple=True)
        tokens[row, number[row, token].long() - 1] = token.int()
        where = torch.zeros(steps * places, dtype=torch.int64, device=ids.device)
        where[place] = (table % fits) * distinct + number[table, ids.long()] - 1
        shift = torch.arange(fits, device=ids.device)[:, None] * vocabulary
        return cls(
            tokens=tokens.view(steps, fits, distinct).long() + shift,
            where=where.view(steps, places),
            offsets=offsets,
            labels=labels(data.outcomes[orders]),
        )

    @property
    def parts(self) -> tuple[Tensor, ...]:
        return (self.tokens, self.where, self.offsets, *self.labels)

    @property
    def room(self) -> tuple[int, int]:
        return self.tokens.shape[2], self.where.shape[1]


def activate(y: Tensor, bias: Tensor) -> Tensor:
    """ReLU(y + bias) for each fit."""
    return kernels().activate(y, bias) if y.is_cuda else (y + bias[:, None]).relu_()


def deactivate(gradient: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """What of the gradient passes the ReLU that gave y, and its sum over rows, for each fit."""
    if y.is_cuda:
        return kernels().deactivate(gradient, y)
    gradient = gradient * (y > 0)
    return gradient, gradient.sum(1)


class Layer(torch.autograd.Function):
    """ReLU(x W' + b) for each fit; the weights' gradient, a long sum into a small matrix, is cut into parts."""

    PARTS = 128  # products for the device to work on side by side, over all fits

    @staticmethod
    def forward(ctx, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        y = activate(torch.bmm(x, weight.mT), bias)
        ctx.save_for_backward(x, weight, y)
        return y

    @staticmethod
    def backward(ctx, gradient: Tensor):  # pyright: ignore[reportIncompatibleMethodOverride]
        x, weight, y = ctx.saved_tensors
        gradient, bias = deactivate(gradient, y)
        fits, rows, width = x.shape
        parts = math.gcd(rows, 2 ** int(math.log2(max(1, Layer.PARTS // fits))))
        cut = [each.reshape(fits * parts, rows // parts, -1) for each in (gradient, x)]
        product = torch.bmm(cut[0].mT, cut[1]).view(fits, parts, -1, width).sum(1)
        return torch.bmm(gradient, weight), product, bias


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


class Objective(Protocol):
    """What neighbouring fits are after; `weights` is fits x outcomes."""

    weights: Tensor
    tensors: int  # that `labels` gives

    def labels(self, outcomes: Tensor) -> tuple[Tensor, ...]:
        """What is needed of the outcomes (... x fits x admissions x outcomes)."""
        ...

    def step(self, scores: Tensor, *labels: Tensor) -> tuple[Tensor, Tensor]:
        """fits x outcomes values, and the gradient of the loss with regard to the scores."""
        ...


def pooled(
    table: Tensor,
    logits: Tensor | None,
    where: Tensor,
    offsets: Tensor,
    weight: Tensor,
    bias: Tensor,
    sums: Tensor | None,
    most: bool,
) -> Tensor:
    """An average of each bag's rows, with their max beside it, and the LayerNorm: fits x admissions x features.

    The average is by a softmax of `logits` if given; fits marked in `sums` have the sum instead.
    """
    where = where[: int(offsets[-1])]
    if logits is None:
        average = F.embedding_bag(where, table, offsets, mode="mean", include_last_offset=True)
        if sums is not None:
            each = sums.repeat_interleave((len(offsets) - 1) // len(sums))
            average = average * torch.where(each > 0, offsets.diff(), 1)[:, None]
    else:
        average = softmax_average(where, table, offsets, logits)
    features = torch.cat([average, Largest.apply(where, table, offsets)], dim=1) if most else average
    features = features.view(len(weight), -1, weight.shape[1])
    return torch.addcmul(bias[:, None], F.layer_norm(features, features.shape[-1:]), weight[:, None])


class Stack(ABC):
    """The weights of several encoders, with a leading axis for the fits."""

    places = 1  # that an admission takes while it is scored

    def __init__(self, models: Sequence[Encoder]) -> None:
        states = [model.state_dict() for model in models]
        self.weights = {name: torch.stack([state[name] for state in states]).requires_grad_() for name in states[0]}

    @abstractmethod
    def _features(self, embedding: Tensor) -> tuple[Tensor, ...]:
        """Of tokens, from their embeddings (fits x tokens x width)."""

    @abstractmethod
    def _scores(self, features: tuple[Tensor, ...], where: Tensor, offsets: Tensor) -> Tensor:
        """fits x admissions scores; `where` counts the tokens of all fits."""

    def scores(self, tokens: Tensor, where: Tensor, offsets: Tensor) -> Tensor:
        """fits x batch scores of one step of a layout."""
        embedding = Pick.apply(self.weights["embedding.weight"].flatten(0, 1), tokens.flatten())
        return self._scores(self._features(embedding.view(*tokens.shape, -1)), where, offsets)

    @torch.no_grad()
    def predict(self, data: Resident) -> Tensor:
        """fits x admissions scores of a split, from the features of the whole vocabulary."""
        features = self._features(self.weights["embedding.weight"])
        fits, size = self.weights["embedding.weight"].shape[:2]
        each = torch.arange(fits, device=data.ids.device)[:, None]
        rows, scores = max(1, SCORED // (fits * self.places)), []
        for start in range(0, len(data), rows):
            offsets = data.starts[start : start + rows + 1]
            ids = data.ids[int(offsets[0]) : int(offsets[-1])]
            bags = (offsets[:-1] - offsets[0] + each * len(ids)).flatten()
            where = (ids + each * size).flatten()
            scores.append(self._scores(features, where, F.pad(bags, (0, 1), value=fits * len(ids))))
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

    def __init__(self, models: Sequence[DeepSets]) -> None:
        super().__init__(models)
        self.dropout = models[0].dropout.p
        device = models[0].embedding.weight.device
        sums = torch.tensor([model.poolings[0] == "sum" for model in models], device=device).float()
        self.sums, self.most = sums if sums.any() else None, "max" in models[0].poolings
        self._pool = kernels().Pool.apply if device.type == "cuda" else pooled

    def _features(self, embedding: Tensor) -> tuple[Tensor, ...]:
        """phi's, and the logits of the softmax where tokens are averaged by one; all fits' rows."""
        table = self._mlp("phi", embedding, 2)
        if "query" in self.weights:
            logits = torch.bmm(table, self.weights["query"][..., None]) / math.sqrt(table.shape[-1])
        elif "gate.0.weight" in self.weights:
            logits = F.logsigmoid(self._linear("gate.2", self._mlp("gate", table, 1)))
        else:
            return (table.flatten(0, 1),)
        return table.flatten(0, 1), logits.flatten()

    def _scores(self, features: tuple[Tensor, ...], where: Tensor, offsets: Tensor) -> Tensor:
        table, logits = features if len(features) == 2 else (*features, None)
        norm = (self.weights["norm.weight"], self.weights["norm.bias"])
        normed = self._pool(table, logits, where, offsets, *norm, self.sums, self.most)
        dropout = self.dropout if torch.is_grad_enabled() else 0.0
        return self._linear("rho.4", self._mlp("rho", normed, 2, dropout)).squeeze(2)

    def _mlp(self, name: str, x: Tensor, layers: int, dropout: float = 0.0) -> Tensor:
        for layer in range(0, 2 * layers, 2):
            x = F.dropout(x, dropout) if dropout else x
            x = Layer.apply(x, self.weights[f"{name}.{layer}.weight"], self.weights[f"{name}.{layer}.bias"])
        return x

    def _linear(self, name: str, x: Tensor) -> Tensor:
        return torch.baddbmm(self.weights[f"{name}.bias"][:, None], x, self.weights[f"{name}.weight"].mT)


class Transformers(Stack):
    """Several Set Transformers. A graph has fixed shapes, so here admissions are padded to the longest of all."""

    def __init__(self, models: Sequence[SetTransformer], longest: int) -> None:
        super().__init__(models)
        self.places = longest
        self._read = vmap(partial(functional_call, _Reader(models[0])), in_dims=(0, (0, 0, None, 0)))

    def _features(self, embedding: Tensor) -> tuple[Tensor, ...]:
        """The embeddings, before them UNK's: an admission without codes has a single UNK."""
        return (torch.cat([self.weights["embedding.weight"][:, UNK, None], embedding], dim=1),)

    def _scores(self, features: tuple[Tensor, ...], where: Tensor, offsets: Tensor) -> Tensor:
        (table,) = features
        fits, rows, _ = table.shape
        begin, count = (each.view(fits, -1, 1) for each in (offsets[:-1], offsets.diff()))
        rank = torch.arange(self.places, device=where.device)
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


class Steps:
    """The optimiser's steps; on CUDA one step is recorded and replayed."""

    def __init__(self, stack: Stack, objective: Objective, optimiser: torch.optim.Optimizer, vocabulary: int) -> None:
        self.stack, self.objective, self.optimiser, self.vocabulary = stack, objective, optimiser, vocabulary
        device = objective.weights.device
        self.cuda = device.type == "cuda"
        self.step = torch.zeros(1, dtype=torch.int64, device=device)
        self.total = torch.zeros(objective.weights.shape, dtype=torch.float64, device=device)
        self.layout: Layout | None = None
        self.graph: torch.cuda.CUDAGraph | None = None

    def epoch(self, data: Resident, orders: Tensor, batch: int) -> Tensor:
        """Take the steps of an epoch (fits x admissions), laid out some at a time; the sum over them of each fit's and
        outcome's value.
        """
        total = torch.zeros_like(self.total)
        for part in orders.split(max(1, AHEAD // len(orders)) * batch, dim=1):
            room = self.layout.room if self.layout else (0, 0)
            total += self.run(Layout.of(data, part, batch, self.vocabulary, self.objective.labels, room))
        return total

    def run(self, layout: Layout) -> Tensor:
        """Take the steps laid out."""
        steps = len(layout.tokens)
        if self.layout is None or self.layout.room != layout.room or len(self.layout.tokens) < steps:
            self.layout, self.graph = layout, None
            if self.cuda:
                self._record()
        else:
            for old, new in zip(self.layout.parts, layout.parts):
                old[:steps].copy_(new)
        self.step.zero_()
        self.total.zero_()
        for _ in range(steps):
            self.graph.replay() if self.graph else self._step()
        return self.total.clone()

    def _step(self) -> None:
        assert self.layout is not None
        parts = (part.index_select(0, self.step).squeeze(0) for part in self.layout.parts)
        tokens, where, offsets, *labels = parts
        scores = self.stack.scores(tokens, where, offsets)
        values, gradient = self.objective.step(scores.detach(), *labels)
        scores.backward(gradient)
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)
        self.total += values
        self.step += 1

    def _record(self) -> None:
        """Record a step; the steps that warm up the libraries leave no trace in the weights."""
        kept = [weight.detach().clone() for weight in self.stack.weights.values()]
        moments = [{name: value.clone() for name, value in state.items()} for state in self.optimiser.state.values()]
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(2):
                self.step.zero_()
                self._step()
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self._step()
        with torch.no_grad():
            for weight, value in zip(self.stack.weights.values(), kept):
                weight.copy_(value)
            for position, state in enumerate(self.optimiser.state.values()):
                for name, value in state.items():
                    value.copy_(moments[position][name]) if moments else value.zero_()


@contextlib.contextmanager
def roomy(what: str) -> Iterator[None]:
    """Whatever the device has too little memory for is told in a sentence."""
    try:
        yield
    except torch.cuda.OutOfMemoryError:
        raise InputError(f"The GPU's memory is too small for {what}; take fewer of them, or --device cpu.") from None


def build(models: Sequence[Encoder], resident: Sequence[Resident]) -> Stack:
    if isinstance(models[0], DeepSets):
        return Sets(cast(Sequence[DeepSets], models))
    longest = max(int(data.counts.max()) for data in resident)
    return Transformers(cast(Sequence[SetTransformer], models), max(longest, 1))
