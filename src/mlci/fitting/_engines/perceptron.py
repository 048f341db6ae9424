"""One small network on rows of numbers that lie on the device, trained by recorded steps.

In come a perceptron, the numbers it reads and the outcomes it is after. A step of so small a network is nearly all
launching kernels; recorded once and replayed it takes an eighth of the time (4.1 and 0.5 ms on an H200).
"""

from functools import partial
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mlci.fitting._engines.stacked import Steps
from mlci.fitting._engines.stacked_adamw import StackedAdamW, stacked_rates
from mlci.fitting._loop import Pace
from mlci.fitting._objectives import Objective


class Perceptron:
    """The engine of one network of linear layers with a ReLU after each but the last.

    Args:
        net: the layers, in the form of `encoders.mlp`.
        numbers: a row for each admission.
        outcomes: of all admissions, NaN where not known.
        pace: how the network walks through them; its rate goes through a cycle.
        rng: draws the order of each epoch.
    """

    def __init__(
        self, net: nn.Sequential, numbers: Tensor, outcomes: np.ndarray, pace: Pace, rng: np.random.Generator
    ) -> None:
        self.rng, self.cuts = rng, pace.cuts(len(numbers))
        self.weights = {name: weight[None].clone().requires_grad_() for name, weight in net.state_dict().items()}
        # One admission more, which counts nothing, fills the batches that have one less than the others.
        self.numbers = F.pad(numbers, (0, 0, 0, 1))
        self.outcomes = F.pad(torch.from_numpy(outcomes).to(numbers), (0, 0, 0, 1), value=torch.nan)
        self.optimiser = StackedAdamW(self.weights, partial(stacked_rates, pace, [len(self.cuts) - 1]))

    def aim(self, objective: Objective) -> None:
        """Say what the network is after."""
        self.steps = Steps(self.weights, self._scores, objective, self.optimiser)

    def epoch(self, number: int) -> Tensor:
        """Train for an epoch, the next one in `rng`; the mean over batches of each outcome's value."""
        n = len(self.numbers) - 1
        order, steps = self.rng.permutation(n), len(self.cuts) - 1
        rows = np.full((steps, 1, np.diff(self.cuts).max()), n)
        for step, (first, last) in enumerate(pairwise(self.cuts)):
            rows[step, 0, : last - first] = order[first:last]
        places = torch.from_numpy(rows).to(self.numbers.device)
        labels = self.steps.objective.labels(self.outcomes[places])
        return self.steps.run((places, *labels), labels=len(labels)) / steps

    def _scores(self, rows: Tensor) -> Tensor:
        """Score one step, 1 x batch."""
        x, (*hidden, last) = self.numbers[rows], list(self.weights.values())[::2]
        *biases, shift = list(self.weights.values())[1::2]
        for weight, bias in zip(hidden, biases):
            x = torch.baddbmm(bias[:, None], x, weight.mT).relu()
        return torch.baddbmm(shift[:, None], x, last.mT).squeeze(2)

    def state(self) -> dict[str, Tensor]:
        """Hand over the weights by name, each with an axis more."""
        return {name: weight.detach() for name, weight in self.weights.items()}
