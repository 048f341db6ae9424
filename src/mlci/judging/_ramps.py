"""A curve as ramps between knots, and what keeps it smooth: the design and the penalty of a regression."""

import numpy as np

BEND = 4.0  # precision of the difference of two neighbouring slopes, per standard deviation of the score
SLOPE = 0.25  # precision of a slope: its prior deviation is 2 per standard deviation of the score


def ramps(x: np.ndarray, knots: np.ndarray) -> np.ndarray:
    """Return how far along each stretch between two knots a score lies; the outer stretches have no end."""
    lower, upper = np.append(-np.inf, knots[1:-1]), np.append(knots[1:-1], np.inf)
    first = np.append(knots[0], knots[1:-1])
    return np.clip(x[:, None], lower, upper) - first


def penalty(size: int) -> np.ndarray:
    """Return quadratic penalty on the parameters: none on the level, one on slopes, one on where slopes differ."""
    steps = np.diff(np.eye(size)[1:], axis=0)
    return BEND * steps.T @ steps + SLOPE * np.diag(np.append(0.0, np.full(size - 1, 1 / (size - 1))))
