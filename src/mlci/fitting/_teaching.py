"""The score that the one encoder of the recipe `deep` is to learn: log-odds of several outcomes in, one number out.

A small network collapses the ensemble's log-odds to one score by kernel alignment with the outcomes, on risks of
admissions that the risk's member has not seen; the score is turned so that larger means sicker, and spaced.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from mlci.base.blas import single_thread
from mlci.config import ObjectiveConfig, WeightConfig
from mlci.fitting import _loop
from mlci.fitting._collapse import outcome_weights, soften
from mlci.fitting._data import Split
from mlci.fitting._engines import perceptron, single
from mlci.fitting._engines.stacks import kernels
from mlci.fitting._ensemble import Posteriors
from mlci.fitting._given import COLLAPSE, CPU, Given
from mlci.fitting._objectives import Alignments
from mlci.fitting._weighting import stage2_weights
from mlci.fitting.encoders import TRITON, mlp
from mlci.judging.theory import best_spacing
from mlci.measures.alignment import nhsic

SCORED = 65_536  # admissions whose logits are collapsed at once: hidden layers are many times as wide
Scorer = Callable[[np.ndarray], np.ndarray]  # one number per admission, from its logits


@dataclass(frozen=True)
class Taught:
    """The score to be learned, with mean 0 and SD 1 over the training split, and how it came about."""

    train: np.ndarray
    valid: np.ndarray
    honest: np.ndarray  # of the training admissions, from the risks of members that have not seen them
    crossed: np.ndarray  # of the validation admissions, from the risks of each member
    weights: np.ndarray  # of the outcomes, mean 1
    strength: list[float]  # of each outcome's risk: its distance correlation with the anchor, squared
    score: Scorer


def teach(given: Given, posteriors: Posteriors, train: Split, valid: Split) -> Taught:
    """Collapse the risks of several outcomes to one score, and space it.

    Args:
        given: the config, the seed and the device.
        posteriors: what the members say.
        train: the training split.
        valid: the validation split.

    Returns:
        The score of both splits, and the function that gives it from the logits of any admission.

    >>> from mlci.config import CollapseConfig, DeepConfig
    >>> from mlci.tokens import Tokens
    >>> tokens = Tokens(np.tile([2, 3], 10).astype(np.int32), np.arange(21))
    >>> split = Split(tokens, np.tile([[1.0], [0.0]], (10, 1)).astype(np.float32), ("mortality",), 4)
    >>> logits = np.tile(np.tile([[1.0], [-1.0]], (20, 1)), (2, 1, 1))
    >>> given = Given(DeepConfig(collapse=CollapseConfig(method="sum")), seed=1)
    >>> taught = teach(given, Posteriors(logits, np.arange(20) % 2), split, split)
    >>> bool(taught.train[0] > taught.train[1])  # who died scores higher
    True
    """
    options, cuts, outcomes = given.config.collapse, given.config.spacing.cuts, train.outcomes
    anchor = train.names.index(given.config.selection.anchor)
    logits, of_valid = posteriors.honest, slice(len(train), len(train) + len(valid))
    held_out = posteriors.ensemble[of_valid]
    with single_thread():  # several would round the last digit otherwise, and it stands in the model file
        happened = valid.outcomes[:, anchor]
        strength = [float(nhsic(column.astype(np.float64), happened, kernel="energy")) for column in held_out.T]
    balance, importance = options.preset("balance"), options.importance
    weights = outcome_weights(outcomes, train.names, balance=balance, importance=importance)
    if options.weights == "two-stage":
        weights = weights * stage2_weights(strength, WeightConfig())
        weights = weights / weights.mean()
    labels = soften(logits, outcomes, observed=options.preset("observed"))
    collapse = _collapse(given, logits, labels, weights)
    collapsed, known = collapse(logits), ~np.isnan(outcomes[:, anchor])
    sign = 1.0 if np.cov(collapsed[known], outcomes[known, anchor])[0, 1] >= 0 else -1.0
    spacing = best_spacing(sign * collapsed, labels, weights, cuts=cuts) if cuts else None

    def spaced(logits: np.ndarray) -> np.ndarray:
        upward = sign * collapse(logits)
        return upward if spacing is None else spacing.apply(upward)

    plain = spaced(logits)
    centre, scale = plain.mean(), plain.std() or 1.0

    def score(logits: np.ndarray) -> np.ndarray:
        return (spaced(logits) - centre) / scale

    source = posteriors.source(given.config.distil.source)
    crossed = np.stack([score(member) for member in posteriors.logits[:, of_valid]])
    return Taught(score(source), score(held_out), score(logits), crossed, weights, strength, score)


def _collapse(given: Given, logits: np.ndarray, labels: np.ndarray, weights: np.ndarray) -> Scorer:
    """Learn one score from the logits, in no particular direction."""
    options, device, draws = given.config.collapse, given.device, (given.seed, COLLAPSE)
    if options.method == "sum":
        return lambda logits: logits.astype(np.float64) @ weights
    centre, spread = logits.mean(0), np.maximum(logits.std(0), 1e-6)

    def standard(logits: np.ndarray) -> Tensor:
        return torch.from_numpy(((logits - centre) / spread).astype(np.float32)).to(device)

    inputs, wanted = standard(logits), labels.astype(np.float32)
    gpu = device.type == "cuda"
    pace = _loop.Pace(options.batch, options.learning_rate, cycle=options.epochs, even=True, fused=gpu)
    with _loop.seeded(*draws, device=CPU):
        net = nn.Sequential(
            *mlp(inputs.shape[1], options.width, options.width), nn.Linear(options.width, 1), nn.Flatten(0)
        ).to(device)
    rng = np.random.default_rng(draws)

    def take(rows: np.ndarray, _) -> tuple[Tensor]:
        return (inputs[torch.from_numpy(rows).to(device)],)

    if gpu and TRITON:
        engine = perceptron.Perceptron(net, inputs, wanted, pace, rng)
    else:
        engine = single.Single(single.Autograd(net), take, wanted, pace, draws, rng=lambda _: rng)
    kernel = ObjectiveConfig(kernel="rbf" if options.objective == "rbf" else "energy")
    alignments = kernels().StackedAlignments if gpu and TRITON and kernel.widths else Alignments
    engine.aim(alignments(kernel, [1.0], torch.from_numpy(np.float32(weights)).to(device)[None]))
    for epoch in range(options.epochs):
        engine.epoch(epoch + 1)
    net.load_state_dict({name: weight[0] for name, weight in engine.state().items()})

    def score(logits: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            return torch.cat([net(part) for part in standard(logits).split(SCORED)]).cpu().numpy().astype(np.float64)

    return score
