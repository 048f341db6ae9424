"""Combine several log-odds to one score: a sum of increasing piecewise-linear curves, one per outcome.

The curves maximise the weighted sum of squared distance correlations of the score with the labels, that is, nHSIC with
the energy kernel -|s - s'| (`measures.alignment`). The score is linear in the slopes of the curves, so this is a smooth
problem with bounds (slopes of at least 0), solved by L-BFGS-B; value and gradient need one sort each. Needs NumPy and
SciPy.
"""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize

from mlci.judging._ramps import ramps
from mlci.measures.weighted import mean, quantile, spread

LEAST_BEYOND = 25  # admissions above the last knot, at least
MOST_ADMISSIONS = 65_536  # the curves are fitted on every k-th admission if there are more


@dataclass(frozen=True)
class Curves:
    """One curve per outcome, through (knots, heights); linear extrapolation beyond the ends."""

    knots: np.ndarray  # outcomes x points, increasing
    heights: np.ndarray  # outcomes x points, nondecreasing

    def __call__(self, log_odds: np.ndarray) -> np.ndarray:
        """Return the score: the sum of the curves at these log-odds (admissions x outcomes)."""
        slopes = np.diff(self.heights) / np.diff(self.knots)
        return sum(
            (
                ramps(column, knots) @ slope + heights[0]
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
    """Return the curves whose sum has the largest weighted sum of squared distance correlations with the labels.

    Args:
        log_odds: admissions x outcomes.
        labels: admissions x outcomes, from 0 to 1, all known.
        weights: the weight of each outcome.
        points: number of knots of each curve.
        straight: the share of the score that is the plain mean of the standardised log-odds. The best curve of a rare
            outcome is flat over most of its range; this share keeps admissions in order there, which helps hospitals
            with different patients.
        mass: sampling weight of each admission, if they differ.

    Returns:
        Curves whose sum has mean 0 and standard deviation 1 over these admissions.
    """
    knots = np.stack([_knots(column, points, mass) for column in log_odds.T])
    every = -(-len(log_odds) // MOST_ADMISSIONS)
    basis = np.concatenate([ramps(column, own) for column, own in zip(log_odds[::every].T, knots)], axis=1)
    sample_mass = None if mass is None else mass[::every]
    scale = spread(basis, sample_mass)
    basis = np.divide(basis, scale, out=np.zeros_like(basis), where=scale > 1e-9)
    profiles = labels[::every] - mean(labels[::every], sample_mass)

    def loss(slopes: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = alignment(basis @ slopes, profiles, weights, mass=sample_mass)
        return -value, -(gradient @ basis)

    # Start with straight lines: one unit of the score per standard deviation of the log-odds.
    start = scale.reshape(knots.shape[0], -1) / spread(log_odds, mass)[:, None]
    found = minimize(loss, start.ravel(), jac=True, method="L-BFGS-B", bounds=[(0, None)] * basis.shape[1])
    slopes = np.divide(found.x, scale, out=np.zeros_like(scale), where=scale > 1e-9).reshape(len(knots), -1)
    curves = _standardised(knots, slopes, log_odds, mass)
    if straight:
        lines = np.repeat(1 / spread(log_odds, mass)[:, None], knots.shape[1] - 1, axis=1) / len(knots)
        curved = np.diff(curves.heights) / np.diff(knots)
        curves = _standardised(knots, (1 - straight) * curved + straight * lines, log_odds, mass)
    return curves


def _standardised(knots: np.ndarray, slopes: np.ndarray, log_odds: np.ndarray, mass: np.ndarray | None) -> Curves:
    """Return curves with these slopes, shifted and scaled so that their sum has mean 0 and standard deviation 1."""
    heights = np.concatenate([np.zeros((len(knots), 1)), np.cumsum(slopes * np.diff(knots), axis=1)], axis=1)
    plain = Curves(knots, heights)(log_odds)
    unit = spread(plain, mass)
    return Curves(knots, (heights - mean(plain, mass) / len(knots)) / (unit if unit > 0 else 1.0))


def alignment(
    score: np.ndarray, profiles: np.ndarray, weights: np.ndarray, *, mass: np.ndarray | None = None
) -> tuple[float, np.ndarray]:
    """Return the weighted sum of a score's squared distance correlations with centred profiles, and its gradient.

    With the energy kernel K = -|s - s'| the squared distance correlation is lᵀKl / (‖HKH‖ ‖l‖²). Sums over all pairs of
    admissions become cumulative sums along the sorted scores: Σ_j |s_i - s_j| m_j = r_i s_i - (mass-weighted sum of s
    below i less that above), where r_i is the mass below i less that above. `mass` are sampling weights; an admission
    of mass 2 counts as two.
    """
    order = np.argsort(score, kind="stable")
    p = np.ones(len(score)) if mass is None else mass[order]
    s, profile = score[order], profiles[order]
    s = s - mean(s, None if mass is None else p)
    n, along = p.sum(), p[:, None] * profile
    rank = 2 * np.cumsum(p) - p - n  # mass below, less mass above
    below = np.cumsum(along, axis=0) - along
    signed = 2 * below + along  # Σ l below, less Σ l above; the sum over all is 0
    forms = -2 * (s[:, None] * along * signed).sum(axis=0)  # lᵀKl
    weighed = p * s
    rows = rank * s - 2 * (np.cumsum(weighed) - weighed) - weighed  # row sums Σ_j m_j |s_i - s_j|, using Σ m s = 0
    own = p * rows
    total = own.sum()
    squared = 2 * n * (weighed @ s) - 2 / n * (own @ rows) + total**2 / n**2  # ‖HKH‖²
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
    """Return distinct knots: quantiles, half of them in the upper tenth, with `LEAST_BEYOND` values above the last."""
    lower = np.linspace(0.02, 0.9, points - points // 2)
    upper = 1 - np.geomspace(0.1, np.clip(LEAST_BEYOND / len(column), 0.001, 0.09), points // 2 + 1)[1:]
    knots = quantile(column, np.concatenate([lower, upper]), mass)
    least = 1e-3 * max(float(np.ptp(column)), 1e-6)
    return np.maximum.accumulate(knots - least * np.arange(points)) + least * np.arange(points)
