"""The recipe beyond the paper: tokens and outcomes of two splits in, the weights of one encoder out.

What an alignment can reach depends on an admission only through the risks of its outcomes. So an ensemble learns these
first, one logit per outcome, each member without a fold of the training split; then a small network collapses them to
one score by kernel alignment, on risks of admissions that the risk's member has not seen; then one DeepSets learns
that score from codes, so that model file and scoring are those of the paper's recipe. What is drawn at random is a
function of (seed, step, epoch); members that a stopped run had finished are not trained again. On a GPU the members are
trained side by side (`learning`).
"""

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save
from torch import nn

from mlci.base.errors import InputError
from mlci.base.files import atomic, check_writable
from mlci.config import (
    CollapseConfig,
    DeepConfig,
    ObjectiveConfig,
    PaperConfig,
    SelectionConfig,
    WeightConfig,
)
from mlci.fitting import processes
from mlci.fitting._result import DeepRecord, Epoch, Fit
from mlci.fitting.encoders import Encoder, mlp
from mlci.fitting.learning import ENTROPY, SQUARES, Lesson, cross_entropy, pays
from mlci.fitting.objectives import alignment
from mlci.fitting.training import (
    Data,
    Pace,
    check,
    fingerprint,
    limited,
    predict,
    seeded,
    stage2_weights,
)
from mlci.judging.theory import best_spacing
from mlci.measures.alignment import nhsic

SCORED = 65_536  # admissions whose logits are collapsed at once
FOLDS, MEMBERS, COLLAPSE, DISTIL = 1, 100, 2, 3  # which step draws


@dataclass(frozen=True)
class Event:
    """One epoch is over."""

    text: str
    seconds: float  # since the fit began, in this process
    eta: float  # seconds left


def fit(
    train: Data,
    valid: Data,
    *,
    config: DeepConfig,
    outcomes: Sequence[str],
    vocabulary_size: int,
    seed: int,
    subjects: np.ndarray | None = None,
    device: str = "cpu",
    checkpoint: Path | None = None,
    on_event: Callable[[Event], None] | None = None,
) -> Fit:
    """Fit the recipe. With `subjects` (the patient of each training admission) no patient is in two folds.

    In the result, `honest` is the score from risks of members that have not seen the admission, which is what risk
    curves must be drawn on.
    """
    where, start = torch.device(device), time.perf_counter()
    train, valid = (Data(data.tokens, data.outcomes.astype(np.float32)) for data in (train, valid))
    _check(train, valid, config, outcomes)
    folds = draw_folds(len(train), config.posterior.members, seed=seed, subjects=subjects)
    if folds.min() == folds.max():
        raise InputError("All training admissions are of one subject; members that leave some out need several.")
    facts = (asdict(config), list(outcomes), vocabulary_size, seed, hashlib.sha256(folds.tobytes()).hexdigest())
    key = fingerprint(train, valid, *facts)
    saved = Saved.open(checkpoint, key)
    processes.agree(f"{key} {len(saved.logits)}")
    left = range(len(saved.logits), config.posterior.members)
    tell = _teller(config, len(rounds(left, config, where)), start, on_event)
    with limited(1):
        common = {"config": config, "size": vocabulary_size, "seed": seed, "device": where, "tell": tell}
        for logits in members(train, [valid], folds, left, **common):
            if not np.isfinite(logits).all():
                raise InputError("The risks of a member are not finite; lower posterior.learning_rate.")
            saved.keep(logits)
        posteriors = Posteriors(np.stack(saved.logits), folds)
        saved.logits.clear()
        with processes.apart():  # each does the same
            taught = teach(posteriors, train, valid, config=config, outcomes=outcomes, seed=seed)
            model, history = distil(train, valid, taught, **common)
    if not history[-1].quality > 0:  # nor is NaN
        raise InputError(
            "The encoder did not learn the collapsed score; raise distil.epochs or lower distil.learning_rate."
        )
    weights = dict(zip(outcomes, taught.weights.tolist()))
    return Fit(
        state={name: tensor.cpu().numpy().copy() for name, tensor in model.state_dict().items()},
        weights=weights,
        record=DeepRecord(config.posterior.members, dict(zip(outcomes, taught.strength)), weights, history),
        honest=taught.honest,
        seconds=time.perf_counter() - start,
    )


def draw_folds(n: int, members: int, *, seed: int, subjects: np.ndarray | None = None) -> np.ndarray:
    """The fold of each training admission; folds are as even in subjects as can be."""
    groups = np.arange(n) if subjects is None else np.unique(subjects, return_inverse=True)[1]
    order = np.random.default_rng([seed, FOLDS]).permutation(int(groups.max()) + 1)
    return (order % members)[groups]


def rounds(numbers: Sequence[int], config: DeepConfig, device: torch.device) -> list[list[Sequence[int]]]:
    """Which members each process trains at a time: its share of all where they are best trained together, else one."""
    many = processes.count()
    if pays(config.encoder, device) and numbers:
        ends = [-(-len(numbers) * process // many) for process in range(many + 1)]  # the first, who tells, has some
        return [[numbers[start:end] for start, end in pairwise(ends)]]
    return [[numbers[start : start + 1] for start in range(at, at + many)] for at in range(0, len(numbers), many)]


def members(
    train: Data,
    others: Sequence[Data],
    folds: np.ndarray,
    numbers: Sequence[int],
    *,
    config: DeepConfig,
    size: int,
    seed: int,
    device: torch.device,
    tell: Callable[[str], None],
) -> Iterator[np.ndarray]:
    """Logits of all admissions, training split first, by each of the members that have not seen fold `number`."""
    options, held_out = config.posterior, others[0]

    def trained(group: Sequence[int]) -> list[np.ndarray]:
        who = f"members {group[0] + 1}-{group[-1] + 1}" if len(group) > 1 else f"member {group[0] + 1}"

        def after(logits: np.ndarray, epoch: int, loss: float) -> None:
            each = torch.from_numpy(logits.reshape(-1, *held_out.outcomes.shape))
            found = np.mean([float(cross_entropy(one, torch.from_numpy(held_out.outcomes))) for one in each])
            what = f"risks, {who}/{options.members}, epoch {epoch}/{options.epochs}"
            tell(f"{what}: cross-entropy {loss:.4f}; validation {found:.4f}")

        lesson = Lesson(options, config.encoder, size, device, ENTROPY, held_out, after)
        rows = [np.flatnonzero(folds != number) for number in group]
        models = lesson.learn(train, rows, [(seed, MEMBERS + number) for number in group])
        return [
            np.concatenate([predict(model, data.tokens).reshape(data.outcomes.shape) for data in (train, *others)])
            for model in models
        ]

    for groups in rounds(numbers, config, device):
        own = groups[processes.rank()]
        with processes.apart():
            mine = dict(zip(own, trained(own))) if own else {}
        nothing = torch.zeros(len(train) + sum(map(len, others)), train.outcomes.shape[1]).numpy()
        for number in (number for group in groups for number in group):
            yield processes.shared(mine.get(number, nothing))


@dataclass(frozen=True)
class Posteriors:
    """What the members say: `logits` is members x admissions x outcomes, the training admissions first."""

    logits: np.ndarray
    folds: np.ndarray  # of each training admission: the one member that has not seen it

    @property
    def honest(self) -> np.ndarray:
        """Of a training admission the logits of the member that has not seen it, of others the mean."""
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
    weights: np.ndarray  # of the outcomes, mean 1
    strength: list[float]  # of each outcome's risk: its distance correlation with the anchor, squared
    score: Callable[[np.ndarray], np.ndarray]  # from logits of any admission


def teach(
    posteriors: Posteriors, train: Data, valid: Data, *, config: DeepConfig, outcomes: Sequence[str], seed: int
) -> Taught:
    """Collapse the risks to one score and space it."""
    options, n = config.collapse, len(train)
    anchor = list(outcomes).index(config.selection.anchor)
    logits = posteriors.honest[:n]
    held_out = posteriors.ensemble[n : n + len(valid)]
    strength = [
        float(nhsic(column.astype(np.float64), valid.outcomes[:, anchor], kernel="energy")) for column in held_out.T
    ]
    weights = stage2_weights(strength, WeightConfig()) if options.weights == "two-stage" else np.ones(len(outcomes))
    weights = weights * np.nanvar(train.outcomes, axis=0, dtype=np.float64) ** options.preset("balance")
    weights = weights * [options.importance.get(name, 1.0) for name in outcomes]
    weights = weights / weights.mean()
    labels = soften(logits, train.outcomes, options)
    raw = collapse(logits, labels, options=options, weights=weights, seed=seed)
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
    return Taught(score(source), score(held_out), score(logits), weights, strength, score)


def soften(logits: np.ndarray, outcomes: np.ndarray, options: CollapseConfig) -> np.ndarray:
    """What the score is aligned with: outcomes mixed with their risks; the risk alone where an outcome is missing."""
    share = options.preset("observed")
    risks = 1 / (1 + np.exp(-logits.astype(np.float64)))
    return np.where(np.isnan(outcomes), risks, share * np.nan_to_num(outcomes) + (1 - share) * risks)


def collapse(
    logits: np.ndarray, labels: np.ndarray, *, options: CollapseConfig, weights: np.ndarray, seed: int
) -> Callable[[np.ndarray], np.ndarray]:
    """One score from the logits, in no particular direction; on the CPU, where it takes seconds."""
    if options.method == "sum":
        return lambda logits: logits.astype(np.float64) @ weights
    centre, scale = logits.mean(0), np.maximum(logits.std(0), 1e-6)
    kernel = "rbf" if options.objective == "rbf" else "energy"
    inputs, wanted, share = (
        torch.from_numpy(np.asarray(array, dtype=np.float32)) for array in ((logits - centre) / scale, labels, weights)
    )
    parts = max(1, round(len(inputs) / options.batch))
    with seeded(seed, COLLAPSE, device=torch.device("cpu")) as rng:
        net = nn.Sequential(*mlp(inputs.shape[1], options.width, options.width), nn.Linear(options.width, 1))
        optimiser = torch.optim.AdamW(net.parameters(), lr=options.learning_rate, weight_decay=0.0)
        rate = torch.optim.lr_scheduler.OneCycleLR(optimiser, options.learning_rate, total_steps=parts * options.epochs)
        for _ in range(options.epochs):
            for rows in torch.from_numpy(rng.permutation(len(inputs))).tensor_split(parts):
                values = alignment(net(inputs[rows]).squeeze(1), wanted[rows], kernel=kernel)
                optimiser.zero_grad(set_to_none=True)
                (-(share * values).sum()).backward()
                optimiser.step()
                rate.step()

    def score(logits: np.ndarray) -> np.ndarray:
        with torch.no_grad():  # some at a time, as hidden layers are many times as wide as the logits
            parts = torch.from_numpy(((logits - centre) / scale).astype(np.float32)).split(SCORED)
            return torch.cat([net(part) for part in parts]).squeeze(1).numpy().astype(np.float64)

    return score


def distil(
    train: Data,
    valid: Data,
    taught: Taught,
    *,
    config: DeepConfig,
    size: int,
    seed: int,
    device: torch.device,
    tell: Callable[[str], None],
) -> tuple[Encoder, tuple[Epoch, ...]]:
    """One encoder with the taught score, and R² on the validation split after each epoch."""
    history = []

    def after(scores: np.ndarray, epoch: int, loss: float) -> None:
        error = scores.ravel() - taught.valid
        r2 = float(1 - np.mean(error**2) / np.var(taught.valid))
        history.append(Epoch((loss,), (r2,), r2))
        tell(f"distil, epoch {epoch}/{config.distil.epochs}: squared error {loss:.4f}; validation R² {r2:.4f}")

    wanted = Data(train.tokens, taught.train.astype(np.float32)[:, None])
    lesson = Lesson(config.distil, config.encoder, size, device, SQUARES, valid, after)
    model = lesson.learn(wanted, [np.arange(len(train))], [(seed, DISTIL)])[0]
    return model, tuple(history)


@dataclass
class Saved:
    """The logits of the members that are finished, in a file.

    Members trained side by side are finished all at once; a GPU, where that is done, takes seconds for them.
    """

    path: Path | None
    fingerprint: str
    logits: list[np.ndarray]

    @classmethod
    def open(cls, path: Path | None, key: str) -> "Saved":
        """What was saved under `path` by the same fit, or nothing."""
        if path is not None:
            check_writable(path)
        if path is None or not path.exists():
            return cls(path, key, [])
        try:
            with safe_open(path, "numpy") as file:
                found = (file.metadata() or {})["mlci.recipe"]
                logits = [file.get_tensor(f"member.{number}") for number in range(len(file.keys()))]
        except (SafetensorError, KeyError, ValueError):
            raise InputError(f"{path}: is not the checkpoint of such a fit; remove it or name another file.") from None
        if json.loads(found) != key:
            raise InputError(
                f"{path}: is the checkpoint of a fit with other data, settings or seed; remove it or name another file."
            )
        return cls(path, key, logits)

    def keep(self, logits: np.ndarray) -> None:
        self.logits.append(logits)
        if self.path is not None and not processes.rank():
            named = {f"member.{number}": each for number, each in enumerate(self.logits)}
            with atomic(self.path) as temporary:
                temporary.write_bytes(save(named, metadata={"mlci.recipe": json.dumps(self.fingerprint)}))


def _check(train: Data, valid: Data, config: DeepConfig, outcomes: Sequence[str]) -> None:
    """What would make a fit meaningless is told before it begins."""
    if config.encoder.name != "deepsets":
        raise InputError(f"encoder.name is {config.encoder.name!r}; the recipe deep distils into 'deepsets'.")
    wanted = PaperConfig(
        objective=ObjectiveConfig(validity="outcome"), selection=SelectionConfig(anchor=config.selection.anchor)
    )
    check(train, valid, config=wanted, outcomes=outcomes)
    for name, factor in config.collapse.importance.items():
        if name not in outcomes:
            raise InputError(f"collapse.importance: {name} is not an outcome; there is {', '.join(outcomes)}.")
        if not factor > 0:
            raise InputError(f"collapse.importance: {name} counts {factor:g} times; allowed is more than 0.")


def _teller(
    config: DeepConfig, rounds: int, start: float, on_event: Callable[[Event], None] | None
) -> Callable[[str], None]:
    """Passes on what happened, with the time left: an epoch of a member, or of several side by side, lacks a fold."""
    share, whole, done, pace = 1 - 1 / config.posterior.members, rounds * config.posterior.epochs, 0, Pace()

    def tell(text: str) -> None:
        nonlocal done
        done += 1
        spent = share * min(done, whole) + max(done - whole, 0)
        seconds = time.perf_counter() - start
        if on_event:
            rest = share * whole + config.distil.epochs - spent
            on_event(Event(text, seconds, pace.left(seconds, spent, rest)))

    return tell
