"""The recipe `table`: turn tokens and outcomes into a weight per token and outcome, and one curve per outcome.

The log-odds of an outcome are an intercept plus the weights of the admission's tokens (category, prefix and full code),
each counted once. The score is a sum of rising curves, one of each outcome's log-odds. A fit has four steps:

1. Choose the penalties by cross-validation within the training split (`_penalties`).
2. Solve the penalised regressions (`_ridge`): one on all training admissions, whose weights are the table, and one
   without each fold of patients, which give out-of-fold log-odds of the training admissions.
3. Calibrate each outcome's risk on the out-of-fold log-odds (`_calibrate`).
4. Fit the curves on the out-of-fold log-odds (`_curves`).

Needs NumPy and SciPy, not torch. The same data and seed give bit-for-bit the same result. A run that was interrupted
continues from its checkpoint.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from mlci.base.blas import single_thread
from mlci.base.errors import InputError
from mlci.config import TableConfig
from mlci.fitting._calibrate import calibrate_all, unexplained
from mlci.fitting._checkpoint import Checkpoint, open_checkpoint
from mlci.fitting._copies import COUNT, MASS, copies
from mlci.fitting._curves import Curves, fit_curves
from mlci.fitting._data import Split, Splits, folds_by_subject
from mlci.fitting._events import Clock, Event
from mlci.fitting._families import KINDS
from mlci.fitting._numbers import Targets, Thresholds
from mlci.fitting._penalties import ROUNDS, TriedPrior, choose_prior, preferred_prior, sampled
from mlci.fitting._people import fit_people
from mlci.fitting._presence import Presence
from mlci.fitting._processes import Group
from mlci.fitting._result import Fit, Record, RecordTable
from mlci.fitting._ridge import Prior, Regressions
from mlci.fitting._soft_labels import check_importance, outcome_weights, soften
from mlci.fitting._weighting import check_values, with_classes
from mlci.tokens import SPECIAL, Tokens

FORM_PENALTY = 1e-3  # penalty factor of the tokens that mark the forms of an admission (`_copies`): nearly free
RARITY = 0.3  # a token's penalty is proportional to (the number of admissions that have it) ** RARITY
TOLERANCE = 1e-6  # of the final regressions, as a share of the deviance
STEPS = 4  # of Newton's method in the final regressions, usually
SAVED = 10.0  # seconds between two checkpoints of their weights


@dataclass(frozen=True)
class TableRecord:
    """Record of a fit of the recipe `table`: the penalties tried and chosen, and the quality of the risks."""

    tried: tuple[TriedPrior, ...]
    kept: TriedPrior
    weights: dict[str, float]  # how much each outcome counts in the score
    unexplained: dict[str, float]  # share of each outcome's deviance that is left, out of fold
    calibration: dict[str, tuple[float, float]]  # shift and slope of each outcome's log-odds
    left_out: str = "patients"  # what a fold leaves out: patients, clusters or admissions

    def shown(self) -> Record:
        """Return the record as text and tables.

        >>> kept = TriedPrior(0.1, 0.01, 0.8)
        >>> record = TableRecord((kept,), kept, {"died": 1.0}, {"died": 0.8}, {"died": (0.0, 1.0)})
        >>> record.shown().summary.split("; ")[1]
        '20.0% of the deviance explained in patients left out'
        """
        reached = tuple(
            (name, self.weights[name], 1 - self.unexplained[name], *self.calibration[name]) for name in self.weights
        )
        best = preferred_prior(self.tried, firm=False)
        firmest = (
            f" (least specific variance within one standard error, {best.error:.1%}, "
            f"of the best, {1 - best.unexplained:.1%})"
        )
        return Record(
            f"prior variance of the weights: {self.kept.common:.2g} common to all outcomes, "
            f"{self.kept.own:.2g} specific to each; "
            f"{1 - self.kept.unexplained:.1%} of the deviance explained in {self.left_out} left out"
            f"{'' if self.kept == best else firmest}",
            (
                RecordTable(
                    f"Cross-validated risks ({self.left_out} left out)",
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
                    "Prior variances of the weights that were tried",
                    ("Prior variance", "Deviance explained"),
                    tuple(
                        (f"{pair.common:.2g} common, {pair.own:.2g} specific", 1 - pair.unexplained)
                        for pair in self.tried
                    ),
                ),
            ),
        )


def fit_splits(splits: Splits, *, device: str, group: Group, **options: Any) -> Fit:
    """Fit a table, on the CPU and in one process.

    Args:
        splits: the data to learn from.
        device: "cpu"; anything else raises an `InputError`.
        group: a group of one process; a larger one raises an `InputError`.
        options: passed on to `fit`.

    Returns:
        The fit, as `fit` returns it.

    >>> from mlci.tokens import Tokens, Vocabulary
    >>> tokens = Tokens(np.tile([2, 3], 10).astype(np.int32), np.arange(21))
    >>> split = Split(tokens, np.tile([[1.0], [0.0]], (10, 1)).astype(np.float32), ("mortality",), 4)
    >>> splits = Splits(Vocabulary(("I50", "E11"), (10, 10)), (10,), {"mortality": "died"}, "file", split, split)
    >>> found = fit_splits(splits, device="cpu", group=Group(), config=TableConfig(), seed=1)
    >>> found.state["weights"].shape  # tokens, with two for padding and unknown codes, by outcomes
    (4, 1)
    """
    if device != "cpu":
        raise InputError(f"the recipe table is fitted on the CPU; device is {device!r}, allowed is cpu.")
    if group.count > 1:
        raise InputError(f"the recipe table is fitted by one process; {group.count} were started.")
    return fit(splits.train, splits.valid, parents=splits.vocabulary.parents, **options)


@single_thread()  # sums split among BLAS threads are rounded differently; one thread gives the same weights anywhere
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
        train: the split to learn from.
        valid: the validation split. Nothing is learned from it; the fit returns its scores by the regressions of the
            folds.
        config: settings of the recipe.
        seed: seed of the folds and, with `config.copies`, of the codes left out of copies.
        parents: for each token, the next shorter prefix of the same code that is a token; 0 for none. With parents the
            solver converges faster to the same weights. `config.copies` needs them.
        checkpoint: a file from which an interrupted fit continues.
        on_event: called after each step.

    Returns:
        A fit. Its `state` has `weights` (tokens x outcomes), `intercepts`, `calibration` (outcomes x 2: the risk is
        expit(a + b * log-odds)), `knots` and `heights` (outcomes x points) of the curves whose sum is the score, and
        `people` (see `fit_people`) if the split has age or sex. `log_odds` and `out_of_fold` are the out-of-fold
        log-odds and scores of the training admissions. `valid_by_fold` holds the scores of the validation admissions by
        each of the regressions that leave out a fold.

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
        raise InputError("All training admissions are of one subject, or one cluster; cross-validation needs several.")
    saved = open_checkpoint(checkpoint, train, valid, asdict(config), seed, folds)
    mass, forms = train.weight, COUNT if config.copies else 1  # forms of each admission in the regressions
    targets = Targets.of(np.asarray(train.outcomes), train.names, train.numbers, mass)
    tokens = copies(train.tokens, parents, seed=seed) if config.copies else train.tokens
    regressions = _regressions(train, targets, tokens, folds, parents, config.penalty.folds + 1)
    _check_folds(regressions, targets.names, train.fold_unit)
    work = _Work.of(sampled(len(train), config.penalty))
    clock = Clock(work.total, on_event)
    tried, start = choose_prior(regressions, forms, config.penalty, saved, clock)
    kept = preferred_prior(tried, firm=config.penalty.firm)
    weights = _solve(regressions, Prior(kept.common, kept.own), start, saved, clock, work.step)
    out_of_fold = regressions.log_odds(weights)[: len(train)]  # of the admissions as recorded, not of their copies
    explained = {"deviance explained": 1 - kept.unexplained}
    clock.report("weights", 1, 1, explained, work=max(clock.left - work.curves, 0.0))
    weights = weights[: train.vocabulary_size]  # without those of the tokens that mark copies
    fitted = _calibrate_and_collapse(train, targets, out_of_fold, weights[:, -1], config, tried, clock)
    return replace(fitted, valid_by_fold=_scores_by_fold(fitted.state, weights[:, :-1], valid.tokens))


@dataclass(frozen=True)
class _Work:
    """About how long the parts of a fit take, for the time left; 1 is the trial of one penalty."""

    step: float  # of Newton's method on all admissions
    curves: float

    @classmethod
    def of(cls, times: int) -> "_Work":
        """Estimate the work if all training admissions are so many times the sample on which a penalty is tried."""
        return cls(0.5 + 0.35 * times, 2 + 0.06 * times)

    @property
    def total(self) -> float:
        return ROUNDS + STEPS * self.step + self.curves


def _solve(
    regressions: Regressions, prior: Prior, start: np.ndarray, saved: Checkpoint, clock: Clock, work: float
) -> np.ndarray:
    """Solve the final regressions; an interrupted run continues after the last step that the checkpoint has."""
    former = saved.entries.get("weights")
    if former:
        weights = np.array(former.arrays["weights"])
    else:
        weights = np.repeat(start.mean(axis=1, keepdims=True), regressions.count, axis=1)
    steps, ended, lock = 0, False, threading.Lock()

    def keep(group: np.ndarray, reached: np.ndarray) -> None:
        nonlocal steps
        with lock:  # the groups take turns
            if ended:
                return
            weights[:, group] = reached
            saved.keep("weights", None, {"weights": weights}, interval=SAVED)
            if group[0] == 0:  # as much is left of the other group
                steps += 1
                clock.report("weights", steps, max(STEPS, steps + 1), {}, work=work, unit="step")

    try:
        return regressions.solve(prior, weights.copy(), tolerance=TOLERANCE, on_step=keep)
    finally:
        ended = True  # after an interrupt the other group's thread goes on for a while


def _calibrate_and_collapse(
    train: Split,
    targets: Targets,
    out_of_fold: np.ndarray,
    final: np.ndarray,
    config: TableConfig,
    tried: list[TriedPrior],
    clock: Clock,
) -> Fit:
    """Calibrate the risks and fit the curves on out-of-fold log-odds; return the fit.

    `final` are the weights on all training admissions, with the intercepts in the row of token 0.
    """
    mass = train.weight
    calibration = calibrate_all(out_of_fold, targets.outcomes, mass, targets.families)
    people = {}
    if train.people is not None:
        people = {"people": fit_people(out_of_fold[:, : targets.binary], train.outcomes, train.people, mass)}
    options, names = config.curve, targets.names
    alpha = outcome_weights(
        targets.dichotomised(mass), names, balance=options.balance, importance=options.importance, weight=mass
    )
    labels, label_weights = _alignment_labels(out_of_fold, targets, calibration, alpha, options.observed, mass)
    curves = fit_curves(out_of_fold, labels, label_weights, points=options.points, straight=options.straight, mass=mass)
    clock.report("curves", 1, 1, {}, work=clock.left)
    left = unexplained(out_of_fold, targets.outcomes, calibration, targets.families, mass)
    return Fit(
        state={
            "weights": np.concatenate([np.zeros_like(final[:1]), final[1:]]),
            "intercepts": final[0].copy(),
            "calibration": targets.calibration_in_units(calibration),
            "knots": curves.knots,
            "heights": curves.heights,
            **people,
            **_kind_codes(targets),
        },
        weights=dict(zip(train.names, alpha.tolist())),
        record=TableRecord(
            tried=tuple(tried),
            kept=preferred_prior(tried, firm=config.penalty.firm),
            weights=dict(zip(names, alpha.tolist())),
            unexplained=dict(zip(names, left.tolist())),
            calibration={name: (float(a), float(b)) for name, (a, b) in zip(names, calibration)},
            left_out=train.fold_unit,
        ),
        seconds=clock.seconds,
        out_of_fold=curves(out_of_fold),
        log_odds=out_of_fold,
    )


def _scores_by_fold(state: Mapping[str, np.ndarray], parts: np.ndarray, tokens: Tokens) -> np.ndarray:
    """Return the scores of admissions by each of the regressions that leave out a fold: folds x admissions."""
    presence, curves = Presence.of(tokens, len(parts)), Curves(state["knots"], state["heights"])
    return np.stack([curves(presence.times(part) + part[0]) for part in np.moveaxis(parts, 1, 0)])


def score(state: Mapping[str, np.ndarray], tokens: Tokens) -> np.ndarray:
    """Score admissions with the arrays of a fit.

    Args:
        state: the arrays of the fit.
        tokens: the tokens of the admissions.

    Returns:
        One score per admission, in order.

    >>> arrays = {"weights": np.array([[0.0], [0.0], [2.0]]), "intercepts": np.array([-1.0])}
    >>> arrays |= {"knots": np.array([[-1.0, 1.0]]), "heights": np.array([[0.0, 0.5]])}
    >>> score(arrays, Tokens(np.array([2]), np.array([0, 1, 1])))  # with the third token, and without any
    array([0.5, 0. ])
    """
    log_odds = Presence.of(tokens, len(state["weights"])).times(state["weights"]) + state["intercepts"]
    return Curves(state["knots"], state["heights"])(log_odds)


def _alignment_labels(
    out_of_fold: np.ndarray,
    targets: Targets,
    calibration: np.ndarray,
    alpha: np.ndarray,
    observed: float,
    weight: np.ndarray | None,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the labels that the score is aligned with, and the weight of each.

    A binary outcome is one column, mixed with its risk (`soften`). A number becomes one column per threshold
    (`Thresholds`).
    """
    binary, calibrated = targets.binary, calibration[:, 0] + calibration[:, 1] * out_of_fold
    labels = [soften(calibrated[:, :binary], targets.outcomes[:, :binary], observed=observed)]
    label_weights = [alpha[:binary]]
    for place in range(binary, len(targets.names)):
        thresholds = Thresholds.of(targets.outcomes[:, place], weight)
        lines = calibrate_all(
            np.repeat(out_of_fold[:, [place]], thresholds.indicators.shape[1], axis=1), thresholds.indicators, weight
        )
        log_odds = lines[:, 0] + lines[:, 1] * out_of_fold[:, [place]]
        labels.append(soften(log_odds, thresholds.indicators, observed=observed))
        label_weights.append(alpha[place] * thresholds.weights)
    return np.hstack(labels), np.concatenate(label_weights)


def _kind_codes(targets: Targets) -> dict[str, np.ndarray]:
    """Return the kind of each outcome as its position in `KINDS`; nothing if all outcomes are binary."""
    if not targets.scales:
        return {}
    return {"kinds": np.array([KINDS.index(family.kind) for family in targets.families], dtype=np.float64)}


def _regressions(
    train: Split, targets: Targets, tokens: Tokens, folds: np.ndarray, parents: np.ndarray, count: int
) -> Regressions:
    """Return the regressions: one without each fold, and with `count` = folds + 1 a last one on all admissions.

    `tokens` may hold each admission in several forms (`_copies`), one form after another. Each further form then has an
    intercept of its own, and the weights of categories are shrunk towards their mean instead of 0: a category seen in
    few admissions is then taken for an average further diagnosis.
    """
    forms = len(tokens) // len(train)
    presence = Presence.of(tokens, train.vocabulary_size + forms - 1)
    weight = None if train.weight is None else np.tile(train.weight, forms)
    shrunk_to_mean = None
    if forms > 1:
        weight = np.repeat(MASS, len(train)) * (1.0 if weight is None else weight)
        shrunk_to_mean = np.flatnonzero(parents == 0)[len(SPECIAL) :]
        parents = np.pad(parents, (0, forms - 1))
    counts, outcomes = _token_counts(presence, weight), np.tile(targets.outcomes, (forms, 1))
    penalty_factors = (counts / np.exp(np.average(np.log(counts), weights=counts))) ** RARITY
    penalty_factors[train.vocabulary_size :] = FORM_PENALTY
    options = {"weight": weight, "families": targets.families, "shrunk_to_mean": shrunk_to_mean}
    return Regressions(presence, outcomes, np.tile(folds, forms), parents, penalty_factors, count, **options)


def _token_counts(presence: Presence, weight: np.ndarray | None) -> np.ndarray:
    """Return the number of admissions that have each token (the sum of their weights), at least 1 where none has it."""
    if weight is None:
        return np.maximum(np.bincount(presence.ids, minlength=presence.columns), 1).astype(np.float64)
    repeated = np.repeat(weight, np.diff(presence.offsets))
    counts = np.bincount(presence.ids, repeated, minlength=presence.columns)
    return np.where(counts > 0, counts, 1.0)


def _check_folds(regressions: Regressions, names: Sequence[str], fold_unit: str) -> None:
    """Raise an error if an outcome has a single class once some fold is left out."""
    for name, single_class, column in zip(names, regressions.single_class, regressions.outcomes.T):
        if single_class:
            known = column[~np.isnan(column)]
            raise InputError(
                f"{name}: {int(known.sum())} of {len(known)} admissions have it, and without one fold of {fold_unit} "
                "all those left have the same value; give more admissions, or leave the outcome out."
            )


def _check(train: Split, config: TableConfig) -> None:
    """Raise an error for data or settings that would make a fit meaningless."""
    check_values(train, "training")
    with_classes(train)
    numbers = () if train.numbers is None else train.numbers.names
    check_importance(config.curve.importance, [*train.names, *numbers], where="curve")
