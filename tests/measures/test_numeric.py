"""Dependence of two numeric variables against `dcor`, SciPy, definitions and the binary case."""

import dcor
import numpy as np
import pytest
from scipy.stats import kendalltau, spearmanr

from mlci.base.errors import InputError
from mlci.measures.alignment import distance_correlation, quadratic_forms
from mlci.measures.discrimination import auroc, auroc_influence
from mlci.measures.independence import independence
from mlci.measures.numeric import (
    _steps,
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


def test_patients_with_several_admissions_are_permuted_as_a_whole():
    """Independent numbers that belong to patients, 1 to 6 admissions each: 5% of tests find dependence."""
    found = []
    for seed in range(100):
        rng = np.random.default_rng(seed)
        patient = np.repeat(np.arange(80), rng.integers(1, 7, 80))
        x, y = (rng.normal(size=80)[patient] + 0.5 * rng.normal(size=len(patient)) for _ in range(2))
        y = np.exp(y)
        found.append([numeric_independence(x, y, patients=patient)[1], numeric_independence(x, y)[1]])
    permuted, bound = np.mean(np.array(found) < 0.05, axis=0)
    assert permuted < 0.12
    assert bound > 0.2  # if admissions of a patient were taken as independent
    assert numeric_independence(x, np.abs(x), patients=patient)[1] == 0.005
    copies, many = np.tile(x, 250), np.tile(patient, 250) + 80 * np.repeat(np.arange(250), len(x))  # every other counts
    assert numeric_independence(copies, np.abs(copies), patients=many)[1] == 0.005
    rare, repeated = np.zeros(60_001), np.append(np.arange(60_000), 0)
    rare[[1, 3]] = 1, 2  # left out with every other patient: nothing remains to be dependent on
    assert numeric_independence(np.arange(60_001), rare, patients=repeated)[1] == 1
    died = (y > np.median(y)).astype(float)
    assert numeric_independence(x, died, patients=patient)[1] == independence(x, died, patients=patient) > 0.005
    assert numeric_independence(x, y, patients=np.arange(len(x))) == numeric_independence(x, y)


def test_permutations_measure_the_distance_covariance_with_a_number():
    """The forms of the steps of a number with few values add up to dcor's distance covariance, up to a factor."""
    forms = [quadratic_forms(values, _steps(TIES), kernel="energy")[0].sum() for values in (NORMAL, FAR)]
    wanted = [dcor.distance_covariance_sqr(values, TIES) for values in (NORMAL, FAR)]
    assert forms[0] / forms[1] == pytest.approx(wanted[0] / wanted[1])
    assert _steps(NORMAL).shape == (400, 15)


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


def test_numbers_that_differ_only_where_weights_are_0_have_no_rank_correlation():
    weight = np.repeat([1.0, 0.0], 200)
    constant = np.where(weight > 0, 3.0, TIES)
    assert np.isnan(spearman(NORMAL, constant, weight=weight)[0])
    assert np.isnan(spearman(constant, NORMAL, weight=weight)[0])


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
