"""The engine of several models of one shape, trained at once: one set of kernels per step, on CUDA recorded as a graph.

Each model keeps its own objective, order of admissions and learning rate. So it differs from the same model trained
alone only by rounding, and by which hidden units dropout drops. The CPU draws the next epoch's random numbers while the
device trains.
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
from mlci.fitting._engines.layout import EpochSteps, Resident, with_tokens_dropped
from mlci.fitting._engines.stacked_adamw import StackedAdamW, stacked_rates
from mlci.fitting._engines.stacked_models import build
from mlci.fitting._loop import Schedule, seeded
from mlci.fitting._objectives import LARGE, Objective
from mlci.fitting.encoders import TRITON, Encoder, RiskHeads

AHEAD = 16_384  # steps (times models) laid out at once, which bounds the memory on the device
STACKED_DEVICES = ("cuda",)  # device types on which stacking pays: a step there is mostly kernel launches
LAZY_DEVICES = ("cuda",)  # device types on which a step updates only the embedding rows that it uses


def stackable(encoder: EncoderConfig, batch: int) -> bool:
    """Return whether such models can be trained at once: DeepSets with an average (and a max), or Set Transformers.

    >>> stackable(EncoderConfig(pooling="attention+max"), 256), stackable(EncoderConfig(pooling="max"), 256)
    (True, False)
    """
    average, *rest = encoder.pooling.split("+")
    sets = encoder.name == "deepsets" and encoder.usual and average != "max" and rest in ([], ["max"])
    return (sets or encoder.name == "set_transformer") and batch <= LARGE


def prefers_stacking(encoder: EncoderConfig, batch: int, device: torch.device) -> bool:
    """Return whether such models are best trained at once on this device: on a GPU with Triton."""
    able = device.type in STACKED_DEVICES and (device.type != "cuda" or TRITON)
    return able and stackable(encoder, batch)


@contextmanager
def tensor_cores() -> Iterator[None]:
    """Let a GPU round the factors of matrix products to 10 bits (TF32) in the block; sums stay in float32.

    A step of twelve fits is a fifth shorter, and the results differ by less than from seed to seed.
    """
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


class Stacked:
    """The engine of several models; `rows` are the admissions that each is trained on (None: all).

    All models take the same number of steps of the same size. Missing admissions are filled by the empty admission,
    which has no outcomes, and a step of nothing but that changes no weights.
    """

    checkpoint_interval = 10.0  # seconds between checkpoints

    def __init__(
        self,
        models: Sequence[Encoder | RiskHeads],
        split: Split,
        schedule: Schedule,
        seeds: Sequence[tuple[int, ...]],
        *,
        rows: Sequence[np.ndarray] | None = None,
    ) -> None:
        self.device, self.seeds, self.schedule = next(models[0].parameters()).device, seeds, schedule
        self.split, self.train = split, Resident.of(split, self.device)
        self.rows = [np.arange(len(split))] * len(models) if rows is None else rows
        self.stack = build(models, max(1, int(split.tokens.counts.max())))
        sizes = [schedule.batch_size(len(own)) for own in self.rows]
        self.counts = [-(-len(own) // size) for own, size in zip(self.rows, sizes)]
        self.batch, self.most = max(sizes), max(self.counts)
        self.slots = []  # for each model, the position of each of its admissions in the grid of steps x batch
        for own, size in zip(self.rows, sizes):
            place = torch.arange(len(own))
            self.slots.append(place // size * self.batch + place % size)
        tables = self.stack.tables if self.device.type in LAZY_DEVICES else ()
        self.optimiser = StackedAdamW(self.stack.weights, partial(stacked_rates, schedule, self.counts), tables)
        if tables:
            self.stack.row_lookup = self.optimiser.look_up
        self.residents: dict[int, tuple[Split, Resident]] = {id(split): (split, self.train)}
        self.threads, self.ahead = ThreadPoolExecutor(), {}
        self.tokens = [int(split.tokens.counts[own].sum()) for own in self.rows] if schedule.token_dropout else []

    def set_objective(self, objective: Objective) -> None:
        self.steps, self.room = Steps(self.stack.weights, self.stack.scores, objective, self.optimiser), (0, 0)

    def train_epoch(self, number: int) -> Tensor:
        draws = [drawing.result() for drawing in self.ahead.pop(number, None) or self._draw(number)]
        if self.schedule.cycle is None or number < self.schedule.cycle:
            self.ahead = {number + 1: self._draw(number + 1)}
        data, orders = self._laid_out(draws)
        dropping = seeded(*self.seeds[0], number, device=self.device) if self.stack.dropout else nullcontext()
        labels, total = self.steps.objective.labels, torch.zeros_like(self.steps.total)
        with tensor_cores(), dropping:
            for part in orders.split(max(1, AHEAD // len(orders)) * self.batch, dim=1):
                layout = EpochSteps.of(data, part, self.batch, self.split.vocabulary_size, labels, self.room)
                self.room = layout.room
                total += self.steps.run(layout.parts, labels=len(layout.labels))
        return total / torch.tensor(self.counts, device=self.device)[:, None]

    def _laid_out(self, draws: list[tuple[np.ndarray, np.ndarray | None]]) -> tuple[Resident, Tensor]:
        """Return the admissions (after token dropout) and each model's order of them, models x places."""
        if (
            not self.schedule.token_dropout and len({len(order) for order, _ in draws}) == 1
        ):  # all models have the same number of admissions
            return self.train, torch.from_numpy(np.stack([order for order, _ in draws])).to(self.device)
        data, places = self.train, [torch.from_numpy(order) for order, _ in draws]
        if self.schedule.token_dropout:
            order, kept = (torch.from_numpy(np.concatenate(part)).to(self.device) for part in zip(*draws))
            data = with_tokens_dropped(self.train, order, kept)
            places = torch.arange(len(order)).split([len(own) for own in self.rows])
        orders = torch.full((len(self.rows), self.most * self.batch), len(data))
        for own, slots, place in zip(orders, self.slots, places):
            own[slots] = place
        return data, orders.to(self.device)

    def _draw(self, epoch: int) -> list[Future]:
        share = self.schedule.token_dropout

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
    """Steps of an optimiser; on CUDA one step is recorded as a graph and replayed.

    Args:
        weights: the weights to train, by name.
        scores: computes the scores from the tensors of a step.
        objective: the objective of the models.
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
        """Take the steps that are laid out along the first axis of all `parts`, of which the last `labels` are labels.

        Returns:
            The sum over steps of each model's and outcome's value.
        """
        steps = len(parts[0])
        self.optimiser.begin_run(steps)
        if self.parts is None or not self.parts.take(parts):
            self.parts, self.labels = Packed(parts), labels
            self.graph = self._recorded() if self.cuda else None
        self.total.zero_()
        for _ in range(steps):
            self.graph.replay() if self.graph else self._step()
        self.optimiser.end_run(steps)
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
        """Record a step as a CUDA graph; the warm-up steps that this needs leave no trace in the weights."""
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
            self.optimiser.discard_run()
        return graph


@contextmanager
def uncollected() -> Iterator[None]:
    """Disable garbage collection in the block: destroying another graph would invalidate the one being recorded."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


class Packed:
    """The tensors of all steps, those of one step packed into a row of bytes that one kernel launch fetches."""

    ALIGNED = 16  # bytes

    def __init__(self, parts: tuple[Tensor, ...]) -> None:
        self.kinds = [(part.shape[1:], part.dtype) for part in parts]
        self.sizes = [part[0].numel() * part.element_size() for part in parts]
        room = [-(-size // self.ALIGNED) * self.ALIGNED for size in self.sizes]
        self.starts = np.cumsum([0, *room]).tolist()
        self.bytes = torch.empty(len(parts[0]), self.starts[-1], dtype=torch.uint8, device=parts[0].device)
        self.take(parts)

    def take(self, parts: tuple[Tensor, ...]) -> bool:
        """Store the tensors of other steps if they have the same shapes and fit; return whether they were stored."""
        steps = len(parts[0])
        if [(part.shape[1:], part.dtype) for part in parts] != self.kinds or steps > len(self.bytes):
            return False
        for part, start, size in zip(parts, self.starts, self.sizes):
            self.bytes[:steps, start : start + size] = part.reshape(steps, -1).view(torch.uint8)
        return True

    def of(self, step: Tensor) -> list[Tensor]:
        """Return the tensors of a step."""
        row = self.bytes.index_select(0, step).squeeze(0)
        found = zip(self.kinds, self.starts, self.sizes)
        return [row[start : start + size].view(kind).view(shape) for (shape, kind), start, size in found]
