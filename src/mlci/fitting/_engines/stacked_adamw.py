"""AdamW for several stacked models, whose learning rates differ from model to model and from step to step.

All weights lie in one flat tensor, so that a step is one kernel launch. The rates of the coming steps lie in a table on
the device, where a recorded step finds them. On a GPU the embedding table is updated lazily: a step updates only the
rows that it uses, and the updates that a row missed (its moments alone move it when its gradient is 0) are made up for
when the row is next used, and at the end of a run.

Torch's own AdamW has one rate per tensor, and its momentum would move a model that has no admissions left in the epoch.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache

import numpy as np
import torch
from torch import Tensor

from mlci.fitting._adamw import Moments, one_cycle
from mlci.fitting._engines.stacked_models import kernels
from mlci.fitting._loop import Schedule

GRAIN = 32  # weights begin at multiples of this many numbers, for wide loads
Rates = Callable[[int, int], np.ndarray]  # (first step, number of steps) -> steps x fits x 5, as `adamw` takes them


@cache
def _cycle(rate: float, steps: int) -> np.ndarray:
    return np.array(one_cycle(rate, steps))


def _rates(schedule: Schedule, count: int, steps: np.ndarray) -> np.ndarray:
    """Return the rates of these steps (from 0) for a model with `count` steps in an epoch."""
    rate, first, second = schedule.learning_rate, schedule.betas[0], schedule.betas[1]
    if schedule.cycle is not None:
        rate, first = _cycle(schedule.learning_rate, schedule.cycle * count)[steps].T
    bias, root = 1 - first ** (steps + 1.0), (1 - second ** (steps + 1.0)) ** -0.5
    rows = (1 - rate * schedule.weight_decay, 1 - first, 1 - second, rate / bias, root)
    return np.stack(np.broadcast_arrays(*rows), axis=-1)


def stacked_rates(schedule: Schedule, counts: Sequence[int], first: int, steps: int) -> np.ndarray:
    """Return the rates of `steps` steps from `first` on: steps x models x 5; `counts` are the models' steps per epoch.

    Every epoch has as many steps as the model with the most; a model that has fewer stands still in the rest.
    """
    epoch, place = np.divmod(np.arange(first, first + steps), max(counts))
    rates = np.tile([1.0, 0, 0, 0, 0], (steps, len(counts), 1))
    for fit, count in enumerate(counts):
        on = place < count
        rates[on, fit] = _rates(schedule, count, (epoch * count + place)[on])
    return rates


def adamw(flat: tuple[Tensor, ...], rates: Tensor, step: Tensor) -> None:
    """Take a step of each model, and clear the gradient.

    Args:
        flat: weight, gradient, first moment, second moment, and the model that each number belongs to.
        rates: steps x models x 5: 1 - learning rate * weight decay; 1 - beta1; 1 - beta2; learning rate / (1 -
            beta1^t); 1 / sqrt(1 - beta2^t).
        step: which row of `rates`.
    """
    weight, gradient, moment, square, owners = flat
    keep, first, second, length, root = rates.index_select(0, step).squeeze(0)[owners].T
    moment.lerp_(gradient, first)
    square.lerp_(gradient.square(), second)
    weight.mul_(keep).sub_(length * moment / (square.sqrt() * root + 1e-8))
    gradient.zero_()


class StackedAdamW(Moments):
    """The optimiser: call `begin_run`, then `step` for each step, then `end_run`.

    Args:
        weights: by name, with a leading axis for the models; those without a gradient are not changed.
        rates: the rates of each step.
        tables: names of weights with one row per token, which are read by `look_up` and updated lazily.
    """

    def __init__(self, weights: Mapping[str, Tensor], rates: Rates, tables: Sequence[str] = ()) -> None:
        learned = {name: weight for name, weight in weights.items() if weight.requires_grad}
        super().__init__(list(learned.values()))
        self.rates, self.done, first = rates, 0, self.weights[0]
        self.table = first.new_empty(0, len(first), 5).detach()
        self.step_number = torch.zeros(1, dtype=torch.int64, device=first.device)
        self.flat = _laid_out([weight for name, weight in learned.items() if name not in tables])
        own = {"step": torch.zeros(1, dtype=torch.int64), "moment": self.flat[2], "square": self.flat[3]}
        self.rows = {name: Rows(weights[name].detach()) for name in tables if name in learned}
        self.state = [own, *({"moment": r.moment, "square": r.square} for r in self.rows.values())]

    def load(self, kept: Mapping[str, Tensor]) -> None:
        """Restore what `kept` returned."""
        super().load(kept)
        self.done = int(self.state[0]["step"])

    def begin_run(self, steps: int) -> None:
        """Put the rates of the next steps on the device."""
        rates = torch.from_numpy(self.rates(self.done, steps)).to(self.table)
        if len(self.table) < steps:
            self.table = rates
        else:
            self.table[:steps].copy_(rates)
        self.step_number.zero_()

    def look_up(self, tokens: Tensor, name: str) -> Tensor:
        """Return the up-to-date rows of a table for the tokens of this step: models x tokens x width."""
        return self.rows[name].look_up(tokens, self.table, self.step_number)

    @torch.no_grad()
    def step(self) -> None:
        """Update all weights, and the rows that were looked up."""
        move = kernels().adamw if self.table.is_cuda else adamw
        move(self.flat, self.table, self.step_number)
        for rows in self.rows.values():
            rows.move(self.table, self.step_number)
        self.step_number += 1

    def end_run(self, steps: int) -> None:
        """Bring all rows up to date at the end of a run of so many steps."""
        for rows in self.rows.values():
            rows.catch_up_all(self.table, self.step_number)
        self.done += steps
        self.state[0]["step"].fill_(self.done)

    def discard_run(self) -> None:
        """Forget the steps since `begin_run`, after weights and moments were restored."""
        for rows in self.rows.values():
            rows.seen.zero_()


@torch.no_grad()
def _laid_out(weights: list[Tensor]) -> tuple[Tensor, ...]:
    """Move weights and their gradients into flat tensors; return these, the moments, and the model of each number."""
    sizes = [-(-weight.numel() // GRAIN) * GRAIN for weight in weights]
    flat, gradient, moment, square = (weights[0].new_zeros(sum(sizes)) for _ in range(4))
    owners = torch.zeros(sum(sizes), dtype=torch.int32, device=flat.device)
    for weight, *parts in zip(weights, *(part.split(sizes) for part in (flat, gradient, owners))):
        own, slope, owner = (part[: weight.numel()].view(weight.shape) for part in parts)
        owner.copy_(torch.arange(len(weight)).view(-1, *[1] * (weight.dim() - 1)))
        weight.data, weight.grad = own.copy_(weight), slope
    return flat, gradient, moment, square, owners


class Rows:
    """A table of weights, models x tokens x width, with its moments and the step to which each row is up to date."""

    def __init__(self, weight: Tensor) -> None:
        self.weight, self.moment, self.square = weight, torch.zeros_like(weight), torch.zeros_like(weight)
        self.seen = torch.zeros(weight.shape[:2], dtype=torch.int32, device=weight.device)
        self.parts = (self.weight, self.moment, self.square, self.seen)

    def look_up(self, tokens: Tensor, rates: Tensor, step: Tensor) -> Tensor:
        self.tokens = tokens
        self.picked = kernels().catch_up(self.parts, tokens, rates, step).requires_grad_()
        return self.picked.view(*tokens.shape, -1)

    def move(self, rates: Tensor, step: Tensor) -> None:
        assert self.picked.grad is not None
        kernels().update_rows(self.parts, self.tokens, self.picked.grad, rates, step)
        self.picked.grad = None

    def catch_up_all(self, rates: Tensor, step: Tensor) -> None:
        kernels().catch_up_all(self.parts, rates, step)
        self.seen.zero_()
