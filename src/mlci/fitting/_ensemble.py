"""The ensemble of the recipe `deep`: learn from tokens and outcomes the log-odds of the outcomes.

The members are encoders with one output per outcome. Member k is trained without fold k of the training split, so every
training admission has one member that has not seen it. On a GPU all members are trained at once; on the CPU in
parallel, one core each; with several processes, each trains a share. The trained members are the same in all cases, up
to rounding on a GPU.
"""

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from mlci.fitting import _loop
from mlci.fitting._context import CPU, MEMBERS, FitContext
from mlci.fitting._data import Split
from mlci.fitting._objectives import cross_entropy
from mlci.fitting._processes import ALONE, Group, own_errors


class Member(NamedTuple):
    """A member's logits of all admissions, and its weights except those of its last layer."""

    logits: np.ndarray
    weights: Mapping[str, np.ndarray]

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """Both as one dictionary of arrays, for a checkpoint."""
        return {"logits": self.logits, **self.weights}

    @classmethod
    def of(cls, arrays: Mapping[str, np.ndarray]) -> "Member":
        """Return the member made of such `arrays`.

        >>> Member.of(Member(np.zeros((1, 2)), {"norm.bias": np.ones(4)}).arrays).weights
        {'norm.bias': array([1., 1., 1., 1.])}
        """
        return cls(arrays["logits"], {name: array for name, array in arrays.items() if name != "logits"})


@dataclass(frozen=True)
class Posteriors:
    """The logits of all members: members x admissions x outcomes, the training admissions first."""

    logits: np.ndarray
    folds: np.ndarray  # for each training admission, the one member that has not seen it

    @property
    def out_of_fold(self) -> np.ndarray:
        """The logits of training admissions, each by the member that has not seen it."""
        return self.logits[self.folds, np.arange(len(self.folds))]

    @property
    def ensemble(self) -> np.ndarray:
        """The logits of all admissions, averaged over all members (including those that have seen the admission)."""
        return self.logits.mean(0)

    def training_logits(self, name: Literal["ensemble", "out-of-fold"]) -> np.ndarray:
        """Return the logits of the training admissions, averaged over the ensemble or out of fold."""
        return self.out_of_fold if name == "out-of-fold" else self.ensemble[: len(self.folds)]


def train_members(
    context: FitContext,
    train: Split,
    others: Sequence[Split],
    folds: np.ndarray,
    numbers: Sequence[int],
    *,
    group: Group = ALONE,
    threads: int = 1,
) -> Iterator[Member]:
    """Train members of the ensemble, each without its fold.

    Args:
        context: the config, the seed and the device.
        train: the split to learn from.
        others: further splits to predict; the first one is the validation split.
        folds: for each training admission, the one member that does not see it.
        numbers: which members to train.
        group: the processes that share the members.
        threads: how many members are trained in parallel on the CPU; the result does not depend on it.

    Yields:
        Each member, with its logits of all admissions, the training split first.

    >>> from mlci.config import DeepConfig, PosteriorConfig
    >>> from mlci.tokens import Tokens
    >>> tokens = Tokens(np.tile([2, 3], 10).astype(np.int32), np.arange(21))
    >>> split = Split(tokens, np.tile([[1.0], [0.0]], (10, 1)).astype(np.float32), ("mortality",), 4)
    >>> context = FitContext(DeepConfig(posterior=PosteriorConfig(members=2, epochs=1)), seed=1)
    >>> [member.logits.shape for member in train_members(context, split, [split], np.arange(20) % 2, range(2))]
    [(40, 1), (40, 1)]
    """
    stop, splits, body = threading.Event(), (train, *others), _body(context, train.vocabulary_size)

    def train_some(some: Sequence[int]) -> list[Member]:
        return _trained(context, splits, folds, some, list(body), stop)

    if threads > 1 and group.count == 1 and not context.trains_stacked(context.config.posterior.batch):
        yield from _loop.run_in_threads(lambda number: train_some([number])[0], numbers, threads, stop)
        return
    logits = torch.zeros(sum(map(len, splits)), len(train.names))
    zeros = {name: torch.zeros_like(whole).numpy() for name, whole in {"logits": logits, **body}.items()}
    for shares in schedule_members(context, numbers, group.count):
        own = shares[group.rank]
        with own_errors():
            found = dict(zip(own, train_some(own))) if own else {}
        for number in chain.from_iterable(shares):  # broadcast each member: the other processes add zeros to it
            arrays = found[number].arrays if number in found else zeros
            yield Member.of({name: group.sum(array.copy()) for name, array in arrays.items()})


def schedule_members(context: FitContext, numbers: Sequence[int], processes: int) -> list[list[Sequence[int]]]:
    """Return, for each round, which members each process trains in it.

    It is one each, or, where members are trained at once (stacked), a share of all of them in a single round:

    >>> from mlci.config import DeepConfig
    >>> schedule_members(FitContext(DeepConfig(), seed=1), range(3), 2)
    [[range(0, 1), range(1, 2)], [range(2, 3), range(3, 3)]]
    """
    if context.trains_stacked(context.config.posterior.batch) and numbers:
        ends = [-(-len(numbers) * process // processes) for process in range(processes + 1)]
        return [[numbers[start:end] for start, end in pairwise(ends)]]  # the first, which reports, has some
    starts = range(0, len(numbers), processes)
    return [[numbers[at : at + 1] for at in range(start, start + processes)] for start in starts]


def cross_entropy_metric(split: Split) -> _loop.ValidationMetric:
    """Return a metric of logits: the mean cross-entropy of each outcome of a split; quality is minus their sum."""
    known = torch.from_numpy(split.outcomes)
    counts = (known == known).sum(0).clamp(min=1)

    def metric(scores: Tensor) -> tuple[list[float], list[list[float]]]:
        means = (cross_entropy(logits.view_as(known), known).sum(0) / counts for logits in scores.cpu())
        values = [mean.tolist() for mean in means]
        return [-sum(losses) for losses in values], values

    return metric


def _body(context: FitContext, vocabulary_size: int) -> dict[str, Tensor]:
    """Return the initial weights of an encoder except those of its last layer."""
    whole = _loop.new_encoder(context.config.encoder, vocabulary_size, (context.seed,), CPU).state_dict()
    last = [name for name in whole if name.startswith("rho.")][-1].rpartition(".")[0]
    return {name: weight for name, weight in whole.items() if not name.startswith(last)}


def _trained(
    context: FitContext,
    splits: Sequence[Split],
    folds: np.ndarray,
    numbers: Sequence[int],
    body: Sequence[str],
    stop: threading.Event,
) -> list[Member]:
    """Train some members at once; return them with the weights that `body` names."""
    (train, valid, *_), options = splits, context.config.posterior
    who = f"members {numbers[0] + 1}-{numbers[-1] + 1}" if len(numbers) > 1 else f"member {numbers[0] + 1}"
    on_epoch = context.epoch_reporter(f"risks, {who}/{options.members}", options.epochs, work=context.member_share)
    rows = [np.flatnonzero(folds != number) for number in numbers]  # all but the member's own fold
    seeds = [(context.seed, MEMBERS + number) for number in numbers]
    engine, _ = context.learn("posterior", train, rows, seeds, (valid, cross_entropy_metric(valid)), on_epoch, stop)
    logits = torch.cat([engine.predict(split) for split in splits], 1).cpu().numpy()
    state = engine.state()
    weights = {name: state[name].cpu().numpy().copy() for name in body}
    return [
        Member(own.reshape(-1, len(train.names)), {name: array[place] for name, array in weights.items()})
        for place, own in enumerate(logits)
    ]
