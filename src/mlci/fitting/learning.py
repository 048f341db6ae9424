"""How set encoders learn several outcomes, or a score: tokens and what is wanted in, encoders out.

AdamW with a one-cycle learning rate; tokens are thinned and hidden units dropped at random. Encoders are trained one by
one, or where that pays side by side, as `stacked` trains fits, each step one recorded CUDA graph. Batches and thinning
are the same either way, so that the two differ by rounding and by the units that are dropped.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from mlci.config import EncoderConfig, LearningConfig, PaperConfig
from mlci.fitting import encoders, processes, stacked
from mlci.fitting.encoders import DeepSets
from mlci.fitting.passes import on
from mlci.fitting.stacks import Resident, Sets, Steps, kernels, roomy
from mlci.fitting.training import Data, predict, seeded
from mlci.tokens import Tokens

LEAST = 16  # admissions in a batch
CPU = torch.device("cpu")


def pays(encoder: EncoderConfig, device: torch.device) -> bool:
    """Whether such encoders are best trained side by side, each process its own."""
    with processes.apart():
        return stacked.pays(PaperConfig(encoder=encoder), str(device))


@dataclass(frozen=True)
class Loss:
    """Summed over outcomes, each a mean over the admissions where it is known."""

    whole: Callable[[Tensor, Tensor], Tensor]  # of a batch's scores and outcomes
    each: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]  # of one score and outcome, and its slope by the score


def cross_entropy(logits: Tensor, outcomes: Tensor) -> Tensor:
    """Summed over outcomes, each a mean over the admissions where it is known: a missing outcome costs only itself."""
    known = outcomes == outcomes
    each = F.binary_cross_entropy_with_logits(logits, outcomes.nan_to_num(), reduction="none") * known
    return (each.sum(0) / known.sum(0).clamp(min=1)).sum()


ENTROPY = Loss(cross_entropy, lambda logits, y: (F.softplus(logits) - logits * y, logits.sigmoid() - y))
SQUARES = Loss(F.mse_loss, lambda scores, y: ((scores - y).square(), 2 * (scores - y)))  # of one outcome, all known


def thin(tokens: Tokens, share: float, rng: np.random.Generator) -> Tokens:
    """The tokens without a random `share` of them."""
    kept = rng.random(len(tokens.ids)) >= share
    return Tokens(tokens.ids[kept], np.concatenate([[0], np.cumsum(kept)])[tokens.offsets])


def thinned(data: Resident, rows: Tensor, kept: Tensor) -> Resident:
    """The admissions `rows`, one after the other, with those of their tokens that are `kept`."""
    counts = data.counts[rows]
    ends = F.pad(counts.cumsum(0), (1, 0))
    places = torch.arange(len(kept), device=rows.device) + (data.starts[rows] - ends[:-1]).repeat_interleave(counts)
    starts = F.pad(kept.cumsum(0), (1, 0))[ends]
    outcomes = data.outcomes[F.pad(rows, (0, 1), value=len(data))]
    return Resident(data.ids[places[kept]], starts, F.pad(starts.diff(), (0, 1)), outcomes)


@dataclass(frozen=True)
class Lesson:
    """How encoders are trained, with one output per column of the outcomes.

    `after` hears of each epoch: the scores of `held_out` by those trained side by side, its number, their mean loss.
    """

    options: LearningConfig
    encoder: EncoderConfig
    size: int  # of the vocabulary
    device: torch.device
    loss: Loss
    held_out: Data
    after: Callable[[np.ndarray, int, float], None]

    def learn(self, data: Data, rows: Sequence[np.ndarray], seeds: Sequence[tuple[int, ...]]) -> list[DeepSets]:
        """One encoder for each of `rows`, the admissions it sees, and of `seeds`."""
        if pays(self.encoder, self.device):
            with roomy(f"{len(rows)} encoders at once"):
                return self._together(data, rows, seeds)
        return [self._alone(data, own, seed) for own, seed in zip(rows, seeds)]

    def _start(self, outputs: int, seed: tuple[int, ...]) -> DeepSets:
        with seeded(*seed, device=CPU):
            model = encoders.build(self.encoder, self.size, outputs=outputs, dropout=self.options.dropout)
            with torch.no_grad():
                cast(DeepSets, model).embedding.weight.mul_(self.options.spread)
        return cast(DeepSets, model).to(self.device)

    def _batch(self, n: int) -> tuple[int, int]:
        """Admissions in a batch, and steps in an epoch."""
        batch = min(self.options.batch, max(LEAST, n // self.options.steps))
        return batch, -(-n // batch)

    def _alone(self, data: Data, own: np.ndarray, seed: tuple[int, ...]) -> DeepSets:
        options, device, (batch, steps) = self.options, self.device, self._batch(len(own))
        model = self._start(data.outcomes.shape[1], seed)
        optimiser = torch.optim.AdamW(
            model.parameters(), lr=options.learning_rate, weight_decay=options.weight_decay, fused=True
        )
        rate = torch.optim.lr_scheduler.OneCycleLR(optimiser, options.learning_rate, total_steps=steps * options.epochs)
        for epoch in range(1, options.epochs + 1):
            total = torch.zeros((), device=device)
            with seeded(*seed, epoch, device=device) as rng:
                order = own[rng.permutation(len(own))]
                model.train()
                for start in range(0, len(order), batch):
                    part = data.take(order[start : start + batch])
                    scores = model(*on(device, thin(part.tokens, options.token_dropout, rng)))
                    y = torch.from_numpy(part.outcomes).to(device)
                    value = self.loss.whole(scores.view_as(y), y)
                    optimiser.zero_grad(set_to_none=True)
                    value.backward()
                    optimiser.step()
                    rate.step()
                    total += value.detach()
            self.after(predict(model, self.held_out.tokens), epoch, float(total) / steps)
        return model

    def _together(self, data: Data, rows: Sequence[np.ndarray], seeds: Sequence[tuple[int, ...]]) -> list[DeepSets]:
        """The processor draws the next epoch while the device trains.

        All encoders have as many steps of as many admissions: what one lacks is filled with the empty admission, which
        counts nothing, and a step of that alone moves nothing.
        """
        options, device, outputs = self.options, self.device, data.outcomes.shape[1]
        models = [self._start(outputs, seed) for seed in seeds]
        stack, train, held_out = Sets(models), Resident.of(data, device), Resident.of(self.held_out, device)
        sizes = [self._batch(len(own)) for own in rows]
        batch, most = map(max, zip(*sizes))
        orders, first = torch.full((len(rows), most, batch), sum(map(len, rows))), 0
        cycles = {n: cycle(options, options.epochs * n).view(options.epochs, n, 5) for n in {n for _, n in sizes}}
        rates = torch.tensor([1.0, 0, 0, 0, 0], dtype=torch.float64).repeat(options.epochs, most, len(rows), 1)
        for fit, (own, (size, count)) in enumerate(zip(rows, sizes)):
            each = torch.arange(len(own))
            orders[fit, each // size, each % size] = first + each
            first += len(own)
            rates[:, :count, fit] = cycles[count]
        orders, weights = orders.flatten(1).to(device), list(stack.weights.values())
        optimiser = AdamW(weights, rates.flatten(0, 1).to(weights[0]))
        steps = Steps(stack, Means(self.loss, len(rows), outputs, device), optimiser, self.size)

        def draw(own: np.ndarray, seed: tuple[int, ...], tokens: int) -> tuple[np.ndarray, np.ndarray]:
            rng = np.random.default_rng(np.random.SeedSequence(seed))
            return own[rng.permutation(len(own))], rng.random(tokens) >= options.token_dropout

        tokens = [int(data.tokens.counts[own].sum()) for own in rows]
        with ThreadPoolExecutor() as threads:

            def drawn(epoch: int) -> list[Future[tuple[np.ndarray, np.ndarray]]]:
                return [threads.submit(draw, own, (*seed, epoch), n) for own, seed, n in zip(rows, seeds, tokens)]

            ahead = drawn(1)
            for epoch in range(1, options.epochs + 1):
                parts = zip(*(each.result() for each in ahead))
                order, kept = (torch.from_numpy(np.concatenate(part)).to(device) for part in parts)
                ahead = drawn(epoch + 1) if epoch < options.epochs else []
                with seeded(*seeds[0], epoch, device=device):
                    values = steps.epoch(thinned(train, order, kept), orders, batch).sum(1)
                loss = np.mean([value / count for value, (_, count) in zip(values.tolist(), sizes)])
                self.after(stack.predict(held_out).cpu().numpy(), epoch, float(loss))
        for fit, model in enumerate(models):
            model.load_state_dict({name: weight[fit] for name, weight in stack.state_dict().items()})
        return models


class Means:
    """A `Loss` of each fit, as `stacks.Objective` has it."""

    tensors = 2

    def __init__(self, loss: Loss, fits: int, outcomes: int, device: torch.device) -> None:
        self.loss, self.weights = loss, torch.ones(fits, outcomes, device=device)

    def labels(self, outcomes: Tensor) -> tuple[Tensor, ...]:
        """The outcomes, and how much each one counts."""
        known = outcomes == outcomes
        return outcomes.nan_to_num(), known / known.sum(-2, keepdim=True).clamp(min=1)

    def step(self, scores: Tensor, outcomes: Tensor, share: Tensor) -> tuple[Tensor, Tensor]:
        values, slopes = self.loss.each(scores.view_as(outcomes), outcomes)
        return (values * share).sum(1), (slopes * share).view_as(scores)


def cycle(options: LearningConfig, steps: int) -> Tensor:
    """What `adamw` needs at each step, from torch's own schedule, which turns the first moment's memory as well."""
    optimiser = torch.optim.AdamW([torch.zeros(())], lr=options.learning_rate, weight_decay=options.weight_decay)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, options.learning_rate, total_steps=steps)
    rates = []
    for step in range(1, steps + 1):
        rate, (one, two) = optimiser.param_groups[0]["lr"], optimiser.param_groups[0]["betas"]
        bias, root = 1 - one**step, (1 - two**step) ** -0.5
        rates.append((1 - rate * options.weight_decay, 1 - one, 1 - two, rate / bias, root))
        optimiser.step()  # without a gradient: nothing but the order that the schedule wants
        schedule.step()
    return torch.tensor(rates, dtype=torch.float64)


def adamw(weight: Tensor, gradient: Tensor, moment: Tensor, square: Tensor, rates: Tensor) -> None:
    """A step of each fit, by its row of `rates`: what remains of the weight, what of the gradient and of its square
    enters the moments, the step's length, and the factor of the second moment's root.
    """
    keep, one, two, length, root = rates.T.reshape(5, -1, *[1] * (weight.dim() - 1))
    moment.lerp_(gradient, one)
    square.lerp_(gradient.square(), two)
    weight.mul_(keep).sub_(length * moment / (square.sqrt() * root + 1e-8))


class AdamW(torch.optim.Optimizer):
    """Each fit's AdamW. What changes from step to step lies on the device, where a recorded step finds it."""

    def __init__(self, weights: list[Tensor], rates: Tensor) -> None:
        super().__init__(weights, {})
        self.rates = F.pad(rates, (0, 0, 0, 0, 0, 2))  # steps x fits x 5; two more, as a recording takes them before
        for weight in weights:
            self.state[weight] = {name: torch.zeros_like(weight) for name in ("moment", "square")}
        self.state[weights[0]]["step"] = self.count = torch.zeros(1, dtype=torch.int64, device=rates.device)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        rates = self.rates.index_select(0, self.count).squeeze(0)
        move = kernels().adamw if rates.is_cuda else adamw
        for weight, state in self.state.items():
            move(weight, weight.grad, state["moment"], state["square"], rates)
        self.count += 1
