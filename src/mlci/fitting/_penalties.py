"""The penalties of the recipe `table`: the regressions of a fit in, pairs of penalties and what each reached out.

A penalty is the variance of the weights: the wider, the weaker. Wider ones are tried for as long as patients left out
are told better, else narrower ones; then how much of the variance is common to all outcomes. A sample of the admissions
is enough for that, and what a stopped run had tried is not tried again. Needs NumPy and SciPy.
"""

from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass

import numpy as np

from mlci.config import PenaltyConfig
from mlci.fitting._calibrate import calibrate_all, unexplained
from mlci.fitting._checkpoint import Checkpoint
from mlci.fitting._events import Clock
from mlci.fitting._ridge import Prior, Regressions

SPREAD = 4.0**-3  # the first variance of a weight that is tried; wider ones follow, or narrower ones
STEP, MOST = 4.0, 6  # by what factor they differ, and how many at most
ROUNDS = 8  # that are usual
SHARES = ((0.2, 0.05), (0.85, 0.97))  # of the variance that is common to all outcomes, instead of half of it
CHOSEN_ON = 40_000  # admissions that penalties are chosen on: variances of weights do not depend on how many there are
ROUGH = 1e-3  # the tolerance of the regressions


@dataclass(frozen=True)
class Tried:
    """A pair of penalties and what it reached."""

    common: float
    own: float
    unexplained: float  # mean over outcomes of the cross-validated deviance, of that of the rate alone
    error: float = 0.0  # its standard error, from fold to fold, where the firmest pair is asked for


def choose(
    whole: Regressions, forms: int, options: PenaltyConfig, saved: Checkpoint, clock: Clock
) -> tuple[list[Tried], np.ndarray]:
    """Try variances of the weights, then how much of them is common; return all that were tried, and the best weights.

    Each is judged by the deviance of patients left out, as they were recorded, once their risks are calibrated.
    `whole` holds each admission in so many `forms`, the recorded one first.
    """
    sample, recorded = _sample(whole, forms, options)
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


def preferred(tried: Sequence[Tried], *, firm: bool) -> Tried:
    """Take the best pair; or of those within its standard error, the one whose outcomes have least of their own.

    >>> tried = [Tried(0.1, 0.2, 0.60, 0.02), Tried(0.1, 0.1, 0.61, 0.02), Tried(0.1, 0.05, 0.63, 0.02)]
    >>> preferred(tried, firm=False).own, preferred(tried, firm=True).own
    (0.2, 0.1)
    """
    near = _near(tried) if firm else []
    return min(near or [_best(tried)], key=lambda pair: (pair.own, pair.unexplained))


def _sample(whole: Regressions, forms: int, options: PenaltyConfig) -> tuple[Regressions, Regressions]:
    """Return what penalties are tried on, every so many admissions in all their forms; and these as recorded."""
    admissions = len(whole.presence) // forms
    every = 1 if options.firm else -(-admissions // CHOSEN_ON)  # what firmness costs does depend on how many there are
    rows = np.arange(0, admissions, every)
    rows = np.concatenate([form * admissions + rows for form in range(forms)])
    sample = whole.take(rows, options.folds)
    if sample.level.any():  # so rare that the sample misses it
        rows = np.arange(len(whole.presence))
        sample = whole.take(rows, options.folds)
    return sample, sample if forms == 1 else sample.take(np.arange(len(rows) // forms), sample.count)


def _judged(sample: Regressions, weights: np.ndarray, *, by_fold: bool) -> tuple[float, float]:
    """Tell what is left unexplained in patients left out, mean over outcomes; if asked, its standard error by folds."""
    log_odds = sample.log_odds(weights)
    calibration = calibrate_all(log_odds, sample.outcomes, sample.weight, sample.kinds)

    def judged(rows: slice | np.ndarray) -> float:
        weight = None if sample.weight is None else sample.weight[rows]
        return float(unexplained(log_odds[rows], sample.outcomes[rows], calibration, sample.kinds, weight).mean())

    if not by_fold:
        return judged(slice(None)), 0.0
    with np.errstate(divide="ignore", invalid="ignore"):  # a fold without events gives no error, and the best is kept
        parts = [judged(sample.folds == fold) for fold in range(sample.count)]
    return judged(slice(None)), float(np.std(parts, ddof=1) / np.sqrt(len(parts)))


def _best(tried: Sequence[Tried]) -> Tried:
    return min(tried, key=lambda pair: pair.unexplained)


def _near(tried: Sequence[Tried]) -> list[Tried]:
    """Keep those within a standard error of the best."""
    best = _best(tried)
    return [pair for pair in tried if pair.unexplained <= best.unexplained + best.error]
