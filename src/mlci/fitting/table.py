"""The recipe `table`: tokens and outcomes of two splits in, a weight for each token and outcome out, and a curve each.

An admission's log-odds of an outcome are an intercept plus the weights of its tokens: category, prefix and full code,
each counted once. The weights are those of one penalised regression (`_ridge`), whose penalties are chosen by
cross-validation within the training split. Regressions that leave out a fold of patients each give log-odds of
admissions that they have not seen; on these, each outcome's risk is calibrated and the curves are fitted whose sum is
the score (`_curves`). Needs NumPy and SciPy, no torch. The same data and seed give the same bits, and what a stopped
run had finished is not done again.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from mlci.base.blas import single_thread
from mlci.base.errors import InputError
from mlci.config import TableConfig
from mlci.fitting._calibrate import calibrate
from mlci.fitting._checkpoint import Checkpoint, open_checkpoint
from mlci.fitting._collapse import check_importance, outcome_weights, soften
from mlci.fitting._copies import COUNT, MASS, copies
from mlci.fitting._curves import Curves, fit_curves
from mlci.fitting._data import Split, Splits, folds_by_subject
from mlci.fitting._events import Clock, Event
from mlci.fitting._families import KINDS, LOGISTIC, Family
from mlci.fitting._numbers import Targets, Thresholds
from mlci.fitting._people import fit_people
from mlci.fitting._presence import Presence
from mlci.fitting._processes import Group
from mlci.fitting._result import Fit, Record, RecordTable
from mlci.fitting._ridge import Prior, Regressions
from mlci.fitting._weighting import check_values, with_classes
from mlci.measures.weighted import mean
from mlci.tokens import SPECIAL, Tokens

SPREAD = 4.0**-3  # the first variance of a weight that is tried; wider ones follow, or narrower ones
STEP, MOST = 4.0, 6  # by what factor they differ, and how many at most
ROUNDS = 8  # that are usual
SHARES = ((0.2, 0.05), (0.85, 0.97))  # of the variance that is common to all outcomes, instead of half of it
CHOSEN_ON = 40_000  # admissions that penalties are chosen on: variances of weights do not depend on how many there are
FREE = 1e-3  # of the usual penalty: what holds the level of a form of admissions
RARITY = 0.3  # the penalty of a token grows with the number of its admissions to this power
ROUGH, FINE = 1e-3, 1e-6  # tolerances of the regressions


@dataclass(frozen=True)
class Tried:
    """A pair of penalties and what it reached."""

    common: float
    own: float
    unexplained: float  # mean over outcomes of the cross-validated deviance, of that of the rate alone
    error: float = 0.0  # its standard error, from fold to fold, where the firmest pair is asked for


@dataclass(frozen=True)
class TableRecord:
    """Of the recipe `table`: the penalties that were tried and kept, and what the risks reached."""

    tried: tuple[Tried, ...]
    kept: Tried
    weights: dict[str, float]  # of the outcomes in the score
    unexplained: dict[str, float]  # of each outcome's deviance, in patients left out
    calibration: dict[str, tuple[float, float]]
    left_out: str = "patients"  # what a fold leaves out, in a word

    def shown(self) -> Record:
        """Return what was kept and what it reached, and what was tried, as text and tables.

        >>> kept = Tried(0.1, 0.01, 0.8)
        >>> record = TableRecord((kept,), kept, {"died": 1.0}, {"died": 0.8}, {"died": (0.0, 1.0)})
        >>> record.shown().summary.split("; ")[1]
        '20.0% of the deviance explained in patients left out'
        """
        reached = tuple(
            (name, self.weights[name], 1 - self.unexplained[name], *self.calibration[name]) for name in self.weights
        )
        best = _best(self.tried)
        firmest = f" (the firmest within a standard error, {best.error:.1%}, of the best, {1 - best.unexplained:.1%})"
        return Record(
            f"weights with a variance of {self.kept.common:.2g} in common and {self.kept.own:.2g} of an outcome's own; "
            f"{1 - self.kept.unexplained:.1%} of the deviance explained in {self.left_out} left out"
            f"{'' if self.kept == best else firmest}",
            (
                RecordTable(
                    f"Risks, judged on {self.left_out} left out",
                    (
                        "Outcome",
                        "Weight in the score",
                        "Deviance explained",
                        "Calibration: shift",
                        "Calibration: slope",
                    ),
                    reached,
                ),
                RecordTable(
                    "Variances of the weights that were tried",
                    ("Variance", "Deviance explained"),
                    tuple(
                        (f"{pair.common:.2g} in common, {pair.own:.2g} of an outcome's own", 1 - pair.unexplained)
                        for pair in self.tried
                    ),
                ),
            ),
        )


def fit_splits(splits: Splits, *, device: str, group: Group, **options: Any) -> Fit:
    """Fit the table of an index, by the processor and in one process.

    Args:
        splits: what it learns from.
        device: cpu; any other is an `InputError`.
        group: of one process; any other is an `InputError`.
        options: of `fit`.

    Returns:
        As `fit` does.

    >>> from mlci.tokens import Tokens, Vocabulary
    >>> tokens = Tokens(np.tile([2, 3], 10).astype(np.int32), np.arange(21))
    >>> split = Split(tokens, np.tile([[1.0], [0.0]], (10, 1)).astype(np.float32), ("mortality",), 4)
    >>> splits = Splits(Vocabulary(("I50", "E11"), (10, 10)), (10,), {"mortality": "died"}, "file", split, split)
    >>> found = fit_splits(splits, device="cpu", group=Group(), config=TableConfig(), seed=1)
    >>> found.state["weights"].shape  # tokens, with two for padding and unknown codes, by outcomes
    (4, 1)
    """
    if device != "cpu":
        raise InputError(f"the recipe table is fitted by the processor; device is {device!r}, allowed is cpu.")
    if group.count > 1:
        raise InputError(f"the recipe table is fitted by one process; {group.count} were started.")
    return fit(splits.train, splits.valid, parents=splits.vocabulary.parents, **options)


@single_thread()  # several would round the last digits otherwise, and the weights are the same on any machine
def fit(
    train: Split,
    valid: Split,
    *,
    config: TableConfig,
    seed: int,
    parents: np.ndarray | None = None,
    checkpoint: Path | None = None,
    on_event: Callable[[Event], None] | None = None,
) -> Fit:
    """Fit a table.

    Args:
        train: what is learned from.
        valid: not learned from; its scores are for whoever reads the fit.
        config: tokens, penalties and curves.
        seed: of the folds, the one thing that is drawn.
        parents: of each token, the next shorter beginning of the same code that is a token; 0 for none. With
            them the same weights are found sooner; `config.copies` needs them.
        checkpoint: a file from which an interrupted fit goes on.
        on_event: called with each step.

    Returns:
        `state` with `weights` (tokens x outcomes), `intercepts`, `calibration` (outcomes x 2: the risk is
        expit(a + b * log-odds)), `people` where the split knows age or sex (`fit_people`), `knots` and `heights`
        (outcomes x points) of the curves whose sum is the score; `log_odds` and `honest`, the training scores, of
        regressions that have not seen the admission; `crossed`, the validation scores of these.

    >>> from mlci.tokens import Tokens
    >>> tokens = Tokens(np.tile([2, 3], 10).astype(np.int32), np.arange(21))
    >>> split = Split(tokens, np.tile([[1.0], [0.0]], (10, 1)).astype(np.float32), ("mortality",), 4)
    >>> found = fit(split, split, config=TableConfig(), seed=1)
    >>> score(found.state, tokens)[:2].round(1)
    array([ 1., -1.])
    """
    _check(train, config)
    parents = np.zeros(train.vocabulary_size, np.int32) if parents is None else parents
    folds = folds_by_subject(train, config.penalty.folds, seed=seed)
    if folds.min() == folds.max():
        raise InputError("All training admissions are of one subject, or one cluster; folds of these need several.")
    saved = open_checkpoint(checkpoint, train, valid, asdict(config), seed, np.bincount(folds).tolist())
    mass, forms = train.weight, COUNT if config.copies else 1
    targets = Targets.of(np.asarray(train.outcomes), train.names, train.numbers, mass)
    tokens = copies(train.tokens, parents, seed=seed) if config.copies else train.tokens
    clock = Clock(ROUNDS + 7.0, on_event)
    whole = _regressions(train, targets, tokens, folds, parents, config.penalty.folds + 1)
    _check_folds(whole, targets.names, train.words)
    tried, start = _choose(whole, forms, config, saved, clock)
    kept = _kept(tried, firm=config.penalty.firm)
    begin = np.repeat(start.mean(axis=1, keepdims=True), whole.count, axis=1)
    weights = whole.solve(Prior(kept.common, kept.own), begin, tolerance=FINE)
    honest = whole.log_odds(weights)[: len(train)]  # of admissions as they are
    clock.tell("weights", 1, 1, {"deviance explained": 1 - kept.unexplained}, work=6)
    learned = weights[: train.vocabulary_size]  # the levels of copies stay behind
    found = _fit(train, targets, honest, learned[:, -1], config, tried, clock)
    return replace(found, crossed=_crossed(found.state, learned[:, :-1], valid.tokens))


def _fit(
    train: Split,
    targets: Targets,
    honest: np.ndarray,
    final: np.ndarray,
    config: TableConfig,
    tried: list[Tried],
    clock: Clock,
) -> Fit:
    """Calibrate what the regressions found, and collapse it to one score."""
    mass = train.weight
    calibration = _calibrated(honest, targets.outcomes, mass, targets.families)
    people = {}
    if train.people is not None:
        people = {"people": fit_people(honest[:, : targets.binary], train.outcomes, train.people, mass)}
    options, names = config.curve, targets.names
    alpha = outcome_weights(
        targets.halves(mass), names, balance=options.balance, importance=options.importance, weight=mass
    )
    labels, counted = _aligned(honest, targets, calibration, alpha, options.observed, mass)
    curves = fit_curves(honest, labels, counted, points=options.points, straight=options.straight, mass=mass)
    clock.tell("curves", 1, 1, {}, work=clock.left)
    rest = _unexplained(honest, targets.outcomes, calibration, targets.families, mass)
    return Fit(
        state={
            "weights": np.concatenate([np.zeros_like(final[:1]), final[1:]]),
            "intercepts": final[0].copy(),
            "calibration": targets.scaled_back(calibration),
            "knots": curves.knots,
            "heights": curves.heights,
            **people,
            **_kinds(targets),
        },
        weights=dict(zip(train.names, alpha.tolist())),
        record=TableRecord(
            tried=tuple(tried),
            kept=_kept(tried, firm=config.penalty.firm),
            weights=dict(zip(names, alpha.tolist())),
            unexplained=dict(zip(names, rest.tolist())),
            calibration={name: (float(a), float(b)) for name, (a, b) in zip(names, calibration)},
            left_out=train.words,
        ),
        seconds=clock.seconds,
        honest=curves(honest),
        log_odds=honest,
    )


def _crossed(state: Mapping[str, np.ndarray], parts: np.ndarray, tokens: Tokens) -> np.ndarray:
    """Return scores by each of the regressions that leave out a fold."""
    presence, curves = Presence.of(tokens, len(parts)), Curves(state["knots"], state["heights"])
    return np.stack([curves(presence.times(part) + part[0]) for part in np.moveaxis(parts, 1, 0)])


def score(state: Mapping[str, np.ndarray], tokens: Tokens) -> np.ndarray:
    """Score admissions with the arrays of a fit.

    Args:
        state: the arrays.
        tokens: of the admissions.

    Returns:
        One number per admission, in order.

    >>> arrays = {"weights": np.array([[0.0], [0.0], [2.0]]), "intercepts": np.array([-1.0])}
    >>> arrays |= {"knots": np.array([[-1.0, 1.0]]), "heights": np.array([[0.0, 0.5]])}
    >>> score(arrays, Tokens(np.array([2]), np.array([0, 1, 1])))  # with the third token, and without any
    array([0.5, 0. ])
    """
    log_odds = Presence.of(tokens, len(state["weights"])).times(state["weights"]) + state["intercepts"]
    return Curves(state["knots"], state["heights"])(log_odds)


def _calibrated(
    log_odds: np.ndarray, outcomes: np.ndarray, weight: np.ndarray | None, families: Sequence[Family] = ()
) -> np.ndarray:
    """Shift and slope of every outcome."""
    columns = zip(log_odds.T, outcomes.T, families or (LOGISTIC,) * log_odds.shape[1])
    return np.stack([calibrate(column, known, weight, family) for column, known, family in columns])


def _aligned(
    honest: np.ndarray,
    targets: Targets,
    calibration: np.ndarray,
    alpha: np.ndarray,
    observed: float,
    weight: np.ndarray | None,
) -> tuple[np.ndarray, np.ndarray]:
    """Return what the score is aligned with, and how much each part counts: outcomes, and the thresholds of numbers."""
    binary, asked = targets.binary, calibration[:, 0] + calibration[:, 1] * honest
    labels = [soften(asked[:, :binary], targets.outcomes[:, :binary], observed=observed)]
    counted = [alpha[:binary]]
    for place in range(binary, len(targets.names)):
        found = Thresholds.of(targets.outcomes[:, place], weight)
        lines = _calibrated(np.repeat(honest[:, [place]], found.beyond.shape[1], axis=1), found.beyond, weight)
        own = lines[:, 0] + lines[:, 1] * honest[:, [place]]
        labels.append(soften(own, found.beyond, observed=observed))
        counted.append(alpha[place] * found.weights)
    return np.hstack(labels), np.concatenate(counted)


def _kinds(targets: Targets) -> dict[str, np.ndarray]:
    """Return the kind of each outcome, by its place in `KINDS`, where some are numbers."""
    if not targets.scales:
        return {}
    return {"kinds": np.array([KINDS.index(family.kind) for family in targets.families], dtype=np.float64)}


def _choose(
    whole: Regressions, forms: int, config: TableConfig, saved: Checkpoint, clock: Clock
) -> tuple[list[Tried], np.ndarray]:
    """Try penalties, from strong to weak, then how much of a weight is common; also the weights of the best.

    Each is judged by the deviance of patients left out, as they were recorded, once their risks are calibrated.
    """
    options, admissions = config.penalty, len(whole.presence) // forms
    every = 1 if options.firm else -(-admissions // CHOSEN_ON)  # what firmness costs does depend on how many there are
    rows = np.arange(0, admissions, every)
    rows = np.concatenate([form * admissions + rows for form in range(forms)])
    sample = whole.take(rows, options.folds)
    if sample.level.any():  # so rare that the sample misses it
        rows = np.arange(len(whole.presence))
        sample = whole.take(rows, options.folds)
    recorded = sample if forms == 1 else sample.take(np.arange(len(rows) // forms), sample.count)
    former = saved.entries.get("penalties")
    done = [Tried(*pair) for pair in former.facts] if former else []
    weights = np.array(former.arrays["best"]) if former else sample.start()
    tried: list[Tried] = []

    def reached(common: float, own: float) -> Tried:
        nonlocal weights
        if len(tried) < len(done):  # in a run that was stopped
            tried.append(done[len(tried)])
            return tried[-1]
        found = sample.solve(Prior(common, own), weights, tolerance=ROUGH)
        attempt = Tried(common, own, *_judged(recorded, found, by_fold=options.firm))
        weights = found if not tried or attempt.unexplained < _best(tried).unexplained else weights
        tried.append(attempt)
        saved.keep("penalties", [astuple(pair) for pair in tried], {"best": weights})
        rounds = max(ROUNDS, len(tried))  # more, while the best lies at the edge of what was tried
        clock.tell("penalties", len(tried), rounds, {"deviance explained": 1 - attempt.unexplained}, unit="try")
        return attempt

    def improve(pairs: Iterable[tuple[float, float]]) -> bool:
        """Go along the pairs for as long as they get better; whether any did."""
        for place, pair in enumerate(pairs):
            best = _best(tried)
            if reached(*pair).unexplained >= best.unexplained:
                return place > 0
        return True

    if options.common is not None and options.own is not None:
        reached(options.common, options.own)
        return tried, weights
    reached(SPREAD / 2, SPREAD / 2)
    wider = [SPREAD / 2 * STEP**power for power in range(1, MOST)]
    if not improve(zip(wider, wider)):
        narrower = [SPREAD / 2 / STEP**power for power in range(1, MOST)]
        improve(zip(narrower, narrower))
    spread = _best(tried).common + _best(tried).own
    if whole.outcomes.shape[1] > 1:
        any(improve((share * spread, (1 - share) * spread) for share in shares) for shares in SHARES)
    common, own = _best(tried).common, _best(tried).own
    any(improve([(factor * common, factor * own)]) for factor in (2.0, 0.5))
    if options.firm:
        common, own = _best(tried).common, _best(tried).own
        for power in range(1, MOST):
            if reached(common, own / 2**power) not in _near(tried):
                break
    return tried, weights


def _judged(sample: Regressions, weights: np.ndarray, *, by_fold: bool) -> tuple[float, float]:
    """Tell what is left unexplained in patients left out, mean over outcomes; if asked, its standard error by folds."""
    log_odds = sample.log_odds(weights)
    calibration = _calibrated(log_odds, sample.outcomes, sample.weight, sample.kinds)

    def unexplained(rows: slice | np.ndarray) -> float:
        weight = None if sample.weight is None else sample.weight[rows]
        return float(_unexplained(log_odds[rows], sample.outcomes[rows], calibration, sample.kinds, weight).mean())

    if not by_fold:
        return unexplained(slice(None)), 0.0
    with np.errstate(divide="ignore", invalid="ignore"):  # a fold without events gives no error, and the best is kept
        parts = [unexplained(sample.folds == fold) for fold in range(sample.count)]
    return unexplained(slice(None)), float(np.std(parts, ddof=1) / np.sqrt(len(parts)))


def _best(tried: Sequence[Tried]) -> Tried:
    return min(tried, key=lambda pair: pair.unexplained)


def _near(tried: Sequence[Tried]) -> list[Tried]:
    """Keep those within a standard error of the best."""
    best = _best(tried)
    return [pair for pair in tried if pair.unexplained <= best.unexplained + best.error]


def _kept(tried: Sequence[Tried], *, firm: bool) -> Tried:
    """Take the best pair; or of those within its standard error, the one whose outcomes have least of their own.

    >>> tried = [Tried(0.1, 0.2, 0.60, 0.02), Tried(0.1, 0.1, 0.61, 0.02), Tried(0.1, 0.05, 0.63, 0.02)]
    >>> _kept(tried, firm=False).own, _kept(tried, firm=True).own
    (0.2, 0.1)
    """
    near = _near(tried) if firm else []
    return min(near or [_best(tried)], key=lambda pair: (pair.own, pair.unexplained))


def _regressions(
    train: Split, targets: Targets, tokens: Tokens, folds: np.ndarray, parents: np.ndarray, count: int
) -> Regressions:
    """Return one regression for each fold left out, and one of all; `tokens` may hold each admission in several forms.

    Of several forms, each has a level of its own, and the weights of categories are drawn towards their mean: what is
    learned of a category in few admissions is that it is a further diagnosis.
    """
    forms = len(tokens) // len(train)
    presence = Presence.of(tokens, train.vocabulary_size + forms - 1)
    weight = None if train.weight is None else np.tile(train.weight, forms)
    alike = None
    if forms > 1:
        weight = np.repeat(MASS, len(train)) * (1.0 if weight is None else weight)
        alike = np.flatnonzero(parents == 0)[len(SPECIAL) :]
        parents = np.pad(parents, (0, forms - 1))
    many, outcomes = _counted(presence, weight), np.tile(targets.outcomes, (forms, 1))
    tightness = (many / np.exp(np.average(np.log(many), weights=many))) ** RARITY
    tightness[train.vocabulary_size :] = FREE
    options = {"weight": weight, "families": targets.families, "alike": alike}
    return Regressions(presence, outcomes, np.tile(folds, forms), parents, tightness, count, **options)


def _counted(presence: Presence, weight: np.ndarray | None) -> np.ndarray:
    """Return how many admissions have each token, each counting as much as its weight; 1 where none has it."""
    if weight is None:
        return np.maximum(np.bincount(presence.ids, minlength=presence.columns), 1).astype(np.float64)
    repeated = np.repeat(weight, np.diff(presence.offsets))
    many = np.bincount(presence.ids, repeated, minlength=presence.columns)
    return np.where(many > 0, many, 1.0)


def _unexplained(
    log_odds: np.ndarray,
    outcomes: np.ndarray,
    calibration: np.ndarray,
    families: Sequence[Family],
    weight: np.ndarray | None = None,
) -> np.ndarray:
    """Return the deviance of each outcome's calibrated risk (or mean), as a share of that of its rate."""
    found = []
    for column, outcome, (shift, slope), family in zip(log_odds.T, outcomes.T, calibration, families):
        known = ~np.isnan(outcome)
        x, y = shift + slope * column[known], outcome[known].astype(np.float64)
        mass = None if weight is None else weight[known]
        rate = mean(y, mass)
        if family.kind == "logistic":
            null = -(rate * np.log(rate) + (1 - rate) * np.log(1 - rate))
        else:
            null = mean(family.loss(np.full_like(y, family.link(rate)), y), mass)
        found.append(float(mean(family.loss(x, y), mass) / null))
    return np.array(found)


def _check_folds(whole: Regressions, names: Sequence[str], words: str) -> None:
    """Refuse an outcome that cannot be learned without one of the folds."""
    for name, level, column in zip(names, whole.level, whole.outcomes.T):
        if level:
            known = column[~np.isnan(column)]
            raise InputError(
                f"{name}: {int(known.sum())} of {len(known)} admissions have it, and without one fold of {words} those "
                "left are all alike; give more admissions, or leave the outcome out."
            )


def _check(train: Split, config: TableConfig) -> None:
    """Refuse what would make a fit meaningless before it begins."""
    check_values(train, "training")
    with_classes(train)
    numbers = () if train.numbers is None else train.numbers.names
    check_importance(config.curve.importance, [*train.names, *numbers], where="curve")
