"""The recipe `table`: tokens and outcomes of two splits in, a weight for each token and outcome out, and a curve each.

An admission's log-odds of an outcome are an intercept plus the weights of its tokens: category, prefix and full code,
each counted once. The weights are those of one penalised regression (`_ridge`), whose penalties are chosen by
cross-validation within the training split (`_penalties`). Regressions that leave out a fold of patients each give
log-odds of admissions that they have not seen; on these, each outcome's risk is calibrated and the curves are fitted
whose sum is the score (`_curves`). Needs NumPy and SciPy, no torch. The same data and seed give the same bits, and what
a stopped run had finished is not done again.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from mlci.base.blas import single_thread
from mlci.base.errors import InputError
from mlci.config import TableConfig
from mlci.fitting._calibrate import calibrate_all, unexplained
from mlci.fitting._checkpoint import open_checkpoint
from mlci.fitting._collapse import check_importance, outcome_weights, soften
from mlci.fitting._copies import COUNT, MASS, copies
from mlci.fitting._curves import Curves, fit_curves
from mlci.fitting._data import Split, Splits, folds_by_subject
from mlci.fitting._events import Clock, Event
from mlci.fitting._families import KINDS
from mlci.fitting._numbers import Targets, Thresholds
from mlci.fitting._penalties import ROUNDS, Tried, choose, preferred
from mlci.fitting._people import fit_people
from mlci.fitting._presence import Presence
from mlci.fitting._processes import Group
from mlci.fitting._result import Fit, Record, RecordTable
from mlci.fitting._ridge import Prior, Regressions
from mlci.fitting._weighting import check_values, with_classes
from mlci.tokens import SPECIAL, Tokens

FREE = 1e-3  # of the usual penalty: what holds the level of a form of admissions
RARITY = 0.3  # the penalty of a token grows with the number of its admissions to this power
FINE = 1e-6  # the tolerance of the regressions


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
        best = preferred(self.tried, firm=False)
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
    tried, start = choose(whole, forms, config.penalty, saved, clock)
    kept = preferred(tried, firm=config.penalty.firm)
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
    calibration = calibrate_all(honest, targets.outcomes, mass, targets.families)
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
    rest = unexplained(honest, targets.outcomes, calibration, targets.families, mass)
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
            kept=preferred(tried, firm=config.penalty.firm),
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
        lines = calibrate_all(np.repeat(honest[:, [place]], found.beyond.shape[1], axis=1), found.beyond, weight)
        own = lines[:, 0] + lines[:, 1] * honest[:, [place]]
        labels.append(soften(own, found.beyond, observed=observed))
        counted.append(alpha[place] * found.weights)
    return np.hstack(labels), np.concatenate(counted)


def _kinds(targets: Targets) -> dict[str, np.ndarray]:
    """Return the kind of each outcome, by its place in `KINDS`, where some are numbers."""
    if not targets.scales:
        return {}
    return {"kinds": np.array([KINDS.index(family.kind) for family in targets.families], dtype=np.float64)}


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
