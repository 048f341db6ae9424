"""AdamW, and the rate that rises and falls once, by torch's kernels but without its optimisers.

The first step of any optimiser of `torch.optim` imports torch's compiler, which takes two to five seconds and which
nothing here uses. In come weights with their gradients; they are moved in place, to the bits that `torch.optim.AdamW`
and `OneCycleLR` would give them.
"""

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.optim.adamw import adamw

LOW, HIGH = 0.85, 0.95  # between these the first moment's memory goes down and up again
FIRST, LAST = 25.0, 1e4  # by what the highest rate is divided at the start, and that at the start in the end
RISING = 0.3  # of the steps


def one_cycle(rate: float, steps: int) -> list[tuple[float, float]]:
    """Give the rate, and the first moment's memory, of each step; `rate` is the highest.

    >>> [round(rate, 3) for rate, _ in one_cycle(1.0, 10)]
    [0.04, 0.52, 1.0, 0.95, 0.812, 0.611, 0.389, 0.188, 0.05, 0.0]
    """
    top, end = RISING * steps - 1, steps - 1
    found = []
    for step in range(steps):
        rising = step <= top
        share = step / top if rising else (step - top) / (end - top)
        turn = math.cos(math.pi * share) + 1
        start, stop = (rate / FIRST, rate) if rising else (rate, rate / FIRST / LAST)
        before, after = (HIGH, LOW) if rising else (LOW, HIGH)
        found.append((stop + (start - stop) / 2.0 * turn, after + (before - after) / 2.0 * turn))
    return found


class Moments:
    """What an optimiser remembers of each of its weights, by name."""

    def __init__(self, weights: Sequence[Tensor]) -> None:
        self.weights, self.state = list(weights), [dict[str, Tensor]() for _ in weights]

    def kept(self) -> dict[str, Tensor]:
        """Give all of it, for a checkpoint: the names are the weight's number, a dot and the moment's name."""
        return {f"{place}.{name}": value for place, own in enumerate(self.state) for name, value in own.items()}

    def load(self, kept: Mapping[str, Tensor]) -> None:
        """Take up what `kept` gave."""
        for name, value in self.kept().items():
            value.copy_(kept[name])


class AdamW(Moments):
    """Moves weights; the rate is constant, or goes through one cycle in so many steps."""

    def __init__(
        self,
        weights: Sequence[Tensor],
        *,
        learning_rate: float,
        weight_decay: float,
        betas: tuple[float, float],
        fused: bool = True,
        cycle: int | None = None,
    ) -> None:
        super().__init__(weights)
        self.decay, self.betas, self.fused = weight_decay, betas, fused
        self.rates = [(learning_rate, betas[0])] if cycle is None else one_cycle(learning_rate, cycle)
        self.count = 0
        for weight, own in zip(self.weights, self.state):
            own["step"] = torch.zeros((), device=weight.device if fused else "cpu")
            own |= {name: torch.zeros_like(weight, requires_grad=False) for name in ("exp_avg", "exp_avg_sq")}

    def load(self, kept: Mapping[str, Tensor]) -> None:
        """Take up what `kept` gave, at the step where it stopped."""
        super().load(kept)
        self.count = int(self.state[0]["step"])

    @torch.no_grad()
    def step(self) -> None:
        """Move each weight that has a gradient."""
        rate, memory = self.rates[min(self.count, len(self.rates) - 1)]
        moved = [(weight, own) for weight, own in zip(self.weights, self.state) if weight.grad is not None]
        adamw(
            [weight for weight, _ in moved],
            [weight.grad for weight, _ in moved],  # pyright: ignore[reportArgumentType]
            [own["exp_avg"] for _, own in moved],
            [own["exp_avg_sq"] for _, own in moved],
            [],
            [own["step"] for _, own in moved],
            fused=self.fused,
            amsgrad=False,
            beta1=memory,
            beta2=self.betas[1],
            lr=rate,
            weight_decay=self.decay,
            eps=1e-8,
            maximize=False,
        )
        self.count += 1
