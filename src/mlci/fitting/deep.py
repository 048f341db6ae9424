"""The recipe `deep`: tokens and outcomes of two splits in, the weights of one encoder out.

What an alignment can reach depends on an admission only through the risks of its outcomes. So an ensemble learns these
first, one logit per outcome (`_ensemble`); then a small network collapses them to one score by kernel alignment
(`_teaching`); then one DeepSets, which begins as the first member ended, learns that score from codes, so that model
file and scoring are those of the paper's recipe; and heads on it (`_heads`) learn the ensemble's risks, which the same
pass then gives. What is drawn at random is a function of (seed, step, epoch); members that a stopped run had finished
are not trained again.
"""

import hashlib
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
from mlci.fitting._collapse import check_importance
from mlci.fitting._data import Split, Splits, folds_by_subject
from mlci.fitting._ensemble import Member, Posteriors, by_entropy, members, rounds
from mlci.fitting._events import Clock, Event
from mlci.fitting._given import DISTIL, HEADS, Given
from mlci.fitting._processes import ALONE, Group, own_errors
from mlci.fitting._result import DeepRecord, Epoch, Fit
from mlci.fitting._teaching import Taught, teach
from mlci.fitting._weighting import check_outcomes
from mlci.fitting.encoders import DeepSets, loaded

PASSING = 0.5  # what an epoch costs in which the encoder stays as it is, beside one in which it learns


def fit_splits(splits: Splits, **options: Any) -> Fit:
    """Fit the weights of an index.

    Args:
        splits: what it learns from.
        options: of `fit`.

    Returns:
        As `fit` does.

    >>> from mlci.config import DistilConfig, PosteriorConfig
    >>> from mlci.tokens import Tokens, Vocabulary
    >>> tokens = Tokens(np.tile([2, 3], 10).astype(np.int32), np.arange(21))
    >>> split = Split(tokens, np.tile([[1.0], [0.0]], (10, 1)).astype(np.float32), ("mortality",), 4)
    >>> pace = {"batch": 4, "learning_rate": 0.02}
    >>> posterior, distilled = PosteriorConfig(members=2, epochs=1, **pace), DistilConfig(epochs=9, **pace)
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
    """Fit the recipe; no patient of the training split is in two folds.

    Args:
        train: the split to learn from.
        valid: the split that tells how well each step went.
        config: every constant.
        seed: the same seed gives the same bits on the CPU.
        device: cpu, cuda or cuda:N.
        group: the processes that share the members.
        checkpoint: a file; members that were finished before an interruption are not trained again.
        on_event: called with each epoch.

    Returns:
        A fit whose `honest` is the score from risks of members that have not seen the admission, which is what risk
        curves must be drawn on, and whose `log_odds` are of those members too.

    >>> from mlci.config import DistilConfig, PosteriorConfig
    >>> from mlci.tokens import Tokens
    >>> tokens = Tokens(np.tile([2, 3], 10).astype(np.int32), np.arange(21))
    >>> split = Split(tokens, np.tile([[1.0], [0.0]], (10, 1)).astype(np.float32), ("mortality",), 4)
    >>> pace = {"batch": 4, "learning_rate": 0.02}
    >>> posterior, distilled = PosteriorConfig(members=2, epochs=1, **pace), DistilConfig(epochs=9, **pace)
    >>> found = fit(split, split, config=DeepConfig(posterior=posterior, distil=distilled), seed=1)
    >>> bool(found.honest[::2].min() > found.honest[1::2].max())  # those who died score higher
    True
    """
    _check(train, valid, config)
    folds = folds_by_subject(train, config.posterior.members, seed=seed)
    if folds.min() == folds.max():
        raise InputError("All training admissions are of one subject; members that leave some out need several.")
    facts = ("deep, begun by a member", asdict(config), seed, hashlib.sha256(folds.tobytes()).hexdigest())
    saved = open_checkpoint(checkpoint, train, valid, *facts, group=group)
    left = range(len(saved.entries), config.posterior.members)
    given = Given(config, seed, torch.device(device))
    epochs = len(rounds(given, left, group.count)) * config.posterior.epochs
    clock = Clock(given.seen * epochs + config.distil.epochs + PASSING * config.heads.epochs, on_event)
    given = replace(given, tell=clock.tell)
    threads = torch.get_num_threads() if given.device.type == "cpu" else 1
    with _loop.torch_threads(1):
        posteriors, begun = _learn_risks(given, train, valid, folds, left, saved, group=group, threads=threads)
        with own_errors():  # each process does the same
            taught = teach(given, posteriors, train, valid)
            state, history = distil(given, train, valid, taught, begun)
            if not history[-1].quality > 0:  # this is so for NaN, too
                raise InputError(
                    "The encoder did not learn the collapsed score; raise distil.epochs or lower distil.learning_rate."
                )
            heads = _keep_risks(given, train, valid, posteriors, state)
    weights = dict(zip(train.names, taught.weights.tolist()))
    _, [before] = by_entropy(valid)(torch.from_numpy(posteriors.ensemble[None, len(train) :]))
    kept = dict(zip(train.names, zip(before, heads.entropy, *heads.state["calibration"].T.tolist())))
    return Fit(
        state | heads.state,
        weights,
        DeepRecord(config.posterior.members, dict(zip(train.names, taught.strength)), weights, history, kept),
        seconds=clock.seconds,
        honest=taught.honest,
        crossed=taught.crossed,
        log_odds=posteriors.honest,
        held_out=heads.held_out,
    )


def _learn_risks(
    given: Given,
    train: Split,
    valid: Split,
    folds: np.ndarray,
    left: range,
    saved: Checkpoint,
    *,
    group: Group,
    threads: int,
) -> tuple[Posteriors, Mapping[str, np.ndarray]]:
    """Train the members that are `left`; return what these and the saved ones say, and the weights of the first."""
    said = [Member.of(saved.entries[f"member {number}"].arrays) for number in range(left.start)]
    # Not held by a name: who stops in the loop lets go of the members that are being trained beside it.
    for number, member in zip(left, members(given, train, [valid], folds, left, group=group, threads=threads)):
        said.append(member if number == 0 else Member(member.logits, {}))
        saved.keep(f"member {number}", None, said[-1].arrays if saved.writes else {})
    saved.entries.clear()
    return Posteriors(np.stack([member.logits for member in said]), folds), said[0].weights


def distil(
    given: Given, train: Split, valid: Split, taught: Taught, begun: Mapping[str, np.ndarray]
) -> tuple[dict[str, np.ndarray], tuple[Epoch, ...]]:
    """Teach one encoder the score.

    Args:
        given: the config, the seed and the device.
        train: the training split.
        valid: the validation split.
        taught: the score of both.
        begun: weights to begin with, as a member has them; the others, of the last layer, begin at 0. If there are
            none, all are drawn at random.

    Returns:
        The encoder's weights, and R² on the validation split after each epoch.

    >>> from mlci.config import DistilConfig
    >>> from mlci.tokens import Tokens
    >>> tokens = Tokens(np.tile([2, 3], 10).astype(np.int32), np.arange(21))
    >>> split = Split(tokens, np.tile([[1.0], [0.0]], (10, 1)).astype(np.float32), ("mortality",), 4)
    >>> score = np.tile([1.0, -1.0], 10)
    >>> taught = Taught(score, score, score, score[None], np.ones(1), [1.0], lambda logits: logits[:, 0])
    >>> given = Given(DeepConfig(distil=DistilConfig(epochs=9, batch=4, learning_rate=0.02)), seed=1)
    >>> distil(given, split, split, taught, {})[1][-1].quality > 0.5
    True
    """

    def judge(scores: Tensor) -> tuple[list[float], list[list[float]]]:
        error = scores.cpu().numpy().ravel() - taught.valid
        r2 = float(1 - np.mean(error**2) / np.var(taught.valid))
        return [r2], [[r2]]

    wanted = replace(train, outcomes=taught.train.astype(np.float32)[:, None], names=("score",))
    rows, seeds = [np.arange(len(train))], [(given.seed, DISTIL)]
    tell = given.teller("distil", given.config.distil.epochs, loss="squared error")
    engine, [record] = given.learn("distil", wanted, rows, seeds, (valid, judge), tell, begun=begun)
    return {name: weight[0].cpu().numpy().copy() for name, weight in engine.state().items()}, record.history


def _keep_risks(
    given: Given, train: Split, valid: Split, posteriors: Posteriors, state: dict[str, np.ndarray]
) -> _heads.LearnedHeads:
    """Teach the encoder that holds the score the ensemble's risks as well; what it has learned stays."""
    config, options = given.config, given.config.heads
    said = _heads.Said(posteriors.source(config.distil.source), posteriors.honest, posteriors.logits[:, len(train) :])
    encoder = loaded(config.encoder, {name: torch.from_numpy(array).to(given.device) for name, array in state.items()})
    assert isinstance(encoder, DeepSets)
    return _heads.learn(
        encoder,
        said,
        (train, valid),
        options=options,
        seed=(given.seed, HEADS),
        judge=by_entropy(valid),
        tell=given.teller("risks of the one encoder", options.epochs, work=PASSING),
        stack=given.stacks(options.batch),
    )


def _check(train: Split, valid: Split, config: DeepConfig) -> None:
    """Tell what would make a fit meaningless before it begins."""
    if config.encoder.name != "deepsets":
        raise InputError(f"encoder.name is {config.encoder.name!r}; the recipe deep distils into 'deepsets'.")
    check_outcomes(train, valid, anchor=config.selection.anchor)
    check_importance(config.collapse.importance, train.names, where="collapse")
