"""The training loop of all networks of all recipes.

An `Engine` trains its models for an epoch, predicts, and gives access to the weights. The loop counts the epochs,
evaluates the models on the validation split, keeps the weights of the best epoch, writes checkpoints and reports
progress. Random numbers are functions of (seed, epoch), so the same seed gives bit-for-bit the same result, and an
interrupted run continues as if it had not been interrupted.
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
from mlci.fitting._result import Epoch, TrainingLog
from mlci.fitting.encoders import RNG_LOCK, Encoder

Result = TypeVar("Result")
MIN_BATCH = 16  # admissions
# Takes validation scores (models x admissions); returns each model's quality, and the values behind it.
ValidationMetric = Callable[[Tensor], tuple[Sequence[float], Sequence[Sequence[float]]]]
OnEpoch = Callable[[int, list[TrainingLog]], None]  # called after each epoch, with its number and the logs so far


class Engine(Protocol):
    """Trains one or several models of the same shape; the first axis of every tensor is the model."""

    checkpoint_interval: float  # seconds between checkpoints

    @property
    def optimiser(self) -> Moments:
        """The optimiser's moments, for checkpoints."""
        ...

    def set_objective(self, objective: Objective) -> None:
        """Set the objective of the models."""
        ...

    def train_epoch(self, number: int) -> Tensor:
        """Train every model for the epoch `number` (from 1); return each outcome's value, averaged over minibatches."""
        ...

    def predict(self, split: Split) -> Tensor:
        """Return the scores of a split's admissions, in order."""
        ...

    def state(self) -> dict[str, Tensor]:
        """Return the weights by name. They are not copied: the next epoch changes them."""
        ...

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Set the weights."""
        ...


@dataclass(frozen=True)
class Schedule:
    """The minibatches of an epoch and the settings of AdamW."""

    batch: int  # admissions in a minibatch
    learning_rate: float  # the highest one, where there is a cycle
    weight_decay: float = 0.0
    cycle: int | None = None  # epochs of a one-cycle learning-rate schedule; None: the rate is constant
    steps: int = 1  # least number of steps in an epoch: with few admissions the batches are smaller
    even: bool = False  # batches of nearly equal size, instead of a small last one
    token_dropout: float = 0.0  # share of tokens that are dropped at random in training
    fused: bool = True  # torch's fused AdamW; the plain one is rounded differently
    betas: tuple[float, float] = (0.9, 0.999)  # of AdamW

    def batch_size(self, n: int) -> int:
        """Return the size of a batch, for `n` admissions.

        >>> Schedule(256, 0.001, steps=10).batch_size(1_000)  # at least ten steps, each of at least 16 admissions
        100
        """
        return min(self.batch, max(MIN_BATCH, n // self.steps))

    def batch_bounds(self, n: int) -> np.ndarray:
        """Return where each batch begins among `n` admissions, and where the last one ends.

        >>> Schedule(256, 0.001).batch_bounds(600), Schedule(256, 0.001, even=True).batch_bounds(600)
        (array([  0, 256, 512, 600]), array([  0, 300, 600]))
        """
        if self.even:
            parts = max(1, round(n / self.batch))
            return np.concatenate([[0], np.cumsum([len(part) for part in np.array_split(np.empty(n), parts)])])
        return np.append(np.arange(0, n, self.batch_size(n)), n)

    def optimiser(self, parameters: Sequence[Tensor], steps: int) -> AdamW:
        """Make AdamW for these parameters, with so many `steps` in an epoch."""
        cycle = None if self.cycle is None else steps * self.cycle
        options = {"learning_rate": self.learning_rate, "weight_decay": self.weight_decay, "betas": self.betas}
        return AdamW(parameters, **options, fused=self.fused, cycle=cycle)


class Cancelled(Exception):
    """Training was cancelled because a model that was trained in parallel failed."""


@dataclass(frozen=True)
class CheckpointSlot:
    """The checkpoint entry of the models of one engine; `weights`: keep the weights of the best epochs to the end."""

    saved: Checkpoint
    name: str
    weights: bool = True

    def logs(self) -> list[TrainingLog]:
        """Return the logs so far; empty before the first epoch was finished."""
        entry = self.saved.entries.get(self.name)
        return [_log_from(facts) for facts in entry.facts] if entry else []

    def resume(self, engine: Engine) -> None:
        """Restore an engine to the end of its last epoch."""
        engine.load(self.part("model"))
        engine.optimiser.load(self.part("adam"))

    def keep(self, engine: Engine, logs: Sequence[TrainingLog], best: Mapping[str, Tensor], *, last: bool) -> None:
        """Store copies of the engine's tensors: the next epoch may change them while another thread writes the file."""
        arrays: dict[str, np.ndarray] = {}
        if self.saved.writes and (self.weights or not last):
            best = best if self.weights else {}
            parts = {"model": engine.state(), "best": best, "adam": engine.optimiser.kept()}
            arrays = {
                f"{part}.{name}": tensor.to("cpu", copy=True).numpy()
                for part, tensors in parts.items()
                for name, tensor in tensors.items()
            }
        interval = 0.0 if last else engine.checkpoint_interval
        self.saved.keep(self.name, [asdict(log) for log in logs], arrays, interval=interval)

    def part(self, part: str) -> dict[str, Tensor]:
        """Return the weights of the last epoch (`model`), of the best epochs (`best`), or the moments (`adam`)."""
        start, arrays = f"{part}.", self.saved.entries[self.name].arrays
        return {
            key.removeprefix(start): torch.from_numpy(np.array(array))
            for key, array in arrays.items()
            if key.startswith(start)
        }


def _log_from(facts: Mapping[str, Any]) -> TrainingLog:
    history = (Epoch(tuple(e["objective"]), tuple(e["validation"]), e["quality"]) for e in facts["history"])
    return TrainingLog(**{**facts, "history": tuple(history)})


def train(
    engine: Engine,
    logs: list[TrainingLog],
    *,
    epochs: int,
    on_epoch: OnEpoch,
    valid: Split,
    metric: ValidationMetric,
    rate_setting: str,
    improvement: float | None = None,
    slot: CheckpointSlot | None = None,
) -> tuple[list[TrainingLog], dict[str, Tensor]]:
    """Train the models of an engine to their last epoch.

    Args:
        engine: the models.
        logs: the log of each model so far.
        epochs: the total number of epochs.
        on_epoch: called after each epoch.
        valid: the split on which `metric` is computed.
        metric: gives each model's quality, and the values behind it.
        rate_setting: name of the learning-rate setting, for the message about scores that are no longer finite.
        improvement: by how much an epoch's quality must exceed the best so far for its weights to be kept; None: the
            weights of the last epoch are kept.
        slot: the models' entry in a checkpoint, from which training continues.

    Returns:
        The log of each model, and the weights of the kept epochs, with the models along the first axis.
    """
    done = len(logs[0].history)
    if slot and done:
        slot.resume(engine)
    best = engine.state()
    selecting = improvement is not None and (slot is None or slot.weights)
    if selecting:
        start = slot.part("best") if slot and done else best
        best = {name: start[name].clone().to(weight.device) for name, weight in best.items()}
    for epoch in range(done + 1, epochs + 1):
        values = engine.train_epoch(epoch).tolist()
        scores = engine.predict(valid)
        if not scores.isfinite().all():
            raise InputError(f"The scores are no longer finite after epoch {epoch}; lower {rate_setting}.")
        quality, validation = metric(scores)
        least = -np.inf if improvement is None else improvement
        reached = [Epoch(tuple(of), tuple(on), found) for of, on, found in zip(values, validation, quality)]
        logs = [log.with_epoch(found, least) for log, found in zip(logs, reached)]
        if selecting:
            better = [model for model, log in enumerate(logs) if log.epoch == epoch]
            for name, weight in engine.state().items():
                best[name][better] = weight[better]
        with slot.saved.lock if slot else contextlib.nullcontext():
            if slot:
                slot.keep(engine, logs, best, last=epoch == epochs)
            on_epoch(epoch, logs)
    return logs, best


def new_encoder(
    config: EncoderConfig,
    vocabulary_size: int,
    seed: tuple[int, ...],
    device: torch.device,
    *,
    spread: float = 1.0,
    **options: float,
) -> Encoder:
    """Make an encoder with random weights; `spread` is the SD of its embeddings, `options` are those of the encoder."""
    with seeded(*seed, device=torch.device("cpu")):
        model = encoders.build(config, vocabulary_size, **options)
    if spread != 1.0:
        with torch.no_grad():
            cast(nn.Embedding, model.embedding).weight.mul_(spread)
    return model.to(device)


def torch_seed(*seed: int) -> int:
    """Return a seed for a torch generator, made of several numbers: a seed, a step, an epoch."""
    return int(np.random.SeedSequence(seed).generate_state(1, np.uint64)[0] >> 1)


@contextlib.contextmanager
def seeded(*seed: int, device: torch.device) -> Iterator[None]:
    """Seed torch's global generators for the block, which one thread at a time may enter; restore them afterwards."""
    with RNG_LOCK, torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(torch_seed(*seed))
        yield


@contextlib.contextmanager
def torch_threads(threads: int) -> Iterator[None]:
    """Set torch's number of threads for the block, and flush denormal numbers (below 1e-38) to zero.

    AdamW's moments of tokens that have not been seen for long decay to denormal numbers, with which arithmetic is slow.
    """
    previous = torch.get_num_threads()
    torch.set_flush_denormal(True)
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(previous)
        torch.set_flush_denormal(False)


def run_in_threads(
    work: Callable[[Any], Result], items: Sequence[Any], cores: int, stop: threading.Event
) -> Iterator[Result]:
    """Yield the results of `work` for each item, in order, computed in parallel; torch uses one thread per item.

    At least `cores` items run at a time, and up to twice as many: five items on two cores run as three and two, because
    two, two and one would leave a core idle at the end.

    Args:
        work: a function of an item that raises `Cancelled` soon after `stop` is set.
        items: what to work on.
        cores: how many cores to keep busy.
        stop: is set when the work on an item fails, and when the caller stops asking for results.

    >>> list(run_in_threads(lambda x: 2 * x, [1, 2, 3], 2, threading.Event()))
    [2, 4, 6]
    """
    failures: list[BaseException] = []

    def run(item: Any) -> Result:
        try:
            with torch_threads(1):
                return work(item)
        except BaseException as error:
            failures.append(error)
            stop.set()
            raise

    rounds = max(1, len(items) // cores)
    with ThreadPoolExecutor(max(1, -(-len(items) // rounds))) as pool:
        futures = [pool.submit(run, item) for item in items]
        try:
            for future in futures:
                yield future.result()
        except BaseException as error:
            stop.set()
            for future in futures:
                future.cancel()
            first = failures[0] if isinstance(error, Cancelled) else error  # what made the others stop
            raise first from None


@contextlib.contextmanager
def memory_errors(work: str) -> Iterator[None]:
    """Turn an out-of-memory error of the GPU into a one-sentence message about the work of the block."""
    try:
        yield
    except torch.cuda.OutOfMemoryError:
        raise InputError(f"The GPU's memory is too small for {work}; use fewer of them, or --device cpu.") from None
