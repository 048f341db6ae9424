"""The collapse of the recipe `deep`: turn the log-odds of several outcomes into the score that the encoder will learn.

A small network maps the ensemble's log-odds to one score and is trained by kernel alignment with the outcomes, on
out-of-fold log-odds. Alternatively the score is a weighted sum of the log-odds. The score is then oriented so that
larger means sicker, optionally spaced (the monotone transformation with the largest alignment,
`judging.theory.best_spacing`), and standardised.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from mlci.base.blas import single_thread
from mlci.config import ObjectiveConfig, WeightConfig
from mlci.fitting import _loop
from mlci.fitting._context import COLLAPSE, CPU, FitContext
from mlci.fitting._data import Split
from mlci.fitting._engines import perceptron, single
from mlci.fitting._engines.stacked_models import kernels
from mlci.fitting._ensemble import Posteriors
from mlci.fitting._objectives import Alignments
from mlci.fitting._soft_labels import outcome_weights, soften
from mlci.fitting._weighting import stage2_weights
from mlci.fitting.encoders import TRITON, mlp
from mlci.judging.theory import best_spacing
from mlci.measures.alignment import nhsic

SCORED = 65_536  # admissions scored at once, which limits the memory of the hidden layers
Scorer = Callable[[np.ndarray], np.ndarray]  # from logits (admissions x outcomes) to one number per admission


@dataclass(frozen=True)
class CollapsedScore:
    """The score, with mean 0 and SD 1 over the training split."""

    train: np.ndarray  # of the training admissions; the regression target of the encoder
    valid: np.ndarray  # of the validation admissions, from the ensemble
    out_of_fold: np.ndarray  # of the training admissions, from members that have not seen them
    valid_by_fold: np.ndarray  # of the validation admissions, from each member: members x admissions
    weights: np.ndarray  # of the outcomes, mean 1
    strength: list[float]  # squared distance correlation of each outcome's log-odds with the anchor, on validation
    score: Scorer


def collapse_to_score(context: FitContext, posteriors: Posteriors, train: Split, valid: Split) -> CollapsedScore:
    """Collapse the log-odds of several outcomes to one score.

    Args:
        context: the config, the seed and the device.
        posteriors: the logits of the ensemble.
        train: the training split.
        valid: the validation split.

    Returns:
        The score of both splits, and the function that computes it from logits.

    >>> from mlci.config import CollapseConfig, DeepConfig
    >>> from mlci.tokens import Tokens
    >>> tokens = Tokens(np.tile([2, 3], 10).astype(np.int32), np.arange(21))
    >>> split = Split(tokens, np.tile([[1.0], [0.0]], (10, 1)).astype(np.float32), ("mortality",), 4)
    >>> logits = np.tile(np.tile([[1.0], [-1.0]], (20, 1)), (2, 1, 1))
    >>> context = FitContext(DeepConfig(collapse=CollapseConfig(method="sum")), seed=1)
    >>> collapsed = collapse_to_score(context, Posteriors(logits, np.arange(20) % 2), split, split)
    >>> bool(collapsed.train[0] > collapsed.train[1])  # who died scores higher
    True
    """
    options, cuts, outcomes = context.config.collapse, context.config.spacing.cuts, train.outcomes
    anchor = train.names.index(context.config.selection.anchor)
    logits, of_valid = posteriors.out_of_fold, slice(len(train), len(train) + len(valid))
    valid_logits = posteriors.ensemble[of_valid]
    with single_thread():  # more BLAS threads would change the last digit, which the model file records
        observed = valid.outcomes[:, anchor]
        strength = [float(nhsic(column.astype(np.float64), observed, kernel="energy")) for column in valid_logits.T]
    balance, importance = options.preset("balance"), options.importance
    weights = outcome_weights(outcomes, train.names, balance=balance, importance=importance)
    if options.weights == "two-stage":
        weights = weights * stage2_weights(strength, WeightConfig())
        weights = weights / weights.mean()
    labels = soften(logits, outcomes, observed=options.preset("observed"))
    collapse = _collapse(context, logits, labels, weights)
    raw, known = collapse(logits), ~np.isnan(outcomes[:, anchor])
    sign = 1.0 if np.cov(raw[known], outcomes[known, anchor])[0, 1] >= 0 else -1.0
    spacing = best_spacing(sign * raw, labels, weights, cuts=cuts) if cuts else None

    def spaced(logits: np.ndarray) -> np.ndarray:
        upward = sign * collapse(logits)
        return upward if spacing is None else spacing.apply(upward)

    plain = spaced(logits)
    centre, scale = plain.mean(), plain.std() or 1.0

    def score(logits: np.ndarray) -> np.ndarray:
        return (spaced(logits) - centre) / scale

    source = posteriors.training_logits(context.config.distil.source)
    valid_by_fold = np.stack([score(member) for member in posteriors.logits[:, of_valid]])
    return CollapsedScore(score(source), score(valid_logits), score(logits), valid_by_fold, weights, strength, score)


def _collapse(context: FitContext, logits: np.ndarray, labels: np.ndarray, weights: np.ndarray) -> Scorer:
    """Train the network that maps logits to one score, whose direction is still arbitrary; return it as a function."""
    options, device, draws = context.config.collapse, context.device, (context.seed, COLLAPSE)
    if options.method == "sum":
        return lambda logits: logits.astype(np.float64) @ weights
    centre, spread = logits.mean(0), np.maximum(logits.std(0), 1e-6)

    def scaled(logits: np.ndarray) -> Tensor:
        return torch.from_numpy(((logits - centre) / spread).astype(np.float32)).to(device)

    inputs, targets = scaled(logits), labels.astype(np.float32)
    gpu = device.type == "cuda"
    schedule = _loop.Schedule(options.batch, options.learning_rate, cycle=options.epochs, even=True, fused=gpu)
    with _loop.seeded(*draws, device=CPU):
        net = nn.Sequential(
            *mlp(inputs.shape[1], options.width, options.width), nn.Linear(options.width, 1), nn.Flatten(0)
        ).to(device)
    rng = np.random.default_rng(draws)

    def take(rows: np.ndarray, _) -> tuple[Tensor]:
        return (inputs[torch.from_numpy(rows).to(device)],)

    if gpu and TRITON:
        engine = perceptron.Perceptron(net, inputs, targets, schedule, rng)
    else:
        engine = single.Single(single.Autograd(net), take, targets, schedule, draws, rng=lambda _: rng)
    kernel = ObjectiveConfig(kernel="rbf" if options.objective == "rbf" else "energy")
    alignments = kernels().StackedAlignments if gpu and TRITON and kernel.widths else Alignments
    engine.set_objective(alignments(kernel, [1.0], torch.from_numpy(np.float32(weights)).to(device)[None]))
    for epoch in range(options.epochs):
        engine.train_epoch(epoch + 1)
    net.load_state_dict({name: weight[0] for name, weight in engine.state().items()})

    def score(logits: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            return torch.cat([net(part) for part in scaled(logits).split(SCORED)]).cpu().numpy().astype(np.float64)

    return score
