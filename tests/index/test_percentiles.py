"""Percentiles are those of `numpy.interp`, bit for bit."""

import numpy as np
import pytest

from mlci.index import _percentiles
from mlci.index._percentiles import Percentiles


@pytest.mark.parametrize(
    "training",
    [
        np.linspace(0, 4, 5000),
        np.random.default_rng(0).gamma(0.3, 1, 5000),  # a long tail: most quantiles lie in few cells
        np.random.default_rng(0).integers(0, 9, 5000) / 7.0,  # many ties
        np.full(20, 0.25),
        np.array([-1e300, 0.0, 1e-300, 1e300]),
    ],
    ids=["even", "tail", "ties", "one value", "extremes"],
)
def test_equals_the_definition(training, monkeypatch):
    monkeypatch.setattr(_percentiles, "MANY", 1)
    monkeypatch.setattr(_percentiles, "ROWS", 700)
    rng, quantiles = np.random.default_rng(1), np.quantile(training, np.linspace(0, 1, 1001))
    near = np.concatenate([np.nextafter(quantiles, -np.inf), quantiles, np.nextafter(quantiles, np.inf)])
    score = np.concatenate([near, rng.choice(training, 3000) + rng.normal(0, 0.5, 3000), [-1e308, 1e308]])
    expected = np.interp(score, quantiles, np.linspace(0, 100, 1001))
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(Percentiles(quantiles)(score), expected)


def test_what_is_no_number_has_no_percentile(monkeypatch):
    monkeypatch.setattr(_percentiles, "MANY", 1)
    assert np.isnan(Percentiles(np.array([0.0, 1.0]))(np.array([np.nan, 0.5]))).tolist() == [True, False]
