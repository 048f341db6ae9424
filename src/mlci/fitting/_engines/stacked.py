"""Several models of one shape trained at once: every step one set of kernels, on CUDA recorded as a graph and replayed.

In come models and the admissions each learns from. Each keeps its own objective, batch order and learning rate, so that
it differs from a model trained on its own by rounding, and by the hidden units that are dropped. The processor draws
the next epoch while the device trains.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from mlci.config import EncoderConfig
from mlci.fitting._adamw import AdamW, Moments, one_cycle
from mlci.fitting._backward import backward
from mlci.fitting._data import Split
from mlci.fitting._engines.layout import EpochSteps, Resident, thinned
from mlci.fitting._engines.stacks import build, kernels
from mlci.fitting._loop import Pace, seeded
from mlci.fitting._objectives import LARGE, Objective
from mlci.fitting.encoders import TRITON, Encoder, RiskHeads

AHEAD = 16_384  # steps laid out at once, counted for each model: what the device holds does not grow with the split
PAYS = ("cuda",)  # kinds of device where a step is mostly launching kernels


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
        weights = list(self.stack.weights.values())
        self.optimiser = self._optimiser(weights)
        self.residents: dict[int, tuple[Split, Resident]] = {id(split): (split, self.train)}
        self.threads, self.ahead = ThreadPoolExecutor(), {}
        self.tokens = [int(split.tokens.counts[own].sum()) for own in self.rows] if pace.token_dropout else []

    def _optimiser(self, weights: list[Tensor]) -> "AdamW | CycledAdamW":
        pace = self.pace
        if pace.cycle is None:
            return pace.optimiser(weights, self.most)
        cycles = {n: cycle(pace, pace.cycle * n).view(pace.cycle, n, 5) for n in set(self.counts)}
        rates = torch.tensor([1.0, 0, 0, 0, 0], dtype=torch.float64).repeat(pace.cycle, self.most, len(self.rows), 1)
        for model, count in enumerate(self.counts):
            rates[:, :count, model] = cycles[count]
        return CycledAdamW(weights, rates.flatten(0, 1).to(weights[0]))

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
        optimiser: "AdamW | CycledAdamW",
    ) -> None:
        self.weights, self.scores, self.objective, self.optimiser = weights, scores, objective, optimiser
        device = objective.weights.device
        self.cuda = device.type == "cuda"
        self.step = torch.zeros(1, dtype=torch.int64, device=device)
        self.total = torch.zeros(objective.weights.shape, dtype=torch.float64, device=device)
        self.parts: tuple[Tensor, ...] = ()
        self.graph: torch.cuda.CUDAGraph | None = None

    def run(self, parts: tuple[Tensor, ...], *, labels: int) -> Tensor:
        """Take the steps laid out along the first axis of all parts, of which the last so many are labels.

        Returns:
            The sum over steps of each model's and outcome's value.
        """
        steps, shapes = len(parts[0]), [part.shape[1:] for part in parts]
        if [part.shape[1:] for part in self.parts] != shapes or len(self.parts[0]) < steps:
            self.parts, self.labels, self.graph = parts, labels, None
            if self.cuda:
                self._record()
        else:
            for old, new in zip(self.parts, parts):
                old[:steps].copy_(new)
        self.step.zero_()
        self.total.zero_()
        for _ in range(steps):
            self.graph.replay() if self.graph else self._step()
        return self.total.clone()

    def _step(self) -> None:
        parts = [part.index_select(0, self.step).squeeze(0) for part in self.parts]
        scores = self.scores(*parts[: -self.labels])
        values, gradient = self.objective.step(scores.detach(), parts[-self.labels :])
        backward(scores, gradient)
        self.optimiser.step()
        self.optimiser.clear()
        self.total += values
        self.step += 1

    def _record(self) -> None:
        """Record a step; the steps that warm up the libraries leave no trace in the weights."""
        kept = [weight.detach().clone() for weight in self.weights.values()]
        moments = {name: value.clone() for name, value in self.optimiser.kept().items()}
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
            for weight, value in zip(self.weights.values(), kept):
                weight.copy_(value)
            self.optimiser.load(moments)


def cycle(pace: Pace, steps: int) -> Tensor:
    """Tabulate what `adamw` needs at each step."""
    second, rates = pace.betas[1], []
    for step, (rate, first) in enumerate(one_cycle(pace.learning_rate, steps), start=1):
        bias, root = 1 - first**step, (1 - second**step) ** -0.5
        rates.append((1 - rate * pace.weight_decay, 1 - first, 1 - second, rate / bias, root))
    return torch.tensor(rates, dtype=torch.float64)


def adamw(weight: Tensor, gradient: Tensor, moment: Tensor, square: Tensor, rates: Tensor) -> None:
    """Take a step of each fit, by its row of `rates`: what remains of the weight, what of the gradient and of its
    square enters the moments, the step's length, and the factor of the second moment's root.
    """
    keep, first, second, length, root = rates.T.reshape(5, -1, *[1] * (weight.dim() - 1))
    moment.lerp_(gradient, first)
    square.lerp_(gradient.square(), second)
    weight.mul_(keep).sub_(length * moment / (square.sqrt() * root + 1e-8))


class CycledAdamW(Moments):
    """AdamW with rates that differ between fits and steps, on the device, where a recorded step finds them.

    Torch's own has one rate for a tensor, and would move a fit that is out of admissions on by its momentum.
    """

    def __init__(self, weights: list[Tensor], rates: Tensor) -> None:
        super().__init__(weights)
        self.rates = F.pad(rates, (0, 0, 0, 0, 0, 2))  # steps x fits x 5; two more, as a recording takes them before
        for weight, own in zip(weights, self.state):
            own |= {name: torch.zeros_like(weight, requires_grad=False) for name in ("moment", "square")}
        self.state[0]["step"] = self.count = torch.zeros(1, dtype=torch.int64, device=rates.device)

    @torch.no_grad()
    def step(self) -> None:
        """Move each weight that has a gradient."""
        rates = self.rates.index_select(0, self.count).squeeze(0)
        move = kernels().adamw if rates.is_cuda else adamw
        for weight, state in zip(self.weights, self.state):
            if weight.grad is not None:
                move(weight, weight.grad, state["moment"], state["square"], rates)
        self.count += 1
