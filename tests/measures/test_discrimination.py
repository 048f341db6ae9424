import warnings

import numpy as np
import pytest
from scipy.special import expit, logit
from scipy.stats import rankdata
from sklearn.linear_model import LogisticRegression

import oracles
from mlci.base.errors import InputError
from mlci.measures.alignment import distance_correlation
from mlci.measures.discrimination import (
    area,
    auroc,
    average_precision,
    calibration,
    calibration_line,
    rank_distance_correlation,
)
from mlci.measures.intervals import Reach
from mlci.measures.registry import METRICS, Pair


@pytest.fixture
def judged():
    rng = np.random.default_rng(0)
    x = rng.normal(size=4000) - 2
    return 1 / (1 + np.exp(-x)), (rng.random(4000) < 1 / (1 + np.exp(-(0.4 + 0.7 * x)))).astype(float)


def test_auroc_and_average_precision_on_known_answers():
    assert auroc([1, 2, 3, 4], [0, 0, 1, 1]) == 1
    assert auroc([1, 1, 1, 1], [0, 0, 1, 1]) == 0.5
    assert auroc([1, 2, 3, 9], [0, 1, 1, None]) == 1
    assert average_precision([4, 3, 2, 1], [1, 0, 1, 0]) == pytest.approx((1 + 2 / 3) / 2)
    assert np.isnan(auroc([1, 2, 3], [1, 1, 1]))
    assert np.isnan(average_precision([1, 2, 3], [0, 0, 0]))


@pytest.mark.parametrize("kind", ["ties", "no ties", "unknown"])
def test_area_and_influences_are_delongs_placements(kind):
    rng = np.random.default_rng(3)
    score = rng.permutation(np.arange(80.0)) if kind == "no ties" else rng.integers(0, 9, 80).astype(float)
    y = (rng.random(80) < 0.4).astype(float)
    if kind == "unknown":
        y[::5] = np.nan
    wins = (score[y == 1][:, None] > score[y == 0]) + (score[y == 1][:, None] == score[y == 0]) / 2
    value, influence = area(score, y)
    assert value == pytest.approx(wins.mean(), rel=1e-14)
    assert influence[y == 1] == pytest.approx((wins.mean(axis=1) - wins.mean()) / len(wins), abs=1e-15)
    assert influence[y == 0] == pytest.approx((wins.mean(axis=0) - wins.mean()) / wins.shape[1], abs=1e-15)
    assert not influence[np.isnan(y)].any()
    ordered = area(score, y, order=np.argsort(-score, kind="stable")[::-1])
    assert ordered[0] == value
    assert (ordered[1] == influence).all()


def test_the_rank_version_depends_on_the_order_alone():
    rng = np.random.default_rng(1)
    score, y = np.round(rng.normal(size=300), 1), (rng.random(300) < 0.3).astype(float)
    value = rank_distance_correlation(score, y)
    assert value == pytest.approx(distance_correlation(rankdata(score), y), rel=1e-12)
    assert rank_distance_correlation(np.exp(5 * score), y) == pytest.approx(value, rel=1e-12)


def test_calibration_line_equals_logistic_regression(judged):
    risk, y = judged
    x = np.log(risk / (1 - risk))
    fitted = LogisticRegression(C=np.inf, tol=1e-10, max_iter=1000).fit(x[:, None], y)
    intercept, slope = calibration_line(risk, y)
    assert intercept == pytest.approx(fitted.intercept_[0], abs=1e-5)
    assert slope == pytest.approx(fitted.coef_[0, 0], abs=1e-5)
    # With slope 1, the intercept makes the expected number of cases equal the observed one.
    large = calibration(risk, y).intercept
    assert np.sum(1 / (1 + np.exp(-(large + x)))) == pytest.approx(y.sum(), rel=1e-9)


def test_calibration_figures(judged):
    risk, y = judged
    found = calibration(risk, np.where(np.arange(len(y)) < 100, np.nan, y))
    risk, y = risk[100:], y[100:]
    assert found.brier == pytest.approx(np.mean((risk - y) ** 2), rel=1e-12)
    assert found.error == pytest.approx(oracles.calibration_error(risk, y), rel=1e-12)
    assert found.slope == pytest.approx(0.7, abs=0.15)


def test_a_true_risk_is_calibrated():
    rng = np.random.default_rng(2)
    risk = rng.beta(1, 6, 60_000)
    found = calibration(risk, (rng.random(60_000) < risk).astype(float))
    assert found.slope == pytest.approx(1, abs=0.05)
    assert found.intercept == pytest.approx(0, abs=0.05)
    assert found.error < 0.01
    assert found.deviance == pytest.approx(0.1, abs=0.1)


def test_skills_are_relative_to_the_rate_alone(judged):
    risk, y = judged
    found, rate = calibration(risk, y), y.mean()
    likelihood = np.sum(np.where(y == 1, np.log(risk), np.log1p(-risk)))
    bare = len(y) * (rate * np.log(rate) + (1 - rate) * np.log1p(-rate))
    assert found.deviance == pytest.approx(1 - likelihood / bare)
    largest = 1 - np.exp(2 * bare / len(y))
    assert found.nagelkerke == pytest.approx((1 - np.exp(2 * (bare - likelihood) / len(y))) / largest)
    assert found.brier_skill == pytest.approx(1 - found.brier / np.var(y))
    same = calibration(np.full(len(y), rate), y)
    assert (same.deviance, same.nagelkerke, same.brier_skill) == pytest.approx((0, 0, 0), abs=1e-12)
    assert np.isnan(calibration(risk, np.zeros(len(y))).deviance)


@pytest.mark.parametrize("risk", [[0.1, 0.2, 0.8, 0.9], [0.0, 0.0, 1.0, 1.0]])
def test_separated_or_single_classes_have_no_line(risk):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.isnan(calibration(risk, [0, 0, 1, 1]).slope)
        assert np.isnan(calibration(risk, [1, 1, 1, 1]).slope)


def test_classes_that_share_one_risk_alone_have_no_slope():
    """Quasi-complete separation: the likelihood rises with the slope for ever, towards that of the shared risk."""
    risk, y = np.repeat([0.1, 0.3, 0.6], [50, 40, 20]), np.repeat([0, 1, 0, 1], [50, 20, 20, 20])
    assert np.isnan(calibration(risk, y).slope)
    assert np.isnan(calibration(risk, 1 - y).slope)
    assert np.isfinite(calibration(risk, y).intercept)
    y[0] = 1
    assert np.isfinite(calibration(risk, y).slope)


@pytest.mark.parametrize("wrong", [0.1, 0.5, 1.0])
def test_classes_given_as_risks_have_a_calibration(wrong):
    """Risks of 0 and 1, some of them wrong, where the likelihood of the first line is flat."""
    rng = np.random.default_rng(0)
    y = (rng.random(200) < 0.2).astype(float)
    risk = np.where(rng.random(200) < wrong, 1 - y, y)
    found, x = calibration(risk, y), np.where(risk == 1, 1, -1) * np.log(1e9 - 1)
    assert (y - expit(x + found.intercept)).sum() == pytest.approx(0, abs=1e-6)
    above, below = (y[risk == kind].mean() for kind in (1, 0))
    slope = (logit(above) - logit(below)) / (2 * x.max()) if wrong < 1 else np.nan
    assert found.slope == pytest.approx(slope, abs=1e-9, nan_ok=True)
    area = METRICS["intercept"].interval(Pair(risk, y, risk), found.intercept, np.empty(0), Reach(30))
    assert area.low < found.intercept < area.high


def test_risks_of_0_have_no_ratio():
    assert np.isnan(calibration(np.zeros(3), [0, 1, 1]).observed_expected)


def test_far_starting_points_converge():
    """A risk far from the truth: the first Newton steps overshoot."""
    rng = np.random.default_rng(3)
    risk = np.clip(rng.beta(0.05, 0.05, 500), 1e-6, 1 - 1e-6)
    y = (rng.random(500) < 0.5).astype(float)
    intercept, slope = calibration_line(risk, y)
    x = np.log(risk / (1 - risk))
    fitted = 1 / (1 + np.exp(-(intercept + slope * x)))
    assert [np.sum(y - fitted), np.sum((y - fitted) * x)] == pytest.approx([0, 0], abs=1e-6)


def test_bad_risk_is_named():
    with pytest.raises(InputError, match=r"risk\[1\]: 1.2 is not between 0 and 1"):
        calibration([0.1, 1.2, 0.3], [0, 1, 0])
    with pytest.raises(InputError, match=r"y: has 2 admissions and the score has 3"):
        auroc([0.1, 1.2, 0.3], [0, 1])
