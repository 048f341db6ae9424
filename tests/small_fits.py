"""Small splits, configs and fits that several tests in tests/fitting share."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import torch

from mlci.config import (
    CollapseConfig,
    DeepConfig,
    DistilConfig,
    EncoderConfig,
    OptimiserConfig,
    PaperConfig,
    PosteriorConfig,
)
from mlci.fitting import Split, deep, paper
from mlci.fitting._processes import ALONE, Group
from mlci.tokens import Tokens

OUTCOMES = ("mortality", "long_stay", "icu_transfer")


def random_split(rows: int, seed: int, *, vocabulary: int = 40) -> Split:
    """Return random admissions with outcomes that depend on their tokens; some tokens and outcomes are missing."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, 7, rows)
    offsets = np.concatenate([[0], np.cumsum(counts)])
    ids = rng.integers(1, vocabulary, offsets[-1]).astype(np.int32)
    severity = np.array([(ids[a:b] % 7).sum() for a, b in pairwise(offsets)]) + rng.normal(0, 3, rows)
    outcomes = np.column_stack([severity > np.quantile(severity, q) for q in (0.9, 0.7, 0.8)]).astype(np.float32)
    outcomes[rng.random(outcomes.shape) < 0.02] = np.nan
    return Split(Tokens(ids, offsets), outcomes, OUTCOMES, vocabulary)


def split_and_logits(seed: int, n: int) -> tuple[Split, np.ndarray]:
    """Return a split with two outcomes of shared and own causes, and their true log-odds.

    Half of the admissions with the first outcome lack the second, as half of those who die may have no length of stay.
    """
    rng = np.random.default_rng(seed)
    offsets = np.concatenate([[0], np.cumsum(rng.poisson(5, n))])
    ids = rng.integers(2, 60, offsets[-1]).astype(np.int32)
    weight = np.random.default_rng(99).normal(size=(60, 2)) @ [[1, 0.6], [0, 0.8]]
    logits = np.array([weight[ids[a:b]].sum(0) for a, b in pairwise(offsets)]) - [2, 0.5]
    outcomes = (rng.random((n, 2)) < 1 / (1 + np.exp(-logits))).astype(np.float32)
    outcomes[(outcomes[:, 0] == 1) & (rng.random(n) < 0.5), 1] = np.nan
    return Split(Tokens(ids, offsets), outcomes, OUTCOMES[:2], 60), logits.astype(np.float32)


SMALL_PAPER = PaperConfig(
    encoder=EncoderConfig(width=16),
    optimiser=OptimiserConfig(stage1_epochs=2, stage2_epochs=3, batch=64, learning_rate=0.01),
)


SMALL_DEEP = DeepConfig(
    encoder=EncoderConfig(width=16),
    posterior=PosteriorConfig(members=2, epochs=1),
    collapse=CollapseConfig(method="sum"),
    distil=DistilConfig(epochs=3),
)

# Long enough to learn something.
LEARNING = DeepConfig(
    encoder=EncoderConfig(width=16),
    posterior=PosteriorConfig(members=3, epochs=4, batch=64, steps=1, learning_rate=0.01),
    collapse=CollapseConfig(epochs=20, batch=1000, width=16, learning_rate=0.02),
    distil=DistilConfig(epochs=6, batch=64, steps=1, learning_rate=0.01),
)


def batch_gradients() -> dict[str, np.ndarray]:
    """Return the gradients of a batch's loss in a new model; 25 rows do not split into equal shares."""
    from mlci.config import ObjectiveConfig
    from mlci.fitting import encoders
    from mlci.fitting._engines.single import Autograd
    from mlci.fitting._objectives import Alignments
    from mlci.fitting._processes import world
    from mlci.fitting.encoders import tensors_on

    torch.manual_seed(1)
    model, data, group = encoders.build(SMALL_PAPER.encoder, 40), random_split(25, 4), world()
    passes, own = Autograd(model), group.share(len(data))
    batch = tensors_on(torch.device("cpu"), data.tokens.take(np.arange(len(data))[own]))
    scores = group.gather(passes.forward(batch), len(data))
    objective = Alignments(ObjectiveConfig(), [0.3], torch.ones(1, 3))
    _, gradient = objective.step(scores[None], [torch.from_numpy(data.outcomes)[None]])
    passes.backward(gradient[0, own])
    group.sum_gradients(model.parameters())
    return {f"gradient.{name}": parameter.grad.numpy() for name, parameter in model.named_parameters()}


def fit_paper(group: Group = ALONE):
    """Fit the recipe `paper` in batches of 64; the last batch has one admission, which leaves one process idle."""
    return paper.fit(random_split(257, 1), random_split(99, 2), config=SMALL_PAPER, seed=3, group=group)


def fit_deep(group: Group = ALONE) -> dict[str, np.ndarray]:
    """Fit the recipe `deep` and return its weights; of two processes, one is idle while the third member is trained."""
    config = replace(SMALL_DEEP, posterior=replace(SMALL_DEEP.posterior, members=3))
    fit = deep.fit(random_split(257, 1), random_split(99, 2), config=config, seed=3, group=group)
    return {f"recipe.{name}": array for name, array in fit.state.items()}
