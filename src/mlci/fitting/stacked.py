"""Many fits at once: models of one shape and their seeds, every Stage-1 fit of all of them trained side by side.

In come the two splits, configs and seeds, out comes what `training.fit` gives for each. Each fit keeps its own
objective, initial weights, batch order, bandwidth and best epoch, so that it differs from a fit on its own by rounding
alone.
"""

import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import groupby, islice, pairwise
from operator import itemgetter
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from mlci.base.errors import InputError
from mlci.config import ObjectiveConfig, PaperConfig
from mlci.fitting import encoders, processes, training
from mlci.fitting._result import Epoch, Fit, Trained
from mlci.fitting.checkpoint import Checkpoint
from mlci.fitting.encoders import TRITON, averaging
from mlci.fitting.objectives import LARGE, alignment
from mlci.fitting.stacks import Objective, Resident, Steps, build, kernels, roomy
from mlci.fitting.training import (
    Data,
    Event,
    Pace,
    check,
    diverged,
    fingerprint,
    finish,
    judges,
    objective_of,
    seeded,
    stage2_weights,
)
from mlci.measures.alignment import bandwidth

PAUSE = 10.0  # seconds between checkpoints
PAYS = ("cuda",)  # kinds of device where a step is mostly launching kernels
PAIRS = 65_536  # validation admissions whose pairs are summed one by one on a GPU


class Alignments:
    """Each fit's alignment with its outcomes: the slow form that `kernels.Alignments` equals."""

    tensors = 1

    def __init__(self, config: ObjectiveConfig, sigmas: Tensor, weights: Tensor) -> None:
        self.config, self.sigmas, self.weights = config, sigmas.tolist(), weights

    def labels(self, outcomes: Tensor) -> tuple[Tensor, ...]:
        return (outcomes,)

    def step(self, scores: Tensor, outcomes: Tensor) -> tuple[Tensor, Tensor]:
        scores = scores.detach().requires_grad_()
        values = self._values(scores, outcomes)
        return values.detach(), torch.autograd.grad(-(self.weights * values).sum(), scores)[0]

    def judge(self, weights: Tensor, scores: Tensor, outcomes: Tensor) -> tuple[Tensor, Tensor]:
        """Each fit's quality on a whole split, outcomes counted by `weights`, and its values."""
        values = self._values(scores.double(), outcomes)
        return (values * weights).sum(1), values

    def _values(self, scores: Tensor, outcomes: Tensor) -> Tensor:
        options = {"kernel": self.config.kernel, "floor": self.config.floor, "validity": self.config.validity}
        return torch.stack([alignment(s, y, sigma=w, **options) for s, y, w in zip(scores, outcomes, self.sigmas)])


class Entropies:
    """Each fit's `objectives.CrossEntropy`."""

    tensors = 1

    def __init__(self, batch: int, weights: Tensor) -> None:
        self.batch, self.weights = batch, weights

    def labels(self, outcomes: Tensor) -> tuple[Tensor, ...]:
        return (outcomes,)

    def step(self, scores: Tensor, outcomes: Tensor) -> tuple[Tensor, Tensor]:
        known, logits = outcomes == outcomes, scores[..., None]
        _, values, rows = self._losses(self.weights, logits, outcomes)
        share = self.weights / _least((self.weights * rows).sum(-1, keepdim=True))
        return values, ((logits.sigmoid() - outcomes.nan_to_num()) * known * share[:, None]).sum(-1)

    def judge(self, weights: Tensor, scores: Tensor, outcomes: Tensor) -> tuple[Tensor, Tensor]:
        fill = -scores.shape[1] % self.batch
        logits = F.pad(scores.double(), (0, fill)).unflatten(1, (-1, self.batch))[..., None]
        outcomes = F.pad(outcomes.double(), (0, 0, 0, fill), value=math.nan).unflatten(1, (-1, self.batch))
        losses, values, _ = self._losses(weights[:, None], logits, outcomes)
        return -losses.mean(1), values.mean(1)

    @staticmethod
    def _losses(weights: Tensor, logits: Tensor, outcomes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Of each batch: the loss, its value for each outcome, and how many admissions it is known of."""
        known, y = outcomes == outcomes, outcomes.nan_to_num()
        each = ((F.softplus(logits) - logits * y) * known).sum(-2)
        rows = known.sum(-2, dtype=logits.dtype)
        return (weights * each).sum(-1) / _least((weights * rows).sum(-1)), each / rows.clamp(min=1), rows


def _least(x: Tensor) -> Tensor:
    return x.clamp(min=torch.finfo(x.dtype).tiny)


class Mixture:
    """Fits with different objectives, neighbours alike."""

    def __init__(self, parts: Sequence[tuple[slice, Objective]]) -> None:
        self.parts, self.weights = parts, torch.cat([part.weights for _, part in parts])
        self.tensors = sum(part.tensors for _, part in parts)

    def labels(self, outcomes: Tensor) -> tuple[Tensor, ...]:
        return tuple(label for fits, part in self.parts for label in part.labels(outcomes[..., fits, :, :]))

    def step(self, scores: Tensor, *labels: Tensor) -> tuple[Tensor, Tensor]:
        each = iter(labels)
        found = [part.step(scores[fits], *islice(each, part.tensors)) for fits, part in self.parts]
        values, gradients = zip(*found)
        return torch.cat(values), torch.cat(gradients)


@dataclass(frozen=True)
class Batch:
    """Which fits are stacked: the config and (seed, number) of each, its weights over outcomes and its judge's."""

    configs: Sequence[PaperConfig]
    numbers: list[tuple[int, int]]
    weights: np.ndarray
    judge: np.ndarray
    epochs: int

    @property
    def alike(self) -> list[slice]:
        """Neighbours with one objective."""
        ends = [0, *np.cumsum([len(list(each)) for _, each in groupby(config.objective for config in self.configs)])]
        return [slice(*each) for each in pairwise(map(int, ends))]


def shape(config: PaperConfig) -> PaperConfig | None:
    """What fits must share to be stacked, if they can be: all but the objective, who judges Stage 1, and whether codes
    are summed or averaged.
    """
    encoder = config.encoder
    sets = encoder.name == "deepsets" and averaging(encoder.pooling.split("+"))
    if not (sets or encoder.name == "set_transformer") or config.optimiser.batch > LARGE:
        return None
    return replace(
        config,
        encoder=replace(encoder, pooling=encoder.pooling.replace("sum", "mean")),
        objective=ObjectiveConfig(),
        selection=replace(config.selection, stage1="anchor"),
    )


def pays(config: PaperConfig, device: str) -> bool:
    """Whether fits of this kind are best stacked on this device: a GPU, for whose kernels Triton is needed."""
    kind = torch.device(device).type
    able = kind in PAYS and (kind != "cuda" or TRITON)
    return able and shape(config) is not None and processes.count() == 1


def fit(
    train: Data,
    valid: Data,
    *,
    config: PaperConfig,
    outcomes: Sequence[str],
    vocabulary_size: int,
    seed: int,
    device: str = "cpu",
    checkpoint: Path | None = None,
    on_event: Callable[[Event], None] | None = None,
) -> Fit:
    """`training.fit`, with all of Stage 1 at once where the device gains by it and there is but one process."""
    facts = {"outcomes": outcomes, "vocabulary_size": vocabulary_size, "device": device}
    facts |= {"checkpoint": checkpoint, "on_event": on_event}
    if pays(config, device):
        return fit_many(train, valid, jobs=[(config, seed)], **facts)[0]
    return training.fit(train, valid, config=config, seed=seed, **facts)


def fit_many(
    train: Data,
    valid: Data,
    *,
    jobs: Sequence[tuple[PaperConfig, int]],
    outcomes: Sequence[str],
    vocabulary_size: int,
    device: str = "cuda",
    checkpoint: Path | None = None,
    on_event: Callable[[Event], None] | None = None,
) -> list[Fit]:
    """`training.fit` for each job, a config and a seed, all at once; the configs have one `shape`."""
    start = time.perf_counter()
    order = sorted(range(len(jobs)), key=lambda job: repr(jobs[job][0].objective))  # one launch for neighbours alike
    configs, seeds = zip(*(jobs[job] for job in order))
    config = shape(configs[0])
    if config is None or any(shape(each) != config for each in configs):
        raise InputError(
            "Fits are stacked for deepsets of one shape that average or sum codes, and for set transformers, in "
            f"batches of at most {LARGE}; fit others one by one."
        )
    active = {tuple(check(train, valid, config=each, outcomes=outcomes)) for each in set(configs)}.pop()
    columns = [list(outcomes).index(name) for name in active]
    train, valid = (Data(data.tokens, data.outcomes[:, columns].astype(np.float32)) for data in (train, valid))
    resident = [Resident.of(data, torch.device(device)) for data in (train, valid)]
    facts = ("stacked", [asdict(each) for each in configs], active, vocabulary_size, seeds)
    saved = Checkpoint.open(checkpoint, fingerprint(train, valid, *facts) if checkpoint else "")
    rounds, last = config.optimiser.stage1_epochs, config.optimiser.stage2_epochs
    seen = len(jobs) * (len(active) * rounds + last)
    done = before = saved.epochs
    pace = Pace()

    def tell(stage: int, epoch: int, epochs: int, trained: list[Trained]) -> None:
        nonlocal done
        done += len(trained)
        last = [each.history[-1] for each in trained]
        objective, validation = (
            dict(zip(active, np.mean(values, axis=0).tolist()))
            for values in ([each.objective for each in last], [each.validation for each in last])
        )
        seconds = time.perf_counter() - start
        quality = float(np.mean([each.quality for each in last]))
        if on_event:
            eta = pace.left(seconds, done - before, seen - done)
            on_event(Event(stage, None, epoch, epochs, objective, validation, quality, seconds, eta))

    unit = np.eye(len(active))

    def judge(own: PaperConfig) -> np.ndarray:
        """Of each Stage-1 fit; judged by its own outcome, it needs no anchor."""
        return unit if own.selection.stage1 == "own" else unit[[active.index(own.selection.anchor)] * len(active)]

    with ThreadPoolExecutor() as threads, roomy(f"{len(jobs) * len(active)} fits at once"):
        run = partial(_train, resident, valid, vocabulary_size=vocabulary_size, threads=threads, saved=saved)
        first, _ = run(
            Batch(
                configs=[each for each in configs for _ in active],
                numbers=[(seed, number) for seed in seeds for number in range(len(active))],
                weights=np.tile(unit, (len(jobs), 1)),
                judge=np.concatenate([judge(each) for each in configs]),
                epochs=rounds,
            ),
            tell=partial(tell, 1),
        )
        saved.drop(0)
        stage1 = [first[at : at + len(active)] for at in range(0, len(first), len(active))]
        strengths = [[objective_of(each).strength(e.quality) for e in own] for each, own in zip(configs, stage1)]
        weights = np.array([stage2_weights(each, config.weights) for each in strengths])
        numbers = [(seed, len(active)) for seed in seeds]
        second, best = run(Batch(configs, numbers, weights, weights, last), tell=partial(tell, 2))
    fits = []
    for position, (own, trained) in enumerate(zip(configs, second)):
        model = encoders.build(own.encoder, vocabulary_size).to(device)
        model.load_state_dict({name: tensor[position] for name, tensor in best.items()})
        found = dict(zip(active, stage1[position]))
        fits.append(finish(model, valid, found, trained, weights[position], outcomes=outcomes, config=own, start=start))
    return [fit for _, fit in sorted(zip(order, fits), key=itemgetter(0))]


def _train(
    resident: Sequence[Resident],
    valid: Data,
    batch: Batch,
    *,
    vocabulary_size: int,
    threads: ThreadPoolExecutor,
    saved: Checkpoint,
    tell: Callable[[int, int, list[Trained]], None],
) -> tuple[list[Trained], dict[str, Tensor]]:
    """Each fit's record, and the weights of their kept epochs.

    The processor draws the next epoch's batches while the device trains.
    """
    place = 0 if batch.numbers[0][1] == 0 else len(batch.numbers) * batch.weights.shape[1]
    mine = range(place, place + len(batch.numbers))
    trained = [saved.fits[number] for number in mine if number in saved.fits]
    if saved.done(place) == batch.epochs:
        return trained, saved.part(place, "best")
    train, held_out = resident
    device, size = train.ids.device, batch.configs[0].optimiser.batch
    models = []
    for config, number in zip(batch.configs, batch.numbers):
        with seeded(*number, device=torch.device("cpu")):
            models.append(encoders.build(config.encoder, vocabulary_size).to(device))
    stack = build(models, resident)
    sigmas = [each.bandwidth for each in trained] or [None] * len(models)
    if not trained and any(objective_of(config).needs_bandwidth for config in batch.configs):
        initial = stack.predict(train).cpu().numpy()
        sigmas = list(threads.map(_sigma, batch.configs, initial))
    weights, judge = (torch.from_numpy(each).to(device) for each in (batch.weights, batch.judge))
    widths = torch.tensor([sigma or 1.0 for sigma in sigmas], device=device)
    parts, judging = [], []
    for fits in batch.alike:
        config = batch.configs[fits.start]
        numbers = [number for _, number in batch.numbers[fits]]
        rows = torch.from_numpy(np.stack([judges(valid, config, number) for number in numbers])).to(device)
        by = part = Entropies(size, weights[fits].float())
        if config.objective.kind == "alignment":
            facts = config.objective, widths[fits], weights[fits].float()
            part = kernels().Alignments(*facts) if device.type == "cuda" else Alignments(*facts)
            by = part if rows.shape[1] <= PAIRS else Alignments(*facts)
        parts.append((fits, part))
        judging.append((fits, by, rows, by.labels(held_out.outcomes[rows])))
    objective = Mixture(parts) if len(parts) > 1 else parts[0][1]

    def order(number: tuple[int, int], epoch: int) -> np.ndarray:
        return np.random.default_rng(np.random.SeedSequence((*number, epoch))).permutation(len(train))

    options = batch.configs[0].optimiser
    optimiser = torch.optim.AdamW(
        list(stack.weights.values()),
        lr=options.learning_rate,
        weight_decay=options.weight_decay,
        fused=True,
        capturable=device.type == "cuda",
    )
    steps = Steps(stack, objective, optimiser, vocabulary_size)
    best = {name: weight.clone() for name, weight in stack.state_dict().items()}
    if trained:
        saved.restore(place, stack, optimiser)
        best = {name: weight.to(device, copy=True) for name, weight in saved.part(place, "best").items()}
    else:
        trained = [Trained(0, -np.inf, sigma, ()) for sigma in sigmas]
    begun, written = len(trained[0].history) + 1, time.perf_counter()
    orders = [threads.submit(order, number, begun) for number in batch.numbers]
    for epoch in range(begun, batch.epochs + 1):
        ready = torch.from_numpy(np.stack([each.result() for each in orders])).to(device)
        orders = [threads.submit(order, number, epoch + 1) for number in batch.numbers if epoch < batch.epochs]
        values = steps.epoch(train, ready, size) / -(-len(train) // size)
        scores = stack.predict(held_out)
        if not scores.isfinite().all():
            raise diverged(epoch)
        found = [by.judge(judge[fits], scores[fits].gather(1, rows), *labels) for fits, by, rows, labels in judging]
        quality, validation = (torch.cat(each).tolist() for each in zip(*found))
        for fit, (mean, judgement, known) in enumerate(zip(values.tolist(), quality, validation)):
            record = Epoch(tuple(mean), tuple(known), judgement)
            trained[fit] = trained[fit].after(record, batch.configs[fit].selection.improvement)
        better = torch.tensor([each.epoch == epoch for each in trained], device=device)
        for name, weight in stack.state_dict().items():
            best[name][better] = weight[better]
        saved.fits.update(zip(mine, trained))
        if saved.path and (epoch == batch.epochs or time.perf_counter() > written + PAUSE):
            saved.hold(place, stack, best, optimiser)
            saved.write()
            written = time.perf_counter()
        tell(epoch, batch.epochs, trained)
    return trained, best


def _sigma(config: PaperConfig, scores: np.ndarray) -> float | None:
    return bandwidth(scores, **asdict(config.bandwidth)) if objective_of(config).needs_bandwidth else None
