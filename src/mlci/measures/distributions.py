"""Distributions, root finding and isotonic regression, with NumPy and the standard library alone.

SciPy has all of them, but importing it takes longer than many commands that need a few quantiles. The tests compare
each function with SciPy's.
"""

import math
from collections.abc import Callable
from functools import cache
from statistics import NormalDist

import numpy as np

EULER = 0.5772156649015329  # the Euler–Mascheroni constant
SMALL = 16  # below, the asymptotic series of digamma is not exact to float64
STEPS = 1000  # bound on iterations, which is never reached


def normal_quantile(share: float) -> float:
    """Return the quantile of the standard normal distribution at a `share`.

    >>> round(normal_quantile(0.975), 4)
    1.96
    """
    return NormalDist().inv_cdf(share) if 0 < share < 1 else math.inf * (share - 0.5)


def normal_share(place: float) -> float:
    """Return the cumulative standard normal distribution at a `place`.

    >>> round(normal_share(1.96), 4)
    0.975
    """
    return math.erfc(-place / math.sqrt(2)) / 2


def student_tail(degrees: float, place: float) -> float:
    """Return the upper tail of Student's t distribution with these `degrees` of freedom, beyond a `place` of 0 or more.

    >>> round(student_tail(10, 2.228), 4)
    0.025
    """
    if not place > 0:
        return 0.5 if place == 0 else math.nan
    half, odds = degrees / 2, place * place / degrees
    front = math.exp(_step(half) + math.log(odds) / 2 - (half + 0.5) * math.log1p(odds)) / math.sqrt(math.pi)
    x = 1 / (1 + odds)
    if x < (half + 1) / (half + 2.5):
        return front * _fraction(half, 0.5, x) / 2
    return 0.5 - front * _fraction(0.5, half, odds * x) / 2


@cache
def student_quantile(degrees: float, share: float) -> float:
    """Return the quantile of Student's t distribution with these `degrees` of freedom, at a `share` of 1/2 or more.

    >>> round(student_quantile(10, 0.975), 3)
    2.228
    """
    scale = math.exp(_step(degrees / 2)) / math.sqrt(math.pi * degrees)
    place = normal_quantile(share)  # below the quantile; the tail is convex, so Newton's method increases monotonically
    for _ in range(STEPS):
        density = scale * (1 + place * place / degrees) ** (-(degrees + 1) / 2)
        step = (student_tail(degrees, place) - (1 - share)) / density
        place += step
        if not abs(step) > 1e-10 * place:
            break
    return place


def _step(x: float) -> float:
    """Return log(Γ(x + ½) / Γ(x))."""
    if x < 50:
        return math.lgamma(x + 0.5) - math.lgamma(x)
    return math.log(x) / 2 - 1 / (8 * x) + 1 / (192 * x**3) - 1 / (640 * x**5)


def _fraction(a: float, b: float, x: float) -> float:
    """Return the continued fraction of the incomplete beta function, by Lentz's method."""
    ahead, behind = 1.0, 1 / (1 - (a + b) * x / (a + 1))
    found = behind
    for m in range(1, STEPS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            behind, ahead = 1 / (1 + term * behind), 1 + term / ahead
            found *= behind * ahead
        if abs(behind * ahead - 1) < 1e-15:
            break
    return found / a


def chi_squared_tail(degrees: int, place: float) -> float:
    """Return the upper tail of the chi-squared distribution with whole `degrees` of freedom, beyond a `place`.

    >>> round(chi_squared_tail(1, 3.841), 3), round(chi_squared_tail(2, 5.991), 3)
    (0.05, 0.05)
    """
    half = place / 2
    power = 0.5 if degrees % 2 else 0.0
    total = math.erfc(math.sqrt(half)) if degrees % 2 else 0.0
    while half > 0 and power < degrees / 2:
        total += math.exp(power * math.log(half) - half - math.lgamma(power + 1))
        power += 1
    return total if half > 0 else 1.0


def digamma(counts: np.ndarray | int) -> np.ndarray:
    """Return the digamma function of `counts`, whole numbers from 1.

    >>> digamma(np.array([1, 2])).round(4)
    array([-0.5772,  0.4228])
    """
    counts = np.asarray(counts, dtype=float)
    low = np.minimum(counts, SMALL).astype(int)
    below = np.append(0.0, np.cumsum(1 / np.arange(1, SMALL)))[low - 1] - EULER  # 1 + 1/2 + 1/3 + ...
    x = np.maximum(counts, SMALL)
    square = 1 / (x * x)
    series = square * (1 / 12 - square * (1 / 120 - square * (1 / 252 - square * (1 / 240 - square / 132))))
    return np.where(counts < SMALL, below, np.log(x) - 0.5 / x - series)


def root(function: Callable[[float], float], low: float, high: float, *, close: float = 2e-12) -> float:
    """Return a root of a `function` of opposite signs at `low` and `high`, within `close`, by Chandrupatla's method.

    >>> round(root(lambda x: x * x - 2, 0.0, 2.0), 6)
    1.414214
    """
    last, here = low, high
    at_last, at_here = function(last), function(here)
    if at_last * at_here >= 0:
        if at_last * at_here > 0:
            raise ValueError("the function has the same sign at both ends")
        return here if at_here == 0 else last
    share, best = 0.5, here
    for _ in range(STEPS):
        place = here + share * (last - here)
        value = function(place)
        if (value > 0) == (at_here > 0):
            before, at_before = here, at_here
        else:
            before, at_before, last, at_last = last, at_last, here, at_here
        here, at_here = place, value
        best, at_best = (here, at_here) if abs(at_here) < abs(at_last) else (last, at_last)
        least = (close + 4e-16 * abs(best)) / 2 / abs(last - here)
        if least > 0.5 or at_best == 0:
            break
        across, along = (at_here - at_last) / (at_before - at_last), (here - last) / (before - last)
        share = 0.5
        if across**2 < along and (1 - across) ** 2 < 1 - along:  # inverse quadratic interpolation is safe
            share = at_here / (at_last - at_here) * at_before / (at_last - at_before)
            share += (before - here) / (last - here) * at_here / (at_before - at_here) * at_last / (at_before - at_last)
        share = min(max(share, least), 1 - least)
    return best


def nondecreasing(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the isotonic regression: the nondecreasing numbers nearest to `values`, with squares times `weights`.

    This is the pool-adjacent-violators algorithm: neighbours in the wrong order are replaced by their mean until none
    is left. All runs of violators are pooled at once as long as that shortens the array quickly, then one by one.

    >>> nondecreasing(np.array([1.0, 3.0, 2.0, 4.0]), np.ones(4)).tolist()
    [1.0, 2.5, 2.5, 4.0]
    """
    mass, total = np.asarray(weights, dtype=float), np.asarray(values, dtype=float) * weights
    means, size = np.asarray(values, dtype=float), np.ones(len(values), dtype=int)
    while True:
        rises = means[1:] > means[:-1]
        starts = np.flatnonzero(np.append(True, rises)[: len(means)])
        if len(starts) == len(means):
            return np.repeat(means, size)
        few = len(starts) > 0.9 * len(means)
        mass, total, size = (np.add.reduceat(part, starts) for part in (mass, total, size))
        means = total / mass
        if few:
            return _pooled(total, mass, size)


def _pooled(total: np.ndarray, mass: np.ndarray, size: np.ndarray) -> np.ndarray:
    """Finish `nondecreasing` from groups of neighbours, one by one."""
    blocks: list[tuple[float, float, int]] = []
    for own, weight, many in zip(total.tolist(), mass.tolist(), size.tolist()):
        while blocks and blocks[-1][0] * weight >= own * blocks[-1][1]:
            before, heavier, more = blocks.pop()
            own, weight, many = own + before, weight + heavier, many + more
        blocks.append((own, weight, many))
    found = np.array(blocks)
    return np.repeat(found[:, 0] / found[:, 1], found[:, 2].astype(int))
