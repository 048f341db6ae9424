"""The U-statistic equals that of `dcor`; the test holds its level, also with several admissions per patient."""

import dcor
import numpy as np
import pytest

from mlci.measures.independence import corrected_distance_correlation, independence, squared


@pytest.mark.parametrize("kind", ["normal", "integer", "far"])
def test_equals_the_u_statistic_of_dcor(kind):
    rng = np.random.default_rng(0)
    score = {"normal": rng.normal(size=300), "integer": rng.poisson(2, 300), "far": rng.standard_cauchy(300) * 1e6}[
        kind
    ]
    y = (rng.random(300) < 1 / (1 + np.exp(1 - np.tanh(score)))).astype(float)
    expected = dcor.u_distance_correlation_sqr(score.astype(float), y)
    assert squared(score, y) == pytest.approx(expected, abs=1e-9)
    assert corrected_distance_correlation(score, y) == pytest.approx(np.sqrt(max(expected, 0)), abs=1e-6)


def test_nulls_are_left_out_and_degenerate_input_gives_0():
    score, y = np.arange(10.0), np.array([0, 0, 0, 0, 1, 0, 1, 1, 1, np.nan])
    assert squared(score, y) == squared(score[:-1], y[:-1]) > 0
    assert squared(score, np.zeros(10)) == squared(np.ones(10), y) == squared([1, 2, 3], [0, 1, 0]) == 0
    assert np.isnan(independence(score, np.zeros(10)))
    far, single = np.array([0.1, 0.2, 0.7, 1e6, 0.5]), np.array([0, 0, 0, 0, 1])
    assert squared(far, single) == squared(far, 1 - single) == 0  # centred distances of one against the rest are all 0
    assert squared([0.3, 0.3, 0.3, 0.1, 0.3], [0, 1, 0, 1, 1]) == 0


def test_noise_has_no_bias_and_the_test_holds_its_level():
    rng = np.random.default_rng(1)
    found, rejected = [], 0
    for _ in range(300):
        score, y = rng.normal(size=200), (rng.random(200) < 0.2).astype(float)
        found.append(squared(score, y))
        rejected += independence(score, y) < 0.05
    assert abs(np.mean(found)) < 4 * np.std(found) / np.sqrt(300)
    assert 4 <= rejected <= 27  # 15 expected


def test_admissions_of_a_patient_are_permuted_together():
    """Patients whose admissions are copies of each other: as many independent pairs as there are patients."""
    rng = np.random.default_rng(2)
    alone, together = 0, 0
    for seed in range(60):
        patient = np.repeat(np.arange(40), 4)
        score, y = rng.normal(size=40)[patient], (rng.random(40) < 0.3).astype(float)[patient]
        alone += independence(score, y) < 0.05
        together += independence(score, y, patients=patient, permutations=99, seed=seed) < 0.05
    assert alone > 15  # as if there were four times as many
    assert together <= 8
    assert (
        independence(score, score > 0.5, patients=patient, permutations=99) == 0.01
    )  # the least p-value of 99 permutations


def test_hospitals_that_cannot_change_places_have_no_p_value():
    """Permutations that leave most admissions where they are would call any score independent."""
    rng = np.random.default_rng(3)

    def p_value(sizes):
        hospital = np.repeat(np.arange(len(sizes)), sizes)
        score = rng.normal(size=len(hospital))
        return independence(score, score > 0, patients=hospital)

    assert np.isnan(p_value(np.arange(30, 50)))  # of 20 hospitals each has a size of its own
    assert np.isnan(p_value([10, 10, 10, 10, *range(50, 60)]))  # few admissions are of hospitals of one size
    assert np.isnan(p_value([50, 50, 50]))  # 6 permutations
    assert p_value([50, 50, 50, 50, 99]) < 0.2  # 24


def test_unknown_patients_count_as_separate_patients():
    score, y = np.arange(40.0), np.repeat([0, 1], 20)
    assert independence(score, y, patients=[None] * 40) == independence(score, y, patients=range(40))
