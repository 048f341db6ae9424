"""The result of a fit: the weights, and a record of what was tried, chosen and reached. Needs no torch.

Each recipe has a record class of its own. Its `shown` turns it into titled tables and curves, which the model file
holds and which command line, report and page display without knowing the recipe.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

Cell = str | int | float | None


@dataclass(frozen=True)
class RecordTable:
    """A small table; the first cell of a row names what the row is about."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]


@dataclass(frozen=True)
class RecordCurve:
    """A value after each epoch, one line per name; `kept` is the epoch, from 1, whose weights are in the model."""

    title: str
    unit: str
    lines: Mapping[str, tuple[float, ...]]
    kept: int


@dataclass(frozen=True)
class Record:
    """How a fit went, ready for display."""

    summary: str  # what was chosen and how good it is, in a few words
    tables: tuple[RecordTable, ...] = ()
    curves: tuple[RecordCurve, ...] = ()


class RecipeRecord(Protocol):
    """The record of a recipe's fit; frozen."""

    def shown(self) -> Record: ...


@dataclass(frozen=True)
class Fit:
    """The result of a recipe: the arrays that score (larger means sicker), and how they came about.

    The out-of-fold arrays serve to fit risk curves, cutoffs and percentiles on training admissions without optimism.
    """

    state: dict[str, np.ndarray]
    weights: dict[str, float]  # how much each outcome counted; 0 for one that was left out
    record: RecipeRecord
    seconds: float = field(compare=False)
    out_of_fold: np.ndarray | None = field(default=None, compare=False)  # scores of the training admissions
    valid_by_fold: np.ndarray | None = field(default=None, compare=False)  # validation scores by each fold's model
    log_odds: np.ndarray | None = field(default=None, compare=False)  # out-of-fold training log-odds of each outcome
    valid_risks: np.ndarray | None = field(default=None, compare=False)  # of risk heads not calibrated on the admission
    bandwidth: float | None = None  # of the kernel in the objective, if it has one


@dataclass(frozen=True)
class Epoch:
    """The results of one epoch."""

    objective: tuple[float, ...]  # training value of each outcome, mean over minibatches
    validation: tuple[float, ...]  # validation value of each outcome
    quality: float  # by which epochs are compared; larger is better


@dataclass(frozen=True)
class TrainingLog:
    """The history of one model's training: its best epoch (from 1), that epoch's quality, the kernel's bandwidth."""

    epoch: int = 0
    quality: float = -np.inf
    bandwidth: float | None = None
    history: tuple[Epoch, ...] = ()

    def with_epoch(self, epoch: Epoch, improvement: float) -> "TrainingLog":
        """Return the log with one more epoch, which becomes the best if it is better by more than `improvement`."""
        longer = replace(self, history=(*self.history, epoch))
        if epoch.quality > self.quality + improvement:
            return replace(longer, epoch=len(longer.history), quality=epoch.quality)
        return longer


@dataclass(frozen=True)
class PaperRecord:
    """Record of the recipe `paper`: the log of every model of Stage 1, and of that of Stage 2."""

    stage1: dict[str, TrainingLog]  # by outcome
    stage2: TrainingLog
    weights: dict[str, float]  # of each outcome in Stage 2
    orientation: int  # -1: the score was negated
    measure: str = "nHSIC"

    def shown(self) -> Record:
        kept, weights = self.stage2, tuple(self.weights.values())
        best, reached = kept.history[kept.epoch - 1], f"epoch {kept.epoch} of {len(kept.history)}"
        turned = "" if self.orientation > 0 else ", its score negated"
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
    """Record of the recipe `deep`: the ensemble that learned the risks, and the encoder that learned its score."""

    members: int
    strength: dict[str, float]  # squared distance correlation of each outcome's risk with the anchor, on validation
    weights: dict[str, float]
    history: tuple[Epoch, ...]  # of the encoder: squared error in training, R² on validation
    # For each outcome: validation cross-entropy of ensemble and encoder, shift and slope; {} in files of old versions.
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
            "The ensemble's risks, learned by heads on the same encoder",
            ("Outcome", *figures),
            tuple((name, *found) for name, found in self.kept.items()),
        )
        tables = (risks, distillation, *[kept] * bool(self.kept))
        return Record(f"{reached} learned by one encoder", tables, (curve,))
