"""The training loop: every network of every recipe is trained here.

An engine knows how to train its models for an epoch, how to predict and what their weights are; the loop counts
epochs, judges them on the validation split, keeps the best, writes checkpoints and tells how it goes. What is drawn at
random is a function of (seed, epoch), so the same seed gives the same bits, and a stopped run goes on as if nothing had
happened.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any, Protocol, TypeVar, cast

import numpy as np
import torch
from torch import Tensor, nn

from mlci.base.errors import InputError
from mlci.config import EncoderConfig
from mlci.fitting import encoders
from mlci.fitting._adamw import AdamW, Moments
from mlci.fitting._checkpoint import Checkpoint
from mlci.fitting._data import Split
from mlci.fitting._objectives import Objective
from mlci.fitting._result import Epoch, Trained
from mlci.fitting.encoders import Encoder

Result = TypeVar("Result")
LEAST = 16  # admissions in a batch
GENERATOR = threading.RLock()  # torch's own is one for all threads
Judge = Callable[[Tensor], tuple[Sequence[float], Sequence[Sequence[float]]]]  # each model's quality, and its values
Tell = Callable[[int, list[Trained]], None]  # hears of each epoch, with the records so far


class Engine(Protocol):
    """Trains models of one shape, one or several at once; the first axis of every tensor counts the models."""

    pause: float  # seconds between checkpoints

    @property
    def optimiser(self) -> Moments:
        """What moves the weights."""
        ...

    def aim(self, objective: Objective) -> None:
        """Say what the models are after."""
        ...

    def epoch(self, number: int) -> Tensor:
        """Train every model for its epoch `number`, from 1; the mean over batches of each outcome's value."""
        ...

    def predict(self, split: Split) -> Tensor:
        """Score a split's admissions, in order."""
        ...

    def state(self) -> dict[str, Tensor]:
        """Hand over the weights by name, as they are: the next epoch changes them."""
        ...

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Take over weights."""
        ...


@dataclass(frozen=True)
class Pace:
    """How a model walks through its admissions: AdamW, in steps of `batch`."""

    batch: int
    learning_rate: float
    weight_decay: float = 0.0
    cycle: int | None = None  # epochs of a one-cycle learning rate; None: it is constant
    steps: int = 1  # of an epoch at least: few admissions come in smaller batches
    even: bool = False  # batches of about that size, all alike
    token_dropout: float = 0.0  # share of an admission's tokens that a step does not see
    fused: bool = True  # torch's AdamW in one pass, which rounds differently
    betas: tuple[float, float] = (0.9, 0.999)  # AdamW's

    def size(self, n: int) -> int:
        """Say how many admissions a batch has, of n.

        >>> Pace(256, 0.001, steps=10).size(1_000)  # ten steps at least, of at least 16 admissions
        100
        """
        return min(self.batch, max(LEAST, n // self.steps))

    def cuts(self, n: int) -> np.ndarray:
        """Say where batches begin among n admissions, and where the last one ends.

        >>> Pace(256, 0.001).cuts(600), Pace(256, 0.001, even=True).cuts(600)
        (array([  0, 256, 512, 600]), array([  0, 300, 600]))
        """
        if self.even:
            parts = max(1, round(n / self.batch))
            return np.concatenate([[0], np.cumsum([len(part) for part in np.array_split(np.empty(n), parts)])])
        return np.append(np.arange(0, n, self.size(n)), n)

    def optimiser(self, parameters: Sequence[Tensor], steps: int) -> AdamW:
        """Make AdamW, with its rate for so many steps an epoch."""
        cycle = None if self.cycle is None else steps * self.cycle
        options = {"learning_rate": self.learning_rate, "weight_decay": self.weight_decay, "betas": self.betas}
        return AdamW(parameters, **options, fused=self.fused, cycle=cycle)


class Stopped(Exception):
    """A fit ended early because one beside it failed."""


@dataclass(frozen=True)
class Place:
    """Where in a checkpoint the models of an engine lie; `weights`: those of the kept epochs are wanted in the end."""

    saved: Checkpoint
    name: str
    weights: bool = True

    def trained(self) -> list[Trained]:
        """Give the records so far; none before the first epoch was over."""
        entry = self.saved.entries.get(self.name)
        return [_trained(facts) for facts in entry.facts] if entry else []

    def resume(self, engine: Engine) -> None:
        """Bring an engine to where its last epoch ended."""
        engine.load(self.part("model"))
        engine.optimiser.load(self.part("adam"))

    def keep(self, engine: Engine, trained: Sequence[Trained], best: Mapping[str, Tensor], *, last: bool) -> None:
        """Put copies into the checkpoint, as the next epoch changes the tensors while another fit may write."""
        arrays: dict[str, np.ndarray] = {}
        if self.saved.writes and (self.weights or not last):
            best = best if self.weights else {}
            parts = {"model": engine.state(), "best": best, "adam": engine.optimiser.kept()}
            arrays = {
                f"{part}.{name}": tensor.to("cpu", copy=True).numpy()
                for part, tensors in parts.items()
                for name, tensor in tensors.items()
            }
        pause = 0.0 if last else engine.pause
        self.saved.keep(self.name, [asdict(record) for record in trained], arrays, pause=pause)

    def part(self, part: str) -> dict[str, Tensor]:
        """Give the weights of the last epoch (`model`), of the kept ones (`best`), or the moments (`adam`)."""
        start, arrays = f"{part}.", self.saved.entries[self.name].arrays
        return {
            key.removeprefix(start): torch.from_numpy(np.array(array))
            for key, array in arrays.items()
            if key.startswith(start)
        }


def _trained(facts: Mapping[str, Any]) -> Trained:
    history = (Epoch(tuple(e["objective"]), tuple(e["validation"]), e["quality"]) for e in facts["history"])
    return Trained(**{**facts, "history": tuple(history)})


def train(
    engine: Engine,
    trained: list[Trained],
    *,
    epochs: int,
    tell: Tell,
    held_out: Split | None = None,
    judge: Judge | None = None,
    improvement: float | None = None,
    place: Place | None = None,
    rate: str = "learning_rate",
) -> tuple[list[Trained], dict[str, Tensor]]:
    """Train the models of an engine to their last epoch.

    Args:
        engine: the models.
        trained: the record of each so far.
        epochs: how many there are in all.
        tell: hears of each epoch, with the records.
        held_out: the split that `judge` judges the scores of; without it the last values are the quality.
        judge: gives each model's quality, and the values it is made of.
        improvement: by how much an epoch must be better to be kept; None: the last one is kept.
        place: where in a checkpoint the models lie; those that were begun go on from there.
        rate: the setting to lower where scores become infinite.

    Returns:
        The record of each model, and the weights of the kept epochs, with the models along the first axis.
    """
    begun = len(trained[0].history)
    if place and begun:
        place.resume(engine)
    best = engine.state()
    selecting = improvement is not None and (place is None or place.weights)
    if selecting:
        start = place.part("best") if place and begun else best
        best = {name: start[name].clone().to(weight.device) for name, weight in best.items()}
    for epoch in range(begun + 1, epochs + 1):
        values = engine.epoch(epoch).tolist()
        quality, validation = [-sum(losses) for losses in values], values
        if held_out is not None and judge is not None:
            scores = engine.predict(held_out)
            if not scores.isfinite().all():
                raise InputError(f"The scores are no longer finite after epoch {epoch}; lower {rate}.")
            quality, validation = judge(scores)
        least = -np.inf if improvement is None else improvement
        reached = [Epoch(tuple(of), tuple(on), found) for of, on, found in zip(values, validation, quality)]
        trained = [record.after(found, least) for record, found in zip(trained, reached)]
        if selecting:
            better = [model for model, record in enumerate(trained) if record.epoch == epoch]
            for name, weight in engine.state().items():
                best[name][better] = weight[better]
        with place.saved.lock if place else contextlib.nullcontext():
            if place:
                place.keep(engine, trained, best, last=epoch == epochs)
            tell(epoch, trained)
    return trained, best


def new_encoder(
    config: EncoderConfig,
    vocabulary_size: int,
    seed: tuple[int, ...],
    device: torch.device,
    *,
    spread: float = 1.0,
    **options: float,
) -> Encoder:
    """Make an encoder at its start; `spread` is the standard deviation of its embeddings, `options` its own."""
    with seeded(*seed, device=torch.device("cpu")):
        model = encoders.build(config, vocabulary_size, **options)
    if spread != 1.0:
        with torch.no_grad():
            cast(nn.Embedding, model.embedding).weight.mul_(spread)
    return model.to(device)


def torch_seed(*seed: int) -> int:
    """Make the seed of a generator of torch's from some numbers: a seed, a step, an epoch."""
    return int(np.random.SeedSequence(seed).generate_state(1, np.uint64)[0] >> 1)


@contextlib.contextmanager
def seeded(*seed: int, device: torch.device) -> Iterator[None]:
    """Seed torch's generators for the block, in which only one thread is at a time, and put them back after it."""
    with GENERATOR, torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(torch_seed(*seed))
        yield


@contextlib.contextmanager
def torch_threads(threads: int) -> Iterator[None]:
    """Give torch so many threads in the block, and take numbers below 1e-38 as zero.

    The moments of tokens long unseen fade to such numbers, and arithmetic with them is slow.
    """
    before = torch.get_num_threads()
    torch.set_flush_denormal(True)
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)
        torch.set_flush_denormal(False)


def side_by_side(
    work: Callable[[Any], Result], items: Sequence[Any], cores: int, stop: threading.Event
) -> Iterator[Result]:
    """Give what the work makes of each item, in order, on so many cores; torch has one thread in each item's work.

    Five items on two cores are begun as three, not two, at a time: two, two and one would leave a core idle at the end.

    Args:
        work: ends with `Stopped` soon after `stop` is set.
        items: what to work on.
        cores: how many are to be busy.
        stop: is set where the work on an item fails, and where nobody asks for the rest.

    >>> list(side_by_side(lambda x: 2 * x, [1, 2, 3], 2, threading.Event()))
    [2, 4, 6]
    """
    failures: list[BaseException] = []

    def aside(item: Any) -> Result:
        try:
            with torch_threads(1):
                return work(item)
        except BaseException as error:
            failures.append(error)
            stop.set()
            raise

    rounds = max(1, len(items) // cores)
    with ThreadPoolExecutor(max(1, -(-len(items) // rounds))) as pool:
        futures = [pool.submit(aside, item) for item in items]
        try:
            for future in futures:
                yield future.result()
        except BaseException as error:
            stop.set()
            for future in futures:
                future.cancel()
            first = failures[0] if isinstance(error, Stopped) else error  # the others end because of it
            raise first from None


@contextlib.contextmanager
def memory_errors(work: str) -> Iterator[None]:
    """Say in one sentence that the GPU's memory is too small for the work of the block."""
    try:
        yield
    except torch.cuda.OutOfMemoryError:
        raise InputError(f"The GPU's memory is too small for {work}; take fewer of them, or --device cpu.") from None
