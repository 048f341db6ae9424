"""Observed / expected ratios: intervals and limits against definitions and published formulas."""

import numpy as np
import pytest
from scipy.stats import chi2, gamma, poisson

import mlci
from mlci.measures.ratios import METHODS, Dispersion, dispersion, funnel, interval, prior, shrunk, standing

OBSERVED = np.array([0, 3, 11, 25, 14, 62, 40, 9, 33, 130, 18, 21, 7, 55, 28, 90, 16, 37, 12, 48.0])
EXPECTED = np.array(
    [
        2.1,
        6.0,
        10.2,
        17.5,
        19.9,
        45.0,
        44.1,
        9.1,
        24.6,
        118.3,
        20.2,
        14.7,
        12.9,
        60.5,
        22.2,
        101.4,
        15.8,
        30.1,
        20.5,
        40.0,
    ]
)


def test_the_mid_p_interval_equals_its_definition():
    low, high = interval(OBSERVED, EXPECTED)
    for count, mean, wanted in ((OBSERVED, low * EXPECTED, 0.975), (OBSERVED, high * EXPECTED, 0.025)):
        found = poisson.cdf(count - 1, mean) + poisson.pmf(count, mean) / 2
        assert found[1:] == pytest.approx(wanted, abs=1e-9)
    assert low[0] == 0
    assert poisson.pmf(0, high[0] * EXPECTED[0]) / 2 == pytest.approx(0.025)


def test_the_interval_lies_inside_byar_s_and_nears_it():
    z = 1.959964
    low, high = (limit[3:] for limit in interval(OBSERVED, EXPECTED))
    count, expected = OBSERVED[3:], EXPECTED[3:]
    byar_low = count * (1 - 1 / (9 * count) - z / (3 * np.sqrt(count))) ** 3 / expected
    more = count + 1
    byar_high = more * (1 - 1 / (9 * more) + z / (3 * np.sqrt(more))) ** 3 / expected
    assert (byar_low < low).all()
    assert (high < byar_high).all()
    assert low == pytest.approx(byar_low, rel=0.1)
    assert high == pytest.approx(byar_high, rel=0.1)


def test_the_interval_holds_its_level():
    counts = np.arange(80)
    low, high = interval(counts, np.full(80, 12.0))
    assert poisson.pmf(counts, 12.0) @ ((low <= 1) & (high >= 1)) == pytest.approx(0.95, abs=0.015)


def _by_the_book(method: str) -> tuple[float, float]:
    """phi and tau2 as FunnelPlotR (od_adjustment) writes them, group by group: CQC (root) and SHMI (logarithm)."""
    z, s = [], []
    for observed, expected in zip(np.maximum(OBSERVED, 0.5 if method == "shmi" else 0), EXPECTED):
        if method == "shmi":
            z.append(np.sqrt(expected) * np.log(observed / expected))
            s.append(1 / np.sqrt(expected))
        else:
            s.append(1 / (2 * np.sqrt(expected)))
            z.append((np.sqrt(observed / expected) - 1) / s[-1])
    if method == "shmi":  # truncation: ranks in ten parts, the outer two left out
        ranks = np.argsort(np.argsort(z)) + 1
        parts = np.floor(ranks * 10 / (len(z) + 1))
        kept = [place for place in range(len(z)) if 0 < parts[place] < 9]
        z, s = [z[place] for place in kept], [s[place] for place in kept]
    else:  # winsorisation
        low, high = np.quantile(z, 0.1), np.quantile(z, 0.9)
        z = [min(max(value, low), high) for value in z]
    phi = sum(value**2 for value in z) / len(z)
    inverse = [1 / error**2 for error in s]
    tau2 = (len(z) * phi - (len(z) - 1)) / (sum(inverse) - sum(value**2 for value in inverse) / sum(inverse))
    return phi, max(0, tau2)


@pytest.mark.parametrize("method", ["additive", "shmi"])
def test_overdispersion_equals_funnelplotrs(method):
    found = dispersion(OBSERVED, EXPECTED, method=method)
    assert (found.phi, found.tau2) == pytest.approx(_by_the_book(method), rel=1e-12)
    assert found.tau2 > 0


def test_funnel_limits_equal_funnelplotrs():
    for level, z in ((0.95, 1.959964), (0.998, 3.090232)):
        tail = (1 - level) / 2
        low, high = funnel(EXPECTED, Dispersion("none", 1, 0), level=level)
        assert low == pytest.approx(chi2.isf(1 - tail, 2 * EXPECTED) / 2 / EXPECTED)
        assert high == pytest.approx(chi2.isf(tail, 2 * (EXPECTED + 1)) / 2 / EXPECTED)
        low, high = funnel(EXPECTED, Dispersion("shmi", 2, 0.02), level=level)
        assert low == pytest.approx(np.exp(-z * np.sqrt(1 / EXPECTED + 0.02)), rel=1e-5)
        assert high == pytest.approx(np.exp(z * np.sqrt(1 / EXPECTED + 0.02)), rel=1e-5)
        low, high = funnel(EXPECTED, Dispersion("additive", 2, 0.02), level=level)
        half = z * np.sqrt((1 / (2 * np.sqrt(EXPECTED))) ** 2 + 0.02)
        assert low == pytest.approx(np.maximum(1 - half, 0) ** 2, rel=1e-5)
        assert high == pytest.approx((1 + half) ** 2, rel=1e-5)
        low, high = funnel(EXPECTED, Dispersion("multiplicative", 2.25, 0.02), level=level)
        assert high == pytest.approx((1 + 1.5 * z / (2 * np.sqrt(EXPECTED))) ** 2, rel=1e-5)


@pytest.mark.parametrize("method", METHODS)
def test_a_group_on_the_limit_is_as_many_standard_errors_from_1(method):
    spread = Dispersion(method, 2.0, 0.02)
    _, high = funnel([50.0], spread, level=0.95)
    assert standing(50 * high, [50.0], spread) == pytest.approx(1.96, abs=0.2 if method == "none" else 1e-4)


def test_groups_that_differ_by_chance_alone_have_no_overdispersion():
    rng = np.random.default_rng(0)
    expected = rng.uniform(10, 200, 400)
    alike = dispersion(rng.poisson(expected), expected)
    assert alike.tau2 == 0
    assert not alike.found
    assert prior(rng.poisson(expected), expected).sd < 0.02
    # Two groups are too few to estimate it.
    few = dispersion([1, 90], [30.0, 30.0])
    assert np.isnan(few.phi)
    assert not few.found


@pytest.mark.slow
def test_the_prior_maximises_the_negative_binomial_likelihood():
    from statsmodels.discrete.discrete_model import NegativeBinomial

    rng = np.random.default_rng(3)
    expected = rng.uniform(5, 150, 300)
    observed = rng.poisson(expected * rng.gamma(20, 1.1 / 20, 300))
    found = prior(observed, expected)
    fit = NegativeBinomial(observed, np.ones((300, 1)), exposure=expected).fit(disp=0, start_params=[0.0, 0.05])
    mean, alpha = np.exp(fit.params[0]), fit.params[1]
    assert found.mean == pytest.approx(mean, rel=1e-3)
    assert found.weight == pytest.approx(1 / (alpha * mean), rel=1e-2)


def test_shrinkage_is_strongest_for_small_groups():
    known = prior(OBSERVED, EXPECTED)
    ratio, low, high = shrunk(OBSERVED, EXPECTED, known)
    raw = OBSERVED / EXPECTED
    assert (np.abs(ratio - known.mean) <= np.abs(raw - known.mean) + 1e-12).all()
    pull = (ratio - raw) / (known.mean - raw)
    assert (np.diff(pull[np.argsort(EXPECTED)]) < 0).all()
    shape, rate = OBSERVED + known.mean * known.weight, EXPECTED + known.weight
    assert low == pytest.approx(gamma.ppf(0.025, shape, scale=1 / rate))
    assert high == pytest.approx(gamma.ppf(0.975, shape, scale=1 / rate))


def test_an_unknown_method_is_refused():
    with pytest.raises(mlci.InputError, match="allowed are additive"):
        dispersion(OBSERVED, EXPECTED, method="bayes")
