"""The inputs of the theory's diagnostics: admissions, outcomes, weights, kernel, and the shared direction.

Turn scores and outcomes, by a protocol, into a `Setting` without missing values, whose attributes are the theory's
symbols. `values` and `u` belong to W~, the matrix of l_t / ||l_t|| times the square root of the outcome's weight.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from mlci.base.errors import InputError
from mlci.judging.theory._outcomes import complete, singular, weighted

FLOOR = 1e-4  # of the score kernel's centred norm, as in training
PAIRS, SEED, SAMPLE = 20_000, 12345, 5_000  # the paper's protocol


@dataclass(frozen=True)
class Setting:
    """One score and several outcomes on the admissions where all of them are known."""

    score: np.ndarray  # as the kernel sees it
    outcomes: np.ndarray
    names: tuple[str, ...]
    weights: np.ndarray
    left_out: dict[str, str]  # outcome -> reason
    protocol: str
    sigma: float
    floor: float
    values: np.ndarray  # singular values of W~
    u: np.ndarray  # its leading left vector

    @property
    def n(self) -> int:
        return len(self.score)

    @property
    def half(self) -> float:
        """B: scores lie in an interval of length 2B."""
        return float(np.ptp(self.score)) / 2

    @cached_property
    def profiles(self) -> np.ndarray:
        """The centred outcomes l_t."""
        return self.outcomes - self.outcomes.mean(axis=0)

    @cached_property
    def stacked(self) -> np.ndarray:
        """W~, an outcome per column."""
        return self.profiles * np.sqrt(self.weights / (self.profiles**2).sum(axis=0))

    @cached_property
    def v(self) -> np.ndarray:
        """The direction that the outcomes share."""
        return self.stacked @ self.u / self.values[0]

    @property
    def directions(self) -> np.ndarray:
        """v, then the outcomes' profiles."""
        return np.column_stack([self.v, self.profiles])

    def forms(self, score: np.ndarray, directions: np.ndarray) -> tuple[np.ndarray, float]:
        """Return w' K_c w of each direction, and the norm of K_c, for any score of these admissions."""
        from mlci.measures.alignment import quadratic_forms

        return quadratic_forms(score, directions, kernel="rbf", sigma=self.sigma)


def settle(
    score,
    outcomes,
    names: Sequence[str],
    *,
    weights=None,
    sigma: float | None = None,
    floor: float | None = None,
    protocol: Literal["exact", "paper"] = "exact",
    sample: int | None = None,
    seed: int = SEED,
) -> Setting:
    """Prepare a score and outcomes for the theory.

    Args:
        score: one number per admission.
        outcomes: n x T, NaN if unknown.
        names: of the outcomes.
        weights: of the outcomes, by default equal.
        sigma: the bandwidth; by default the median pairwise difference of scores, at least 0.05 standard deviations.
        floor: lower bound of the kernel's norm; by default 1e-4 ("exact") or none ("paper").
        protocol: "exact" uses all admissions and the scores as they are. "paper" follows the authors' diagnostics: a
            random sample of admissions, scores scaled to [-1, 1], the bandwidth from 20,000 random pairs, no floor, and
            cuts also between tied scores.
        sample: number of admissions to draw; by default all ("exact") or as many as the authors ("paper").
        seed: of the random sample.

    Returns:
        The scores, outcomes and shared direction that all diagnostics start from.

    >>> setting = settle([1, 2, 3, 4], [0, 0, 1, 1], ["mortality"])
    >>> setting.v.round(3).tolist(), setting.floor
    ([-0.5, -0.5, 0.5, 0.5], 0.0001)
    """
    from mlci.measures.alignment import unit_bandwidth

    if protocol not in ("exact", "paper"):
        raise InputError(f"protocol: {protocol!r} is not known; allowed are exact and paper.")
    paper = protocol == "paper"
    score, outcomes, weight, left_out = weighted(score, outcomes, names, weights)
    kept = tuple(weight)
    sample = SAMPLE if sample is None and paper else sample
    if sample is not None and sample < len(score):
        rows = np.random.default_rng(seed).choice(len(score), sample, replace=False)
        score, outcomes, kept, more = complete(score[rows], outcomes[rows], kept)
        left_out |= more
    if not np.ptp(score) > 0:
        raise InputError("all scores are equal, so no cutoff exists.")
    if paper:
        score, sigma = _as_the_authors_scale(score, seed)
    elif sigma is None:
        sigma = unit_bandwidth(score)
    alpha = np.array([weight[name] for name in kept])
    values, u = singular(outcomes, alpha)
    least = (0.0 if paper else FLOOR) if floor is None else floor
    return Setting(score, outcomes, kept, alpha, left_out, protocol, sigma, least, values, u)


def _as_the_authors_scale(score: np.ndarray, seed: int) -> tuple[np.ndarray, float]:
    """Return the scores scaled to [-1, 1], and the median difference of random pairs as the bandwidth."""
    score = 2 * (score - score.min()) / np.ptp(score) - 1
    pairs = np.random.default_rng(seed).integers(0, len(score), (2, PAIRS))
    return score, float(np.median(np.abs(score[pairs[0]] - score[pairs[1]]))) or float(score.std())
