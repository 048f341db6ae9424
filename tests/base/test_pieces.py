"""The interpolation is bit-for-bit identical to `numpy.interp`."""

import numpy as np
import pytest

from mlci.base import pieces
from mlci.base.pieces import Pieces


@pytest.mark.parametrize(
    "training",
    [
        np.linspace(0, 4, 5000),
        np.random.default_rng(0).gamma(0.3, 1, 5000),  # a long tail: most quantiles are in few cells
        np.random.default_rng(0).integers(0, 9, 5000) / 7.0,  # many ties
        np.full(20, 0.25),
        np.array([-1e300, 0.0, 1e-300, 1e300]),
    ],
    ids=["even", "tail", "ties", "one value", "extremes"],
)
def test_equals_the_definition(training, monkeypatch):
    monkeypatch.setattr(pieces, "MANY", 1)
    monkeypatch.setattr(pieces, "ROWS", 700)
    rng, quantiles = np.random.default_rng(1), np.quantile(training, np.linspace(0, 1, 1001))
    near = np.concatenate([np.nextafter(quantiles, -np.inf), quantiles, np.nextafter(quantiles, np.inf)])
    score = np.concatenate([near, rng.choice(training, 3000) + rng.normal(0, 0.5, 3000), [-1e308, 1e308]])
    for heights in (np.linspace(0, 100, 1001), np.sort(rng.random(1001))):
        with np.errstate(over="ignore"):
            np.testing.assert_array_equal(Pieces(quantiles, heights)(score), np.interp(score, quantiles, heights))


def test_a_single_knot_is_one_height(monkeypatch):
    monkeypatch.setattr(pieces, "MANY", 1)
    assert Pieces(np.array([2.0]), np.array([0.3]))(np.array([-1.0, 2.0, 5.0])).tolist() == [0.3, 0.3, 0.3]


def test_what_is_no_number_has_no_height(monkeypatch):
    monkeypatch.setattr(pieces, "MANY", 1)
    ends = np.array([0.0, 1.0])
    assert np.isnan(Pieces(ends, ends)(np.array([np.nan, 0.5]))).tolist() == [True, False]
