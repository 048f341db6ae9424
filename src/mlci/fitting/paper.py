"""The recipe `paper`: turn tokens and outcomes into the weights of one encoder, oriented so that larger means sicker.

This is the method of the paper (Methodology; appendix Implementation Details), constant by constant. Stage 1 trains one
model per outcome; only its best validation nHSIC is used. Stage 2 trains one model on all outcomes, weighted so that
outcomes with a weak signal are not drowned (`_weighting.stage2_weights`). The config chooses encoder, objective and
constants, so the neural baselines are fitted here as well.

On the CPU the models of Stage 1 are trained in parallel, one core each, because their operations are too short to be
split among cores. On a GPU all models of a stage, of all seeds, are trained at once (`_engines.stacked`).
"""

import functools
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mlci.base.errors import InputError
from mlci.config import PaperConfig
from mlci.fitting import _loop, _objectives, encoders
from mlci.fitting._checkpoint import open_checkpoint
from mlci.fitting._data import MIN_EVENTS, Split, Splits, folds_by_subject
from mlci.fitting._engines import single, stacked
from mlci.fitting._engines.stacked_models import kernels
from mlci.fitting._events import Clock, Event
from mlci.fitting._processes import ALONE, Group
from mlci.fitting._result import Fit, PaperRecord, TrainingLog
from mlci.fitting._weighting import check_outcomes, stage2_weights
from mlci.measures.alignment import bandwidth

FOLDS = 5  # folds of patients for out-of-fold scores of the training admissions
CROSS_FIT_LIMIT = 20_000  # with more training admissions, five more fits cost too much
PAIRWISE_LIMIT = 65_536  # up to so many validation admissions, a GPU evaluates nHSIC by summing over all pairs


@dataclass(frozen=True)
class Task:
    """One model to train; `number` counts the models of its seed."""

    seed: int
    number: int
    weights: np.ndarray  # of each outcome in the objective
    metric_weights: np.ndarray  # of each outcome in the validation metric, by which an epoch is selected


def fit_splits(splits: Splits, *, config: PaperConfig, **options: Any) -> Fit:
    """Fit the weights of an index.

    Where the validation split is too small for risk curves and the training split is not too large, the training
    admissions are scored out of fold as well (`cross_fit`).

    Args:
        splits: the data to learn from.
        config: settings of the recipe.
        options: options of `fit_seeds`, and the `seed`.

    Returns:
        The fit.

    >>> from mlci.config import OptimiserConfig
    >>> from mlci.tokens import Tokens, Vocabulary
    >>> tokens = Tokens(np.tile([2, 3], 10).astype(np.int32), np.arange(21))
    >>> split = Split(tokens, np.tile([[1.0], [0.0]], (10, 1)).astype(np.float32), ("mortality",), 4)
    >>> config = PaperConfig(optimiser=OptimiserConfig(stage1_epochs=1, stage2_epochs=1))
    >>> splits = Splits(Vocabulary(("I50", "E11"), (10, 10)), (10,), {"mortality": "died"}, "file", split, split)
    >>> fit_splits(splits, config=config, seed=11).weights
    {'mortality': 1.0}
    """
    found = fit(splits.train, splits.valid, config=config, **options)
    if (
        splits.valid.supports_risk_curves
        or len(splits.train) > CROSS_FIT_LIMIT
        or options.get("group", ALONE).count > 1
    ):
        return found
    facts = {"seed": options["seed"], "device": options.get("device", "cpu")}
    out_of_fold, valid_by_fold = cross_fit(found, splits.train, splits.valid, config=config, **facts) or (None, None)
    return replace(found, out_of_fold=out_of_fold, valid_by_fold=valid_by_fold)


def cross_fit(
    whole: Fit, train: Split, valid: Split, *, config: PaperConfig, seed: int, device: str
) -> tuple[np.ndarray, np.ndarray] | None:
    """Score the training admissions out of fold, and the validation admissions by each of the folds' models.

    Each fold's model is trained like `whole`, without the patients of the fold. Its scores are shifted and scaled so
    that the validation split has the mean and standard deviation that `whole` gives it.

    Args:
        whole: the fit on all training admissions.
        train: the training split of `whole`.
        valid: the validation split of `whole`.
        config: settings of `whole`.
        seed: seed of `whole`.
        device: device of `whole`.

    Returns:
        One score per training admission, and the validation scores of the folds' models (folds x admissions); None
        where a model cannot be trained without some fold.

    >>> from mlci.config import OptimiserConfig
    >>> from mlci.tokens import Tokens
    >>> tokens = Tokens(np.tile([2, 3], 10).astype(np.int32), np.arange(21))
    >>> split = Split(tokens, np.tile([[1], [0]], (10, 1)).astype(np.float32), ("mortality",), 4)
    >>> facts = {"config": PaperConfig(optimiser=OptimiserConfig(stage1_epochs=1, stage2_epochs=1)), "seed": 11}
    >>> [scores.shape for scores in cross_fit(fit(split, split, **facts), split, split, device="cpu", **facts)]
    [(20,), (5, 20)]
    """

    def score(state: Mapping[str, np.ndarray], part: Split) -> np.ndarray:
        return encoders.score(config.encoder, state, part.tokens, device=device).astype(np.float64)

    folds, out_of_fold, valid_by_fold = folds_by_subject(train, FOLDS, seed=seed), np.empty(len(train)), []
    mean, scale = score(whole.state, valid).mean(), score(whole.state, valid).std()
    for fold in np.unique(folds):
        inside = folds == fold
        try:
            other = fit(train.take(np.flatnonzero(~inside)), valid, config=config, seed=seed, device=device)
        except InputError:  # an outcome so rare that it has one class without this fold
            return None
        on_valid, on_fold = score(other.state, valid), score(other.state, train.take(np.flatnonzero(inside)))
        out_of_fold[inside] = (on_fold - on_valid.mean()) / (on_valid.std() or 1.0)
        valid_by_fold.append((on_valid - on_valid.mean()) / (on_valid.std() or 1.0))
    return mean + scale * out_of_fold, mean + scale * np.stack(valid_by_fold)


def fit(train: Split, valid: Split, *, config: PaperConfig, seed: int, **options: Any) -> Fit:
    """Fit in two stages.

    Args:
        train: the split to learn from.
        valid: the validation split, by which epochs are selected.
        config: settings of the recipe.
        seed: random seed; the same seed gives bit-for-bit the same result on the CPU.
        options: options of `fit_seeds`.

    Returns:
        The fit.

    >>> from mlci.config import OptimiserConfig
    >>> from mlci.tokens import Tokens
    >>> tokens = Tokens(np.array([2, 3, 2, 3], np.int32), np.arange(5))
    >>> split = Split(tokens, np.array([[1], [0], [1], [0]], np.float32), ("mortality",), 4)
    >>> config = PaperConfig(optimiser=OptimiserConfig(stage1_epochs=1, stage2_epochs=1))
    >>> fit(split, split, config=config, seed=11).weights
    {'mortality': 1.0}
    """
    return fit_seeds(train, valid, config=config, seeds=[seed], **options)[0]


def fit_seeds(
    train: Split,
    valid: Split,
    *,
    config: PaperConfig,
    seeds: Sequence[int],
    device: str = "cpu",
    stack: bool | None = None,
    threads: int | None = None,
    group: Group = ALONE,
    checkpoint: Path | None = None,
    on_event: Callable[[Event], None] | None = None,
) -> list[Fit]:
    """Fit with several seeds; on a GPU, all at once.

    Args:
        train: the split to learn from.
        valid: the validation split, by which epochs are selected.
        config: settings of the recipe.
        seeds: random seeds; the same seed gives bit-for-bit the same result on the CPU.
        device: cpu, cuda or cuda:N.
        stack: whether to train all models of a stage at once (None: where the device gains by it).
        threads: how many models of Stage 1 are trained in parallel on the CPU (None: torch's number of threads, which
            OMP_NUM_THREADS limits). Each model has one thread, so the result does not depend on this number.
        group: the processes that share each step.
        checkpoint: a file from which an interrupted fit continues.
        on_event: called after each epoch.

    Returns:
        One fit per seed.

    >>> from mlci.config import OptimiserConfig
    >>> from mlci.tokens import Tokens
    >>> tokens = Tokens(np.tile([2, 3], 10).astype(np.int32), np.arange(21))
    >>> split = Split(tokens, np.tile([[1.0], [0.0]], (10, 1)).astype(np.float32), ("mortality",), 4)
    >>> config = PaperConfig(optimiser=OptimiserConfig(stage1_epochs=1, stage2_epochs=1))
    >>> [found.weights for found in fit_seeds(split, split, config=config, seeds=[11, 101])]
    [{'mortality': 1.0}, {'mortality': 1.0}]
    """
    place = torch.device(device)
    if stack and not stacked.stackable(config.encoder, config.optimiser.batch):
        raise InputError(
            "Only deepsets that average or sum codes, and set transformers, can be trained at once (stacked), in "
            f"batches of at most {_objectives.LARGE}; fit others one by one."
        )
    stack = group.count == 1 and trained_at_once(config, device) if stack is None else stack
    aligned = config.objective.kind == "alignment"
    names = check_outcomes(
        train,
        valid,
        anchor=config.selection.anchor if aligned or config.selection.stage1 == "anchor" else None,
        together=aligned and config.objective.validity == "intersection",
        omit=config.weights.inactive == "omit",
    )
    parallel = (threads or torch.get_num_threads()) if place.type == "cpu" and group.count == 1 and not stack else 1
    with nullcontext() if stack else _loop.torch_threads(1):
        run = _Run(train.only(names), valid.only(names), config, place, stack, parallel, group)
        run.open(seeds, checkpoint, on_event)
        return run.fits(seeds, train.names)


def trained_at_once(config: PaperConfig, device: str) -> bool:
    """Return whether models of this `config` are best trained all at once on this `device`.

    >>> trained_at_once(PaperConfig(), "cpu")  # on the CPU each model has its own core
    False
    """
    return stacked.prefers_stacking(config.encoder, config.optimiser.batch, torch.device(device))


@dataclass
class _Run:
    """Both stages of one config for some seeds."""

    train: Split
    valid: Split
    config: PaperConfig
    device: torch.device
    stack: bool
    threads: int
    group: Group

    def open(self, seeds: Sequence[int], checkpoint: Path | None, on_event: Callable[[Event], None] | None) -> None:
        """Open the checkpoint, and start the clock with the amount of work that is left."""
        options, fits = self.config.optimiser, len(seeds) * len(self.train.names)
        smallest = min(options.batch, len(self.train))
        if self.group.count > smallest:
            raise InputError(
                f"{self.group.count} processes are more than the {smallest} admissions of a batch; "
                "start at most that many."
            )
        how = "rows" if self.stack else False  # stacked models have a different optimiser state
        facts = ("paper", how, asdict(self.config), list(seeds))
        self.saved = open_checkpoint(checkpoint, self.train, self.valid, *facts, group=self.group)
        self.parallel = min(self.threads, fits)
        work = options.stage1_epochs * fits / self.parallel + options.stage2_epochs * len(seeds)
        for name, entry in self.saved.entries.items():
            done = sum(len(model["history"]) for model in entry.facts)
            work -= done / (self.parallel if name.startswith("1") else 1)
        self.clock, self.stop = Clock(work, on_event), threading.Event()

    def fits(self, seeds: Sequence[int], outcomes: Sequence[str]) -> list[Fit]:
        """Run both stages; return one fit per seed."""
        config, names, unit = self.config, self.train.names, np.eye(len(self.train.names))
        metric_weights = unit  # each Stage-1 model is selected by its own outcome
        if config.selection.stage1 == "anchor":  # or all of them by the anchor, as in the paper
            metric_weights = np.tile(unit[names.index(config.selection.anchor)], (len(names), 1))
        single = [
            Task(seed, number, unit[number], metric_weights[number]) for seed in seeds for number in range(len(names))
        ]
        logs = [log for log, _ in self._stage(1, single)]
        stage1 = [dict(zip(names, logs[at : at + len(names)])) for at in range(0, len(logs), len(names))]
        # The strength of an outcome: its nHSIC, or how far its cross-entropy is below log 2, that of even odds.
        even = 0.0 if config.objective.kind == "alignment" else math.log(2)
        weights = [stage2_weights([even + log.quality for log in stage.values()], config.weights) for stage in stage1]
        stage2 = self._stage(2, [Task(seed, len(names), weight, weight) for seed, weight in zip(seeds, weights)])
        return [
            self._oriented(weight, first, *second, outcomes) for weight, first, second in zip(weights, stage1, stage2)
        ]

    def _stage(self, stage: int, tasks: list[Task]) -> list[tuple[TrainingLog, dict[str, Tensor]]]:
        """Train the models of all tasks, at once or in parallel; return their logs and the best epochs' weights."""
        groups = list(enumerate([tasks] if self.stack else [[task] for task in tasks]))
        work = functools.partial(self._train, stage)
        parallel = self.threads > 1 and not self.stack and len(tasks) > 1
        trained = _loop.run_in_threads(work, groups, self.threads, self.stop) if parallel else map(work, groups)
        return [
            (log, {name: weight[place] for name, weight in best.items()})
            for logs, best in trained
            for place, log in enumerate(logs)
        ]

    def _train(self, stage: int, group: tuple[int, list[Task]]) -> tuple[list[TrainingLog], dict[str, Tensor]]:
        """Train the models of a numbered group together; return their logs and the weights of the selected epochs."""
        number, tasks = group
        options, slot = self.config.optimiser, _loop.CheckpointSlot(self.saved, f"{stage}.{number}", weights=stage == 2)
        logs, epochs = slot.logs(), options.stage1_epochs if stage == 1 else options.stage2_epochs
        if logs and len(logs[0].history) == epochs:
            return logs, slot.part("best")

        def on_epoch(epoch: int, logs: list[TrainingLog]) -> None:
            last = [log.history[-1] for log in logs]
            values = np.mean([reached.objective for reached in last], axis=0).tolist()
            figures = dict(zip(self.train.names, values))
            figures["validation"] = float(np.mean([reached.quality for reached in last]))
            alone = stage == 1 and len(tasks) == 1
            step = f"stage {stage}, {self.train.names[tasks[0].number]}" if alone else f"stage {stage}"
            work = len(tasks) / (self.parallel if stage == 1 else 1)
            self.clock.report(step, epoch, epochs, figures, work=work)

        with _loop.memory_errors(f"{len(tasks)} fits at once") if self.stack else nullcontext():
            engine = self._engine(tasks)
            if not logs:
                logs = [TrainingLog(bandwidth=sigma) for sigma in self._bandwidths(engine, len(tasks))]
            metric = self._set_objective(engine, tasks, [log.bandwidth for log in logs])
            return _loop.train(
                engine,
                logs,
                epochs=epochs,
                on_epoch=on_epoch,
                valid=self.valid,
                metric=metric,
                improvement=self.config.selection.improvement,
                slot=slot,
                rate_setting="optimiser.learning_rate",
            )

    def _engine(self, tasks: list[Task]) -> _loop.Engine:
        options, seeds = self.config.optimiser, [(task.seed, task.number) for task in tasks]
        schedule = _loop.Schedule(options.batch, options.learning_rate, options.weight_decay, betas=options.betas)
        models = [_loop.new_encoder(self.config.encoder, self.train.vocabulary_size, s, self.device) for s in seeds]
        if self.stack:
            return stacked.Stacked(models, self.train, schedule, seeds)
        return single.fastest_engine(models[0], self.train, schedule, seeds[0], group=self.group, stop=self.stop)

    def _bandwidths(self, engine: _loop.Engine, models: int) -> list[float | None]:
        """Return the kernel's bandwidth of each model, from its scores of the training split before any training."""
        if self.config.objective.kind == "bce" or not self.config.objective.widths:
            return [None] * models
        options = asdict(self.config.bandwidth)
        with ThreadPoolExecutor() as pool:
            return list(pool.map(lambda s: bandwidth(s, **options), engine.predict(self.train).cpu().numpy()))

    def _set_objective(
        self, engine: _loop.Engine, tasks: list[Task], sigmas: list[float | None]
    ) -> _loop.ValidationMetric:
        """Give the engine its objective; return the metric that evaluates the validation scores."""
        config, device = self.config.objective, self.device
        weights = torch.from_numpy(np.stack([task.weights for task in tasks])).to(device, torch.float32)
        counts = torch.from_numpy(np.stack([task.metric_weights for task in tasks])).to(device)
        rows = np.stack([_validation_rows(self.valid, self.config, task.number) for task in tasks])
        evaluator: _objectives.ValidationObjective = _objectives.CrossEntropies(self.config.optimiser.batch, weights)
        objective = evaluator
        if config.kind == "alignment":
            evaluator = objective = _objectives.Alignments(config, sigmas, weights)
            if device.type == "cuda" and self.stack:
                objective = kernels().StackedAlignments(config, sigmas, weights)
                evaluator = objective if rows.shape[1] <= PAIRWISE_LIMIT else evaluator
        engine.set_objective(objective)
        labels = evaluator.labels(torch.from_numpy(self.valid.outcomes[rows]).to(device))
        places = torch.from_numpy(rows).to(device)

        def metric(scores: Tensor) -> tuple[list[float], list[list[float]]]:
            quality, values = evaluator.evaluate(counts, scores.gather(1, places), labels)
            return quality.tolist(), values.tolist()

        return metric

    def _oriented(
        self,
        weights: np.ndarray,
        stage1: dict[str, TrainingLog],
        stage2: TrainingLog,
        best: dict[str, Tensor],
        outcomes: Sequence[str],
    ) -> Fit:
        """Make the fit of one seed; negate the score if it correlates negatively with the anchor on validation.

        With few events in the validation split the sign of that correlation is left to chance, so the training split is
        used as well.
        """
        config, valid = self.config, self.valid
        model = encoders.loaded(config.encoder, {name: tensor.to(self.device) for name, tensor in best.items()})
        orientation = 1
        if config.objective.kind == "alignment":  # its value is the same for a score and its negative
            scores, anchors = self._anchored(model, valid)
            if min((anchors == kind).sum() for kind in (0, 1)) < MIN_EVENTS:
                scores, anchors = map(np.concatenate, zip((scores, anchors), self._anchored(model, self.train)))
            if np.cov(scores, anchors)[0, 1] < 0:
                orientation = -1
                model.negate()
        active = dict(zip(valid.names, weights.tolist()))
        measure = "cross-entropy" if config.objective.kind == "bce" else "nHSIC"
        return Fit(
            state={name: tensor.cpu().numpy().copy() for name, tensor in model.state_dict().items()},
            weights={name: active.get(name, 0.0) for name in outcomes},
            record=PaperRecord(stage1, stage2, active, orientation, measure),
            seconds=self.clock.seconds,
            bandwidth=stage2.bandwidth,
        )

    def _anchored(self, model: encoders.Encoder, split: Split) -> tuple[np.ndarray, np.ndarray]:
        """Return the scores and the anchor of those admissions of a split that count in the objective."""
        column = split.names.index(self.config.selection.anchor)
        known = _objectives.known_rows(split.outcomes, self.config.objective.validity)
        rows = np.broadcast_to(known, split.outcomes.shape)[:, column]
        return encoders.predict(model, split.tokens).cpu().numpy()[rows], split.outcomes[rows, column]


def _validation_rows(valid: Split, config: PaperConfig, number: int) -> np.ndarray:
    """Return the validation rows that evaluate a model: all that count, or a deterministic subsample of them.

    `number` is the model's number among those of its seed; each model has its own subsample.
    """
    limit = config.selection.subsample
    rows = np.arange(len(valid))
    if config.objective.kind == "alignment":
        rows = np.flatnonzero(_objectives.known_rows(valid.outcomes, config.objective.validity).any(1))
    if limit is None or len(rows) <= limit:
        return rows
    return np.random.default_rng([config.selection.seed, number]).choice(rows, limit, replace=False)
