"""The paper's recipe: tokens and outcomes of two splits in, the oriented weights of one encoder out.

Stage 1 fits one model per outcome and takes from each only how well it does on the validation split; Stage 2 fits one
model to all outcomes, weighted so that weak ones are not drowned. Encoder, objective and every constant come from the
config. On the CPU the models of Stage 1 run side by side, a core each, as their operations are too short to be shared
among cores; on a GPU all of them, of all seeds, are trained at once.
"""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from itertools import groupby, pairwise
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mlci.base.errors import InputError
from mlci.config import ObjectiveConfig, PaperConfig
from mlci.fitting import encoders
from mlci.fitting._checkpoint import Checkpoint
from mlci.fitting._data import Split, Splits, fingerprint
from mlci.fitting._engines import single, stacked
from mlci.fitting._engines.stacks import kernels
from mlci.fitting._events import Clock, Event
from mlci.fitting._loop import Engine, Pace, Place, fresh, limited, roomy, train
from mlci.fitting._objectives import (
    LARGE,
    Alignments,
    CrossEntropies,
    Judging,
    Mixture,
    is_signless,
    known_rows,
    needs_bandwidth,
    strength,
)
from mlci.fitting._processes import ALONE, Group
from mlci.fitting._result import Fit, PaperRecord, Trained
from mlci.fitting._weighting import check_outcomes, stage2_weights
from mlci.measures.alignment import bandwidth

PAIRS = 65_536  # validation admissions whose pairs are summed one by one on a GPU
Job = tuple[PaperConfig, int]  # a config and a seed


@dataclass(frozen=True)
class Task:
    """One model's fit: `number` is its place among the fits of its job, `outcome` what it learns (None: all)."""

    config: PaperConfig
    seed: int
    number: int
    outcome: str | None
    weights: np.ndarray  # over outcomes
    judge: np.ndarray  # weights of the outcomes that judge its epochs
    epochs: int

    @property
    def seeds(self) -> tuple[int, int]:
        return self.seed, self.number


def fit_splits(splits: Splits, *, config: PaperConfig, **options: Any) -> Fit:
    """Fit the weights of an index; one that is kept as a file is DeepSets."""
    if config.encoder.name != "deepsets":
        raise InputError(f"encoder.name is {config.encoder.name!r}; an index that is kept as a file is 'deepsets'.")
    return fit(splits.train, splits.valid, config=config, **options)


def fit(train: Split, valid: Split, *, config: PaperConfig, seed: int, **options: Any) -> Fit:
    """Fit in two stages; `options` are those of `fit_many`."""
    return fit_many(train, valid, jobs=[(config, seed)], **options)[0]


def fit_many(
    train: Split,
    valid: Split,
    *,
    jobs: Sequence[Job],
    device: str = "cpu",
    stack: bool | None = None,
    threads: int | None = None,
    group: Group = ALONE,
    checkpoint: Path | None = None,
    on_event: Callable[[Event], None] | None = None,
) -> list[Fit]:
    """Fit each job, a config and a seed.

    Args:
        train: the split to learn from.
        valid: the split that judges.
        jobs: configs and seeds; where they are trained at once, the configs must have one `shape`.
        device: cpu, cuda or cuda:N.
        stack: whether to train all models of a stage at once (None: where the device gains by it).
        threads: how many fits of Stage 1 run side by side on the CPU (None: as many as torch has, which
            OMP_NUM_THREADS limits). A fit has one thread, as sums that are split round differently: the bits are the
            same for any number.
        group: the processes that share each step.
        checkpoint: a file; what was done before an interruption is not done again.
        on_event: hears of each epoch.
    """
    where = torch.device(device)
    if stack is None:
        stack = group.count == 1 and all(stacked.pays(c.encoder, c.optimiser.batch, where) for c, _ in jobs)
    jobs, order = _sorted(jobs, stack)
    names = {tuple(active(train, valid, config)) for config, _ in jobs}.pop()
    aside = (threads or torch.get_num_threads()) if where.type == "cpu" and group.count == 1 and not stack else 1
    with nullcontext() if stack else limited(1):
        run = _Run(train.only(names), valid.only(names), where, stack, aside, group)
        run.open(jobs, checkpoint, on_event)
        fits = run.both_stages(jobs, train.names)
    return [fit for _, fit in sorted(zip(order, fits), key=itemgetter(0))]


def shape(config: PaperConfig) -> PaperConfig | None:
    """What fits must share to be trained at once, if they can be: all but the objective, who judges Stage 1, and
    whether codes are summed or averaged.
    """
    if not stacked.stackable(config.encoder, config.optimiser.batch):
        return None
    return replace(
        config,
        encoder=replace(config.encoder, pooling=config.encoder.pooling.replace("sum", "mean")),
        objective=ObjectiveConfig(),
        selection=replace(config.selection, stage1="anchor"),
    )


def at_once(config: PaperConfig, device: str) -> PaperConfig | None:
    """The shape of fits that are best trained at once on this device; None: one by one."""
    pays = stacked.pays(config.encoder, config.optimiser.batch, torch.device(device))
    return shape(config) if pays else None


def _sorted(jobs: Sequence[Job], stack: bool) -> tuple[list[Job], list[int]]:
    """Jobs with those of one objective beside each other, where one launch is for all of these; and which each was."""
    if not stack:
        return list(jobs), list(range(len(jobs)))
    shapes = {shape(config) for config, _ in jobs}
    if len(shapes) > 1 or None in shapes:
        raise InputError(
            "Fits are stacked for deepsets of one shape that average or sum codes, and for set transformers, in "
            f"batches of at most {LARGE}; fit others one by one."
        )
    order = sorted(range(len(jobs)), key=lambda job: repr(jobs[job][0].objective))
    return [jobs[job] for job in order], order


def active(train: Split, valid: Split, config: PaperConfig) -> list[str]:
    """Name the outcomes that take part; what would make a fit meaningless is told before it begins."""
    aligned = config.objective.kind == "alignment"
    return check_outcomes(
        train,
        valid,
        anchor=config.selection.anchor if aligned or config.selection.stage1 == "anchor" else None,
        together=aligned and config.objective.validity == "intersection",
        omit=config.weights.inactive == "omit",
    )


@dataclass
class _Run:
    """Both stages of some jobs."""

    train: Split
    valid: Split
    device: torch.device
    stack: bool
    threads: int
    group: Group

    def open(self, jobs: Sequence[Job], checkpoint: Path | None, on_event: Callable[[Event], None] | None) -> None:
        """Take up what a checkpoint holds, and start the clock."""
        smallest = min(min(config.optimiser.batch, len(self.train)) for config, _ in jobs)
        if self.group.count > smallest:
            raise InputError(
                f"{self.group.count} processes are more than the {smallest} admissions of a batch; "
                "start at most so many."
            )
        facts = [(asdict(config), seed) for config, seed in jobs]
        shared = checkpoint is not None or self.group.count > 1
        key = fingerprint(self.train, self.valid, "paper", self.stack, facts) if shared else ""
        self.saved = Checkpoint(checkpoint, key, writes=self.group.rank == 0)
        done = {name: len(entry.facts[0]["history"]) for name, entry in self.saved.entries.items()}
        self.group.agree(f"{key} {sum(done.values())}")
        options, fits = jobs[0][0].optimiser, len(jobs) * len(self.train.names)
        self.parallel = min(self.threads, fits)
        first, second = (options.stage1_epochs, fits), (options.stage2_epochs, len(jobs))
        work = first[0] * fits / self.parallel + second[0] * second[1]
        for name, epochs in done.items():
            many = len(self.saved.entries[name].facts)
            work -= epochs * many / (self.parallel if name.startswith("1") else 1)
        self.clock, self.stop = Clock(work, on_event), threading.Event()

    def both_stages(self, jobs: Sequence[Job], outcomes: Sequence[str]) -> list[Fit]:
        names = self.train.names
        unit, fits = np.eye(len(names)), []

        def judge(config: PaperConfig, number: int) -> np.ndarray:
            """Judged by its own outcome, a fit needs no anchor."""
            return unit[number if config.selection.stage1 == "own" else names.index(config.selection.anchor)]

        tasks = [
            Task(config, seed, number, name, unit[number], judge(config, number), config.optimiser.stage1_epochs)
            for config, seed in jobs
            for number, name in enumerate(names)
        ]
        first = [record for records, _ in self._stage(1, tasks) for record in records]
        stages = [dict(zip(names, first[at : at + len(names)])) for at in range(0, len(first), len(names))]
        weights = [
            stage2_weights([strength(config.objective, each.quality) for each in stage.values()], config.weights)
            for (config, _), stage in zip(jobs, stages)
        ]
        tasks = [
            Task(config, seed, len(names), None, own, own, config.optimiser.stage2_epochs)
            for (config, seed), own in zip(jobs, weights)
        ]
        kept = [
            (record, {name: weight[place] for name, weight in best.items()})
            for records, best in self._stage(2, tasks)
            for place, record in enumerate(records)
        ]
        for task, stage1, (stage2, best) in zip(tasks, stages, kept):
            fits.append(self._oriented(task, stage1, stage2, best, outcomes))
        return fits

    def _stage(self, stage: int, tasks: list[Task]) -> list[tuple[list[Trained], dict[str, Tensor]]]:
        """Train the models of all tasks: at once, or side by side; what fails first is what is raised."""
        groups = [tasks] if self.stack else [[task] for task in tasks]
        if self.threads == 1 or len(groups) == 1:
            return [self._train(stage, place, group) for place, group in enumerate(groups)]
        with ThreadPoolExecutor(self.threads) as pool:
            futures = [pool.submit(self._aside, stage, place, group) for place, group in enumerate(groups)]
            try:
                for future in as_completed(futures):
                    future.result()
            except BaseException:
                self.stop.set()
                pool.shutdown(wait=False, cancel_futures=True)
                raise
            return [future.result() for future in futures]

    def _aside(self, *facts: Any) -> tuple[list[Trained], dict[str, Tensor]]:
        with limited(1):
            return self._train(*facts)

    def _train(self, stage: int, number: int, tasks: list[Task]) -> tuple[list[Trained], dict[str, Tensor]]:
        """Train models together; their records, and the weights of their kept epochs."""
        place = Place(self.saved, f"{stage}.{number}", weights=stage == 2)
        trained, epochs = place.trained(), tasks[0].epochs
        if trained and len(trained[0].history) == epochs:
            return trained, place.kept()
        with roomy(f"{len(tasks)} fits at once") if self.stack else nullcontext():
            engine = self._engine(tasks)
            if not trained:
                trained = [Trained(0, -np.inf, sigma, ()) for sigma in self._sigmas(engine, tasks)]
            parts, judging = self._objectives(tasks, [each.bandwidth for each in trained])
            engine.aim(Mixture(parts) if len(parts) > 1 else parts[0][1])
            if trained[0].history:
                place.resume(engine)

            def judge(scores: Tensor) -> tuple[list[float], list[list[float]]]:
                found = [by.judge(own, scores[at].gather(1, rows), *y) for at, by, own, rows, y in judging]
                quality, values = (torch.cat(each).tolist() for each in zip(*found))
                return quality, values

            def tell(epoch: int, trained: list[Trained]) -> None:
                self._tell(stage, tasks, epoch, trained)

            improvements = [task.config.selection.improvement for task in tasks]
            options = {"held_out": self.valid, "judge": judge, "improvements": improvements, "place": place}
            return train(engine, trained, epochs=epochs, tell=tell, **options, rate="optimiser.learning_rate")

    def _engine(self, tasks: list[Task]) -> Engine:
        options = tasks[0].config.optimiser
        pace = Pace(options.batch, options.learning_rate, options.weight_decay)
        size, seeds = self.train.vocabulary_size, [task.seeds for task in tasks]
        models = [fresh(task.config.encoder, size, task.seeds, self.device) for task in tasks]
        if self.stack:
            return stacked.Stacked(models, self.train, pace, seeds)
        return single.quickest(models[0], self.train, pace, seeds[0], group=self.group, stop=self.stop)

    def _sigmas(self, engine: Engine, tasks: list[Task]) -> list[float | None]:
        """The kernel's width of each model, from the scores that it gives the training split at its start."""
        if not any(needs_bandwidth(task.config.objective) for task in tasks):
            return [None] * len(tasks)
        initial = engine.predict(self.train).cpu().numpy()

        def sigma(task: Task, scores: np.ndarray) -> float | None:
            wanted = needs_bandwidth(task.config.objective)
            return bandwidth(scores, **asdict(task.config.bandwidth)) if wanted else None

        if len(tasks) == 1:
            return [sigma(tasks[0], initial[0])]
        with ThreadPoolExecutor() as pool:
            return list(pool.map(sigma, tasks, initial))

    def _objectives(
        self, tasks: list[Task], sigmas: list[float | None]
    ) -> tuple[list[tuple[slice, Judging]], list[tuple[slice, Judging, Tensor, Tensor, tuple[Tensor, ...]]]]:
        """What neighbours with one objective are after; and who judges them: by which weights, on which admissions."""
        ends = [0, *np.cumsum([len(list(each)) for _, each in groupby(task.config.objective for task in tasks)])]
        parts, judging = [], []
        for at in (slice(*each) for each in pairwise(map(int, ends))):
            own, config = tasks[at], tasks[at.start].config
            weights, judge = (
                torch.from_numpy(np.stack(each)).to(self.device)
                for each in ([task.weights for task in own], [task.judge for task in own])
            )
            rows = np.stack([judges(self.valid, config, task.number) for task in own])
            by = part = CrossEntropies(config.optimiser.batch, weights.float())
            if config.objective.kind == "alignment":
                by = part = Alignments(config.objective, sigmas[at], weights.float())
                if self.device.type == "cuda" and self.stack:
                    part = kernels().StackedAlignments(config.objective, sigmas[at], weights.float())
                    by = part if rows.shape[1] <= PAIRS else by
            parts.append((at, part))
            outcomes = torch.from_numpy(self.valid.outcomes[rows]).to(self.device)
            judging.append((at, by, judge, torch.from_numpy(rows).to(self.device), by.labels(outcomes)))
        return parts, judging

    def _tell(self, stage: int, tasks: list[Task], epoch: int, trained: list[Trained]) -> None:
        last = [each.history[-1] for each in trained]
        values = np.mean([each.objective for each in last], axis=0).tolist()
        figures = {**dict(zip(self.train.names, values)), "validation": float(np.mean([e.quality for e in last]))}
        step = f"stage {stage}, {tasks[0].outcome}" if stage == 1 and len(tasks) == 1 else f"stage {stage}"
        work = len(tasks) / (self.parallel if stage == 1 else 1)
        self.clock.tell(step, epoch, tasks[0].epochs, figures, work=work)

    def _oriented(
        self,
        task: Task,
        stage1: dict[str, Trained],
        stage2: Trained,
        best: dict[str, Tensor],
        outcomes: Sequence[str],
    ) -> Fit:
        """Turn the kept model so that larger means sicker, by the anchor on the validation split."""
        config, valid = task.config, self.valid
        model = encoders.loaded(config.encoder, {name: tensor.to(self.device) for name, tensor in best.items()})
        orientation = 1
        if is_signless(config.objective):
            column = valid.names.index(config.selection.anchor)
            rows = np.broadcast_to(known_rows(valid.outcomes, config.objective.validity), valid.outcomes.shape)
            scores = encoders.predict(model, valid.tokens).cpu().numpy()
            if np.cov(scores[rows[:, column]], valid.outcomes[rows[:, column], column])[0, 1] < 0:
                orientation = -1
                model.negate()
        known = dict(zip(valid.names, task.weights.tolist()))
        measure = "cross-entropy" if config.objective.kind == "bce" else "nHSIC"
        return Fit(
            state={name: tensor.cpu().numpy().copy() for name, tensor in model.state_dict().items()},
            weights={name: known.get(name, 0.0) for name in outcomes},
            record=PaperRecord(stage1, stage2, known, orientation, measure),
            seconds=self.clock.seconds,
        )


def judges(valid: Split, config: PaperConfig, number: int) -> np.ndarray:
    """The validation admissions that judge one fit: all that count, or a deterministic subsample of them."""
    limit = config.selection.subsample
    rows = np.arange(len(valid))
    if config.objective.kind == "alignment":
        rows = np.flatnonzero(known_rows(valid.outcomes, config.objective.validity).any(1))
    if limit is None or len(rows) <= limit:
        return rows
    return np.random.default_rng([config.selection.seed, number]).choice(rows, limit, replace=False)
