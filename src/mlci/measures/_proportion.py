"""Wilson score intervals of proportions, which are reliable for few events and never leave [0, 1]."""

from statistics import NormalDist

import numpy as np


def wilson(positives, n, *, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
    """Return the lower and upper limit of the Wilson score interval; NaN where n is 0."""
    positives, n = np.asarray(positives, dtype=float), np.asarray(n, dtype=float)
    z = NormalDist().inv_cdf((1 + level) / 2)
    with np.errstate(divide="ignore", invalid="ignore"):
        rate = positives / n
        centre = (rate + z**2 / (2 * n)) / (1 + z**2 / n)
        half = z / (1 + z**2 / n) * np.sqrt(rate * (1 - rate) / n + z**2 / (4 * n**2))
    # With no event (or only events) the limit is the rate itself; rounding must not move it beyond.
    return np.minimum(np.maximum(centre - half, 0), rate), np.maximum(np.minimum(centre + half, 1), rate)
