"""AdamW and the one-cycle learning-rate schedule, by torch's kernel but without `torch.optim`.

The first step of any optimiser of `torch.optim` imports torch's compiler, which takes two to five seconds and is not
needed here. The updates are bit for bit those of `torch.optim.AdamW` with `OneCycleLR`.
"""

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.optim.adamw import adamw

LOW, HIGH = 0.85, 0.95  # beta1 cycles from HIGH down to LOW and back, opposite to the learning rate
FIRST, LAST = 25.0, 1e4  # initial rate = highest / FIRST; final rate = initial / LAST
RISING = 0.3  # share of the steps in which the rate rises


def one_cycle(rate: float, steps: int) -> list[tuple[float, float]]:
    """Return the learning rate and beta1 of each step; `rate` is the highest learning rate.

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
        beta_start, beta_stop = (HIGH, LOW) if rising else (LOW, HIGH)
        found.append((stop + (start - stop) / 2.0 * turn, beta_stop + (beta_start - beta_stop) / 2.0 * turn))
    return found


class Moments:
    """An optimiser's state for each of its weights, by name."""

    def __init__(self, weights: Sequence[Tensor]) -> None:
        self.weights, self.state = list(weights), [dict[str, Tensor]() for _ in weights]

    def kept(self) -> dict[str, Tensor]:
        """Return the state for a checkpoint, by names such as "3.exp_avg": number of the weight, name of the moment."""
        return {f"{place}.{name}": value for place, own in enumerate(self.state) for name, value in own.items()}

    def load(self, kept: Mapping[str, Tensor]) -> None:
        """Restore what `kept` returned."""
        for name, value in self.kept().items():
            value.copy_(kept[name])


class AdamW(Moments):
    """AdamW with a constant learning rate, or with one cycle in `cycle` steps."""

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
        """Restore what `kept` returned, and the step count."""
        super().load(kept)
        self.count = int(self.state[0]["step"])

    @torch.no_grad()
    def step(self) -> None:
        """Update every weight that has a gradient."""
        rate, beta1 = self.rates[min(self.count, len(self.rates) - 1)]
        updated = [(weight, own) for weight, own in zip(self.weights, self.state) if weight.grad is not None]
        adamw(
            [weight for weight, _ in updated],
            [weight.grad for weight, _ in updated],  # pyright: ignore[reportArgumentType]
            [own["exp_avg"] for _, own in updated],
            [own["exp_avg_sq"] for _, own in updated],
            [],
            [own["step"] for _, own in updated],
            fused=self.fused,
            amsgrad=False,
            beta1=beta1,
            beta2=self.betas[1],
            lr=rate,
            weight_decay=self.decay,
            eps=1e-8,
            maximize=False,
        )
        self.count += 1
