"""Shared by the steps of the recipe `deep`: its settings, and how a step trains encoders.

A `FitContext` holds config, seed and device. Its `learn` trains encoders: the members of the ensemble, which learn
outcomes, and the one encoder of the model file, which learns the score.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from mlci.config import DeepConfig
from mlci.fitting import _loop
from mlci.fitting._data import Split
from mlci.fitting._engines import single, stacked
from mlci.fitting._objectives import MeanLosses, entropy, squares
from mlci.fitting._result import TrainingLog
from mlci.fitting.encoders import Encoder

# Number of each step in its random seed (seed, step, epoch); the members of the ensemble are 100, 101, ...
MEMBERS, COLLAPSE, DISTIL, HEADS = 100, 2, 3, 4
CPU = torch.device("cpu")


@dataclass(frozen=True)
class FitContext:
    """Settings that every step of a fit needs."""

    config: DeepConfig
    seed: int
    device: torch.device = CPU
    report: Callable[..., None] = lambda *_, **__: None  # called after each epoch, like `Clock.report`

    @property
    def member_share(self) -> float:
        """The share of the training split that a member is trained on."""
        return 1 - 1 / self.config.posterior.members

    def trains_stacked(self, batch: int) -> bool:
        """Return whether encoders are best trained all at once on this device, with batches of that size."""
        return stacked.prefers_stacking(self.config.encoder, batch, self.device)

    def epoch_reporter(self, step: str, epochs: int, *, loss: str = "cross-entropy", work: float = 1) -> _loop.OnEpoch:
        """Make a function that reports a step's epochs: loss and quality, averaged over the models that are trained."""
        quality, sign = ("validation", -1) if loss == "cross-entropy" else ("validation R²", 1)

        def on_epoch(epoch: int, logs: list[TrainingLog]) -> None:
            last = [log.history[-1] for log in logs]
            figures = {loss: float(np.mean([sum(reached.objective) for reached in last]))}
            figures[quality] = sign * float(np.mean([reached.quality for reached in last]))
            self.report(step, epoch, epochs, figures, work=work)

        return on_epoch

    def learn(
        self,
        step: Literal["posterior", "distil"],
        split: Split,
        rows: Sequence[np.ndarray],
        seeds: Sequence[tuple[int, ...]],
        validation: tuple[Split, _loop.ValidationMetric],
        on_epoch: _loop.OnEpoch,
        stop: threading.Event | None = None,
        start: Mapping[str, np.ndarray] | None = None,
    ) -> tuple[_loop.Engine, list[TrainingLog]]:
        """Train encoders, with one output per outcome of a split, to their last epoch.

        Args:
            step: learn outcomes by cross-entropy (`posterior`) or a score by squared error (`distil`); also the section
                of the config with the settings.
            split: the split to learn from.
            rows: for each encoder, the admissions that it is trained on. Several encoders are possible only if
                `trains_stacked`.
            seeds: the seed of each encoder.
            validation: the validation split, and the metric to compute on it after each epoch.
            on_epoch: called after each epoch.
            stop: cancels the training of a single encoder when set.
            start: initial weights; weights of other names start at 0. If None or empty, all weights are initialised at
                random.

        Returns:
            The engine that holds the encoders, and the training log of each.
        """
        options, outputs = getattr(self.config, step), split.outcomes.shape[1]
        stack = self.trains_stacked(options.batch)
        architecture = {"spread": options.spread, "outputs": outputs, "dropout": options.dropout}
        schedule = _loop.Schedule(
            options.batch,
            options.learning_rate,
            options.weight_decay,
            cycle=options.epochs,
            steps=options.steps,
            token_dropout=options.token_dropout,
        )
        with _loop.memory_errors(f"{len(rows)} encoders at once") if stack else nullcontext():
            models = [
                _loop.new_encoder(self.config.encoder, split.vocabulary_size, seed, self.device, **architecture)
                for seed in seeds
            ]
            if start:
                for model in models:
                    _initialise(model, start)
            if stack:
                engine = stacked.Stacked(models, split, schedule, seeds, rows=rows)
            else:
                [model], [seed], [own] = models, seeds, rows
                engine = single.fastest_engine(model, split, schedule, seed, rows=own, stop=stop)
            loss = entropy if step == "posterior" else squares
            engine.set_objective(MeanLosses(loss, torch.ones(len(models), outputs, device=self.device)))
            logs, _ = _loop.train(
                engine,
                [TrainingLog()] * len(models),
                epochs=options.epochs,
                on_epoch=on_epoch,
                valid=validation[0],
                metric=validation[1],
                rate_setting=f"{step}.learning_rate",
            )
        return engine, logs


def _initialise(model: Encoder, weights: Mapping[str, np.ndarray]) -> None:
    """Replace a model's random weights by the given ones, and by 0 where there are none of that name."""
    for name, weight in model.state_dict().items():
        weight.copy_(torch.from_numpy(weights[name])) if name in weights else weight.zero_()
