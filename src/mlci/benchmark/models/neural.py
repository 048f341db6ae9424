"""Neural models: each is an encoder and an objective, trained by the same loop; MLCI is one of them.

The BCE baselines and the nHSIC ablations follow the paper's protocol: two stages, the same budget, and the same
selection by the validation split. They differ only in the encoder, its pooling, the loss and the kernel.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from mlci.benchmark.models import Learned, State
from mlci.config import (
    AnchorConfig,
    DeepConfig,
    DistilConfig,
    EncoderConfig,
    ObjectiveConfig,
    OptimiserConfig,
    PaperConfig,
    PosteriorConfig,
    SelectionConfig,
    TokenConfig,
    WeightConfig,
)
from mlci.fitting import Split

if TYPE_CHECKING:
    from mlci.fitting._result import Fit


@dataclass(frozen=True, kw_only=True)
class Neural(Learned):
    """An encoder and an objective, fitted by the recipe `paper`."""

    recipe: ClassVar = "paper"

    objective: str  # "bce", or the kernel of an alignment: "rbf", "multi-rbf", "energy"
    encoder: str = "deepsets"
    pooling: str = "mean+max"  # of deepsets
    width: int = 128
    epochs: int = 10  # of each stage
    anchor: str = "mortality"
    needs: str = "torch"

    def default_config(self) -> PaperConfig:
        bce = self.objective == "bce"
        return PaperConfig(
            encoder=EncoderConfig(name=self.encoder, width=self.width, pooling=self.pooling),  # pyright: ignore[reportArgumentType]
            objective=ObjectiveConfig(kind="bce") if bce else ObjectiveConfig(kernel=self.objective),  # pyright: ignore[reportArgumentType]
            optimiser=OptimiserConfig(stage1_epochs=self.epochs, stage2_epochs=self.epochs),
            selection=SelectionConfig(anchor=self.anchor, stage1="own" if bce else "anchor"),
            weights=WeightConfig(inactive="omit"),
        )

    def at_once(self, device: str) -> bool:
        from mlci.fitting.paper import trained_at_once

        return trained_at_once(self.config(), device)

    def fits(self, train: Split, valid: Split, *, seeds: Sequence[int], device: str) -> list["Fit"]:
        from mlci.fitting.paper import fit_seeds

        return fit_seeds(train, valid, config=self.config(), seeds=seeds, device=device)

    def score(self, state: State, part: Split) -> np.ndarray:
        from mlci.fitting.encoders import score

        return score(self.config().encoder, state, part.tokens).astype(np.float64)


@dataclass(frozen=True, kw_only=True)
class Deep(Learned):
    """The recipe `deep` with its own tokens."""

    recipe: ClassVar = "deep"

    width: int = 128
    members: int = 5
    risk_epochs: int = 5
    distil_epochs: int = 8
    anchor: str = "mortality"
    needs: str = "torch"

    def default_config(self) -> DeepConfig:
        return DeepConfig(
            encoder=EncoderConfig(width=self.width),
            posterior=PosteriorConfig(members=self.members, epochs=self.risk_epochs),
            distil=DistilConfig(epochs=self.distil_epochs),
            selection=AnchorConfig(anchor=self.anchor),
        )

    @property
    def tokens(self) -> TokenConfig:
        return self.config().tokens

    def fits(self, train: Split, valid: Split, *, seeds: Sequence[int], device: str) -> list["Fit"]:
        from mlci.fitting.deep import fit

        return [fit(train, valid, config=self.config(), seed=seed, device=device) for seed in seeds]

    def score(self, state: State, part: Split) -> np.ndarray:
        from mlci.fitting.encoders import score

        return score(self.config().encoder, state, part.tokens).astype(np.float64)


def _bce(name: str, title: str, **fields: Any) -> Neural:
    return Neural(name=name, title=title, family="bce", objective="bce", **fields)


def _nhsic(name: str, title: str, kernel: str, **fields: Any) -> Neural:
    title = f"{title} + {'Single' if kernel == 'rbf' else 'Multi'}-RBF nHSIC"
    return Neural(name=f"{name}_{kernel}".replace("-", "_"), title=title, family="ablation", objective=kernel, **fields)


MODELS = (
    Deep(name="deep", title="MLCI (deep)", family="mlci"),
    Neural(name="paper", title="Our Model", family="mlci", objective="rbf"),
    _bce("dcn", "Deep and Cross Network (DCN)", encoder="deep_cross"),
    _bce("bag_mlp", "Deep MLP Bag-of-Codes (EmbeddingBag)", encoder="bag_mlp"),
    _bce("star_gat", "Star-GAT", encoder="star_gat"),
    _bce("attention_mil", "Pure MIL Attention Pooling", encoder="attention_mil"),
    _bce("set_transformer", "Set Transformer (single-logit)", encoder="set_transformer"),
    _bce("deepsets_sum", "DeepSets (sum pool)", pooling="sum"),
    _bce("deepsets_mean", "DeepSets (mean pool)", pooling="mean"),
    _bce("deepsets_attention", "DeepSets (attention pool)", pooling="attention"),
    _bce("deepsets_gated", "DeepSets (gated pool)", pooling="gated"),
    _bce("deepsets_mean_max", "DeepSets (mean+max pool)"),
    _nhsic("deepsets_sum", "DeepSets (sum pool)", "rbf", pooling="sum"),
    _nhsic("deepsets_sum", "DeepSets (sum pool)", "multi-rbf", pooling="sum"),
    _nhsic("deepsets_mean", "DeepSets (mean pool)", "rbf", pooling="mean"),
    _nhsic("deepsets_mean", "DeepSets (mean pool)", "multi-rbf", pooling="mean"),
    _nhsic("deepsets_attention", "DeepSets (attention pool)", "rbf", pooling="attention"),
    _nhsic("deepsets_attention", "DeepSets (attention pool)", "multi-rbf", pooling="attention"),
    _nhsic("deepsets_gated", "DeepSets (gated pool)", "rbf", pooling="gated"),
    _nhsic("deepsets_gated", "DeepSets (gated pool)", "multi-rbf", pooling="gated"),
    _nhsic("deepsets_mean_max", "DeepSets (mean+max pool)", "multi-rbf"),
    _nhsic("set_transformer", "Set Transformer", "rbf", encoder="set_transformer"),
    _nhsic("set_transformer", "Set Transformer", "multi-rbf", encoder="set_transformer"),
)
