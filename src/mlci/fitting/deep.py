"""The recipe `deep`: tokens and outcomes of two splits in, the weights of one encoder out.

What an alignment can reach depends on an admission only through the risks of its outcomes. So an ensemble learns these
first, one logit per outcome, each member without a fold of the training split; then a small network collapses them to
one score by kernel alignment, on risks of admissions that the risk's member has not seen; then one DeepSets, which
begins as the first member ended, learns that score from codes, so that model file and scoring are those of the paper's
recipe; and heads on it (`_heads`) learn the ensemble's risks, which the same pass then gives. What is drawn at random
is a function of (seed, step, epoch); members that a stopped run had finished are not trained again. On a GPU the
members are trained at once.
"""

import hashlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from mlci.base.blas import single_thread
from mlci.base.errors import InputError
from mlci.config import DeepConfig, ObjectiveConfig, WeightConfig
from mlci.fitting import _heads, _loop
from mlci.fitting._checkpoint import open_checkpoint
from mlci.fitting._collapse import check_importance, outcome_weights, soften
from mlci.fitting._data import Split, Splits, folds_by_subject
from mlci.fitting._engines import perceptron, single, stacked
from mlci.fitting._engines.stacks import kernels
from mlci.fitting._events import Clock, Event
from mlci.fitting._objectives import Alignments, MeanLosses, cross_entropy, entropy, squares
from mlci.fitting._processes import ALONE, Group, own_errors
from mlci.fitting._result import DeepRecord, Epoch, Fit, Trained
from mlci.fitting._weighting import check_outcomes, stage2_weights
from mlci.fitting.encoders import TRITON, DeepSets, loaded, mlp
from mlci.judging.theory import best_spacing
from mlci.measures.alignment import nhsic

SCORED = 65_536  # admissions whose logits are collapsed at once
MEMBERS, COLLAPSE, DISTIL, HEADS = 100, 2, 3, 4  # which step draws
PASSING = 0.5  # what an epoch costs in which the encoder stays as it is, beside one in which it learns
CPU = torch.device("cpu")


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
    where = torch.device(device)
    _check(train, valid, config)
    folds = folds_by_subject(train, config.posterior.members, seed=seed)
    if folds.min() == folds.max():
        raise InputError("All training admissions are of one subject; members that leave some out need several.")
    facts = ("deep, begun by a member", asdict(config), seed, hashlib.sha256(folds.tobytes()).hexdigest())
    saved = open_checkpoint(checkpoint, train, valid, *facts, group=group)
    left = range(len(saved.entries), config.posterior.members)
    steps = len(_rounds(left, config, where, group.count)) * config.posterior.epochs
    clock = Clock(Given(config, seed).seen * steps + config.distil.epochs + PASSING * config.heads.epochs, on_event)
    given = Given(config, seed, where, clock.tell)
    said = [Member.kept(saved.entries[f"member {number}"].arrays) for number in range(left.start)]
    threads = torch.get_num_threads() if where.type == "cpu" else 1
    with _loop.torch_threads(1):
        for number, found in zip(left, members(given, train, [valid], folds, left, group=group, threads=threads)):
            said.append(found if number == 0 else Member(found.logits, {}))
            saved.keep(f"member {number}", None, said[-1].arrays if saved.writes else {})
        posteriors, start = Posteriors(np.stack([member.logits for member in said]), folds), said[0].weights
        del said
        saved.entries.clear()
        with own_errors():  # each process does the same
            taught = teach(given, posteriors, train, valid)
            state, history = distil(given, train, valid, taught, start)
            if not history[-1].quality > 0:  # this is so for NaN, too
                raise InputError(
                    "The encoder did not learn the collapsed score; raise distil.epochs or lower distil.learning_rate."
                )
            heads = _keep_risks(given, train, valid, posteriors, state)
    weights = dict(zip(train.names, taught.weights.tolist()))
    [before] = _by_entropy(valid)(torch.from_numpy(posteriors.ensemble[None, len(train) :]))[1]
    kept = dict(zip(train.names, zip(before, heads.entropy, *heads.state["calibration"].T.tolist())))
    record = DeepRecord(config.posterior.members, dict(zip(train.names, taught.strength)), weights, history, kept)
    return Fit(
        state | heads.state,
        weights,
        record,
        seconds=clock.seconds,
        honest=taught.honest,
        crossed=taught.crossed,
        log_odds=posteriors.honest[: len(train)],
        held_out=heads.held_out,
    )


def _rounds(numbers: Sequence[int], config: DeepConfig, device: torch.device, many: int) -> list[list[Sequence[int]]]:
    """Return which members each of so `many` processes trains at a time.

    Its share of all where they are best trained at once, else one:

    >>> _rounds(range(3), DeepConfig(), torch.device("cpu"), 2)
    [[range(0, 1), range(1, 2)], [range(2, 3), range(3, 3)]]
    """
    if stacked.pays(config.encoder, config.posterior.batch, device) and numbers:
        ends = [-(-len(numbers) * process // many) for process in range(many + 1)]  # the first, who tells, has some
        return [[numbers[start:end] for start, end in pairwise(ends)]]
    return [[numbers[start : start + 1] for start in range(at, at + many)] for at in range(0, len(numbers), many)]


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

    def _told(self, step: str, epochs: int, *, loss: str = "cross-entropy", work: float = 1) -> _loop.Tell:
        """Make what tells of a step's epochs: loss and quality, which are means over the models that are trained."""
        quality, sign = ("validation", -1) if loss == "cross-entropy" else ("validation R²", 1)

        def tell(epoch: int, records: list[Trained]) -> None:
            last = [record.history[-1] for record in records]
            found = {loss: float(np.mean([sum(reached.objective) for reached in last]))}
            found[quality] = sign * float(np.mean([reached.quality for reached in last]))
            self.tell(step, epoch, epochs, found, work=work)

        return tell

    def _learn(
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
        """Train encoders of outcomes (`posterior`) or of a score (`distil`), with an output for each; no epoch is lost.

        There is one for each of `rows`, which it sees, and of `seeds`: a single one, whose training ends when `stop` is
        set, or several where that pays. Where some weights are `begun`, the others are 0, and none is drawn at random.
        After each epoch the split of `judged` is judged.
        """
        options, encoder, outputs = getattr(self.config, step), self.config.encoder, split.outcomes.shape[1]
        stack = stacked.pays(encoder, options.batch, self.device)
        pace = _loop.Pace(
            options.batch,
            options.learning_rate,
            options.weight_decay,
            cycle=options.epochs,
            steps=options.steps,
            token_dropout=options.token_dropout,
        )
        start = {"spread": options.spread, "outputs": outputs, "dropout": options.dropout}
        with _loop.memory_errors(f"{len(rows)} encoders at once") if stack else nullcontext():
            models = [_loop.new_encoder(encoder, split.vocabulary_size, s, self.device, **start) for s in seeds]
            if begun:
                for name, weight in chain.from_iterable(model.state_dict().items() for model in models):
                    weight.copy_(torch.from_numpy(begun[name])) if name in begun else weight.zero_()
            if stack:
                engine = stacked.Stacked(models, split, pace, seeds, rows=rows)
            else:
                [model], [seed], [own] = models, seeds, rows
                engine = single.quickest(model, split, pace, seed, rows=own, stop=stop)
            loss = entropy if step == "posterior" else squares
            engine.aim(MeanLosses(loss, torch.ones(len(models), outputs, device=self.device)))
            facts = {"epochs": options.epochs, "tell": tell, "rate": f"{step}.learning_rate"}
            done, _ = _loop.train(engine, [Trained()] * len(models), held_out=judged[0], judge=judged[1], **facts)
        return engine, done


class Member(NamedTuple):
    """What a member of the ensemble says of all admissions, and its weights but for those of its last layer."""

    logits: np.ndarray
    weights: Mapping[str, np.ndarray]

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """All of it by name."""
        return {"logits": self.logits, **self.weights}

    @classmethod
    def kept(cls, arrays: Mapping[str, np.ndarray]) -> "Member":
        """Give back what `arrays` gave.

        Args:
            arrays: by name.

        Returns:
            The member.

        >>> Member.kept(Member(np.zeros((1, 2)), {"norm.bias": np.ones(4)}).arrays).weights
        {'norm.bias': array([1., 1., 1., 1.])}
        """
        return cls(arrays["logits"], {name: array for name, array in arrays.items() if name != "logits"})


def members(
    given: Given,
    train: Split,
    others: Sequence[Split],
    folds: np.ndarray,
    numbers: Sequence[int],
    *,
    group: Group = ALONE,
    threads: int = 1,
) -> Iterator[Member]:
    """Train the members of the ensemble, each without its fold.

    Args:
        given: the config, the seed and the device.
        train: the split to learn from.
        others: further splits; the first tells how well each epoch went.
        folds: of each training admission, the one member that does not see it.
        numbers: which members to train.
        group: the processes that share them.
        threads: how many members are trained side by side on the CPU; the bits are the same for any number.

    Yields:
        Each member, with its logits of all admissions, the training split first.

    >>> from mlci.config import PosteriorConfig
    >>> from mlci.tokens import Tokens
    >>> tokens = Tokens(np.tile([2, 3], 10).astype(np.int32), np.arange(21))
    >>> split = Split(tokens, np.tile([[1.0], [0.0]], (10, 1)).astype(np.float32), ("mortality",), 4)
    >>> given = Given(DeepConfig(posterior=PosteriorConfig(members=2, epochs=1)), seed=1)
    >>> [member.logits.shape for member in members(given, split, [split], np.arange(20) % 2, range(2))]
    [(40, 1), (40, 1)]
    """
    config, options = given.config, given.config.posterior
    stop, judged = threading.Event(), (others[0], _by_entropy(others[0]))
    whole = _loop.new_encoder(config.encoder, train.vocabulary_size, (given.seed,), CPU).state_dict()
    last = [name for name in whole if name.startswith("rho.")][-1].rpartition(".")[0]
    body = [name for name in whole if not name.startswith(last)]

    def trained(some: Sequence[int]) -> list[Member]:
        who = f"members {some[0] + 1}-{some[-1] + 1}" if len(some) > 1 else f"member {some[0] + 1}"
        told = given._told(f"risks, {who}/{options.members}", options.epochs, work=given.seen)
        rows = [np.flatnonzero(folds != number) for number in some]
        seeds = [(given.seed, MEMBERS + number) for number in some]
        engine, _ = given._learn("posterior", train, rows, seeds, judged, told, stop)
        logits = torch.cat([engine.predict(split) for split in (train, *others)], 1).cpu().numpy()
        weights = {name: engine.state()[name].cpu().numpy().copy() for name in body}
        return [
            Member(said.reshape(-1, len(train.names)), {name: array[place] for name, array in weights.items()})
            for place, said in enumerate(logits)
        ]

    if threads > 1 and group.count == 1 and not stacked.pays(config.encoder, options.batch, given.device):
        yield from _loop.side_by_side(lambda number: trained([number])[0], numbers, threads, stop)
        return
    for shares in _rounds(numbers, config, given.device, group.count):
        own = shares[group.rank]
        with own_errors():
            found = dict(zip(own, trained(own))) if own else {}
        nothing = Member(
            torch.zeros(sum(map(len, (train, *others))), len(train.names)).numpy(),
            {name: torch.zeros_like(whole[name]).numpy() for name in body},
        )
        for number in (number for share in shares for number in share):
            own = found.get(number, nothing).arrays
            yield Member.kept({name: group.sum(array.copy()) for name, array in own.items()})


def _by_entropy(split: Split) -> _loop.Judge:
    """Return what judges logits by the mean cross-entropy of each outcome of a split, summed."""
    known = torch.from_numpy(split.outcomes)
    counts = (known == known).sum(0).clamp(min=1)

    def judge(scores: Tensor) -> tuple[list[float], list[list[float]]]:
        means = (cross_entropy(logits.view_as(known), known).sum(0) / counts for logits in scores.cpu())
        values = [mean.tolist() for mean in means]
        return [-sum(losses) for losses in values], values

    return judge


@dataclass(frozen=True)
class Posteriors:
    """What the members say: `logits` is members x admissions x outcomes, the training admissions first."""

    logits: np.ndarray
    folds: np.ndarray  # of each training admission: the one member that has not seen it

    @property
    def honest(self) -> np.ndarray:
        """The logits of a training admission by the member that has not seen it; of others, the mean."""
        n = len(self.folds)
        return np.concatenate([self.logits[self.folds, np.arange(n)], self.logits[:, n:].mean(0)])

    @property
    def ensemble(self) -> np.ndarray:
        """The mean over members, for training admissions as well."""
        return self.logits.mean(0)


@dataclass(frozen=True)
class Taught:
    """The score to be learned, with mean 0 and SD 1 over the training split, and how it came about."""

    train: np.ndarray
    valid: np.ndarray
    honest: np.ndarray  # of the training admissions, from the risks of members that have not seen them
    crossed: np.ndarray  # of the validation admissions, from the risks of each member
    weights: np.ndarray  # of the outcomes, mean 1
    strength: list[float]  # of each outcome's risk: its distance correlation with the anchor, squared
    score: Callable[[np.ndarray], np.ndarray]  # from logits of any admission


def teach(given: Given, posteriors: Posteriors, train: Split, valid: Split) -> Taught:
    """Collapse the risks of several outcomes to one score, and space it.

    Args:
        given: the config, the seed and the device.
        posteriors: what the members say.
        train: the training split.
        valid: the validation split.

    Returns:
        The score of both splits, and the function that gives it from the logits of any admission.

    >>> from mlci.config import CollapseConfig
    >>> from mlci.tokens import Tokens
    >>> tokens = Tokens(np.tile([2, 3], 10).astype(np.int32), np.arange(21))
    >>> split = Split(tokens, np.tile([[1.0], [0.0]], (10, 1)).astype(np.float32), ("mortality",), 4)
    >>> logits = np.tile(np.tile([[1.0], [-1.0]], (20, 1)), (2, 1, 1))
    >>> given = Given(DeepConfig(collapse=CollapseConfig(method="sum")), seed=1)
    >>> taught = teach(given, Posteriors(logits, np.arange(20) % 2), split, split)
    >>> bool(taught.train[0] > taught.train[1])  # who died scores higher
    True
    """
    config, n, outcomes = given.config, len(train), train.names
    options = config.collapse
    anchor = outcomes.index(config.selection.anchor)
    logits = posteriors.honest[:n]
    held_out = posteriors.ensemble[n : n + len(valid)]
    with single_thread():  # several would round the last digit otherwise, and it stands in the model file
        happened = valid.outcomes[:, anchor]
        strength = [float(nhsic(column.astype(np.float64), happened, kernel="energy")) for column in held_out.T]
    weights = outcome_weights(
        train.outcomes, outcomes, balance=options.preset("balance"), importance=options.importance
    )
    if options.weights == "two-stage":
        weights = weights * stage2_weights(strength, WeightConfig())
        weights = weights / weights.mean()
    labels = soften(logits, train.outcomes, observed=options.preset("observed"))
    raw = _collapse(given, logits, labels, weights)
    known = ~np.isnan(train.outcomes[:, anchor])
    sign = 1.0 if np.cov(raw(logits)[known], train.outcomes[known, anchor])[0, 1] >= 0 else -1.0
    space: Callable[[np.ndarray], np.ndarray] = lambda score: score  # noqa: E731
    if config.spacing.cuts:
        space = best_spacing(sign * raw(logits), labels, weights, cuts=config.spacing.cuts).apply
    plain = space(sign * raw(logits))
    centre, scale = plain.mean(), plain.std() or 1.0

    def score(logits: np.ndarray) -> np.ndarray:
        return (space(sign * raw(logits)) - centre) / scale

    source = logits if config.distil.source == "out-of-fold" else posteriors.ensemble[:n]
    crossed = np.stack([score(part) for part in posteriors.logits[:, n : n + len(valid)]])
    return Taught(score(source), score(held_out), score(logits), crossed, weights, strength, score)


def _collapse(
    given: Given, logits: np.ndarray, labels: np.ndarray, weights: np.ndarray
) -> Callable[[np.ndarray], np.ndarray]:
    """Learn one score from the logits, in no particular direction."""
    options, seed, device = given.config.collapse, given.seed, given.device
    if options.method == "sum":
        return lambda logits: logits.astype(np.float64) @ weights
    centre, scale = logits.mean(0), np.maximum(logits.std(0), 1e-6)

    def standard(logits: np.ndarray) -> Tensor:
        return torch.from_numpy(((logits - centre) / scale).astype(np.float32)).to(device)

    inputs = standard(logits)
    gpu = device.type == "cuda"
    pace = _loop.Pace(options.batch, options.learning_rate, cycle=options.epochs, even=True, fused=gpu)
    kernel = ObjectiveConfig(kernel="rbf" if options.objective == "rbf" else "energy")
    with _loop.seeded(seed, COLLAPSE, device=CPU):
        net = nn.Sequential(
            *mlp(inputs.shape[1], options.width, options.width), nn.Linear(options.width, 1), nn.Flatten(0)
        ).to(device)
    rng, wanted = np.random.default_rng((seed, COLLAPSE)), labels.astype(np.float32)

    def take(rows: np.ndarray, _) -> tuple[Tensor]:
        return (inputs[torch.from_numpy(rows).to(device)],)

    if gpu and TRITON:
        engine = perceptron.Perceptron(net, inputs, wanted, pace, rng)
    else:
        engine = single.Single(single.Autograd(net), take, wanted, pace, (seed, COLLAPSE), rng=lambda _: rng)
    pull = torch.from_numpy(np.float32(weights)).to(device)[None]
    alignments = kernels().StackedAlignments if gpu and TRITON and kernel.widths else Alignments
    engine.aim(alignments(kernel, [1.0], pull))
    for epoch in range(options.epochs):
        engine.epoch(epoch + 1)
    net.load_state_dict({name: weight[0] for name, weight in engine.state().items()})

    def score(logits: np.ndarray) -> np.ndarray:
        with torch.no_grad():  # some at a time, as hidden layers are many times as wide as the logits
            return torch.cat([net(part) for part in standard(logits).split(SCORED)]).cpu().numpy().astype(np.float64)

    return score


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
    told = given._told("distil", given.config.distil.epochs, loss="squared error")
    engine, [record] = given._learn("distil", wanted, rows, seeds, (valid, judge), told, begun=begun)
    return {name: weight[0].cpu().numpy().copy() for name, weight in engine.state().items()}, record.history


def _keep_risks(
    given: Given, train: Split, valid: Split, posteriors: Posteriors, state: dict[str, np.ndarray]
) -> _heads.LearnedHeads:
    """Teach the encoder that holds the score the ensemble's risks as well; what it has learned stays."""
    n, config, options = len(train), given.config, given.config.heads
    source = posteriors.honest if config.distil.source == "out-of-fold" else posteriors.ensemble
    said = _heads.Said(source[:n], posteriors.honest[:n], posteriors.logits[:, n : n + len(valid)])

    encoder = loaded(config.encoder, {name: torch.from_numpy(array).to(given.device) for name, array in state.items()})
    assert isinstance(encoder, DeepSets)
    return _heads.learn(
        encoder,
        said,
        (train, valid),
        options=options,
        seed=(given.seed, HEADS),
        judge=_by_entropy(valid),
        tell=given._told("risks of the one encoder", options.epochs, work=PASSING),
        stack=stacked.pays(config.encoder, options.batch, given.device),
    )


def _check(train: Split, valid: Split, config: DeepConfig) -> None:
    """Tell what would make a fit meaningless before it begins."""
    if config.encoder.name != "deepsets":
        raise InputError(f"encoder.name is {config.encoder.name!r}; the recipe deep distils into 'deepsets'.")
    check_outcomes(train, valid, anchor=config.selection.anchor)
    check_importance(config.collapse.importance, train.names, where="collapse")
