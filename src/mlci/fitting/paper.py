"""The recipe `paper`: tokens and outcomes of two splits in, the oriented weights of one encoder out.

Stage 1 fits one model per outcome and takes from each only how well it does on the validation split; Stage 2 fits one
model to all outcomes, weighted so that weak ones are not drowned. Encoder, objective and every constant come from the
config. On the CPU the models of Stage 1 run side by side, a core each, as their operations are too short to be shared
among cores; on a GPU all of them, of all seeds, are trained at once.
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
from mlci.fitting._data import EVENTS, Split, Splits, folds_by_subject
from mlci.fitting._engines import single, stacked
from mlci.fitting._engines.stacks import kernels
from mlci.fitting._events import Clock, Event
from mlci.fitting._processes import ALONE, Group
from mlci.fitting._result import Fit, PaperRecord, Trained
from mlci.fitting._weighting import check_outcomes, stage2_weights
from mlci.measures.alignment import bandwidth

FOLDS = 5  # of patients, where training admissions are scored crosswise
CROSSED = 20_000  # training admissions at most that are worth five more fits
PAIRS = 65_536  # validation admissions whose pairs are summed one by one on a GPU


@dataclass(frozen=True)
class Task:
    """One model's fit; `number` is its place among the fits of its seed."""

    seed: int
    number: int
    weights: np.ndarray  # over outcomes
    judge: np.ndarray  # weights of the outcomes that judge its epochs


def fit_splits(splits: Splits, *, config: PaperConfig, **options: Any) -> Fit:
    """Fit the weights of an index.

    Where the validation split is too small to draw risk curves on, training admissions are scored by fits that have not
    seen them too, if there are few enough of them.

    Args:
        splits: what it learns from.
        config: every constant.
        options: of `fit_seeds`, and the `seed`.

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
    if splits.valid.tells_risks or len(splits.train) > CROSSED or options.get("group", ALONE).count > 1:
        return found
    facts = {"seed": options["seed"], "device": options.get("device", "cpu")}
    honest, crossed = crosswise(found, splits.train, splits.valid, config=config, **facts) or (None, None)
    return replace(found, honest=honest, crossed=crossed)


def crosswise(
    whole: Fit, train: Split, valid: Split, *, config: PaperConfig, seed: int, device: str
) -> tuple[np.ndarray, np.ndarray] | None:
    """Score each training admission by a fit of the other patients, on the scale of `whole` on the validation split.

    Args:
        whole: the fit of all training admissions.
        train, valid, config, seed, device: what it was fitted with.

    Returns:
        One score per training admission, and the validation scores of these fits (fits x admissions); None where some
        of the patients alone cannot be learned from.

    >>> from mlci.config import OptimiserConfig
    >>> from mlci.tokens import Tokens
    >>> tokens = Tokens(np.tile([2, 3], 10).astype(np.int32), np.arange(21))
    >>> split = Split(tokens, np.tile([[1], [0]], (10, 1)).astype(np.float32), ("mortality",), 4)
    >>> facts = {"config": PaperConfig(optimiser=OptimiserConfig(stage1_epochs=1, stage2_epochs=1)), "seed": 11}
    >>> [scores.shape for scores in crosswise(fit(split, split, **facts), split, split, device="cpu", **facts)]
    [(20,), (5, 20)]
    """

    def scored(state: Mapping[str, np.ndarray], part: Split) -> np.ndarray:
        return encoders.score(config.encoder, state, part.tokens, device=device).astype(np.float64)

    folds, found, crossed = folds_by_subject(train, FOLDS, seed=seed), np.empty(len(train)), []
    middle, scale = scored(whole.state, valid).mean(), scored(whole.state, valid).std()
    for fold in np.unique(folds):
        inside = folds == fold
        try:
            other = fit(train.take(np.flatnonzero(~inside)), valid, config=config, seed=seed, device=device)
        except InputError:  # an outcome that all but a few patients lack
            return None
        known = scored(other.state, valid)
        found[inside] = (scored(other.state, train.take(np.flatnonzero(inside))) - known.mean()) / (known.std() or 1.0)
        crossed.append((known - known.mean()) / (known.std() or 1.0))
    return middle + scale * found, middle + scale * np.stack(crossed)


def fit(train: Split, valid: Split, *, config: PaperConfig, seed: int, **options: Any) -> Fit:
    """Fit in two stages.

    Args:
        train: the split to learn from.
        valid: the split that judges.
        config: every constant.
        seed: the same seed gives the same bits on the CPU.
        options: of `fit_seeds`.

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
    """Fit with several seeds, on a GPU with all of them at once.

    Args:
        train: the split to learn from.
        valid: the split that judges.
        config: every constant.
        seeds: the same seed gives the same bits on the CPU.
        device: cpu, cuda or cuda:N.
        stack: whether to train all models of a stage at once (None: where the device gains by it).
        threads: how many fits of Stage 1 run side by side on the CPU (None: as many as torch has, which
            OMP_NUM_THREADS limits). A fit has one thread, as sums that are split round differently: the bits are the
            same for any number.
        group: the processes that share each step.
        checkpoint: a file; what was done before an interruption is not done again.
        on_event: called with each epoch.

    Returns:
        A fit per seed.

    >>> from mlci.config import OptimiserConfig
    >>> from mlci.tokens import Tokens
    >>> tokens = Tokens(np.tile([2, 3], 10).astype(np.int32), np.arange(21))
    >>> split = Split(tokens, np.tile([[1.0], [0.0]], (10, 1)).astype(np.float32), ("mortality",), 4)
    >>> config = PaperConfig(optimiser=OptimiserConfig(stage1_epochs=1, stage2_epochs=1))
    >>> [found.weights for found in fit_seeds(split, split, config=config, seeds=[11, 101])]
    [{'mortality': 1.0}, {'mortality': 1.0}]
    """
    where = torch.device(device)
    if stack and not stacked.stackable(config.encoder, config.optimiser.batch):
        raise InputError(
            "Fits are stacked for deepsets that average or sum codes, and for set transformers, in batches of at "
            f"most {_objectives.LARGE}; fit others one by one."
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
    aside = (threads or torch.get_num_threads()) if where.type == "cpu" and group.count == 1 and not stack else 1
    with nullcontext() if stack else _loop.torch_threads(1):
        run = _Run(train.only(names), valid.only(names), config, where, stack, aside, group)
        run.open(seeds, checkpoint, on_event)
        return run.fits(seeds, train.names)


def trained_at_once(config: PaperConfig, device: str) -> bool:
    """Return whether fits of this `config` are best trained at once on this `device`.

    >>> trained_at_once(PaperConfig(), "cpu")  # there, a fit has a core of its own
    False
    """
    return stacked.pays(config.encoder, config.optimiser.batch, torch.device(device))


@dataclass
class _Run:
    """Both stages of a config with some seeds."""

    train: Split
    valid: Split
    config: PaperConfig
    device: torch.device
    stack: bool
    threads: int
    group: Group

    def open(self, seeds: Sequence[int], checkpoint: Path | None, on_event: Callable[[Event], None] | None) -> None:
        """Take up what a checkpoint holds, and start the clock."""
        options, fits = self.config.optimiser, len(seeds) * len(self.train.names)
        smallest = min(options.batch, len(self.train))
        if self.group.count > smallest:
            raise InputError(
                f"{self.group.count} processes are more than the {smallest} admissions of a batch; "
                "start at most so many."
            )
        how = "rows" if self.stack else False  # what an optimiser keeps of stacked fits
        facts = ("paper", how, asdict(self.config), list(seeds))
        self.saved = open_checkpoint(checkpoint, self.train, self.valid, *facts, group=self.group)
        self.parallel = min(self.threads, fits)
        work = options.stage1_epochs * fits / self.parallel + options.stage2_epochs * len(seeds)
        for name, entry in self.saved.entries.items():
            done = sum(len(model["history"]) for model in entry.facts)
            work -= done / (self.parallel if name.startswith("1") else 1)
        self.clock, self.stop = Clock(work, on_event), threading.Event()

    def fits(self, seeds: Sequence[int], outcomes: Sequence[str]) -> list[Fit]:
        """Fit a model per outcome, weigh the outcomes by how well these did, and fit a model of all outcomes."""
        config, names, unit = self.config, self.train.names, np.eye(len(self.train.names))
        judge = unit  # by its own outcome, for which a fit needs no anchor
        if config.selection.stage1 == "anchor":
            judge = np.tile(unit[names.index(config.selection.anchor)], (len(names), 1))
        alone = [Task(seed, number, unit[number], judge[number]) for seed in seeds for number in range(len(names))]
        trained = [record for record, _ in self._stage(1, alone)]
        stages = [dict(zip(names, trained[at : at + len(names)])) for at in range(0, len(trained), len(names))]
        # A cross-entropy counts by how much better it is than that of even odds.
        even = 0.0 if config.objective.kind == "alignment" else math.log(2)
        weights = [
            stage2_weights([even + record.quality for record in stage.values()], config.weights) for stage in stages
        ]
        kept = self._stage(2, [Task(seed, len(names), weight, weight) for seed, weight in zip(seeds, weights)])
        return [
            self._oriented(weight, stage1, *stage2, outcomes) for weight, stage1, stage2 in zip(weights, stages, kept)
        ]

    def _stage(self, stage: int, tasks: list[Task]) -> list[tuple[Trained, dict[str, Tensor]]]:
        """Train the models of all tasks, at once or side by side; give records, and the weights of kept epochs."""
        groups = list(enumerate([tasks] if self.stack else [[task] for task in tasks]))
        work = functools.partial(self._train, stage)
        aside = self.threads > 1 and not self.stack and len(tasks) > 1
        found = _loop.side_by_side(work, groups, self.threads, self.stop) if aside else map(work, groups)
        return [
            (record, {name: weight[place] for name, weight in best.items()})
            for records, best in found
            for place, record in enumerate(records)
        ]

    def _train(self, stage: int, group: tuple[int, list[Task]]) -> tuple[list[Trained], dict[str, Tensor]]:
        """Train the models of a numbered group together; give their records, and the weights of their kept epochs."""
        number, tasks = group
        options, place = self.config.optimiser, _loop.Place(self.saved, f"{stage}.{number}", weights=stage == 2)
        trained, epochs = place.trained(), options.stage1_epochs if stage == 1 else options.stage2_epochs
        if trained and len(trained[0].history) == epochs:
            return trained, place.part("best")

        def tell(epoch: int, records: list[Trained]) -> None:
            last = [record.history[-1] for record in records]
            values = np.mean([reached.objective for reached in last], axis=0).tolist()
            figures = dict(zip(self.train.names, values))
            figures["validation"] = float(np.mean([reached.quality for reached in last]))
            alone = stage == 1 and len(tasks) == 1
            step = f"stage {stage}, {self.train.names[tasks[0].number]}" if alone else f"stage {stage}"
            work = len(tasks) / (self.parallel if stage == 1 else 1)
            self.clock.tell(step, epoch, epochs, figures, work=work)

        with _loop.memory_errors(f"{len(tasks)} fits at once") if self.stack else nullcontext():
            engine = self._engine(tasks)
            if not trained:
                trained = [Trained(bandwidth=sigma) for sigma in self._sigmas(engine, len(tasks))]
            judge = self._aim(engine, tasks, [record.bandwidth for record in trained])
            return _loop.train(
                engine,
                trained,
                epochs=epochs,
                tell=tell,
                held_out=self.valid,
                judge=judge,
                improvement=self.config.selection.improvement,
                place=place,
                rate="optimiser.learning_rate",
            )

    def _engine(self, tasks: list[Task]) -> _loop.Engine:
        options, seeds = self.config.optimiser, [(task.seed, task.number) for task in tasks]
        pace = _loop.Pace(options.batch, options.learning_rate, options.weight_decay, betas=options.betas)
        models = [_loop.new_encoder(self.config.encoder, self.train.vocabulary_size, s, self.device) for s in seeds]
        if self.stack:
            return stacked.Stacked(models, self.train, pace, seeds)
        return single.quickest(models[0], self.train, pace, seeds[0], group=self.group, stop=self.stop)

    def _sigmas(self, engine: _loop.Engine, models: int) -> list[float | None]:
        """Give the kernel's width of each model, from the scores that it gives the training split at its start."""
        if self.config.objective.kind == "bce" or not self.config.objective.widths:
            return [None] * models
        options = asdict(self.config.bandwidth)
        with ThreadPoolExecutor() as pool:
            return list(pool.map(lambda s: bandwidth(s, **options), engine.predict(self.train).cpu().numpy()))

    def _aim(self, engine: _loop.Engine, tasks: list[Task], sigmas: list[float | None]) -> _loop.Judge:
        """Say what the models are after; give what judges their validation scores."""
        config, device = self.config.objective, self.device
        weights = torch.from_numpy(np.stack([task.weights for task in tasks])).to(device, torch.float32)
        counts = torch.from_numpy(np.stack([task.judge for task in tasks])).to(device)
        rows = np.stack([_judges(self.valid, self.config, task.number) for task in tasks])
        judging: _objectives.Judging = _objectives.CrossEntropies(self.config.optimiser.batch, weights)
        objective = judging
        if config.kind == "alignment":
            judging = objective = _objectives.Alignments(config, sigmas, weights)
            if device.type == "cuda" and self.stack:
                objective = kernels().StackedAlignments(config, sigmas, weights)
                judging = objective if rows.shape[1] <= PAIRS else judging
        engine.aim(objective)
        labels = judging.labels(torch.from_numpy(self.valid.outcomes[rows]).to(device))
        places = torch.from_numpy(rows).to(device)

        def judge(scores: Tensor) -> tuple[list[float], list[list[float]]]:
            quality, values = judging.judge(counts, scores.gather(1, places), labels)
            return quality.tolist(), values.tolist()

        return judge

    def _oriented(
        self,
        weights: np.ndarray,
        stage1: dict[str, Trained],
        stage2: Trained,
        best: dict[str, Tensor],
        outcomes: Sequence[str],
    ) -> Fit:
        """Turn the kept model so that larger means sicker, by the anchor on the validation split.

        A few events there would turn it by chance: of a small hospital the training admissions count as well.
        """
        config, valid = self.config, self.valid
        model = encoders.loaded(config.encoder, {name: tensor.to(self.device) for name, tensor in best.items()})
        orientation = 1
        if config.objective.kind == "alignment":  # to which a score and its negative are equally good
            scores, anchors = self._anchored(model, valid)
            if min((anchors == kind).sum() for kind in (0, 1)) < EVENTS:
                scores, anchors = map(np.concatenate, zip((scores, anchors), self._anchored(model, self.train)))
            if np.cov(scores, anchors)[0, 1] < 0:
                orientation = -1
                model.negate()
        counted = dict(zip(valid.names, weights.tolist()))
        measure = "cross-entropy" if config.objective.kind == "bce" else "nHSIC"
        return Fit(
            state={name: tensor.cpu().numpy().copy() for name, tensor in model.state_dict().items()},
            weights={name: counted.get(name, 0.0) for name in outcomes},
            record=PaperRecord(stage1, stage2, counted, orientation, measure),
            seconds=self.clock.seconds,
            bandwidth=stage2.bandwidth,
        )

    def _anchored(self, model: encoders.Encoder, split: Split) -> tuple[np.ndarray, np.ndarray]:
        """Return scores and anchor of the admissions of a split that count."""
        column = split.names.index(self.config.selection.anchor)
        known = _objectives.known_rows(split.outcomes, self.config.objective.validity)
        rows = np.broadcast_to(known, split.outcomes.shape)[:, column]
        return encoders.predict(model, split.tokens).cpu().numpy()[rows], split.outcomes[rows, column]


def _judges(valid: Split, config: PaperConfig, number: int) -> np.ndarray:
    """Return the rows of the validation split that judge a fit: all that count, or a deterministic subsample of them.

    `number` is the fit's place among those of its seed: each has a subsample of its own.
    """
    limit = config.selection.subsample
    rows = np.arange(len(valid))
    if config.objective.kind == "alignment":
        rows = np.flatnonzero(_objectives.known_rows(valid.outcomes, config.objective.validity).any(1))
    if limit is None or len(rows) <= limit:
        return rows
    return np.random.default_rng([config.selection.seed, number]).choice(rows, limit, replace=False)
