"""The recipe `deep`: turn tokens and outcomes into the weights of one encoder that gives a score and the risks.

How well a score can align with the outcomes depends on an admission only through its risks p(x) = E[y | x]. So the
recipe learns the risks first:

1. An ensemble of encoders learns one logit per outcome. Each member is trained without one fold of patients
   (`_ensemble`).
2. A small network collapses the logits of all outcomes to one score by kernel alignment with the outcomes
   (`_collapse`).
3. One encoder (DeepSets) learns that score from the codes by regression (`distil`). It starts from the weights of the
   first member. Model file and scoring are then the same as for the recipe `paper`.
4. Heads on that encoder learn the ensemble's risks, so that one forward pass gives the score and all risks (`_heads`).

All random choices are functions of (seed, step, epoch). Members that an interrupted run had finished are not trained
again.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mlci.base.errors import InputError
from mlci.config import DeepConfig
from mlci.fitting import _heads, _loop
from mlci.fitting._checkpoint import Checkpoint, open_checkpoint
from mlci.fitting._collapse import CollapsedScore, collapse_to_score
from mlci.fitting._context import DISTIL, HEADS, FitContext
from mlci.fitting._data import Split, Splits, folds_by_subject
from mlci.fitting._ensemble import Member, Posteriors, cross_entropy_metric, schedule_members, train_members
from mlci.fitting._events import Clock, Event
from mlci.fitting._processes import ALONE, Group, own_errors
from mlci.fitting._result import DeepRecord, Epoch, Fit
from mlci.fitting._soft_labels import check_importance
from mlci.fitting._weighting import check_outcomes
from mlci.fitting.encoders import DeepSets, loaded

FROZEN_COST = 0.5  # time of an epoch with the encoder frozen, relative to one in which it is trained


def fit_splits(splits: Splits, **options: Any) -> Fit:
    """Fit the weights of an index.

    Args:
        splits: the data to learn from.
        options: passed on to `fit`.

    Returns:
        The fit, as `fit` returns it.

    >>> from mlci.config import DistilConfig, PosteriorConfig
    >>> from mlci.tokens import Tokens, Vocabulary
    >>> tokens = Tokens(np.tile([2, 3], 10).astype(np.int32), np.arange(21))
    >>> split = Split(tokens, np.tile([[1.0], [0.0]], (10, 1)).astype(np.float32), ("mortality",), 4)
    >>> schedule = {"batch": 4, "learning_rate": 0.02}
    >>> posterior, distilled = PosteriorConfig(members=2, epochs=1, **schedule), DistilConfig(epochs=9, **schedule)
    >>> splits = Splits(Vocabulary(("I50", "E11"), (10, 10)), (10,), {"mortality": "died"}, "file", split, split)
    >>> fit_splits(splits, config=DeepConfig(posterior=posterior, distil=distilled), seed=1).weights
    {'mortality': 1.0}
    """
    return fit(splits.train, splits.valid, **options)


def fit(
    train: Split,
    valid: Split,
    *,
    config: DeepConfig,
    seed: int,
    device: str = "cpu",
    group: Group = ALONE,
    checkpoint: Path | None = None,
    on_event: Callable[[Event], None] | None = None,
) -> Fit:
    """Fit the recipe; all admissions of a training patient are in the same fold.

    Args:
        train: the split to learn from.
        valid: the validation split, which measures the quality of each step.
        config: settings of the recipe.
        seed: random seed; the same seed gives bit-for-bit the same result on the CPU.
        device: cpu, cuda or cuda:N.
        group: the processes that share the members.
        checkpoint: a file from which an interrupted fit continues; members that were finished are not trained again.
        on_event: called after each epoch.

    Returns:
        The fit. Its `out_of_fold` is the score made of out-of-fold risks, on which risk curves must be fitted; its
        `log_odds` are out of fold too.

    >>> from mlci.config import DistilConfig, PosteriorConfig
    >>> from mlci.tokens import Tokens
    >>> tokens = Tokens(np.tile([2, 3], 10).astype(np.int32), np.arange(21))
    >>> split = Split(tokens, np.tile([[1.0], [0.0]], (10, 1)).astype(np.float32), ("mortality",), 4)
    >>> schedule = {"batch": 4, "learning_rate": 0.02}
    >>> posterior, distilled = PosteriorConfig(members=2, epochs=1, **schedule), DistilConfig(epochs=9, **schedule)
    >>> found = fit(split, split, config=DeepConfig(posterior=posterior, distil=distilled), seed=1)
    >>> bool(found.out_of_fold[::2].min() > found.out_of_fold[1::2].max())  # those who died score higher
    True
    """
    _check(train, valid, config)
    folds = folds_by_subject(train, config.posterior.members, seed=seed)
    if folds.min() == folds.max():
        raise InputError("All training admissions are of one subject; an ensemble that leaves some out needs several.")
    facts = ("deep, begun by a member", asdict(config), seed, folds)
    saved = open_checkpoint(checkpoint, train, valid, *facts, group=group)
    untrained = range(len(saved.entries), config.posterior.members)
    context = FitContext(config, seed, torch.device(device))
    epochs = len(schedule_members(context, untrained, group.count)) * config.posterior.epochs
    clock = Clock(context.member_share * epochs + config.distil.epochs + FROZEN_COST * config.heads.epochs, on_event)
    context = replace(context, report=clock.report)
    threads = torch.get_num_threads() if context.device.type == "cpu" else 1
    with _loop.torch_threads(1):
        posteriors, start = _learn_risks(context, train, valid, folds, untrained, saved, group=group, threads=threads)
        with own_errors():  # every process repeats these steps by itself
            collapsed = collapse_to_score(context, posteriors, train, valid)
            state, history = distil(context, train, valid, collapsed, start)
            if not history[-1].quality > 0:  # true for NaN as well
                raise InputError(
                    "The encoder did not learn the collapsed score; raise distil.epochs or lower distil.learning_rate."
                )
            heads = _fit_heads(context, train, valid, posteriors, state)
    weights = dict(zip(train.names, collapsed.weights.tolist()))
    _, [ensemble_entropy] = cross_entropy_metric(valid)(torch.from_numpy(posteriors.ensemble[None, len(train) :]))
    kept = dict(zip(train.names, zip(ensemble_entropy, heads.entropy, *heads.state["calibration"].T.tolist())))
    return Fit(
        state | heads.state,
        weights,
        DeepRecord(config.posterior.members, dict(zip(train.names, collapsed.strength)), weights, history, kept),
        seconds=clock.seconds,
        out_of_fold=collapsed.out_of_fold,
        valid_by_fold=collapsed.valid_by_fold,
        log_odds=posteriors.out_of_fold,
        valid_risks=heads.valid_risks,
    )


def _learn_risks(
    context: FitContext,
    train: Split,
    valid: Split,
    folds: np.ndarray,
    untrained: range,
    saved: Checkpoint,
    *,
    group: Group,
    threads: int,
) -> tuple[Posteriors, Mapping[str, np.ndarray]]:
    """Train the `untrained` members; return the logits of all members, and the weights of the first one."""
    members = [Member.of(saved.entries[f"member {number}"].arrays) for number in range(untrained.start)]
    # The generator is not bound to a name: an exception in this loop then closes it, which cancels the other members.
    for number, member in zip(
        untrained, train_members(context, train, [valid], folds, untrained, group=group, threads=threads)
    ):
        members.append(member if number == 0 else Member(member.logits, {}))
        saved.keep(f"member {number}", None, members[-1].arrays if saved.writes else {})
    saved.entries.clear()
    return Posteriors(np.stack([member.logits for member in members]), folds), members[0].weights


def distil(
    context: FitContext, train: Split, valid: Split, collapsed: CollapsedScore, start: Mapping[str, np.ndarray]
) -> tuple[dict[str, np.ndarray], tuple[Epoch, ...]]:
    """Train one encoder to reproduce the collapsed score from codes (knowledge distillation by regression).

    Args:
        context: the config, the seed and the device.
        train: the training split.
        valid: the validation split.
        collapsed: the score of both splits.
        start: initial weights, as a member has them; weights of other names (of the last layer) start at 0. If empty,
            all weights are initialised at random.

    Returns:
        The encoder's weights, and R² on the validation split after each epoch.

    >>> from mlci.config import DistilConfig
    >>> from mlci.tokens import Tokens
    >>> tokens = Tokens(np.tile([2, 3], 10).astype(np.int32), np.arange(21))
    >>> split = Split(tokens, np.tile([[1.0], [0.0]], (10, 1)).astype(np.float32), ("mortality",), 4)
    >>> score = np.tile([1.0, -1.0], 10)
    >>> collapsed = CollapsedScore(score, score, score, score[None], np.ones(1), [1.0], lambda logits: logits[:, 0])
    >>> context = FitContext(DeepConfig(distil=DistilConfig(epochs=9, batch=4, learning_rate=0.02)), seed=1)
    >>> distil(context, split, split, collapsed, {})[1][-1].quality > 0.5
    True
    """

    def metric(scores: Tensor) -> tuple[list[float], list[list[float]]]:
        error = scores.cpu().numpy().ravel() - collapsed.valid
        r2 = float(1 - np.mean(error**2) / np.var(collapsed.valid))
        return [r2], [[r2]]

    regression = replace(train, outcomes=collapsed.train.astype(np.float32)[:, None], names=("score",))
    rows, seeds = [np.arange(len(train))], [(context.seed, DISTIL)]
    on_epoch = context.epoch_reporter("distil", context.config.distil.epochs, loss="squared error")
    engine, [log] = context.learn("distil", regression, rows, seeds, (valid, metric), on_epoch, start=start)
    return {name: weight[0].cpu().numpy().copy() for name, weight in engine.state().items()}, log.history


def _fit_heads(
    context: FitContext, train: Split, valid: Split, posteriors: Posteriors, state: dict[str, np.ndarray]
) -> _heads.LearnedHeads:
    """Train heads for the ensemble's risks on the encoder, whose weights stay frozen."""
    config, options = context.config, context.config.heads
    ensemble = _heads.EnsembleLogits(
        posteriors.training_logits(config.distil.source), posteriors.out_of_fold, posteriors.logits[:, len(train) :]
    )
    encoder = loaded(
        config.encoder, {name: torch.from_numpy(array).to(context.device) for name, array in state.items()}
    )
    assert isinstance(encoder, DeepSets)
    return _heads.fit_heads(
        encoder,
        ensemble,
        (train, valid),
        options=options,
        seed=(context.seed, HEADS),
        metric=cross_entropy_metric(valid),
        on_epoch=context.epoch_reporter("risks of the one encoder", options.epochs, work=FROZEN_COST),
        stack=context.trains_stacked(options.batch),
    )


def _check(train: Split, valid: Split, config: DeepConfig) -> None:
    """Raise an error for data or settings that would make a fit meaningless."""
    if config.encoder.name != "deepsets":
        raise InputError(f"encoder.name is {config.encoder.name!r}; the recipe deep distils into 'deepsets'.")
    check_outcomes(train, valid, anchor=config.selection.anchor)
    check_importance(config.collapse.importance, train.names, where="collapse")
