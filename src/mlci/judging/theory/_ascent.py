"""The monotone score with the largest J1 (r1* in the paper), as found by projected gradient ascent.

J1 is not concave in the score, so the ascent may find a local maximum. The result is always monotone, lies in [-B, B],
and is at least as good as the score itself and as the starting points of the ascent: the best two-level score, the
isotonic regression of the direction, and the best spacing of the order.
"""

from dataclasses import dataclass

import numpy as np

from mlci.judging.theory._scan import scan
from mlci.judging.theory._setting import Setting
from mlci.judging.theory._spacing import mixture
from mlci.measures.distributions import nondecreasing

GROUPS, STEPS = 128, 60


@dataclass(frozen=True)
class _Groups:
    """Groups of neighbouring admissions that share a level, so that v and K_c become small."""

    member: np.ndarray  # each admission's group
    n: np.ndarray
    v: np.ndarray  # sum of v in the group
    half: float
    sigma: float

    def project(self, levels: np.ndarray) -> np.ndarray:
        """Return the projection of the levels on monotone levels in [-B, B]."""
        return np.clip(nondecreasing(levels, self.n), -self.half, self.half)

    def value(self, levels: np.ndarray) -> tuple[float, np.ndarray]:
        """Return v' K_c v / ||K_c|| of the levels, and its gradient per admission of each group."""
        apart = levels[:, None] - levels
        kernel = np.exp(-((apart / self.sigma) ** 2) / 2)
        share = self.n / self.n.sum()
        rows = kernel @ share
        centred = kernel - rows - rows[:, None] + rows @ share
        pairs = np.outer(self.n, self.n) * centred
        norm = float(np.sqrt((pairs * centred).sum()))
        if norm < 1e-12:
            return 0.0, np.zeros_like(levels)
        ratio = float(self.v @ kernel @ self.v) / norm
        slope = (np.outer(self.v, self.v) - ratio * pairs / norm) / norm
        return ratio, -2 * (slope * kernel * apart).sum(axis=1) / self.sigma**2 / self.n


def best_monotone(setting: Setting) -> np.ndarray:
    """Return r1* in the order of the admissions: the monotone score in [-B, B] with the largest J1 found.

    >>> from mlci.judging.theory._setting import settle
    >>> best_monotone(settle([1, 2, 3, 5], [0, 0, 1, 1], ["mortality"])).tolist()
    [-2.0, -2.0, 2.0, 2.0]
    """
    cuts = scan(setting.score, setting.v)
    best = int(np.argmax(cuts.rho[:, 0] ** 2))
    places = np.linspace(0, len(cuts.split) - 1, GROUPS).round().astype(int)
    tail = len(cuts.split) - 1 - np.geomspace(1, len(cuts.split), GROUPS // 2).round().astype(int) + 1
    chosen = np.unique([*places, *tail, best])
    member = np.searchsorted(cuts.score[chosen], setting.score, side="right")
    n, v = np.bincount(member).astype(float), np.bincount(member, weights=setting.v)
    groups = _Groups(member, n, v, setting.half, setting.sigma)
    _, heights = mixture(cuts.split[chosen], setting.n, cuts.rho[chosen, 0] ** 2)
    middle = (setting.score.max() + setting.score.min()) / 2
    starts = (
        np.where(np.arange(len(n)) > np.searchsorted(chosen, best), 1.0, -1.0),
        nondecreasing(v / n, n),
        np.concatenate([[0.0], np.cumsum(heights)]),
        np.bincount(member, weights=setting.score) / n,
    )
    found = [_climb(groups, _stretched(levels, setting.half))[member] for levels in starts]
    return max([*found, setting.score - middle], key=lambda score: _projected(setting, score))


def _projected(setting: Setting, score: np.ndarray) -> float:
    (form,), norm = setting.forms(score, setting.v[:, None])
    return float(form / max(norm, setting.floor, 1e-300))


def _stretched(levels: np.ndarray, half: float) -> np.ndarray:
    """Return the levels rescaled to the range from -B to B."""
    width = np.ptp(levels)
    return half * (2 * (levels - levels.min()) / width - 1) if width > 0 else levels


def _climb(groups: _Groups, levels: np.ndarray) -> np.ndarray:
    """Climb by projected gradient ascent, with a step that grows on success and shrinks on failure."""
    levels = groups.project(levels)
    value, slope = groups.value(levels)
    steepest = float(np.abs(slope).max())
    step = groups.half / steepest if steepest > 0 else 0.0
    for _ in range(STEPS):
        tried = groups.project(levels + step * slope)
        better, next_slope = groups.value(tried)
        if better > value:
            levels, value, slope, step = tried, better, next_slope, 2 * step
        else:
            step /= 4
    return levels
