"""Distance correlation of two numeric variables: equal to `dcor` and to the binary form, for numbers of any size."""

import dcor
import numpy as np
import pytest

from mlci.base.errors import InputError
from mlci.measures.alignment import distance_correlation
from mlci.measures.numeric import numeric_distance_correlation, numeric_independence

RNG = np.random.default_rng(0)
NORMAL, TIES, FAR = RNG.normal(size=400), RNG.poisson(2, 400).astype(float), RNG.standard_cauchy(400)


@pytest.mark.parametrize(
    ("x", "y"),
    [
        (NORMAL, NORMAL**2 + RNG.normal(size=400)),
        (TIES, np.round(TIES / 2 + RNG.poisson(1, 400))),
        (FAR, RNG.standard_cauchy(400) + FAR),
        (NORMAL[:5], TIES[:5]),
        (np.repeat([0.0, 1.0], 200), TIES),
    ],
    ids=["curved", "ties", "far", "few", "binary"],
)
def test_equals_dcor(x, y):
    assert numeric_distance_correlation(x, y) == pytest.approx(dcor.distance_correlation(x, y), abs=1e-10)
    assert numeric_independence(x, y)[0] == pytest.approx(dcor.u_distance_correlation_sqr(x, y), abs=1e-9)


def test_a_binary_outcome_is_a_special_case():
    y = (RNG.random(400) < 0.3).astype(float)
    assert numeric_distance_correlation(NORMAL + y, y) == pytest.approx(distance_correlation(NORMAL + y, y), abs=1e-12)


def test_whole_numbers_around_a_billion_keep_their_digits():
    x = np.int64(10**12) + RNG.integers(0, 1000, 300)
    y = x + RNG.integers(0, 500, 300)
    small = numeric_distance_correlation(x - 10**12, y - 10**12)
    assert small > 0.8
    assert numeric_distance_correlation(x, y) == pytest.approx(small, abs=1e-12)


def test_what_says_nothing_is_0_and_what_does_not_fit_is_said():
    assert numeric_distance_correlation(NORMAL, np.ones(400)) == 0
    assert numeric_independence(NORMAL, np.ones(400)) == (0.0, 1.0)
    with pytest.raises(InputError, match="y: has 3 numbers and x has 400"):
        numeric_distance_correlation(NORMAL, [1, 2, 3])
    assert numeric_independence(NORMAL, NORMAL**3)[1] < 1e-6
