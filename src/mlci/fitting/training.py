"""The training loop: tokens and outcomes of two splits in, the oriented weights of one encoder out.

Stage 1 fits one model per outcome and takes from each only how well it does on the validation split; Stage 2 fits one
model to all outcomes, weighted so that weak ones are not drowned. Encoder, objective and every constant come from the
config. What a fit draws at random is a function of (seed, fit, epoch), so the same seed gives the same bits, and a run
that was stopped continues from its checkpoint as if nothing had happened. The fits of Stage 1 know nothing of one
another and run side by side, a core each: their operations are too short to be shared among cores.
"""

import contextlib
import hashlib
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

import mlci
from mlci.base.errors import InputError
from mlci.config import PaperConfig, WeightConfig
from mlci.fitting import encoders, processes
from mlci.fitting._result import Epoch, Fit, PaperRecord, Trained
from mlci.fitting.checkpoint import Checkpoint
from mlci.fitting.encoders import Encoder
from mlci.fitting.objectives import Alignment, CrossEntropy, Objective, known_rows
from mlci.fitting.passes import Passes, on, passes
from mlci.measures.alignment import bandwidth
from mlci.tokens import Tokens

SCORING = 4_096  # admissions scored at once; few enough for encoders that pad
GENERATOR = threading.RLock()  # torch's own is one for all threads


@dataclass(frozen=True)
class Data:
    """One split: the tokens of each admission and its outcomes, a column each, NaN where not known."""

    tokens: Tokens
    outcomes: np.ndarray

    def __len__(self) -> int:
        return len(self.tokens)

    def take(self, rows: np.ndarray) -> "Data":
        return Data(self.tokens.take(rows), self.outcomes[rows])


@dataclass(frozen=True)
class Event:
    """One epoch is over."""

    stage: int
    outcome: str | None  # of Stage 1
    epoch: int
    epochs: int
    objective: dict[str, float]  # mean over batches, per outcome
    validation: dict[str, float]
    quality: float  # what the epoch is selected by, larger is better
    seconds: float  # since the fit began, in this process
    eta: float  # seconds left

    @property
    def text(self) -> str:
        what = f"stage {self.stage}, {self.outcome}" if self.outcome else f"stage {self.stage}"
        values = ", ".join(f"{name} {value:.3f}" for name, value in self.objective.items())
        return f"{what}, epoch {self.epoch}/{self.epochs}: {values}; validation {self.quality:.4f}"


class Pace:
    """Seconds left, by the pace since the first report: before it a device and its libraries had to start."""

    first = (0.0, 0.0)

    def left(self, seconds: float, done: float, rest: float) -> float:
        then, was_done = self.first
        if not was_done:
            self.first = (seconds, done)
        return (seconds - then) / (done - was_done) * rest


def fit(
    train: Data,
    valid: Data,
    *,
    config: PaperConfig,
    outcomes: Sequence[str],
    vocabulary_size: int,
    seed: int,
    device: str = "cpu",
    threads: int | None = None,
    checkpoint: Path | None = None,
    on_event: Callable[[Event], None] | None = None,
) -> Fit:
    """Fit in two stages. With `checkpoint` (a file), what was done before an interruption is not done again.

    So many `threads` (None: as many as torch has, which OMP_NUM_THREADS limits) share the fits of Stage 1 on the CPU.
    Within a fit there is one, as sums that are split round differently: the bits are the same for any number of them.
    """
    where = torch.device(device)
    aside = (threads or torch.get_num_threads()) if where.type == "cpu" and processes.count() == 1 else 1
    with limited(1):
        return _fit(train, valid, config, tuple(outcomes), vocabulary_size, seed, where, aside, checkpoint, on_event)


@contextlib.contextmanager
def limited(threads: int) -> Iterator[None]:
    """So many threads for torch in the block, when the calling thread asks it; and numbers below 1e-38 are zero there:
    the moments of tokens long unseen fade to such, and arithmetic with them is slow.
    """
    before = torch.get_num_threads()
    torch.set_flush_denormal(True)
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)
        torch.set_flush_denormal(False)


def _fit(
    train: Data,
    valid: Data,
    config: PaperConfig,
    outcomes: tuple[str, ...],
    vocabulary_size: int,
    seed: int,
    device: torch.device,
    threads: int,
    checkpoint: Path | None,
    on_event: Callable[[Event], None] | None,
) -> Fit:
    start = time.perf_counter()
    active = check(train, valid, config=config, outcomes=outcomes)
    columns = [outcomes.index(name) for name in active]
    train, valid = (Data(data.tokens, data.outcomes[:, columns].astype(np.float32)) for data in (train, valid))
    together = min(config.optimiser.batch, len(train))
    if processes.count() > together:
        raise InputError(
            f"{processes.count()} processes are more than the {together} admissions of a batch; start at most so many."
        )
    saved = Checkpoint.open(checkpoint, fingerprint(train, valid, asdict(config), active, vocabulary_size, seed))
    processes.agree(f"{saved.fingerprint} {saved.epochs}")
    rounds, last = config.optimiser.stage1_epochs, config.optimiser.stage2_epochs
    stop = threading.Event()
    spent: dict[int, list[float]] = {1: [], 2: []}  # seconds of the epochs of each stage

    def turns() -> int:
        """Epochs left, counting as one those that run at the same time: a thread that is free takes the next fit."""
        queues = [0] * threads
        for number in range(len(active)):
            queues[queues.index(min(queues))] += rounds - saved.done(number)
        return max(queues) + last - saved.done(len(active))

    def tell(number: int, trained: Trained, took: float) -> None:
        stage, name, epochs = (1, active[number], rounds) if number < len(active) else (2, None, last)
        spent[stage].append(took)
        epoch = trained.history[-1]
        objective, validation = dict(zip(active, epoch.objective)), dict(zip(active, epoch.validation))
        place = (stage, name, len(trained.history), epochs)
        if on_event:
            eta = float(np.mean(spent[stage])) * turns()
            on_event(Event(*place, objective, validation, epoch.quality, time.perf_counter() - start, eta))

    def one(number: int, *, weights: np.ndarray, judge: np.ndarray, epochs: int) -> Trained:
        judged = valid.take(judges(valid, config, number))
        run = _Run(train, judged, config, vocabulary_size, (seed, number), device, stop)
        return run.train(saved, weights=weights, judge=judge, epochs=epochs, tell=tell)

    unit = np.eye(len(active))

    def first(number: int) -> Trained:
        judge = number if config.selection.stage1 == "own" else active.index(config.selection.anchor)
        with limited(1):
            trained = one(number, weights=unit[number], judge=unit[judge], epochs=rounds)
        saved.drop(number)
        return trained

    stage1 = dict(zip(active, side_by_side(first, range(len(active)), threads, stop)))
    objective = objective_of(config)
    weights = stage2_weights([objective.strength(each.quality) for each in stage1.values()], config.weights)
    stage2 = one(len(active), weights=weights, judge=weights, epochs=last)

    with seeded(seed, device=torch.device("cpu")):
        model = encoders.build(config.encoder, vocabulary_size)
    model.load_state_dict(saved.part(len(active), "best"))
    return finish(model, valid, stage1, stage2, weights, outcomes=outcomes, config=config, start=start)


def side_by_side(
    work: Callable[[int], Trained], numbers: Sequence[int], threads: int, stop: threading.Event
) -> list[Trained]:
    """The work of each number, `threads` at a time. If one fails, the others are told to `stop`."""
    if threads == 1:
        return [work(number) for number in numbers]
    with ThreadPoolExecutor(threads) as pool:
        futures = [pool.submit(work, number) for number in numbers]
        try:
            for future in as_completed(futures):  # what failed first is what is raised
                future.result()
        except BaseException:
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
        return [future.result() for future in futures]


def finish(
    model: Encoder,
    valid: Data,
    stage1: dict[str, Trained],
    stage2: Trained,
    weights: np.ndarray,
    *,
    outcomes: Sequence[str],
    config: PaperConfig,
    start: float,
) -> Fit:
    """Turn the kept model so that larger means sicker, by the anchor on the validation split."""
    active = list(stage1)
    orientation = 1
    if objective_of(config).signless:
        column = active.index(config.selection.anchor)
        rows = np.broadcast_to(known_rows(valid.outcomes, config.objective.validity), valid.outcomes.shape)[:, column]
        if np.cov(predict(model, valid.tokens)[rows], valid.outcomes[rows, column])[0, 1] < 0:
            orientation = -1
            model.negate()
    known = dict(zip(active, weights.tolist()))
    measure = "cross-entropy" if config.objective.kind == "bce" else "nHSIC"
    return Fit(
        state={name: tensor.cpu().numpy().copy() for name, tensor in model.state_dict().items()},
        weights={name: known.get(name, 0.0) for name in outcomes},
        record=PaperRecord(stage1, stage2, known, orientation, measure),
        seconds=time.perf_counter() - start,
    )


def check(train: Data, valid: Data, *, config: PaperConfig, outcomes: Sequence[str]) -> list[str]:
    """The outcomes that take part; what would make a fit meaningless is told before it begins."""
    for split, data in (("training", train), ("validation", valid)):
        if not len(data):
            raise InputError(f"The {split} split has no admissions; a fit needs some.")
        wrong = data.outcomes[~np.isnan(data.outcomes) & (data.outcomes != 0) & (data.outcomes != 1)]
        if len(wrong):
            raise InputError(f"An outcome of the {split} split has the value {wrong[0]:g}; allowed is 0, 1 and null.")
    active = []
    for name, column in zip(outcomes, train.outcomes.T):
        classes = np.unique(column[~np.isnan(column)])
        if len(classes) == 2:
            active.append(name)
        elif config.weights.inactive == "refuse":
            what = f"is {classes[0]:g} wherever it is known" if len(classes) else "is never known"
            raise InputError(f"Outcome {name} {what} in the training split; both classes are needed (leave it out).")
    anchor = config.selection.anchor
    anchored = config.objective.kind == "alignment" or config.selection.stage1 == "anchor"
    if not active or (anchored and anchor not in active):
        raise InputError(f"The anchor '{anchor}' is not among the outcomes {', '.join(active)}; name one of these.")
    if config.objective.kind == "alignment" and config.objective.validity == "intersection":
        columns = [list(outcomes).index(name) for name in active]
        for split, data in (("training", train), ("validation", valid)):
            known = ~np.isnan(data.outcomes[:, columns])
            for name, column in zip(active, data.outcomes[:, columns].T):
                for value in (0, 1):
                    rows = known[column == value]
                    if rows.all(1).any() or (split == "validation" and name != anchor):
                        continue
                    if not len(rows):
                        raise InputError(f"The anchor {name} is never {value} in the {split} split; both are needed.")
                    other = active[int(rows.mean(0).argmin())]
                    raise InputError(
                        f"Outcome {name} loses every admission where it is {value} in the {split} split, because a fit "
                        f"counts admissions with all outcomes known and {other} is then missing; leave {other} out or "
                        "set objective.validity to 'outcome'."
                    )
    elif anchored and len(np.unique(valid.outcomes[:, list(outcomes).index(anchor)])[:2]) < 2:
        raise InputError(f"The anchor {anchor} has one class in the validation split; both are needed.")
    return active


def objective_of(config: PaperConfig, sigma: float | None = None) -> Objective:
    if config.objective.kind == "bce":
        return CrossEntropy(config.optimiser.batch)
    what = config.objective
    return Alignment(sigma=sigma or 1.0, kernel=what.kernel, floor=what.floor, validity=what.validity)


def stage2_weights(strength: Sequence[float], config: WeightConfig) -> np.ndarray:
    """Capped inverse power of the strengths, mean 1."""
    floored = np.maximum(strength, config.epsilon)
    weights = np.clip((floored.max() / floored) ** config.gamma, 1 / config.clip, config.clip)
    return weights / weights.mean()


def predict(model: Encoder, tokens: Tokens) -> np.ndarray:
    """The score of each admission, float32, in order."""
    device = next(model.parameters()).device
    training = model.training
    model.eval()
    with torch.no_grad():
        own = [model(ids, offsets) for ids, offsets in _batches(tokens, processes.share(len(tokens)), device)]
        scores = processes.gather(torch.cat(own), len(tokens))
    model.train(training)
    return scores.cpu().numpy()


@dataclass(frozen=True)
class _Run:
    """One model's fit."""

    train_split: Data
    valid: Data
    config: PaperConfig
    vocabulary_size: int
    seed: tuple[int, int]  # of the whole run, and which of its fits this is
    device: torch.device
    stop: threading.Event  # the fits beside it have no use any more

    def train(
        self,
        saved: "Checkpoint",
        *,
        weights: np.ndarray,
        judge: np.ndarray,
        epochs: int,
        tell: Callable[[int, Trained, float], None],
    ) -> Trained:
        """Fit with `weights` over outcomes; keep the epoch whose scores are best by the weights `judge`."""
        number = self.seed[1]
        if saved.done(number) == epochs:
            return saved.fits[number]
        with seeded(*self.seed, device=self.device):
            model = encoders.build(self.config.encoder, self.vocabulary_size).to(self.device)
        options = self.config.optimiser
        both = passes(model)
        optimiser = torch.optim.AdamW(
            [both.weights], lr=options.learning_rate, weight_decay=options.weight_decay, fused=True
        )
        if number in saved.fits:
            trained = saved.fits[number]
            saved.restore(number, model, optimiser)
        else:
            sigma = None
            if objective_of(self.config).needs_bandwidth:
                sigma = bandwidth(predict(model, self.train_split.tokens), **asdict(self.config.bandwidth))
            trained = Trained(0, -np.inf, sigma, ())
        objective = objective_of(self.config, trained.bandwidth)
        begun = time.perf_counter()
        for epoch in range(len(trained.history) + 1, epochs + 1):
            order = np.random.default_rng(np.random.SeedSequence((*self.seed, epoch))).permutation(
                len(self.train_split)
            )
            values = self._epoch(both, optimiser, objective, weights, order)
            scores = predict(model, self.valid.tokens)
            if not np.isfinite(scores).all():
                raise diverged(epoch)
            quality, validation = objective.quality(scores.astype(np.float64), self.valid.outcomes, judge)
            record = Epoch(tuple(values), tuple(validation.tolist()), quality)
            trained = trained.after(record, self.config.selection.improvement)
            with saved.lock:
                saved.keep(number, trained, model, optimiser)
                now = time.perf_counter()
                tell(number, trained, now - begun)
            begun = now
        return trained

    def _epoch(
        self, both: Passes, optimiser, objective: Objective, weights: np.ndarray, order: np.ndarray
    ) -> list[float]:
        """One pass over the training split; the mean over batches of each outcome's value."""
        data, size = self.train_split, self.config.optimiser.batch
        share = torch.as_tensor(weights, dtype=torch.float32, device=self.device)
        total = torch.zeros(len(share), dtype=torch.float64, device=self.device)
        both.model.train()
        for start in range(0, len(order), size):
            if self.stop.is_set():
                raise Stopped
            batch = order[start : start + size]
            outcomes = torch.from_numpy(data.outcomes[batch]).to(self.device)
            own = processes.share(len(batch))
            scores = processes.gather(both.forward(data.tokens.take(batch[own])), len(batch))
            values, gradient = objective.gradient(scores, outcomes, share)
            both.backward(gradient[own])
            processes.sum_gradients([both.weights])
            optimiser.step()
            total += values
        return (total / -(-len(order) // size)).tolist()


def diverged(epoch: int) -> InputError:
    return InputError(f"The scores are no longer finite after epoch {epoch}; lower optimiser.learning_rate.")


class Stopped(Exception):
    """A fit ended early because one beside it failed."""


@contextlib.contextmanager
def seeded(*seed: int, device: torch.device) -> Iterator[np.random.Generator]:
    """Torch's generators seeded for the block and put back after it, and a NumPy generator of the same seed.

    Only one thread at a time is in such a block.
    """
    sequence = np.random.SeedSequence(seed)
    with GENERATOR, torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(int(sequence.generate_state(1, np.uint64)[0] >> 1))
        yield np.random.default_rng(sequence)


def _batches(tokens: Tokens, rows: slice, device: torch.device) -> Iterator[tuple[Tensor, Tensor]]:
    """Ids and offsets of consecutive rows on the device, `SCORING` admissions at a time; at least one, maybe empty."""
    for start in range(rows.start, max(rows.stop, rows.start + 1), SCORING):
        offsets = tokens.offsets[start : min(start + SCORING, rows.stop) + 1]
        yield on(device, Tokens(tokens.ids[offsets[0] : offsets[-1]], offsets - offsets[0]))


def judges(valid: Data, config: PaperConfig, number: int) -> np.ndarray:
    """The validation admissions that judge one fit: all that count, or a deterministic subsample of them."""
    limit = config.selection.subsample
    rows = np.arange(len(valid))
    if config.objective.kind == "alignment":
        rows = np.flatnonzero(known_rows(valid.outcomes, config.objective.validity).any(1))
    if limit is None or len(rows) <= limit:
        return rows
    return np.random.default_rng([config.selection.seed, number]).choice(rows, limit, replace=False)


def fingerprint(train: Data, valid: Data, *facts: object) -> str:
    """One number for all that a fit depends on."""
    digest = hashlib.sha256(json.dumps([mlci.__version__, *facts], sort_keys=True).encode())
    for data in (train, valid):
        for array in (data.tokens.ids, data.tokens.offsets, data.outcomes):
            digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()
