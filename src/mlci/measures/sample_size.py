"""The sample size that a prediction model needs, by the criteria of Riley and colleagues (BMJ 2020;368:m441).

It is the largest of the numbers that keep overfitting small (shrinkage of at most 10%), the apparent fit near the true
one (within 0.05 of Nagelkerke's R²), and the mean risk within 0.05 of the truth.
"""

import numpy as np

SHRINKAGE = 0.9  # least uniform shrinkage factor
OPTIMISM = 0.05  # largest difference of apparent and adjusted R² of Nagelkerke
MARGIN = 0.05  # largest error of the mean risk
NAGELKERKE = 0.15  # Nagelkerke's R² where nothing is known, as the authors advise


def needed(rate: float, parameters: int, *, nagelkerke: float = NAGELKERKE) -> int:
    """Return how many admissions a model for an outcome of this rate needs.

    Args:
        rate: rate of the outcome, between 0 and 1.
        parameters: the number of parameters of the model.
        nagelkerke: the expected R² of Nagelkerke.

    >>> needed(0.02, 31), round(0.02 * needed(0.02, 31))
    (10291, 206)
    """
    largest = -np.expm1(2 * (rate * np.log(rate) + (1 - rate) * np.log1p(-rate)))  # maximum of Cox and Snell's R²
    explained = nagelkerke * largest
    optimism = explained / (explained + OPTIMISM * largest)
    for_fit = max(parameters / ((kept - 1) * np.log1p(-explained / kept)) for kept in (SHRINKAGE, optimism))
    for_rate = (1.959964 / MARGIN) ** 2 * rate * (1 - rate)
    return int(np.ceil(max(for_fit, for_rate)))
