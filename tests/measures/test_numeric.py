"""Dependence of two numeric variables against `dcor`, SciPy, definitions and the binary case."""

import dcor
import numpy as np
import pytest
from scipy.stats import kendalltau, spearmanr

from mlci.base.errors import InputError
from mlci.measures.alignment import distance_correlation
from mlci.measures.discrimination import auroc, auroc_influence
from mlci.measures.numeric import (
    concordance,
    numeric_distance_correlation,
    numeric_independence,
    numeric_nhsic,
    spearman,
)
from oracles import centre, gram

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


def test_integers_around_a_billion_are_accurate():
    x = np.int64(10**12) + RNG.integers(0, 1000, 300)
    y = x + RNG.integers(0, 500, 300)
    small = numeric_distance_correlation(x - 10**12, y - 10**12)
    assert small > 0.8
    assert numeric_distance_correlation(x, y) == pytest.approx(small, abs=1e-12)


def test_degenerate_input_gives_0_and_unequal_lengths_are_refused():
    assert numeric_distance_correlation(NORMAL, np.ones(400)) == 0
    assert numeric_independence(NORMAL, np.ones(400)) == (0.0, 1.0)
    with pytest.raises(InputError, match="y: has 3 numbers and x has 400"):
        numeric_distance_correlation(NORMAL, [1, 2, 3])
    assert numeric_independence(NORMAL, NORMAL**3)[1] < 1e-6


@pytest.mark.parametrize(("x", "y"), [(NORMAL, TIES), (TIES, NORMAL), (TIES, np.round(TIES / 2) + TIES[::-1])])
def test_rank_measures_equal_scipys_and_the_definition(x, y):
    assert spearman(x, y)[0] == pytest.approx(spearmanr(x, y)[0])
    signs = np.sign(x[:, None] - x) * np.sign(y[:, None] - y)
    different = (y[:, None] != y).sum()
    value, influence = concordance(x, y)
    assert value == pytest.approx((1 + signs.sum() / different) / 2)
    assert abs(influence.sum()) < 1e-9
    if len(np.unique(y)) == len(y):  # no ties in y: Kendall's tau-a over pairs, but for ties in x
        tau = kendalltau(x, y, variant="b")[0] * np.sqrt((x[:, None] != x).sum() / different)
        assert value == pytest.approx((1 + tau) / 2)


@pytest.mark.parametrize(("x", "y"), [(NORMAL, np.exp(NORMAL) + TIES / 2), (TIES, TIES + RNG.integers(0, 2, 400))])
def test_the_influence_on_spearman_is_the_effect_of_leaving_an_admission_out(x, y):
    x, y = x[:150], y[:150]
    rho, influence = spearman(x, y)
    others = [spearmanr(np.delete(x, place), np.delete(y, place))[0] for place in range(150)]
    np.testing.assert_allclose(149 * (rho - np.array(others)) / 150, influence, atol=0.02 * abs(influence).max())
    assert np.sqrt(influence @ influence) == pytest.approx(np.std(others) * np.sqrt(149), rel=0.05)


def test_concordance_with_an_outcome_of_two_classes_is_auroc_with_its_influence():
    y = (RNG.random(400) < 0.3).astype(float)
    weight = RNG.gamma(2, size=400)
    for mass in (None, weight):
        value, influence = concordance(TIES, y, weight=mass)
        assert value == pytest.approx(auroc(TIES, y, weight=mass))
        np.testing.assert_allclose(influence, auroc_influence(TIES, y, weight=mass), atol=1e-12)


def test_nhsic_equals_the_definition_with_two_gaussian_kernels():
    from mlci.measures.alignment import unit_bandwidth

    k, other = (centre(gram(values, sigma=unit_bandwidth(values))) for values in (NORMAL, TIES))
    wanted = np.sum(k * other) / np.linalg.norm(k) / np.linalg.norm(other)
    assert numeric_nhsic(NORMAL, TIES) == pytest.approx(wanted)
    assert numeric_nhsic(NORMAL, NORMAL * 1000) == pytest.approx(1)
    assert numeric_nhsic(NORMAL, np.ones(400)) == 0
    assert numeric_nhsic(NORMAL, NORMAL**3, most=100) > 0.5
