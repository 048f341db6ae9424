"""What every step of the recipe `deep` is given, and how a step trains encoders.

Config, seed and device come in once and go to each step as a `Given`. Trained encoders come out: the members of the
ensemble, which learn outcomes, and the one encoder of the model file, which learns a score, are trained alike.
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
from mlci.fitting._result import Trained
from mlci.fitting.encoders import Encoder

MEMBERS, COLLAPSE, DISTIL, HEADS = 100, 2, 3, 4  # which step draws, beside the seed; the members count from 100
CPU = torch.device("cpu")


@dataclass(frozen=True)
class Given:
    """What every step of a fit is given."""

    config: DeepConfig
    seed: int
    device: torch.device = CPU
    tell: Callable[..., None] = lambda *_, **__: None  # hears of each epoch, as `Clock.tell` does

    @property
    def seen(self) -> float:
        """The share of the training split that a member sees."""
        return 1 - 1 / self.config.posterior.members

    def stacks(self, batch: int) -> bool:
        """Say whether encoders are best trained at once, by recorded steps, in batches of that size."""
        return stacked.pays(self.config.encoder, batch, self.device)

    def teller(self, step: str, epochs: int, *, loss: str = "cross-entropy", work: float = 1) -> _loop.Tell:
        """Make what tells of a step's epochs: loss and quality, which are means over the models that are trained."""
        quality, sign = ("validation", -1) if loss == "cross-entropy" else ("validation R²", 1)

        def tell(epoch: int, records: list[Trained]) -> None:
            last = [record.history[-1] for record in records]
            found = {loss: float(np.mean([sum(reached.objective) for reached in last]))}
            found[quality] = sign * float(np.mean([reached.quality for reached in last]))
            self.tell(step, epoch, epochs, found, work=work)

        return tell

    def learn(
        self,
        step: Literal["posterior", "distil"],
        split: Split,
        rows: Sequence[np.ndarray],
        seeds: Sequence[tuple[int, ...]],
        judged: tuple[Split, _loop.Judge],
        tell: _loop.Tell,
        stop: threading.Event | None = None,
        begun: Mapping[str, np.ndarray] | None = None,
    ) -> tuple[_loop.Engine, list[Trained]]:
        """Train encoders, with an output for each outcome of a split, to their last epoch.

        Args:
            step: learn outcomes by cross-entropy (`posterior`), or a score by squares (`distil`); also the section of
                the config that holds the constants.
            split: what is learned from.
            rows: of each encoder, the admissions that it sees. There are several encoders only where `stacks` says so.
            seeds: of each encoder.
            judged: a split, and what judges its scores after each epoch.
            tell: hears of each epoch.
            stop: ends the training of a single encoder when it is set.
            begun: weights to begin with; the others begin at 0. If there are none, all are drawn at random.

        Returns:
            The engine that holds the encoders, and the record of each.
        """
        options, outputs = getattr(self.config, step), split.outcomes.shape[1]
        stack = self.stacks(options.batch)
        start = {"spread": options.spread, "outputs": outputs, "dropout": options.dropout}
        pace = _loop.Pace(
            options.batch,
            options.learning_rate,
            options.weight_decay,
            cycle=options.epochs,
            steps=options.steps,
            token_dropout=options.token_dropout,
        )
        with _loop.memory_errors(f"{len(rows)} encoders at once") if stack else nullcontext():
            models = [
                _loop.new_encoder(self.config.encoder, split.vocabulary_size, seed, self.device, **start)
                for seed in seeds
            ]
            if begun:
                for model in models:
                    _begin(model, begun)
            if stack:
                engine = stacked.Stacked(models, split, pace, seeds, rows=rows)
            else:
                [model], [seed], [own] = models, seeds, rows
                engine = single.quickest(model, split, pace, seed, rows=own, stop=stop)
            loss = entropy if step == "posterior" else squares
            engine.aim(MeanLosses(loss, torch.ones(len(models), outputs, device=self.device)))
            records, _ = _loop.train(
                engine,
                [Trained()] * len(models),
                epochs=options.epochs,
                tell=tell,
                held_out=judged[0],
                judge=judged[1],
                rate=f"{step}.learning_rate",
            )
        return engine, records


def _begin(model: Encoder, weights: Mapping[str, np.ndarray]) -> None:
    """Put weights in the place of those drawn at random, and 0 where there are none of that name."""
    for name, weight in model.state_dict().items():
        weight.copy_(torch.from_numpy(weights[name])) if name in weights else weight.zero_()
