import numpy as np
import pytest

from mlci.base.errors import InputError
from mlci.measures import discrimination, information, resample
from mlci.measures.alignment import distance_correlation, nhsic
from mlci.measures.design import Design
from mlci.measures.resample import RANKING, bootstrap, ranking


def drawn(n=400, patients=150, seed=0, kind="normal"):
    rng = np.random.default_rng(seed)
    score = {
        "normal": rng.normal(size=n),
        "integer": rng.poisson(2, n).astype(float),
        "far": rng.standard_cauchy(n) * 40,
    }
    score = score[kind]
    y = (rng.random(n) < 1 / (1 + np.exp(1 - np.tanh(score)))).astype(float)
    y[rng.random(n) < 0.2] = np.nan
    return score, y, rng.integers(patients, size=n)


def fixed(counts):
    return lambda rows: counts[:, rows].astype(float)


@pytest.mark.parametrize("kind", ["normal", "integer", "far"])
def test_whole_weights_equal_repeated_admissions(kind):
    """The weighted figures of a resample equal the plain figures of the repeated admissions."""
    score, y, _ = drawn(kind=kind)
    counts = np.random.default_rng(1).integers(0, 4, size=(3, len(y)))
    found = ranking(score, y, sigma=1.0)(fixed(counts))
    for weights, figures in zip(counts, found):
        s, labels = np.repeat(score, weights), np.repeat(y, weights)
        plain = {
            "dcorr": distance_correlation(s, labels),
            "nhsic": nhsic(s, labels, sigma=1.0),
            "auroc": discrimination.auroc(s, labels),
            "average_precision": discrimination.average_precision(s, labels),
            "rank_dcorr": discrimination.rank_distance_correlation(s, labels),
        }
        assert dict(zip(RANKING, figures)) == pytest.approx(plain, rel=1e-9)


@pytest.mark.parametrize("kernel", ["rbf", "energy"])
@pytest.mark.parametrize("wanted", [("dcorr", "rank_dcorr"), ("nhsic",), ("average_precision", "auroc")])
def test_a_subset_of_the_ranking_figures_equals_the_full_set(kernel, wanted):
    score, y, _ = drawn()
    counts, given = np.random.default_rng(1).integers(0, 4, size=(3, len(y))), {"sigma": 1.0, "kernel": kernel}
    whole = ranking(score, np.column_stack([y, 1 - y]), **given)(fixed(counts)).reshape(3, 2, -1)
    some = ranking(score, np.column_stack([y, 1 - y]), **given, figures=wanted)(fixed(counts)).reshape(3, 2, -1)
    np.testing.assert_array_equal(some, whole[:, :, [RANKING.index(name) for name in wanted]])


@pytest.mark.parametrize("wanted", [("deviance",), ("slope", "brier"), ("intercept", "nagelkerke")])
def test_a_subset_of_the_calibration_figures_equals_the_full_set(wanted, monkeypatch):
    _, y, _ = drawn()
    risk, counts = np.linspace(0.05, 0.9, len(y)), np.random.default_rng(1).integers(0, 4, size=(3, len(y)))
    whole = resample.calibration(risk, y)(fixed(counts))
    fitted, line = [], discrimination.calibration_line
    monkeypatch.setattr(discrimination, "calibration_line", lambda *args, **o: fitted.append(args) or line(*args, **o))
    some = resample.calibration(risk, y, figures=wanted)(fixed(counts))
    np.testing.assert_allclose(some, whole[:, [resample.CALIBRATION.index(name) for name in wanted]], rtol=1e-12)
    assert len(fitted) == len({"slope", "intercept"} & {*wanted})  # only the requested lines are fitted


def test_weighted_calibration_equals_that_of_repeated_admissions():
    rng = np.random.default_rng(2)
    risk = rng.beta(1, 5, 5000)
    y = (rng.random(5000) < risk**0.8).astype(float)
    patients = np.arange(5000)
    [found] = bootstrap([resample.calibration(risk, y)], patients, resamples=400, seed=3)
    full = discrimination.calibration(risk, y)
    # Figures that are means are exact; slope and intercept take one Newton step, so distributions are compared.
    again = []
    for seed in range(150):
        rows = np.random.default_rng(seed).integers(5000, size=5000)
        again.append(discrimination.calibration(risk[rows], y[rows]))
    for column, name in enumerate(resample.CALIBRATION):
        plain = np.array([getattr(one, name) for one in again])
        assert found[:, column].mean() == pytest.approx(getattr(full, name), abs=0.3 * plain.std())
        assert found[:, column].std() == pytest.approx(plain.std(), rel=0.2)
    weights = np.random.default_rng(4).integers(0, 3, size=(1, 5000))
    exact = resample.calibration(risk, y)(fixed(weights))[0]
    each = np.repeat(np.arange(5000), weights[0])
    plain = discrimination.calibration(risk[each], y[each])
    means = {
        name: getattr(plain, name) for name in ("observed_expected", "brier", "brier_skill", "deviance", "nagelkerke")
    }
    assert dict(zip(resample.CALIBRATION, exact)) | means == pytest.approx(dict(zip(resample.CALIBRATION, exact)))
    assert exact[2:4] == pytest.approx([plain.slope, plain.intercept], abs=0.01)


def test_the_area_alone_equals_that_of_the_ranking():
    score, y, _ = drawn(kind="integer")
    counts = fixed(np.random.default_rng(1).integers(0, 4, size=(3, len(y))))
    np.testing.assert_allclose(
        resample.area(score, y)(counts)[:, 0], ranking(score, y, sigma=1.0)(counts)[:, RANKING.index("auroc")]
    )
    assert np.isnan(resample.area(score, np.zeros(len(score)))(counts)).all()


def test_several_outcomes_together_equal_each_alone():
    """Outcomes with the same and with different known admissions, ties, and resamples with a single class."""
    score, y, _ = drawn(kind="integer")
    rare = np.where(np.arange(len(y)) < 3, 1.0, 0.0)
    outcomes = np.column_stack([y, 1 - y, rare])
    counts = fixed(np.random.default_rng(1).integers(0, 2, size=(9, len(y))) * (np.arange(len(y)) % 3 > 0))
    for kernel in ("rbf", "energy"):
        found = ranking(score, outcomes, sigma=1.0, kernel=kernel)(counts)
        alone = [ranking(score, column, sigma=1.0, kernel=kernel)(counts) for column in outcomes.T]
        np.testing.assert_allclose(found, np.hstack(alone), rtol=1e-12)
    values = np.where(np.isnan(outcomes), np.nan, score[:, None])
    np.testing.assert_allclose(
        resample.mean(values)(counts), np.hstack([resample.mean(column)(counts) for column in values.T])
    )


def test_the_spread_equals_that_of_a_plain_bootstrap_of_patients():
    score, y, patients = drawn(n=1500, patients=500)
    [found] = bootstrap([ranking(score, y, sigma=1.0)], patients, resamples=600, seed=0)
    members = [np.flatnonzero(patients == one) for one in np.unique(patients)]
    rng = np.random.default_rng(7)
    plain = []
    for _ in range(300):
        rows = np.concatenate([members[one] for one in rng.integers(len(members), size=len(members))])
        plain.append([distance_correlation(score[rows], y[rows]), discrimination.auroc(score[rows], y[rows])])
    columns = [RANKING.index("dcorr"), RANKING.index("auroc")]
    np.testing.assert_allclose(found[:, columns].mean(axis=0), np.mean(plain, axis=0), rtol=0.02)
    np.testing.assert_allclose(found[:, columns].std(axis=0), np.std(plain, axis=0), rtol=0.2)


def test_the_spread_of_mutual_information_equals_that_of_fresh_data():
    """Resampled contributions have the spread of the estimator over data sets."""
    fresh, resampled = [], []
    for seed in range(150):
        rng = np.random.default_rng(seed)
        y = (rng.random(1000) < 0.3).astype(float)
        score = rng.normal(size=1000) + y
        fresh.append(information.mutual_information(score, y))
        if seed < 10:
            local = information.contributions(score, y)
            [found] = bootstrap([resample.mean(local)], np.arange(1000), resamples=200, seed=seed)
            resampled.append(found.std())
    assert np.mean(resampled) == pytest.approx(np.std(fresh), rel=0.25)


def test_admissions_of_a_patient_are_drawn_together():
    patients = np.repeat([5, 9, 11], [2, 3, 1])
    seen = []
    bootstrap(
        [lambda weights: (seen.append(weights(np.arange(6))), np.zeros((len(seen[-1]), 1)))[1]], patients, resamples=40
    )
    weights = np.concatenate(seen)
    assert weights.shape == (40, 6)
    np.testing.assert_array_equal(weights[:, 0], weights[:, 1])
    np.testing.assert_array_equal(weights[:, 2], weights[:, 4])
    np.testing.assert_array_equal(weights[:, [0, 2, 5]].sum(axis=1), 3)  # as many patients as there are


def test_resamples_depend_on_the_seed_alone():
    score, y, patients = drawn()
    one, two, other = (
        bootstrap([ranking(score, y, sigma=1.0)], patients, resamples=70, seed=seed, threads=threads)[0]
        for seed, threads in ((0, 1), (0, 3), (1, 1))
    )
    np.testing.assert_array_equal(one, two)
    assert not np.array_equal(one, other)


def test_a_resample_without_both_classes_is_undefined_and_left_out():
    score, y = np.arange(6.0), np.array([0, 0, 0, 0, 0, 1.0])
    [found] = bootstrap([ranking(score, y, sigma=1.0)], np.arange(6), resamples=200)
    lost = np.isnan(found[:, 0]).mean()
    assert lost == pytest.approx((5 / 6) ** 6, abs=0.12)


@pytest.mark.parametrize("seed", range(3))
def test_so_is_a_weighted_one_whatever_the_rounding_of_its_sums(seed):
    rng = np.random.default_rng(seed)
    score, y, weight = rng.normal(size=60), (np.arange(60) < 57).astype(float), rng.gamma(1, size=60)
    controls = lambda weights: weights(np.arange(60))[:, 57:].any(axis=1)[:, None]  # noqa: E731
    statistics = [ranking(score, y, sigma=1.0), resample.area(score, y), controls]
    *figures, both = bootstrap(statistics, Design.of(np.arange(60), weights=weight), resamples=400)
    assert 0.02 < np.mean(~both) < 0.08  # e^-3
    for found in figures:
        assert (np.isfinite(found).all(axis=1) == both[:, 0]).all()
        assert (np.isfinite(found).any(axis=1) == both[:, 0]).all()


def test_no_resamples_is_an_error():
    with pytest.raises(InputError, match="resamples: 0 is not a positive number"):
        bootstrap([], [1, 2], resamples=0)


def test_resamples_without_a_known_outcome_have_no_figure():
    y = np.full(40, np.nan)
    y[:2] = 0, 1
    score, risk = np.arange(40.0), np.full(40, 0.3)
    [found, calibrated] = bootstrap([ranking(score, y), resample.calibration(risk, y)], np.arange(40), resamples=60)
    assert np.isnan(found).any()  # without a warning, which the tests take for an error
    assert np.isfinite(found).any()
    assert np.isnan(calibrated[:, resample.CALIBRATION.index("brier")]).any()
