import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import oracles
from mlci.base.errors import InputError
from mlci.measures import alignment, resample
from mlci.measures.alignment import KERNELS, bandwidth, distance_correlation, nhsic, quadratic_forms
from mlci.measures.information import mutual_information

laws = settings(deadline=None, max_examples=25)


@st.composite
def judged(draw, low=3, high=60):
    """A score with ties, and an outcome with both classes."""
    n = draw(st.integers(low, high))
    value = st.one_of(st.integers(-5, 5).map(float), st.floats(-20, 20).map(lambda x: round(x, 6)))
    score = np.array(draw(st.lists(value, min_size=n, max_size=n)))
    y = np.array(draw(st.lists(st.sampled_from([0.0, 1.0]), min_size=n, max_size=n)))
    assume(len(set(y)) == 2)
    return score, y


def cases(n, seed=0):
    """Return scores of many shapes: dense, tied, integer, heavy-tailed, far clusters, nearly constant."""
    rng = np.random.default_rng(seed)
    normal = rng.normal(size=n)
    return {
        "normal": normal,
        "rounded": np.round(normal, 1),
        "integer": rng.poisson(3, n).astype(float),
        "heavy": rng.standard_cauchy(n) * 5,
        "clusters": normal + 30 * rng.integers(0, 4, n),
        "sparse": rng.random(n) * n * 4,
        "wide": rng.random(n) * 300,
        "outlier": np.r_[normal[1:] * 0.1, 1e6],
    }


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("shape", list(cases(3)))
@pytest.mark.parametrize("n", [3, 40, 400])
def test_equals_the_definition(kernel, shape, n):
    score = cases(n)[shape]
    y = (np.random.default_rng(1).random(n) < np.clip(0.3 + np.argsort(np.argsort(score)) / (2 * n), 0, 1)).astype(
        float
    )
    y[:2] = 0, 1
    assert nhsic(score, y, kernel=kernel, sigma=1.0) == pytest.approx(oracles.nhsic(score, y, kernel), rel=1e-10)


@pytest.mark.parametrize("route", ["polynomial", "moments", "windowed"])
@pytest.mark.parametrize("kernel", ["rbf", "multi-rbf"])
@pytest.mark.parametrize("scale", [0.01, 0.3, 1, 4, 15])
def test_every_route_equals_the_definition(route, kernel, scale):
    rng = np.random.default_rng(2)
    values = np.unique(rng.normal(size=400) * scale)
    mass = rng.integers(1, 3, len(values)).astype(float)
    directions = rng.normal(size=(len(values), 2))
    directions -= np.average(directions, axis=0, weights=mass)
    widths = np.array(alignment.FACTORS[kernel])
    weighted = mass[:, None], (directions * mass[:, None])[:, None]
    if route == "windowed":
        block = alignment._windowed(values, *weighted, widths)
    else:
        degree = alignment._degree((values[-1] - values[0]) / 2 / widths.min())
        if route == "moments":  # two weightings at once
            weighted = tuple(np.repeat(array, 2, axis=1) for array in weighted)
        block = alignment._polynomial(values, *weighted, widths, degree)
    (forms, *_), (norm, *_) = alignment._join([block])
    each = np.repeat(np.arange(len(values)), mass.astype(int))
    k = oracles.centre(oracles.gram(values[each], kernel))
    assert norm == pytest.approx(np.linalg.norm(k), rel=1e-10)
    expected = [d @ k @ d for d in directions[each].T]
    np.testing.assert_allclose(forms, expected, rtol=1e-10, atol=1e-12 * norm)


@pytest.mark.parametrize(("spread", "moments"), [(0.2, True), (1e-9, False)])
def test_covariances_come_from_moments_unless_nearly_all_scores_are_one(spread, moments, monkeypatch):
    rng, made = np.random.default_rng(4), []
    score = np.sort(np.r_[rng.normal(0.3, spread, 396), 0, 0.5, 0.9, 1])
    y = (rng.random(400) < 0.3).astype(float)
    features = alignment._features
    monkeypatch.setattr(alignment, "_features", lambda x, degree: made.append(degree) or features(x, degree))
    values, width = (score - score[0]) / np.ptp(score), np.array([0.004])
    degree = alignment._degree(0.5 / width[0])
    block = alignment._polynomial(values, np.ones((400, 1)), (y - y.mean())[:, None, None], width, degree)
    assert degree > alignment.MANY
    assert made == [degree, degree][: 2 - moments]
    [[form]], [norm] = alignment._join([block])
    k = oracles.centre(np.exp(-0.5 * ((values[:, None] - values) / width) ** 2))
    assert (form, norm) == (
        pytest.approx((y - y.mean()) @ k @ (y - y.mean()), rel=1e-9),
        pytest.approx(np.linalg.norm(k), rel=1e-10),
    )


@laws
@given(judged(), st.sampled_from(KERNELS), st.floats(0.05, 50))
def test_equals_the_definition_on_anything(judged, kernel, sigma):
    score, y = judged
    assert nhsic(score, y, kernel=kernel, sigma=sigma) == pytest.approx(
        oracles.nhsic(score, y, kernel, sigma), rel=1e-6, abs=1e-9
    )


@laws
@given(judged(), st.sampled_from(KERNELS), st.integers(-40, 40), st.sampled_from([-1, 1]))
def test_is_bounded_and_invariant_to_sign_shift_class_labels_and_order(judged, kernel, shift, sign):
    score, y = judged
    score = np.round(score * 64) / 64  # so that the shift is exact
    value = nhsic(score, y, kernel=kernel, sigma=1.5)
    assert 0 <= value <= 1
    order = np.argsort(np.random.default_rng(0).random(len(y)))
    assert nhsic(sign * score + shift, y, kernel=kernel, sigma=1.5) == pytest.approx(value, rel=1e-9, abs=1e-13)
    assert nhsic(score[order], 1 - y[order], kernel=kernel, sigma=1.5) == pytest.approx(value, rel=1e-9, abs=1e-13)


@laws
@given(judged(), st.sampled_from(KERNELS), st.integers(2, 4))
def test_duplicating_every_admission_changes_nothing(judged, kernel, times):
    score, y = judged
    repeated = nhsic(np.repeat(score, times), np.repeat(y, times), kernel=kernel, sigma=2.0)
    assert repeated == pytest.approx(nhsic(score, y, kernel=kernel, sigma=2.0), rel=1e-9, abs=1e-13)


@laws
@given(judged())
def test_energy_alignment_is_the_squared_distance_correlation(judged):
    score, y = judged
    assume(np.ptp(score) > 1e-3)
    peer = oracles.dcor.distance_correlation(score, y, method="naive")
    assert nhsic(score, y, kernel="energy") == pytest.approx(peer**2, rel=1e-8, abs=1e-10)
    assert distance_correlation(score, y) == pytest.approx(peer, rel=1e-8, abs=1e-5)


def test_distance_correlation_equals_dcor_at_size():
    rng = np.random.default_rng(0)
    score = rng.standard_t(3, size=4_000)
    y = (rng.random(4_000) < 1 / (1 + np.exp(3 - score))).astype(float)
    assert distance_correlation(score, y) == pytest.approx(oracles.dcor.distance_correlation(score, y), rel=1e-12)


def test_distance_correlation_is_accurate_for_many_admissions():
    """Against double centring in 80-bit numbers; running sums of a centred profile would accumulate errors."""
    rng = np.random.default_rng(0)
    score = np.sort(rng.normal(size=100_000))
    y = (rng.random(100_000) < 1 / (1 + np.exp(3 - score))).astype(float)
    long, n = score.astype(np.longdouble), np.longdouble(len(score))
    long = long - long.mean()
    rows = (2 * np.arange(1, n + 1) - n) * long - 2 * np.cumsum(long) + long.sum()  # sums of |differences|
    norm = np.sqrt(2 * n * (long**2).sum() - 2 / n * (rows**2).sum() + (rows.sum() / n) ** 2)
    profile = y - y.astype(np.longdouble).mean()
    form = 2 * np.sum(np.diff(long) * np.cumsum(profile)[:-1] ** 2)
    assert nhsic(score, y, kernel="energy") == pytest.approx(float(form / (norm * (profile**2).sum())), rel=1e-13)


@laws
@given(judged())
def test_the_centred_label_gram_is_rank_one(judged):
    _, y = judged
    profile = y - y.mean()
    np.testing.assert_allclose(
        oracles.centre(np.equal.outer(y, y).astype(float)), 2 * np.outer(profile, profile), atol=1e-12
    )


@laws
@given(judged(), st.sampled_from(["rbf", "energy"]))
def test_a_threshold_score_reaches_its_squared_correlation(judged, kernel):
    """The paper's certificate: a two-level score has nHSIC ρ², its squared correlation with the outcome."""
    score, y = judged
    step = (score > np.median(score)).astype(float)
    assume(np.ptp(step) > 0)
    assert nhsic(step, y, kernel=kernel, sigma=1.0) == pytest.approx(
        np.corrcoef(step, y)[0, 1] ** 2, rel=1e-9, abs=1e-12
    )


@laws
@given(judged(), st.sampled_from(KERNELS))
def test_quadratic_forms_equal_the_definition(judged, kernel):
    score, y = judged
    directions = np.column_stack([y, score**2, np.arange(len(y))])
    forms, norm = quadratic_forms(score, directions, kernel=kernel, sigma=1.0)
    k = oracles.centre(oracles.gram(score, kernel))
    assert norm == pytest.approx(np.linalg.norm(k), rel=1e-7, abs=1e-9)
    scale = (directions**2).sum(axis=0)
    np.testing.assert_allclose(
        forms, np.einsum("nk,nm,mk->k", directions, k, directions), rtol=1e-8, atol=1e-9 * scale.max()
    )


@pytest.mark.parametrize("kernel", KERNELS)
def test_degenerate_cases_follow_the_paper(kernel):
    assert nhsic([1.0, 2.0], [0, 1], kernel=kernel) == 0  # fewer than three
    assert nhsic([1.0], [0], kernel=kernel) == 0
    assert nhsic([1.0, 2.0, 3.0, 4.0], [0, 1, None, None], kernel=kernel) == 0  # fewer than three valid
    assert nhsic([1.0, 2.0, 3.0], [1, 1, 1], kernel=kernel) == 0  # one class
    assert nhsic([2.0, 2.0, 2.0], [0, 1, 1], kernel=kernel) == 0  # constant score


def test_each_outcome_is_judged_on_its_own_valid_admissions():
    rng = np.random.default_rng(3)
    score, y = rng.normal(size=300), (rng.random((300, 3)) < 0.4).astype(float)
    y[rng.random(300) < 0.3, 1] = np.nan
    together = nhsic(score, y)
    sigma = bandwidth(score) * score.std()
    for column in range(3):
        assert together[column] == pytest.approx(oracles.nhsic(score, y[:, column], sigma=sigma), rel=1e-10)
        assert distance_correlation(score, y)[column] == pytest.approx(distance_correlation(score, y[:, column]))


def test_floor_is_the_least_norm():
    score, y = [0.0, 0.1, 0.3, 0.2], np.array([0.0, 1, 0, 1])
    for floor in (0.0, 0.5):
        expected = oracles.nhsic(score, y, sigma=1.0, floor=floor)
        assert nhsic(score, y, sigma=1.0, floor=floor) == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("unit", [1e300, 1e-300, 1e-4])
def test_results_do_not_depend_on_the_unit(kernel, unit):
    """With the default sigma. At the small units, the plain formula of K − 1 loses all digits."""
    rng = np.random.default_rng(5)
    score, y = rng.normal(size=500), (rng.random(500) < 0.3).astype(float)
    assert nhsic(score * unit, y, kernel=kernel) == pytest.approx(nhsic(score, y, kernel=kernel), rel=1e-9)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("sigma", [1e-300, 1.0, 1e300])
@pytest.mark.parametrize("score", [[-1.7e308, 0, 1.7e308, 5e-324], [5e-324, 1e-323, 0, 0], [1e300, 1e-300, 1, 2]])
def test_extreme_numbers_give_finite_results(kernel, sigma, score):
    assert 0 <= nhsic(score, [0, 1, 1, 0], kernel=kernel, sigma=sigma) <= 1


def test_a_nearly_flat_kernel_is_accurate():
    """For sigma far beyond the range nHSIC tends to the squared correlation."""
    rng = np.random.default_rng(6)
    score, y = rng.normal(size=3000), (rng.random(3000) < 0.3).astype(float)
    assert nhsic(score, y, sigma=1e6) == pytest.approx(np.corrcoef(score, y)[0, 1] ** 2, rel=1e-9)


@pytest.mark.parametrize("n", [2, 3, 10, 11, 500, 1501])
def test_bandwidth_is_the_median_to_the_last_bit(n):
    rng = np.random.default_rng(n)
    for values in (
        rng.normal(size=n),
        np.round(rng.normal(size=n), 2),
        rng.integers(0, 6, n) * 0.1,
        rng.standard_cauchy(n),
    ):
        assert bandwidth(values, standardise=False, floor=0.0) == oracles.median_difference(values)
        scaled = (values - values.mean()) / (values.std() or 1)
        assert bandwidth(values) == pytest.approx(max(0.05, oracles.median_difference(scaled)), rel=1e-9)


def test_bandwidth_of_integers_at_size_and_of_a_subsample():
    rng = np.random.default_rng(0)
    values = rng.poisson(4, 300_000).astype(float)
    counts = np.bincount(values.astype(int)).astype(float)
    pairs = {d: float(counts[d:] @ counts[: len(counts) - d]) for d in range(1, len(counts))}
    middle = min(d for d in pairs if sum(pairs[e] for e in pairs if e <= d) >= sum(pairs.values()) / 2)
    assert bandwidth(values, standardise=False) == middle
    scores = rng.normal(size=3000)
    scaled = (scores - scores.mean()) / scores.std()
    drawn = scaled[np.random.default_rng(12345).choice(3000, 1000, replace=False)]
    assert bandwidth(scores, subsample=1000) == pytest.approx(oracles.median_difference(drawn), rel=1e-12)


@laws
@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=80))
def test_bandwidth_on_anything(values):
    assert bandwidth(values, standardise=False, floor=0.0) == oracles.median_difference(np.array(values))


@pytest.mark.parametrize("many", [list, np.array, pd.Series, pl.Series, lambda x: pd.Series(x, dtype="Float64")])
def test_accepts_any_container_of_numbers(many):
    assert nhsic(many([0.0, 1.0, 2.0, 5.0]), many([0.0, 1.0, 0.0, 1.0]), sigma=1.0) == pytest.approx(
        oracles.nhsic([0.0, 1.0, 2.0, 5.0], np.array([0.0, 1, 0, 1]))
    )


@pytest.mark.parametrize("null", [None, np.nan, pd.NA])
def test_null_is_the_mask(null):
    expected = oracles.nhsic([0.0, 1.0, 2.0], np.array([0.0, 1, 0]))
    assert nhsic([0.0, 1.0, 2.0, 5.0], [0, 1, 0, null], sigma=1.0) == pytest.approx(expected)
    assert nhsic([0.0, 1.0, 2.0, 5.0], pd.Series([False, True, False, null], dtype=object), sigma=1.0) == pytest.approx(
        expected
    )


@pytest.mark.parametrize(
    ("score", "y", "message"),
    [
        ([0.0, np.nan, 1.0], [0, 1, 0], r"score\[1\]: nan is not a finite number"),
        ([0.0, 2.0, np.inf], [0, 1, 0], r"score\[2\]: inf is not a finite number"),
        ([0.0, "a", 1.0], [0, 1, 0], r"score\[1\]: text of 1 character is not a finite number"),
        ([0.0, 2.0, 1.0], [0, 1, 2], r"y\[2\]: a number is not 0, 1 or null"),
        ([0.0, 2.0, 1.0], [[0, 1], [1, 0], [0, 0.5]], r"y\[2, 1\]: a number is not 0, 1 or null"),
        ([0.0, 2.0, 1.0], [0, 1], r"y: has 2 admissions and the score has 3"),
        ([], [], r"score: is empty"),
        ([[1.0], [2.0]], [0, 1], r"score: has 2 dimensions"),
    ],
)
@pytest.mark.parametrize("measure", [nhsic, distance_correlation])
def test_bad_input_is_named(measure, score, y, message):
    with pytest.raises(InputError, match=message):
        measure(score, y)


def test_bad_options_are_named():
    with pytest.raises(InputError, match="kernel: 'laplace' is not known; allowed are rbf"):
        nhsic([0.0, 1, 2], [0, 1, 0], kernel="laplace")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="sigma: 0 is not a positive number"):
        nhsic([0.0, 1, 2], [0, 1, 0], sigma=0)
    with pytest.raises(InputError, match="directions: has shape"):
        quadratic_forms([0.0, 1, 2], np.zeros((2, 2)))


@pytest.mark.parametrize("scale", [1e-150, 1.0, 1e150, 1e300])
def test_the_unit_of_a_score_changes_no_figure(scale):
    rng = np.random.default_rng(0)
    score, y = rng.normal(size=20_000), rng.random(20_000) < 0.3
    score = score + y
    for measure in (distance_correlation, nhsic, mutual_information):
        assert measure(score * scale, y) == pytest.approx(measure(score, y), rel=1e-9)


def test_masked_values_are_missing():
    y = np.ma.masked_array([0, 1, 7, 1, 0, 1], mask=[0, 0, 1, 0, 0, 0])
    score = np.arange(6.0)
    assert distance_correlation(score, y) == distance_correlation(score, [0, 1, None, 1, 0, 1])
    with pytest.raises(InputError, match=r"score\[2\]: nan is not a finite number"):
        distance_correlation(np.ma.masked_array(score, mask=y.mask), [0, 1, 0, 1, 0, 1])


def test_large_integers_are_exact():
    """Scores as int64 around 1e12 (seconds, cents): their differences are exact, and so are the results."""
    rng = np.random.default_rng(0)
    score, y = rng.integers(0, 5, 2000), rng.random(2000) < 0.3
    far, near = np.int64(10**12) + score, score.astype(float)
    assert distance_correlation(far, y) == pytest.approx(distance_correlation(near, y), rel=1e-12)
    drawn = [
        resample.bootstrap([resample.ranking(x.astype(float), y.astype(float))], np.arange(2000), resamples=3)[0]
        for x in (far, near)
    ]
    dcorr = resample.RANKING.index("dcorr")
    assert drawn[0][:, dcorr] == pytest.approx(drawn[1][:, dcorr], rel=1e-12)
