"""Several log-odds become one score: the sum of a rising piecewise-linear curve of each.

In come log-odds, what the score is to be aligned with, and how much each outcome counts; out come knots and heights.
The curves maximise the weighted sum of squared distance correlations (the energy alignment of `measures.alignment`),
whose gradient needs one sort, by a quasi-Newton method with slopes of at least 0. Needs NumPy and SciPy.
"""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize

from mlci.measures.weighted import mean, quantile, spread

LEAST_BEYOND = 25  # admissions beyond the last knot
MOST_ADMISSIONS = 65_536  # that the curves are fitted on


@dataclass(frozen=True)
class Curves:
    """A curve per outcome, through (knots, heights); beyond its ends it goes on straight."""

    knots: np.ndarray  # outcomes x points, increasing
    heights: np.ndarray  # outcomes x points, never falling

    def __call__(self, log_odds: np.ndarray) -> np.ndarray:
        """Return the score: the sum of the curves at these log-odds, a column per outcome."""
        slopes = np.diff(self.heights) / np.diff(self.knots)
        return sum(
            (
                _segments(column, knots) @ slope + heights[0]
                for column, knots, slope, heights in zip(log_odds.T, self.knots, slopes, self.heights)
            ),
            np.zeros(len(log_odds)),
        )


def fit_curves(
    log_odds: np.ndarray,
    labels: np.ndarray,
    weights: np.ndarray,
    *,
    points: int,
    straight: float = 0.0,
    mass: np.ndarray | None = None,
) -> Curves:
    """Find the curves whose sum has the largest weighted sum of squared distance correlations with the labels.

    Args:
        log_odds: admissions x outcomes.
        labels: admissions x outcomes, from 0 to 1, all known.
        weights: how much each outcome counts.
        points: of each curve.
        straight: the share of the score that is the plain mean of the log-odds, each in its standard deviations. Where
            an outcome is rare the best curve is flat; this share keeps an order there, for hospitals of other patients.
        mass: how much each admission counts, where they count unequally.

    Returns:
        Curves whose sum has mean 0 and standard deviation 1 over these admissions.
    """
    knots = np.stack([_knots(column, points, mass) for column in log_odds.T])
    every = -(-len(log_odds) // MOST_ADMISSIONS)
    basis = np.concatenate([_segments(column, own) for column, own in zip(log_odds[::every].T, knots)], axis=1)
    some = None if mass is None else mass[::every]
    scale = spread(basis, some)
    basis = np.divide(basis, scale, out=np.zeros_like(basis), where=scale > 1e-9)
    wanted = labels[::every] - mean(labels[::every], some)

    def loss(slopes: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = alignment(basis @ slopes, wanted, weights, mass=some)
        return -value, -(gradient @ basis)

    # Start with curves that are straight where most admissions are: one unit per standard deviation of the log-odds.
    start = scale.reshape(knots.shape[0], -1) / spread(log_odds, mass)[:, None]
    found = minimize(loss, start.ravel(), jac=True, method="L-BFGS-B", bounds=[(0, None)] * basis.shape[1])
    slopes = np.divide(found.x, scale, out=np.zeros_like(scale), where=scale > 1e-9).reshape(len(knots), -1)
    curves = _standard(knots, slopes, log_odds, mass)
    if straight:
        lines = np.repeat(1 / spread(log_odds, mass)[:, None], knots.shape[1] - 1, axis=1) / len(knots)
        curved = np.diff(curves.heights) / np.diff(knots)
        curves = _standard(knots, (1 - straight) * curved + straight * lines, log_odds, mass)
    return curves


def _standard(knots: np.ndarray, slopes: np.ndarray, log_odds: np.ndarray, mass: np.ndarray | None) -> Curves:
    """Return curves of these slopes, whose sum has mean 0 and standard deviation 1."""
    heights = np.concatenate([np.zeros((len(knots), 1)), np.cumsum(slopes * np.diff(knots), axis=1)], axis=1)
    plain = Curves(knots, heights)(log_odds)
    unit = spread(plain, mass)
    return Curves(knots, (heights - mean(plain, mass) / len(knots)) / (unit if unit > 0 else 1.0))


def alignment(
    score: np.ndarray, profiles: np.ndarray, weights: np.ndarray, *, mass: np.ndarray | None = None
) -> tuple[float, np.ndarray]:
    """Give the weighted sum of a score's squared distance correlations with centred profiles, and its gradient.

    With the energy kernel K = -|s - s'| the squared distance correlation is lᵀKl / (‖HKH‖ ‖l‖²); sums over all pairs
    are sums along the sorted scores. `mass` says how much each admission counts; an admission of mass 2 is two of them.
    """
    order = np.argsort(score, kind="stable")
    p = np.ones(len(score)) if mass is None else mass[order]
    s, profile = score[order], profiles[order]
    s = s - mean(s, None if mass is None else p)
    n, along = p.sum(), p[:, None] * profile
    rank = 2 * np.cumsum(p) - p - n  # how many are below, less how many are above
    below = np.cumsum(along, axis=0) - along
    signed = 2 * below + along  # Σ of l below, less that above; the whole sum is 0
    forms = -2 * (s[:, None] * along * signed).sum(axis=0)
    weighed = p * s
    rows = rank * s - 2 * (np.cumsum(weighed) - weighed) - weighed  # Σ_j |s_i - s_j|, as Σ s = 0
    own = p * rows
    total = own.sum()
    squared = 2 * n * (weighed @ s) - 2 / n * (own @ rows) + total**2 / n**2
    norm = np.sqrt(max(squared, np.finfo(float).tiny))
    share = weights / np.maximum((along * profile).sum(axis=0), np.finfo(float).tiny)
    value = float(share @ forms) / norm
    before = np.cumsum(own) - own
    by_rows = 2 * before + own - total
    by_norm = p * (4 * n * s - 4 / n * (rows * rank + by_rows) + 4 * total * rank / n**2)
    by_score = (-2 * along * signed) @ share / norm - value / (2 * norm**2) * by_norm
    gradient = np.empty(len(score))
    gradient[order] = by_score
    return value, gradient


def _knots(column: np.ndarray, points: int, mass: np.ndarray | None) -> np.ndarray:
    """Return quantiles, half of them in the upper tenth, none with few beyond it, and no two alike."""
    lower = np.linspace(0.02, 0.9, points - points // 2)
    upper = 1 - np.geomspace(0.1, np.clip(LEAST_BEYOND / len(column), 0.001, 0.09), points // 2 + 1)[1:]
    knots = quantile(column, np.concatenate([lower, upper]), mass)
    least = 1e-3 * max(float(np.ptp(column)), 1e-6)
    return np.maximum.accumulate(knots - least * np.arange(points)) + least * np.arange(points)


def _segments(column: np.ndarray, knots: np.ndarray) -> np.ndarray:
    """Return how far each value has come along each segment between knots; the first and the last have no end."""
    low, high = knots[:-1].copy(), knots[1:].copy()
    low[0], high[-1] = -np.inf, np.inf
    return np.clip(column[:, None], low, high) - knots[:-1]
