"""Choose the penalty of the recipe `table` by cross-validation within the training split.

The penalty is the prior variance of the weights (`_ridge.Prior`); a larger variance is a weaker penalty. The search
tries larger variances as long as the out-of-fold deviance falls, else smaller ones, and then the share of the variance
that is common to all outcomes. A sample of the admissions suffices. The attempts are kept in the checkpoint. Needs
NumPy and SciPy.
"""

from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass

import numpy as np

from mlci.config import PenaltyConfig
from mlci.fitting._calibrate import calibrate_all, unexplained
from mlci.fitting._checkpoint import Checkpoint
from mlci.fitting._events import Clock
from mlci.fitting._ridge import Prior, Regressions

FIRST = 4.0**-3  # the first variance to try
STEP, MOST = 4.0, 6  # factor between successive variances, and how many are tried at most in either direction
ROUNDS = 8  # the usual number of attempts, for progress reports
SHARES = ((0.2, 0.05), (0.85, 0.97))  # of the variance in common to all outcomes, tried after one half
CHOSEN_ON = 40_000  # size of the sample: the best variance does not depend on the number of admissions
ROUGH = 1e-3  # tolerance of the regressions of the search


@dataclass(frozen=True)
class TriedPrior:
    """A pair of variances and the out-of-fold deviance it reached."""

    common: float
    own: float
    unexplained: float  # out-of-fold deviance as a share of the deviance of the rate alone, mean over outcomes
    error: float = 0.0  # standard error of `unexplained` over folds; calculated with `firm` alone


def choose_prior(
    regressions: Regressions, forms: int, options: PenaltyConfig, saved: Checkpoint, clock: Clock
) -> tuple[list[TriedPrior], np.ndarray]:
    """Search for the prior variances with the least out-of-fold deviance; return all attempts and the best weights.

    The deviance is that of calibrated risks of the admissions as recorded. `regressions` holds each admission in
    `forms` forms, the recorded one first.
    """
    sample, recorded = _sample(regressions, forms, options)
    former = saved.entries.get("penalties")
    done = [TriedPrior(*pair) for pair in former.facts] if former else []
    weights = np.array(former.arrays["best"]) if former else sample.start()
    tried: list[TriedPrior] = []

    def attempt(common: float, own: float) -> TriedPrior:
        nonlocal weights
        if len(tried) < len(done):  # known from the interrupted run
            tried.append(done[len(tried)])
            return tried[-1]
        found = sample.solve(Prior(common, own), weights, tolerance=ROUGH)
        result = TriedPrior(common, own, *_cross_validated(recorded, found, by_fold=options.firm))
        weights = found if not tried or result.unexplained < _best(tried).unexplained else weights
        tried.append(result)
        saved.keep("penalties", [astuple(pair) for pair in tried], {"best": weights})
        rounds = max(ROUNDS, len(tried))
        clock.report("penalties", len(tried), rounds, {"deviance explained": 1 - result.unexplained}, unit="try")
        return result

    def improve(pairs: Iterable[tuple[float, float]]) -> bool:
        """Try the pairs in order until one is no better than the best so far; return whether any was better."""
        for place, pair in enumerate(pairs):
            best = _best(tried)
            if attempt(*pair).unexplained >= best.unexplained:
                return place > 0
        return True

    if options.common is not None and options.own is not None:
        attempt(options.common, options.own)
        return tried, weights
    attempt(FIRST / 2, FIRST / 2)
    wider = [FIRST / 2 * STEP**power for power in range(1, MOST)]
    if not improve(zip(wider, wider)):
        narrower = [FIRST / 2 / STEP**power for power in range(1, MOST)]
        improve(zip(narrower, narrower))
    spread = _best(tried).common + _best(tried).own
    if regressions.outcomes.shape[1] > 1:
        any(improve((share * spread, (1 - share) * spread) for share in shares) for shares in SHARES)
    common, own = _best(tried).common, _best(tried).own
    any(improve([(factor * common, factor * own)]) for factor in (2.0, 0.5))
    if options.firm:
        common, own = _best(tried).common, _best(tried).own
        for power in range(1, MOST):
            if attempt(common, own / 2**power) not in _near(tried):
                break
    return tried, weights


def preferred_prior(tried: Sequence[TriedPrior], *, firm: bool) -> TriedPrior:
    """Return the best pair; with `firm`, the one of least variance `own` within a standard error of the best.

    >>> tried = [TriedPrior(0.1, 0.2, 0.60, 0.02), TriedPrior(0.1, 0.1, 0.61, 0.02), TriedPrior(0.1, 0.05, 0.63, 0.02)]
    >>> preferred_prior(tried, firm=False).own, preferred_prior(tried, firm=True).own
    (0.2, 0.1)
    """
    near = _near(tried) if firm else []
    return min(near or [_best(tried)], key=lambda pair: (pair.own, pair.unexplained))


def sampled(admissions: int, options: PenaltyConfig) -> int:
    """Return k if the penalty is chosen on every k-th admission.

    >>> sampled(100_000, PenaltyConfig())
    3
    """
    return 1 if options.firm else -(-admissions // CHOSEN_ON)  # the standard error does depend on the sample's size


def _sample(regressions: Regressions, forms: int, options: PenaltyConfig) -> tuple[Regressions, Regressions]:
    """Return every k-th admission in all its forms, and the same admissions as recorded."""
    admissions = len(regressions.presence) // forms
    rows = np.arange(0, admissions, sampled(admissions, options))
    rows = np.concatenate([form * admissions + rows for form in range(forms)])
    sample = regressions.take(rows, options.folds)
    if sample.single_class.any():  # an outcome too rare for the sample: take all admissions
        rows = np.arange(len(regressions.presence))
        sample = regressions.take(rows, options.folds)
    return sample, sample if forms == 1 else sample.take(np.arange(len(rows) // forms), sample.count)


def _cross_validated(sample: Regressions, weights: np.ndarray, *, by_fold: bool) -> tuple[float, float]:
    """Return the share of the out-of-fold deviance left unexplained; with `by_fold`, its standard error as well."""
    log_odds = sample.log_odds(weights)
    calibration = calibrate_all(log_odds, sample.outcomes, sample.weight, sample.outcome_families)

    def left(rows: slice | np.ndarray) -> float:
        weight = None if sample.weight is None else sample.weight[rows]
        return float(
            unexplained(log_odds[rows], sample.outcomes[rows], calibration, sample.outcome_families, weight).mean()
        )

    if not by_fold:
        return left(slice(None)), 0.0
    with np.errstate(divide="ignore", invalid="ignore"):  # a fold without events: the error is NaN, the best is kept
        parts = [left(sample.folds == fold) for fold in range(sample.count)]
    return left(slice(None)), float(np.std(parts, ddof=1) / np.sqrt(len(parts)))


def _best(tried: Sequence[TriedPrior]) -> TriedPrior:
    return min(tried, key=lambda pair: pair.unexplained)


def _near(tried: Sequence[TriedPrior]) -> list[TriedPrior]:
    """Return the attempts within one standard error of the best."""
    best = _best(tried)
    return [pair for pair in tried if pair.unexplained <= best.unexplained + best.error]
