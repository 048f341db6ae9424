import numpy as np
import pytest

from mlci.measures.sample_size import needed


@pytest.mark.parametrize(
    ("rate", "parameters", "cox_snell", "expected"),
    [
        (0.174, 24, 0.288, 662),  # the example of the R package pmsampsize
        (0.5, 1, 0.5, 385),  # few parameters: the mean risk decides
    ],
)
def test_the_published_example_and_the_limits(rate, parameters, cox_snell, expected):
    largest = -np.expm1(2 * (rate * np.log(rate) + (1 - rate) * np.log1p(-rate)))
    assert needed(rate, parameters, nagelkerke=cox_snell / largest) == expected


def test_rarer_outcomes_and_more_parameters_need_more():
    assert needed(0.01, 31) > needed(0.05, 31) > needed(0.3, 31)
    assert needed(0.05, 62) > needed(0.05, 31)
