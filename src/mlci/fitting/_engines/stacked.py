"""Several models of one shape trained at once: every step one set of kernels, on CUDA recorded as a graph and replayed.

In come models and the admissions each learns from. Each keeps its own objective, batch order and learning rate, so that
it differs from a model trained on its own by rounding, and by the hidden units that are dropped. The processor draws
the next epoch while the device trains.
"""

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from functools import partial

import numpy as np
import torch
from torch import Tensor

from mlci.config import EncoderConfig
from mlci.fitting._backward import backward
from mlci.fitting._data import Split
from mlci.fitting._engines.layout import EpochSteps, Resident, thinned
from mlci.fitting._engines.stacked_adamw import StackedAdamW, stacked_rates
from mlci.fitting._engines.stacks import build
from mlci.fitting._loop import Pace, seeded
from mlci.fitting._objectives import LARGE, Objective
from mlci.fitting.encoders import TRITON, Encoder, RiskHeads

AHEAD = 16_384  # steps laid out at once, counted for each model: what the device holds does not grow with the split
PAYS = ("cuda",)  # kinds of device where a step is mostly launching kernels
LAZY = ("cuda",)  # and where a step moves no more rows of a table than it uses


def stackable(encoder: EncoderConfig, batch: int) -> bool:
    """Say whether models of this kind can be trained at once: sets with an average of codes, alone or with their max.

    >>> stackable(EncoderConfig(pooling="attention+max"), 256), stackable(EncoderConfig(pooling="max"), 256)
    (True, False)
    """
    average, *rest = encoder.pooling.split("+")
    sets = encoder.name == "deepsets" and encoder.usual and average != "max" and rest in ([], ["max"])
    return (sets or encoder.name == "set_transformer") and batch <= LARGE


def pays(encoder: EncoderConfig, batch: int, device: torch.device) -> bool:
    """Say whether they are best trained at once on this device: a GPU, for whose kernels Triton is needed."""
    able = device.type in PAYS and (device.type != "cuda" or TRITON)
    return able and stackable(encoder, batch)


@contextmanager
def tensor_cores() -> Iterator[None]:
    """Let a GPU round the factors of matrix products to 10 bits (TF32) in the block; sums keep theirs.

    A step of twelve fits is a fifth shorter, and what they reach differs by less than from seed to seed.
    """
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


class Stacked:
    """The engine of several models; `rows` are the admissions that each learns from (all, if None).

    All have as many steps of as many admissions: what one lacks is filled with the empty admission, which counts
    nothing, and a step of that alone moves nothing.
    """

    pause = 10.0  # seconds between checkpoints

    def __init__(
        self,
        models: Sequence[Encoder | RiskHeads],
        split: Split,
        pace: Pace,
        seeds: Sequence[tuple[int, ...]],
        *,
        rows: Sequence[np.ndarray] | None = None,
    ) -> None:
        self.device, self.seeds, self.pace = next(models[0].parameters()).device, seeds, pace
        self.split, self.train = split, Resident.of(split, self.device)
        self.rows = [np.arange(len(split))] * len(models) if rows is None else rows
        self.stack = build(models, max(1, int(split.tokens.counts.max())))
        sizes = [pace.size(len(own)) for own in self.rows]
        self.counts = [-(-len(own) // size) for own, size in zip(self.rows, sizes)]
        self.batch, self.most = max(sizes), max(self.counts)
        self.slots = []  # where in the grid of steps x batch each admission of a model stands
        for own, size in zip(self.rows, sizes):
            place = torch.arange(len(own))
            self.slots.append(place // size * self.batch + place % size)
        tables = self.stack.tables if self.device.type in LAZY else ()
        self.optimiser = StackedAdamW(self.stack.weights, partial(stacked_rates, pace, self.counts), tables)
        if tables:
            self.stack.looked_up = self.optimiser.pick
        self.residents: dict[int, tuple[Split, Resident]] = {id(split): (split, self.train)}
        self.threads, self.ahead = ThreadPoolExecutor(), {}
        self.tokens = [int(split.tokens.counts[own].sum()) for own in self.rows] if pace.token_dropout else []

    def aim(self, objective: Objective) -> None:
        self.steps, self.room = Steps(self.stack.weights, self.stack.scores, objective, self.optimiser), (0, 0)

    def epoch(self, number: int) -> Tensor:
        draws = [drawing.result() for drawing in self.ahead.pop(number, None) or self._draw(number)]
        if self.pace.cycle is None or number < self.pace.cycle:
            self.ahead = {number + 1: self._draw(number + 1)}
        data, orders = self._laid_out(draws)
        dropping = seeded(*self.seeds[0], number, device=self.device) if self.stack.dropout else nullcontext()
        labels, total = self.steps.objective.labels, torch.zeros_like(self.steps.total)
        with tensor_cores(), dropping:
            for part in orders.split(max(1, AHEAD // len(orders)) * self.batch, dim=1):  # laid out some at a time
                layout = EpochSteps.of(data, part, self.batch, self.split.vocabulary_size, labels, self.room)
                self.room = layout.room
                total += self.steps.run(layout.parts, labels=len(layout.labels))
        return total / torch.tensor(self.counts, device=self.device)[:, None]

    def _laid_out(self, draws: list[tuple[np.ndarray, np.ndarray | None]]) -> tuple[Resident, Tensor]:
        """Give the admissions, thinned if they are to be, and the order of each model's, models x places."""
        if not self.pace.token_dropout and len({len(order) for order, _ in draws}) == 1:  # nothing to fill
            return self.train, torch.from_numpy(np.stack([order for order, _ in draws])).to(self.device)
        data, places = self.train, [torch.from_numpy(order) for order, _ in draws]
        if self.pace.token_dropout:
            order, kept = (torch.from_numpy(np.concatenate(part)).to(self.device) for part in zip(*draws))
            data = thinned(self.train, order, kept)
            places = torch.arange(len(order)).split([len(own) for own in self.rows])
        orders = torch.full((len(self.rows), self.most * self.batch), len(data))
        for own, slots, place in zip(orders, self.slots, places):
            own[slots] = place
        return data, orders.to(self.device)

    def _draw(self, epoch: int) -> list[Future]:
        share = self.pace.token_dropout

        def draw(own: np.ndarray, seed: tuple[int, ...], tokens: int) -> tuple[np.ndarray, np.ndarray | None]:
            rng = np.random.default_rng((*seed, epoch))
            order = own[rng.permutation(len(own))]
            return order, rng.random(tokens) >= share if share else None

        tokens = self.tokens or [0] * len(self.rows)
        return [self.threads.submit(draw, *model) for model in zip(self.rows, self.seeds, tokens)]

    def predict(self, split: Split) -> Tensor:
        if id(split) not in self.residents:
            self.residents[id(split)] = (split, Resident.of(split, self.device))
        with tensor_cores():
            return self.stack.predict(self.residents[id(split)][1])

    def state(self) -> dict[str, Tensor]:
        return self.stack.state_dict()

    def load(self, state: Mapping[str, Tensor]) -> None:
        self.stack.load_state_dict(state)


class Steps:
    """Steps of an optimiser; on CUDA one step is recorded and replayed.

    Args:
        weights: what it moves, by name.
        scores: gives scores from what a step is given.
        objective: what they are after.
        optimiser: of the weights.
    """

    def __init__(
        self,
        weights: Mapping[str, Tensor],
        scores: Callable[..., Tensor],
        objective: Objective,
        optimiser: StackedAdamW,
    ) -> None:
        self.weights, self.scores, self.objective, self.optimiser = weights, scores, objective, optimiser
        device = objective.weights.device
        self.cuda = device.type == "cuda"
        self.total = torch.zeros(objective.weights.shape, dtype=torch.float64, device=device)
        self.parts: Packed | None = None
        self.graph: torch.cuda.CUDAGraph | None = None

    def run(self, parts: tuple[Tensor, ...], *, labels: int) -> Tensor:
        """Take the steps laid out along the first axis of all parts, of which the last so many are labels.

        Returns:
            The sum over steps of each model's and outcome's value.
        """
        steps = len(parts[0])
        self.optimiser.begin(steps)
        if self.parts is None or not self.parts.take(parts):
            self.parts, self.labels = Packed(parts), labels
            self.graph = self._recorded() if self.cuda else None
        self.total.zero_()
        for _ in range(steps):
            self.graph.replay() if self.graph else self._step()
        self.optimiser.settle(steps)
        return self.total.clone()

    def _step(self) -> None:
        assert self.parts is not None
        parts = self.parts.of(self.optimiser.step_number)
        scores = self.scores(*parts[: -self.labels])
        values, gradient = self.objective.step(scores.detach(), parts[-self.labels :])
        backward(scores, gradient)
        self.optimiser.step()
        self.total += values

    def _recorded(self) -> torch.cuda.CUDAGraph:
        """Record a step; the steps that warm up the libraries leave no trace in the weights."""
        kept = [weight.detach().clone() for weight in self.weights.values()]
        moments = {name: value.clone() for name, value in self.optimiser.kept().items()}
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(2):
                self._step()
                self.optimiser.step_number.zero_()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with uncollected(), torch.cuda.graph(graph):
            self._step()
        with torch.no_grad():
            for weight, value in zip(self.weights.values(), kept):
                weight.copy_(value)
            self.optimiser.load(moments)
            self.optimiser.forget()
        return graph


@contextmanager
def uncollected() -> Iterator[None]:
    """Collect no garbage in the block: to put away another graph would spoil the one that is being recorded."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


class Packed:
    """What the steps are given, the parts of a step one behind another, so that a step is fetched by one launch."""

    ALIGNED = 16  # bytes

    def __init__(self, parts: tuple[Tensor, ...]) -> None:
        self.kinds = [(part.shape[1:], part.dtype) for part in parts]
        self.sizes = [part[0].numel() * part.element_size() for part in parts]
        room = [-(-size // self.ALIGNED) * self.ALIGNED for size in self.sizes]
        self.starts = np.cumsum([0, *room]).tolist()
        self.bytes = torch.empty(len(parts[0]), self.starts[-1], dtype=torch.uint8, device=parts[0].device)
        self.take(parts)

    def take(self, parts: tuple[Tensor, ...]) -> bool:
        """Take the parts of other steps, if there is room for them and they are of the same kinds; say whether."""
        steps = len(parts[0])
        if [(part.shape[1:], part.dtype) for part in parts] != self.kinds or steps > len(self.bytes):
            return False
        for part, start, size in zip(parts, self.starts, self.sizes):
            self.bytes[:steps, start : start + size] = part.reshape(steps, -1).view(torch.uint8)
        return True

    def of(self, step: Tensor) -> list[Tensor]:
        """Give the parts of a step."""
        row = self.bytes.index_select(0, step).squeeze(0)
        found = zip(self.kinds, self.starts, self.sizes)
        return [row[start : start + size].view(kind).view(shape) for (shape, kind), start, size in found]
