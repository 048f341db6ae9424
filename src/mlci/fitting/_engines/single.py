"""One model, trained step by step: by autograd, or for the paper's encoder on the CPU by hand.

In come a model, what it reads and what it is after; several processes may share each step.
"""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from mlci.fitting._data import Split
from mlci.fitting._engines import by_hand
from mlci.fitting._loop import Pace, Stopped, generator, torch_seed
from mlci.fitting._objectives import Objective
from mlci.fitting._processes import ALONE, Group
from mlci.fitting.encoders import Dropout, on, predict
from mlci.tokens import Tokens


class Passes(Protocol):
    """A step's two passes; `parameters` are what an optimiser moves, with their gradients."""

    parameters: list[nn.Parameter]

    def forward(self, batch: Any, /) -> Tensor:
        """Give the scores of a batch."""
        ...

    def backward(self, gradient: Tensor) -> None:
        """Fill the gradients of the parameters, from that by the scores of the last forward pass."""
        ...


class Autograd:
    """Through any module; `place` gives the tensors that the module takes of a batch."""

    def __init__(self, model: nn.Module, place: Callable[[Any], tuple[Tensor, ...]]) -> None:
        self.model, self.place, self.parameters = model, place, list(model.parameters())

    def forward(self, batch: Any) -> Tensor:
        for parameter in self.parameters:
            parameter.grad = None
        self.scores = self.model(*self.place(batch))
        return self.scores.detach()

    def backward(self, gradient: Tensor) -> None:
        self.scores.backward(gradient)


def thin(tokens: Tokens, share: float, rng: np.random.Generator) -> Tokens:
    """Leave out a random `share` of the tokens."""
    kept = rng.random(len(tokens.ids)) >= share
    return Tokens(tokens.ids[kept], np.concatenate([[0], np.cumsum(kept)])[tokens.offsets])


@dataclass(frozen=True)
class Feed:
    """What a model is given of some admissions, and the outcomes they had."""

    take: Callable[[np.ndarray, np.random.Generator], Any]
    outcomes: np.ndarray

    @classmethod
    def of(cls, split: Split, token_dropout: float = 0.0) -> "Feed":
        """Feed tokens of a split, thinned at random."""

        def take(rows: np.ndarray, rng: np.random.Generator) -> Tokens:
            tokens = split.tokens.take(rows)
            return thin(tokens, token_dropout, rng) if token_dropout else tokens

        return cls(take, split.outcomes)


class Single:
    """The engine of one model. `rows` are the admissions it learns from (all, if None)."""

    pause = 0.0  # seconds between checkpoints

    def __init__(
        self,
        model: nn.Module,
        passes: Passes,
        feed: Feed,
        pace: Pace,
        seed: tuple[int, ...],
        *,
        rows: np.ndarray | None = None,
        rng: Callable[[int], np.random.Generator] | None = None,
        dropout: bool = False,
        group: Group = ALONE,
        stop: threading.Event | None = None,
    ) -> None:
        self.model, self.passes, self.feed, self.group, self.stop = model, passes, feed, group, stop
        self.seed, self.dropout = seed, dropout
        self.rows = np.arange(len(feed.outcomes)) if rows is None else rows
        self.rng = rng or (lambda epoch: generator(*seed, epoch))
        self.cuts = pace.cuts(len(self.rows))
        self.optimiser, self.schedule = pace.optimiser(passes.parameters, len(self.cuts) - 1)
        self.device = passes.parameters[0].device
        self.objective: Objective | None = None

    def aim(self, objective: Objective) -> None:
        self.objective = objective

    def epoch(self, number: int) -> Tensor:
        if self.dropout:
            draws = torch.Generator(self.device).manual_seed(torch_seed(*self.seed, number))
            for part in self.model.modules():
                if isinstance(part, Dropout):
                    part.generator = draws
        return self._epoch(self.rng(number))

    def _epoch(self, rng: np.random.Generator) -> Tensor:
        order, objective = self.rows[rng.permutation(len(self.rows))], self.objective
        assert objective is not None
        total = torch.zeros(objective.weights.shape, dtype=torch.float64, device=self.device)
        self.model.train()
        for first, last in pairwise(self.cuts):
            if self.stop is not None and self.stop.is_set():
                raise Stopped
            rows = order[first:last]
            own = self.group.share(len(rows))
            outcomes = torch.from_numpy(self.feed.outcomes[rows]).to(self.device)
            scores = self.group.gather(self.passes.forward(self.feed.take(rows[own], rng)), len(rows))
            values, gradient = objective.step(scores[None], objective.labels(outcomes[None]))
            self.passes.backward(gradient[0, own])
            self.group.sum_gradients(self.passes.parameters)
            self.optimiser.step()
            if self.schedule:
                self.schedule.step()
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
    """Make the engine of an encoder, by autograd."""
    device = next(model.parameters()).device
    passes = Autograd(model, lambda tokens: on(device, tokens))
    return Single(model, passes, Feed.of(split, pace.token_dropout), pace, seed, **options)


def quickest(model: nn.Module, split: Split, pace: Pace, seed: tuple[int, ...], **options: Any) -> Single:
    """Make the engine of an encoder, by hand where that is written out."""
    if not by_hand.takes(model):
        return of_tokens(model, split, pace, seed, **options)
    sparse = options.get("group", ALONE).count == 1
    passes = by_hand.ByHand(model, sparse=sparse)  # pyright: ignore[reportArgumentType]
    return Single(model, passes, Feed.of(split), pace, seed, **options)
