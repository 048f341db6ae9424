"""AdamW for several fits at once, whose rates differ from fit to fit and from step to step.

In come weights with an axis for the fits, and the rates of the steps; the weights are moved in place. They lie one
behind another, so that a step of all of them is one launch. Of a table with a row for each token, a step on a GPU moves
the rows that it uses: what moments alone would have done to the others is made up for when they are next used, and at
the end of a run. A recorded step finds its rates on the device.

Torch's own AdamW has one rate for a tensor, and would move a fit that is out of admissions on by its momentum.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache

import numpy as np
import torch
from torch import Tensor

from mlci.fitting._adamw import Moments, one_cycle
from mlci.fitting._engines.stacks import kernels
from mlci.fitting._loop import Pace

GRAIN = 32  # weights begin at multiples of this many numbers, as wide loads want it
Rates = Callable[[int, int], np.ndarray]  # of so many steps from one on, steps x fits x 5


@cache
def _cycle(rate: float, steps: int) -> np.ndarray:
    return np.array(one_cycle(rate, steps))


def _rates(pace: Pace, count: int, steps: np.ndarray) -> np.ndarray:
    """Tabulate what `adamw` needs at these steps, from 0, of a fit with so many (`count`) in an epoch."""
    rate, first, second = pace.learning_rate, pace.betas[0], pace.betas[1]
    if pace.cycle is not None:
        rate, first = _cycle(pace.learning_rate, pace.cycle * count)[steps].T
    bias, root = 1 - first ** (steps + 1.0), (1 - second ** (steps + 1.0)) ** -0.5
    rows = (1 - rate * pace.weight_decay, 1 - first, 1 - second, rate / bias, root)
    return np.stack(np.broadcast_arrays(*rows), axis=-1)


def stacked_rates(pace: Pace, counts: Sequence[int], first: int, steps: int) -> np.ndarray:
    """Tabulate the rates of so many steps from one on, of fits with so many (`counts`) in an epoch.

    All have as many as the one with most: one that is out of admissions stands still.
    """
    epoch, place = np.divmod(np.arange(first, first + steps), max(counts))
    rates = np.tile([1.0, 0, 0, 0, 0], (steps, len(counts), 1))
    for fit, count in enumerate(counts):
        on = place < count
        rates[on, fit] = _rates(pace, count, (epoch * count + place)[on])
    return rates


def adamw(flat: tuple[Tensor, ...], rates: Tensor, step: Tensor) -> None:
    """Take a step of each fit, and clear the gradient.

    Args:
        flat: weight, gradient, moment, square, and the fit that each number belongs to.
        rates: steps x fits x 5: what remains of the weight, what of the gradient and of its square enters the moments,
            the step's length, and the factor of the second moment's root.
        step: which one.
    """
    weight, gradient, moment, square, owners = flat
    keep, first, second, length, root = rates.index_select(0, step).squeeze(0)[owners].T
    moment.lerp_(gradient, first)
    square.lerp_(gradient.square(), second)
    weight.mul_(keep).sub_(length * moment / (square.sqrt() * root + 1e-8))
    gradient.zero_()


class StackedAdamW(Moments):
    """The optimiser: `begin` a run, take its steps one by one, `settle`.

    Args:
        weights: by name, with a leading axis for the fits; those that want no gradient stay.
        rates: of each step.
        tables: names of weights with a row for each token, whose rows are had by `pick`.
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
        """Take up what `kept` gave."""
        super().load(kept)
        self.done = int(self.state[0]["step"])

    def begin(self, steps: int) -> None:
        """Lay out the rates of the next steps."""
        rates = torch.from_numpy(self.rates(self.done, steps)).to(self.table)
        if len(self.table) < steps:
            self.table = rates
        else:
            self.table[:steps].copy_(rates)
        self.step_number.zero_()

    def pick(self, tokens: Tensor, name: str) -> Tensor:
        """Give the rows of a table that belong to tokens of all fits, fits x tokens x width, for this step."""
        return self.rows[name].pick(tokens, self.table, self.step_number)

    @torch.no_grad()
    def step(self) -> None:
        """Move all weights, and the rows that were picked."""
        move = kernels().adamw if self.table.is_cuda else adamw
        move(self.flat, self.table, self.step_number)
        for rows in self.rows.values():
            rows.move(self.table, self.step_number)
        self.step_number += 1

    def settle(self, steps: int) -> None:
        """Bring all rows to the end of a run of so many steps."""
        for rows in self.rows.values():
            rows.settle(self.table, self.step_number)
        self.done += steps
        self.state[0]["step"].fill_(self.done)

    def forget(self) -> None:
        """Take no notice of the steps since `begin`, whose weights and moments were put back."""
        for rows in self.rows.values():
            rows.seen.zero_()


@torch.no_grad()
def _laid_out(weights: list[Tensor]) -> tuple[Tensor, ...]:
    """Put weights, and their gradients, one behind another, with room for their moments; also say whose each is."""
    sizes = [-(-weight.numel() // GRAIN) * GRAIN for weight in weights]
    flat, gradient, moment, square = (weights[0].new_zeros(sum(sizes)) for _ in range(4))
    owners = torch.zeros(sum(sizes), dtype=torch.int32, device=flat.device)
    for weight, *parts in zip(weights, *(part.split(sizes) for part in (flat, gradient, owners))):
        own, slope, owner = (part[: weight.numel()].view(weight.shape) for part in parts)
        owner.copy_(torch.arange(len(weight)).view(-1, *[1] * (weight.dim() - 1)))
        weight.data, weight.grad = own.copy_(weight), slope
    return flat, gradient, moment, square, owners


class Rows:
    """A table of weights, fits x tokens x width, with its moments and the step to which each row was brought."""

    def __init__(self, weight: Tensor) -> None:
        self.weight, self.moment, self.square = weight, torch.zeros_like(weight), torch.zeros_like(weight)
        self.seen = torch.zeros(weight.shape[:2], dtype=torch.int32, device=weight.device)
        self.parts = (self.weight, self.moment, self.square, self.seen)

    def pick(self, tokens: Tensor, rates: Tensor, step: Tensor) -> Tensor:
        self.tokens = tokens
        self.picked = kernels().bring(self.parts, tokens, rates, step).requires_grad_()
        return self.picked.view(*tokens.shape, -1)

    def move(self, rates: Tensor, step: Tensor) -> None:
        assert self.picked.grad is not None
        kernels().move(self.parts, self.tokens, self.picked.grad, rates, step)
        self.picked.grad = None

    def settle(self, rates: Tensor, step: Tensor) -> None:
        kernels().settle(self.parts, rates, step)
        self.seen.zero_()
