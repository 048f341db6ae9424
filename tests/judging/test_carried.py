"""Columns of a cohort with its survey design."""

import numpy as np
import pandas as pd
import pytest

from mlci.base.errors import InputError
from mlci.cohort import Cohort
from mlci.judging._carried import design_of, design_words
from mlci.judging.cutoffs import cutoff_range
from mlci.judging.theory import certify, cutoff
from mlci.measures.design import Design


@pytest.fixture(scope="module")
def cohort():
    n = 60
    visits = pd.DataFrame(
        {
            "visit_id": range(n),
            "patient": np.arange(n) // 2,
            "codes": [["I50.9"]] * n,
            "died": np.arange(n) % 3 == 0,
            "weight": 1 + np.arange(n) % 4,
            "ward": np.arange(n) // 6,
            "region": np.arange(n) // 30,
            "words": ["many"] * n,
            "none": 0.0,
        }
    )
    kept = ["weight", "ward", "region", "words", "none"]
    return Cohort.from_frame(visits, icd_version=10, outcomes={"mortality": "died"}, subject="patient", keep=kept)


def test_clusters_are_patients_unless_a_column_is_named(cohort):
    assert design_of(cohort).clusters == 30
    design = design_of(cohort, weights="weight", cluster="ward", strata="region")
    assert (design.clusters, design.degrees) == (10, 8)
    assert design.weight.mean() == pytest.approx(1)


def test_the_design_is_described(cohort):
    assert design_words(cohort) == ""
    text = design_words(cohort, weights="weight", cluster="ward", strata="region")
    assert text.startswith("weighted by weight: 60 admissions represent 150, effective sample size 50; 10 clusters")
    assert "patient" not in text


@pytest.mark.parametrize(
    ("name", "message"), [("words", "is not numeric"), ("none", "all weights are 0"), ("absent", "no column absent")]
)
def test_a_column_that_is_not_a_weight_is_named(cohort, name, message):
    with pytest.raises(InputError, match=message):
        design_of(cohort, weights=name)


def test_weighted_cutoff_equals_the_cutoff_of_repeated_admissions():
    rng = np.random.default_rng(2)
    score = rng.normal(size=80).round(1)
    outcomes = (rng.random((80, 2)) < 1 / (1 + np.exp(-np.column_stack([score, score - 1])))).astype(float)
    outcomes[::9, 1] = np.nan
    times = rng.integers(0, 4, 80)
    rows, names = np.repeat(np.arange(80), times), ["a", "b"]
    found = cutoff(score, outcomes, names, weights=[1, 2], mass=times.astype(float))
    expected = cutoff(score[rows], outcomes[rows], names, weights=[1, 2])
    assert found.score == expected.score
    assert found.certificate == pytest.approx(expected.certificate)
    assert found.share == pytest.approx(expected.share)
    assert [side.above.rate for side in found.contrasts] == pytest.approx(
        [side.above.rate for side in expected.contrasts]
    )
    kept = certify(score, outcomes, names, found.score, weights=[1, 2], mass=times.astype(float))
    assert kept == pytest.approx(certify(score[rows], outcomes[rows], names, found.score, weights=[1, 2]))
    again = cutoff_range(
        score, outcomes, names, weights=[1, 2], patients=Design.of(np.arange(80), weights=times), resamples=20
    )
    assert again.value == found.score
