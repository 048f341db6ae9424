"""What a fit gives: weights, and a record of what was tried, kept and reached. Needs no torch.

Each recipe has a record of its own. Its `shown` turns it into titled tables and curves, which the model file holds and
the command line, report and page print without asking which recipe it was.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

Cell = str | int | float | None


@dataclass(frozen=True)
class RecordTable:
    """A small table; the first cell of a row says what it is about."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]


@dataclass(frozen=True)
class RecordCurve:
    """A value after each epoch, a line per name; `kept` is the epoch, from 1, whose weights are in the model."""

    title: str
    unit: str
    lines: Mapping[str, tuple[float, ...]]
    kept: int


@dataclass(frozen=True)
class Record:
    """How a fit went, ready to be shown."""

    summary: str  # what was kept and what it reached, in a few words
    tables: tuple[RecordTable, ...] = ()
    curves: tuple[RecordCurve, ...] = ()


class RecipeRecord(Protocol):
    """What a recipe keeps about a fit; frozen."""

    def shown(self) -> Record: ...


@dataclass(frozen=True)
class Fit:
    """What a recipe gives: arrays that score, with larger meaning sicker, and how they came about."""

    state: dict[str, np.ndarray]
    weights: dict[str, float]  # how much each outcome counted; 0 for one that was left out
    record: RecipeRecord
    seconds: float = field(compare=False)
    honest: np.ndarray | None = field(default=None, compare=False)  # training scores as if the outcomes were not seen
    crossed: np.ndarray | None = field(default=None, compare=False)  # validation scores by the parts behind `honest`
    log_odds: np.ndarray | None = field(default=None, compare=False)  # of each outcome, likewise
    held_out: np.ndarray | None = field(default=None, compare=False)  # risks of validation admissions, likewise
    bandwidth: float | None = None  # of the kernel by which the score was learned, where it has one


@dataclass(frozen=True)
class Epoch:
    """What an epoch reached."""

    objective: tuple[float, ...]  # mean over batches, per outcome
    validation: tuple[float, ...]  # per outcome
    quality: float  # what epochs are compared by, larger is better


@dataclass(frozen=True)
class Trained:
    """One model's way: the kept epoch (from 1), its quality on the validation split, the kernel's sigma."""

    epoch: int = 0
    quality: float = -np.inf
    bandwidth: float | None = None
    history: tuple[Epoch, ...] = ()

    def after(self, epoch: Epoch, improvement: float) -> "Trained":
        """Add an epoch, which is kept if it is better by more than `improvement`."""
        longer = replace(self, history=(*self.history, epoch))
        if epoch.quality > self.quality + improvement:
            return replace(longer, epoch=len(longer.history), quality=epoch.quality)
        return longer


@dataclass(frozen=True)
class PaperRecord:
    """Of the recipe `paper`: every fit of Stage 1, and that of Stage 2."""

    stage1: dict[str, Trained]  # by the outcome it learned
    stage2: Trained
    weights: dict[str, float]  # of the same outcomes in Stage 2
    orientation: int  # -1: the score was turned around
    measure: str = "nHSIC"

    def shown(self) -> Record:
        kept, weights = self.stage2, tuple(self.weights.values())
        best, reached = kept.history[kept.epoch - 1], f"epoch {kept.epoch} of {len(kept.history)}"
        turned = "" if self.orientation > 0 else ", its score turned around"
        alone = RecordTable(
            "Stage 1: a model for each outcome",
            ("Outcome", "Weight in Stage 2", "Epoch kept", "Quality on validation", "Bandwidth"),
            tuple((name, self.weights[name], m.epoch, m.quality, m.bandwidth) for name, m in self.stage1.items()),
        )
        together = RecordTable(
            f"Stage 2: one model of all outcomes{turned}; {self.measure} at epoch {kept.epoch}",
            ("Outcome", "Training batches", "Validation split"),
            tuple(zip(self.stage1, best.objective, best.validation)),
        )
        curve = RecordCurve(
            f"The fit, epoch by epoch; {reached} was the best on the validation split.",
            f"Weighted sum of {self.measure}",
            {
                "Training batches": tuple(float(np.dot(epoch.objective, weights)) for epoch in kept.history),
                "Validation split": tuple(float(np.dot(epoch.validation, weights)) for epoch in kept.history),
            },
            kept.epoch,
        )
        return Record(f"{reached} kept", (alone, together), (curve,))


@dataclass(frozen=True)
class DeepRecord:
    """Of the recipe `deep`: the ensemble that learned the risks, and the encoder that learned its score."""

    members: int
    strength: dict[str, float]  # squared distance correlation of each outcome's risk with the anchor, on validation
    weights: dict[str, float]
    history: tuple[Epoch, ...]  # of the encoder: squared error in training, R² on validation
    # Of each outcome's risk: cross-entropy of ensemble and encoder on validation, shift and slope; {} in former files.
    kept: dict[str, tuple[float, ...]] = field(default_factory=dict)

    @property
    def r2(self) -> float:
        return self.history[-1].quality

    def shown(self) -> Record:
        reached = f"{self.r2:.1%} of the variance of the ensemble's score"
        risks = RecordTable(
            f"Risks learned by an ensemble of {self.members}",
            ("Outcome", "Weight in the score", "Squared distance correlation of its risk with the anchor"),
            tuple((name, self.weights[name], value) for name, value in self.strength.items()),
        )
        distillation = RecordTable(
            "Distillation: one encoder learns the ensemble's score",
            ("", "Training: squared error", "Validation: R²"),
            tuple((f"Epoch {number}", it.objective[0], it.quality) for number, it in enumerate(self.history, 1)),
        )
        curve = RecordCurve(
            f"One encoder learns the ensemble's score: {reached} in the end.",
            "Share of variance (R²)",
            {"Validation split": tuple(epoch.quality for epoch in self.history)},
            len(self.history),
        )
        figures = ("Cross-entropy on validation: ensemble", "The encoder", "Calibration: shift", "Calibration: slope")
        kept = RecordTable(
            "The ensemble's risks, told by the same encoder",
            ("Outcome", *figures),
            tuple((name, *found) for name, found in self.kept.items()),
        )
        tables = (risks, distillation, *[kept] * bool(self.kept))
        return Record(f"{reached} learned by one encoder", tables, (curve,))
