import numpy as np
import pytest

from mlci.base.errors import InputError
from mlci.judging.curves import isotonic
from mlci.judging.kept import Isotonic, Smooth, curve_from
from mlci.judging.smooth import smooth


def hospital(n: int, level: float, seed: int, bend: float = 0.0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return scores, outcomes, and the true risks."""
    rng = np.random.default_rng(seed)
    score = rng.normal(size=n)
    risk = 1 / (1 + np.exp(-(level + 1.2 * score + bend * np.maximum(score - 1, 0))))
    return score, (rng.random(n) < risk).astype(float), risk


def loss(truth: np.ndarray, risk: np.ndarray) -> float:
    """Return the expected log loss given the true risk; clipping favours risks of 0 and 1."""
    risk = np.clip(risk, 1e-6, 1 - 1e-6)
    return float(-(truth * np.log(risk) + (1 - truth) * np.log1p(-risk)).mean())


@pytest.mark.parametrize(("n", "level", "bend"), [(1000, -4.5, 0), (1000, -2, 0), (1000, -4.5, 1.5), (4000, -4, 1.5)])
def test_log_loss_in_small_hospitals_is_below_that_of_isotonic_regression(n, level, bend):
    new, _, truth = hospital(20_000, level, 99, bend)
    curves = [hospital(n, level, seed, bend) for seed in range(5)]
    smooths = [loss(truth, smooth(score, outcome)(new)) for score, outcome, _ in curves]
    steps = [loss(truth, isotonic(score, outcome)(new)) for score, outcome, _ in curves]
    assert all(a < b for a, b in zip(smooths, steps))
    assert np.mean(smooths) - loss(truth, truth) < 0.005


def test_slopes_are_unbiased_and_bands_cover_the_truth():
    new, _, truth = hospital(5000, -3, 99)
    covered, slopes = [], []
    for seed in range(10):
        score, outcome, _ = hospital(3000, -3, seed)
        curve = smooth(score, outcome)
        low, high = curve.around(curve(new), new)
        covered.append(((low <= truth) & (truth <= high)).mean())
        slopes.append(np.polyfit(new, np.log(curve(new) / (1 - curve(new))), 1)[0])
    assert np.mean(covered) > 0.9
    assert 1.0 < np.mean(slopes) < 1.35  # 1.2


@pytest.mark.parametrize("unit", [1e300, 1e-300])
def test_the_unit_of_a_score_has_no_effect(unit):
    score, outcome, _ = hospital(500, -2, 0)
    np.testing.assert_allclose(smooth(score * unit, outcome)(score * unit), smooth(score, outcome)(score), rtol=1e-6)


def test_a_constant_score_of_any_size_gets_the_rate():
    for level in (0.0, 5.0, -1e4, 1e8):
        curve = smooth(np.full(200, level), np.repeat([0, 1], [150, 50]))
        assert curve(level) == pytest.approx(0.25, abs=0.01)


@pytest.mark.parametrize("events", [0, 1, 3, 997, 1000])
def test_no_risk_is_ever_0_or_1(events):
    score = np.random.default_rng(1).normal(size=1000)
    outcome = np.zeros(1000)
    outcome[np.argsort(score)[1000 - events :]] = 1
    curve = smooth(score, outcome)
    far = np.array([-1e6, -5, 0, 5, 1e6])
    risk = curve(far)
    assert ((risk > 0) & (risk < 1)).all()
    assert (np.diff(risk) >= 0).all()
    low, high = curve.around(risk, far)
    assert ((low > 0) & (low <= risk) & (risk <= high) & (high < 1)).all()


def test_a_risk_of_0_or_1_that_a_table_may_give_has_an_interval():
    curve = Smooth(np.array([0.0, 1.0]), np.array([-2.0, 0.0]), np.array([0.1, 0.1]))
    low, high = curve.around(np.array([0.0, 1.0]), np.array([-90.0, 90.0]))
    assert (low > 0).all()
    assert (high < 1).all()


def test_a_bend_is_followed_with_many_admissions():
    score, outcome, truth = hospital(60_000, -4, 3, bend=2.0)
    assert np.abs(smooth(score, outcome)(score) - truth).mean() < 0.003


@pytest.mark.parametrize("n", [12, 300, 4000])
def test_knots_are_few_and_inside_the_range_of_scores(n):
    score, outcome, _ = hospital(n, -1, n)
    curve = smooth(score, outcome)
    assert len(curve.score) <= 2 + min(outcome.sum(), n - outcome.sum()) // 10
    assert curve.score[0] > score.min()
    assert curve.score[-1] < score.max()


def test_equal_scores_and_missing_outcomes():
    curve = smooth(np.zeros(50), np.tile([0.0, 1.0, np.nan, 0.0, 0.0], 10))
    assert curve(0.0) == pytest.approx(0.25, abs=0.02)
    with pytest.raises(InputError, match="outcome is known"):
        smooth(np.zeros(3), np.full(3, np.nan))


def test_both_kinds_of_curve_survive_conversion_to_a_dictionary():
    score, outcome, _ = hospital(500, -2, 1)
    for curve in (smooth(score, outcome), isotonic(score, outcome)):
        again = curve_from(curve.to_dict())
        assert type(again) is type(curve)
        np.testing.assert_array_equal(again(score), curve(score))
    assert {Smooth, Isotonic} == {type(curve_from(c(score, outcome).to_dict())) for c in (smooth, isotonic)}


def test_equal_weights_have_no_effect_and_sampling_weights_remove_bias():
    rng = np.random.default_rng(1)
    score = rng.normal(size=3000)
    died = (rng.random(3000) < 1 / (1 + np.exp(2 - score))).astype(float)
    plain, equal = smooth(score, died), smooth(score, died, weight=np.full(3000, 3.0))
    at = np.linspace(-2, 2, 9)
    assert equal(at) == pytest.approx(plain(at), rel=0.02)  # quantiles for the knots are defined slightly differently
    kept = rng.random(3000) < np.where(died == 1, 1.0, 0.5)  # survivors are sampled with half the probability
    weight = np.where(died == 1, 1.0, 2.0)[kept]
    biased, weighted = (smooth(score[kept], died[kept], weight=weights) for weights in (None, weight))
    assert np.abs(np.log(weighted(at) / plain(at))).max() < 0.12
    assert np.log(biased(at) / plain(at)).min() > 0.2
    assert (weighted.error > 0).all()


def test_rounding_does_not_make_a_flat_piece_decrease():
    """A file with a decreasing curve could not be loaded."""
    rng = np.random.default_rng(16)
    curve = smooth(rng.normal(size=200).round(2), rng.random(200) < 0.5)
    assert (np.diff(curve.logit) >= 0).all()
