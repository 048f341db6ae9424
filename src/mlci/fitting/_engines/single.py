"""The engine of one model, trained step by step: by autograd, or on the CPU by hand-written passes where they exist.

Several processes may share each step.
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
from mlci.fitting._loop import Cancelled, Schedule, torch_seed
from mlci.fitting._objectives import Objective
from mlci.fitting._processes import ALONE, Group
from mlci.fitting.encoders import DeepSets, Dropout, predict, tensors_on
from mlci.tokens import Tokens


class Autograd:
    """Forward and backward pass of any module, by autograd.

    `parameters` are the weights that the optimiser updates.
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


def drop_tokens(tokens: Tokens, share: float, rng: np.random.Generator) -> Tokens:
    """Drop a random `share` of the tokens (token dropout)."""
    kept = rng.random(len(tokens.ids)) >= share
    return Tokens(tokens.ids[kept], np.concatenate([[0], np.cumsum(kept)])[tokens.offsets])


class Single:
    """The engine of one model.

    Args:
        passes: the model's forward and backward pass.
        take: prepares the input of the forward pass for some admissions; it may use the random generator.
        outcomes: of all admissions.
        schedule: batch size and settings of the optimiser.
        seed: seed of the order of admissions, and of dropout.
        rows: the admissions to train on (None: all).
        rng: gives the generator of an epoch, instead of one made of `seed` and the epoch.
        group: the processes that share each step.
        stop: cancels the training when set.
    """

    checkpoint_interval = 0.0  # seconds between checkpoints

    def __init__(
        self,
        passes: Autograd | by_hand.ByHand,
        take: Callable[[np.ndarray, np.random.Generator], Any],
        outcomes: np.ndarray,
        schedule: Schedule,
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
        self.bounds = schedule.batch_bounds(len(self.rows))
        self.optimiser = schedule.optimiser(passes.parameters, len(self.bounds) - 1)
        self.device = passes.parameters[0].device
        self.objective: Objective | None = None

    def set_objective(self, objective: Objective) -> None:
        self.objective = objective

    def train_epoch(self, number: int) -> Tensor:
        rng, objective = self.rng(number), self.objective
        assert objective is not None
        self.model.train()
        generator = torch.Generator(self.device).manual_seed(torch_seed(*self.seed, number))
        for part in self.model.modules():
            if isinstance(part, Dropout):
                part.generator = generator
        order = self.rows[rng.permutation(len(self.rows))]
        total = torch.zeros(objective.weights.shape, dtype=torch.float64, device=self.device)
        batches = [order[first:last] for first, last in pairwise(self.bounds)]
        prepared = ahead(self.take(rows[self.group.share(len(rows))], rng) for rows in batches)  # in another thread
        for batch, rows in zip(prepared, batches):  # in this order, the thread ends with the loop, not with a finalizer
            if self.stop is not None and self.stop.is_set():
                raise Cancelled
            own = self.group.share(len(rows))
            outcomes = torch.from_numpy(self.outcomes[rows]).to(self.device)
            scores = self.group.gather(self.passes.forward(batch), len(rows))
            values, gradient = objective.step(scores[None], objective.labels(outcomes[None]))
            self.passes.backward(gradient[0, own])
            self.group.sum_gradients(self.passes.parameters)
            self.optimiser.step()
            total += values
        return total / (len(self.bounds) - 1)

    def predict(self, split: Split) -> Tensor:
        own = predict(self.model, split.tokens, self.group.share(len(split)))  # pyright: ignore[reportArgumentType]
        return self.group.gather(own, len(split))[None]

    def state(self) -> dict[str, Tensor]:
        return {name: weight[None] for name, weight in self.model.state_dict().items()}

    def load(self, state: Mapping[str, Tensor]) -> None:
        self.model.load_state_dict({name: weight[0] for name, weight in state.items()})


def autograd_engine(
    model: nn.Module, split: Split, schedule: Schedule, seed: tuple[int, ...], **options: Any
) -> Single:
    """Make the engine of an encoder with autograd; tokens are dropped as the schedule says."""
    device = next(model.parameters()).device
    return Single(
        Autograd(model),
        _reader(split, schedule, partial(tensors_on, device)),
        split.outcomes,
        schedule,
        seed,
        **options,
    )


def fastest_engine(model: nn.Module, split: Split, schedule: Schedule, seed: tuple[int, ...], **options: Any) -> Single:
    """Make the engine of an encoder: with hand-written passes if they support it, else with autograd."""
    if not by_hand.supports(model):
        return autograd_engine(model, split, schedule, seed, **options)
    sparse = options.get("group", ALONE).count == 1
    passes = by_hand.ByHand(cast(DeepSets, model), sparse=sparse)
    return Single(passes, _reader(split, schedule, passes.lay_out), split.outcomes, schedule, seed, **options)


def _reader(split: Split, schedule: Schedule, lay_out: Callable[[Tokens], Any]) -> Callable[..., Any]:
    """Return a function that prepares the tokens of some admissions, after token dropout."""

    def take(rows: np.ndarray, rng: np.random.Generator) -> Any:
        tokens = split.tokens.take(rows)
        return lay_out(drop_tokens(tokens, schedule.token_dropout, rng) if schedule.token_dropout else tokens)

    return take
