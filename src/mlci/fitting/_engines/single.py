"""One model, trained step by step: by autograd, or for the paper's encoder on the CPU by hand.

In come a model, what it reads and what it is after; several processes may share each step.
"""

import threading
from collections.abc import Callable, Mapping
from functools import partial
from itertools import pairwise
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from mlci.codes.streams import ahead
from mlci.fitting._backward import backward
from mlci.fitting._data import Split
from mlci.fitting._engines import by_hand
from mlci.fitting._loop import Pace, Stopped, torch_seed
from mlci.fitting._objectives import Objective
from mlci.fitting._processes import ALONE, Group
from mlci.fitting.encoders import DeepSets, Dropout, on, predict
from mlci.tokens import Tokens


class Autograd:
    """A step's two passes through any module, which takes the tensors of a batch.

    `parameters` are what an optimiser moves, with their gradients.
    """

    def __init__(self, model: nn.Module) -> None:
        self.model, self.parameters = model, [weight for weight in model.parameters() if weight.requires_grad]

    def forward(self, batch: tuple[Tensor, ...]) -> Tensor:
        for parameter in self.parameters:
            parameter.grad = None
        self.scores = self.model(*batch)
        return self.scores.detach()

    def backward(self, gradient: Tensor) -> None:
        backward(self.scores, gradient)


def thin(tokens: Tokens, share: float, rng: np.random.Generator) -> Tokens:
    """Leave out a random `share` of the tokens."""
    kept = rng.random(len(tokens.ids)) >= share
    return Tokens(tokens.ids[kept], np.concatenate([[0], np.cumsum(kept)])[tokens.offsets])


class Single:
    """The engine of one model.

    Args:
        passes: the model's two passes.
        take: gives what the forward pass is given of some admissions; it may draw at random.
        outcomes: of all admissions.
        pace: how the model walks through them.
        seed: of their order, and of what is dropped.
        rows: the admissions that it learns from (all, if None).
        rng: the generator of an epoch, instead of the seed's.
        group: the processes that share each step.
        stop: set, the training ends.
    """

    pause = 0.0  # seconds between checkpoints

    def __init__(
        self,
        passes: Autograd | by_hand.ByHand,
        take: Callable[[np.ndarray, np.random.Generator], Any],
        outcomes: np.ndarray,
        pace: Pace,
        seed: tuple[int, ...],
        *,
        rows: np.ndarray | None = None,
        rng: Callable[[int], np.random.Generator] | None = None,
        group: Group = ALONE,
        stop: threading.Event | None = None,
    ) -> None:
        self.passes, self.model, self.take, self.outcomes = passes, passes.model, take, outcomes
        self.seed, self.group, self.stop = seed, group, stop
        self.rows = np.arange(len(outcomes)) if rows is None else rows
        self.rng = rng or (lambda epoch: np.random.default_rng((*seed, epoch)))
        self.cuts = pace.cuts(len(self.rows))
        self.optimiser = pace.optimiser(passes.parameters, len(self.cuts) - 1)
        self.device = passes.parameters[0].device
        self.objective: Objective | None = None

    def aim(self, objective: Objective) -> None:
        self.objective = objective

    def epoch(self, number: int) -> Tensor:
        rng, objective = self.rng(number), self.objective
        assert objective is not None
        self.model.train()
        draws = torch.Generator(self.device).manual_seed(torch_seed(*self.seed, number))
        for part in self.model.modules():
            if isinstance(part, Dropout):
                part.generator = draws
        order = self.rows[rng.permutation(len(self.rows))]
        total = torch.zeros(objective.weights.shape, dtype=torch.float64, device=self.device)
        batches = [order[first:last] for first, last in pairwise(self.cuts)]
        taken = ahead(self.take(rows[self.group.share(len(rows))], rng) for rows in batches)
        for rows, batch in zip(batches, taken):
            if self.stop is not None and self.stop.is_set():
                raise Stopped
            own = self.group.share(len(rows))
            outcomes = torch.from_numpy(self.outcomes[rows]).to(self.device)
            scores = self.group.gather(self.passes.forward(batch), len(rows))
            values, gradient = objective.step(scores[None], objective.labels(outcomes[None]))
            self.passes.backward(gradient[0, own])
            self.group.sum_gradients(self.passes.parameters)
            self.optimiser.step()
            total += values
        return total / (len(self.cuts) - 1)

    def predict(self, split: Split) -> Tensor:
        own = predict(self.model, split.tokens, self.group.share(len(split)))  # pyright: ignore[reportArgumentType]
        return self.group.gather(own, len(split))[None]

    def state(self) -> dict[str, Tensor]:
        return {name: weight[None] for name, weight in self.model.state_dict().items()}

    def load(self, state: Mapping[str, Tensor]) -> None:
        self.model.load_state_dict({name: weight[0] for name, weight in state.items()})


def of_tokens(model: nn.Module, split: Split, pace: Pace, seed: tuple[int, ...], **options: Any) -> Single:
    """Make the engine of an encoder, by autograd; a share of the tokens is left out at random."""
    device = next(model.parameters()).device
    return Single(Autograd(model), _reader(split, pace, partial(on, device)), split.outcomes, pace, seed, **options)


def quickest(model: nn.Module, split: Split, pace: Pace, seed: tuple[int, ...], **options: Any) -> Single:
    """Make the engine of an encoder, by hand where that is written out."""
    if not by_hand.takes(model):
        return of_tokens(model, split, pace, seed, **options)
    sparse = options.get("group", ALONE).count == 1
    passes = by_hand.ByHand(cast(DeepSets, model), sparse=sparse)
    return Single(passes, _reader(split, pace, passes.lay_out), split.outcomes, pace, seed, **options)


def _reader(split: Split, pace: Pace, lay_out: Callable[[Tokens], Any]) -> Callable[..., Any]:
    """Make what takes the tokens of some admissions, without those that are left out."""

    def take(rows: np.ndarray, rng: np.random.Generator) -> Any:
        tokens = split.tokens.take(rows)
        return lay_out(thin(tokens, pace.token_dropout, rng) if pace.token_dropout else tokens)

    return take
