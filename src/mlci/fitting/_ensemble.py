"""The ensemble of the recipe `deep`: tokens and outcomes in, each member's log-odds of the outcomes out.

Members are encoders with an output per outcome. Each is trained without a fold of the training split, so that of every
admission there is a member that has not seen it. On a GPU all are trained at once; on processors side by side, a core
each; by several processes, a share each. The members that are trained are the same, up to rounding on a GPU.
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
from mlci.fitting._data import Split
from mlci.fitting._given import CPU, MEMBERS, Given
from mlci.fitting._objectives import cross_entropy
from mlci.fitting._processes import ALONE, Group, own_errors


class Member(NamedTuple):
    """What a member says of all admissions, and its weights but for those of its last layer."""

    logits: np.ndarray
    weights: Mapping[str, np.ndarray]

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """All of it by name."""
        return {"logits": self.logits, **self.weights}

    @classmethod
    def of(cls, arrays: Mapping[str, np.ndarray]) -> "Member":
        """Make the member whose `arrays` these are.

        >>> Member.of(Member(np.zeros((1, 2)), {"norm.bias": np.ones(4)}).arrays).weights
        {'norm.bias': array([1., 1., 1., 1.])}
        """
        return cls(arrays["logits"], {name: array for name, array in arrays.items() if name != "logits"})


@dataclass(frozen=True)
class Posteriors:
    """What the members say: `logits` is members x admissions x outcomes, the training admissions first."""

    logits: np.ndarray
    folds: np.ndarray  # of each training admission: the one member that has not seen it

    @property
    def honest(self) -> np.ndarray:
        """The logits of training admissions, each by the member that has not seen it."""
        return self.logits[self.folds, np.arange(len(self.folds))]

    @property
    def ensemble(self) -> np.ndarray:
        """The logits of all admissions: the mean over members, whether they have seen the admission or not."""
        return self.logits.mean(0)

    def source(self, name: Literal["ensemble", "out-of-fold"]) -> np.ndarray:
        """Give the logits of training admissions that are learned from: by the ensemble, or the honest ones."""
        return self.honest if name == "out-of-fold" else self.ensemble[: len(self.folds)]


def members(
    given: Given,
    train: Split,
    others: Sequence[Split],
    folds: np.ndarray,
    numbers: Sequence[int],
    *,
    group: Group = ALONE,
    threads: int = 1,
) -> Iterator[Member]:
    """Train the members of the ensemble, each without its fold.

    Args:
        given: the config, the seed and the device.
        train: the split to learn from.
        others: further splits; the first tells how well each epoch went.
        folds: of each training admission, the one member that does not see it.
        numbers: which members to train.
        group: the processes that share them.
        threads: how many members are trained side by side on the CPU; the bits are the same for any number.

    Yields:
        Each member, with its logits of all admissions, the training split first.

    >>> from mlci.config import DeepConfig, PosteriorConfig
    >>> from mlci.tokens import Tokens
    >>> tokens = Tokens(np.tile([2, 3], 10).astype(np.int32), np.arange(21))
    >>> split = Split(tokens, np.tile([[1.0], [0.0]], (10, 1)).astype(np.float32), ("mortality",), 4)
    >>> given = Given(DeepConfig(posterior=PosteriorConfig(members=2, epochs=1)), seed=1)
    >>> [member.logits.shape for member in members(given, split, [split], np.arange(20) % 2, range(2))]
    [(40, 1), (40, 1)]
    """
    stop, splits, body = threading.Event(), (train, *others), _body(given, train.vocabulary_size)

    def trained(some: Sequence[int]) -> list[Member]:
        return _trained(given, splits, folds, some, list(body), stop)

    if threads > 1 and group.count == 1 and not given.stacks(given.config.posterior.batch):
        yield from _loop.side_by_side(lambda number: trained([number])[0], numbers, threads, stop)
        return
    logits = torch.zeros(sum(map(len, splits)), len(train.names))
    nothing = {name: torch.zeros_like(whole).numpy() for name, whole in {"logits": logits, **body}.items()}
    for shares in rounds(given, numbers, group.count):
        own = shares[group.rank]
        with own_errors():
            found = dict(zip(own, trained(own))) if own else {}
        for number in chain.from_iterable(shares):  # the sum of what one process has and the others have not
            arrays = found[number].arrays if number in found else nothing
            yield Member.of({name: group.sum(array.copy()) for name, array in arrays.items()})


def rounds(given: Given, numbers: Sequence[int], processes: int) -> list[list[Sequence[int]]]:
    """Return which members each process trains in each round.

    That is one each, or, where members are best trained at once, a share of them all in a single round:

    >>> from mlci.config import DeepConfig
    >>> rounds(Given(DeepConfig(), seed=1), range(3), 2)
    [[range(0, 1), range(1, 2)], [range(2, 3), range(3, 3)]]
    """
    if given.stacks(given.config.posterior.batch) and numbers:
        ends = [-(-len(numbers) * process // processes) for process in range(processes + 1)]
        return [[numbers[start:end] for start, end in pairwise(ends)]]  # the first, who tells, has some
    starts = range(0, len(numbers), processes)
    return [[numbers[at : at + 1] for at in range(start, start + processes)] for start in starts]


def by_entropy(split: Split) -> _loop.Judge:
    """Return what judges logits by the mean cross-entropy of each outcome of a split, summed."""
    known = torch.from_numpy(split.outcomes)
    counts = (known == known).sum(0).clamp(min=1)

    def judge(scores: Tensor) -> tuple[list[float], list[list[float]]]:
        means = (cross_entropy(logits.view_as(known), known).sum(0) / counts for logits in scores.cpu())
        values = [mean.tolist() for mean in means]
        return [-sum(losses) for losses in values], values

    return judge


def _body(given: Given, vocabulary_size: int) -> dict[str, Tensor]:
    """Return the weights of an encoder at its start, but for those of its last layer."""
    whole = _loop.new_encoder(given.config.encoder, vocabulary_size, (given.seed,), CPU).state_dict()
    last = [name for name in whole if name.startswith("rho.")][-1].rpartition(".")[0]
    return {name: weight for name, weight in whole.items() if not name.startswith(last)}


def _trained(
    given: Given,
    splits: Sequence[Split],
    folds: np.ndarray,
    numbers: Sequence[int],
    body: Sequence[str],
    stop: threading.Event,
) -> list[Member]:
    """Train some members at once; keep the weights that `body` names."""
    (train, valid, *_), options = splits, given.config.posterior
    who = f"members {numbers[0] + 1}-{numbers[-1] + 1}" if len(numbers) > 1 else f"member {numbers[0] + 1}"
    tell = given.teller(f"risks, {who}/{options.members}", options.epochs, work=given.seen)
    rows = [np.flatnonzero(folds != number) for number in numbers]
    seeds = [(given.seed, MEMBERS + number) for number in numbers]
    engine, _ = given.learn("posterior", train, rows, seeds, (valid, by_entropy(valid)), tell, stop)
    logits = torch.cat([engine.predict(split) for split in splits], 1).cpu().numpy()
    state = engine.state()
    weights = {name: state[name].cpu().numpy().copy() for name in body}
    return [
        Member(said.reshape(-1, len(train.names)), {name: array[place] for name, array in weights.items()})
        for place, said in enumerate(logits)
    ]
