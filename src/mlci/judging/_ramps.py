"""A linear spline as a regression on ramps between knots: the design matrix and the smoothness penalty."""

import numpy as np

BEND = 4.0  # prior precision of the difference of two neighbouring slopes, per standard deviation of the score
SLOPE = 0.25  # prior precision of a slope: its prior standard deviation is 2 per standard deviation of the score


def ramps(x: np.ndarray, knots: np.ndarray) -> np.ndarray:
    """Return one column per interval between knots: the part of it below each score; the outer intervals are open."""
    lower, upper = np.append(-np.inf, knots[1:-1]), np.append(knots[1:-1], np.inf)
    first = np.append(knots[0], knots[1:-1])
    return np.clip(x[:, None], lower, upper) - first


def penalty(size: int) -> np.ndarray:
    """Return the quadratic penalty on slopes and on differences of neighbouring slopes; the intercept is free."""
    steps = np.diff(np.eye(size)[1:], axis=0)
    return BEND * steps.T @ steps + SLOPE * np.diag(np.append(0.0, np.full(size - 1, 1 / (size - 1))))
