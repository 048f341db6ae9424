"""Clusters, strata and weights: textbook variances, and resamples with the same variance."""

import numpy as np
import pytest

from mlci.base.errors import InputError
from mlci.measures.design import Design, as_design, numbered
from mlci.measures.resample import bootstrap, mean

STRATA = np.repeat([0, 1, 2], [12, 8, 10])
CLUSTERS = np.concatenate([np.arange(12) // 3, 10 + np.arange(8) // 4, 20 + np.arange(10) // 2])
WEIGHTS = 1.0 + np.arange(30) % 5
Y = np.random.default_rng(3).normal(size=30) + STRATA


def test_unknown_patients_count_as_separate_patients():
    apart = numbered(np.array([5.0, np.nan, 3.0, np.nan, 5.0]))
    assert apart.tolist() == [1, 2, 0, 3, 1]
    assert numbered(np.array(["b", None, "a", None], dtype=object)).tolist() == [1, 2, 0, 3]
    known = np.random.default_rng(0).integers(-5, 5, 100)
    assert (numbered(known) == np.unique(known, return_inverse=True)[1]).all()


def by_hand(moved):
    """Return the variance of a total over clusters drawn with replacement within strata, as R's `svytotal`."""
    found = 0.0
    for stratum in np.unique(STRATA):
        totals = [moved[cluster == CLUSTERS].sum() for cluster in np.unique(CLUSTERS[stratum == STRATA])]
        found += len(totals) / (len(totals) - 1) * np.sum((np.array(totals) - np.mean(totals)) ** 2)
    return found


def test_the_variance_equals_the_textbooks_and_that_of_resamples():
    design = Design.of(CLUSTERS, weights=WEIGHTS, strata=STRATA)
    centre = np.average(Y, weights=WEIGHTS)
    moved = WEIGHTS * (Y - centre) / WEIGHTS.sum()  # linearised weighted mean
    assert design.variance(moved) == pytest.approx(by_hand(moved))
    [drawn] = bootstrap([mean(Y)], design, resamples=6000, seed=1, threads=1)
    assert drawn.mean() == pytest.approx(centre, abs=0.05)
    assert drawn.var() == pytest.approx(by_hand(moved), rel=0.15)  # 6,000 draws, and the ratio's own curvature


def test_without_strata_and_weights_a_design_equals_its_patients():
    patients = np.random.default_rng(0).integers(9, size=30)
    plain, designed = (bootstrap([mean(Y)], who, resamples=20, seed=4) for who in (patients, Design.of(patients)))
    assert (plain[0] == designed[0]).all()
    assert as_design(patients).degrees == 8
    assert Design.of(CLUSTERS, strata=STRATA).degrees == 11 - 3


def test_strata_left_with_one_cluster_are_merged():
    part = Design.of(CLUSTERS, weights=WEIGHTS, strata=STRATA).take(np.isin(CLUSTERS, [0, 1, 10, 20]))
    assert part.clusters == 4
    assert part.stratum.tolist() == [0] * 6 + [1] * 6
    single = Design.of(CLUSTERS, strata=STRATA).take(np.isin(CLUSTERS, [0, 1, 10]))
    assert set(single.stratum) == {0}
    assert single.variance(np.ones(len(single))) > 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"weights": [1, -1, 1]}, "weights: some are empty or negative"),
        ({"weights": [0, 0, 0]}, "or all are 0"),
        ({"weights": [1, np.nan, 1]}, "a weight is a number from 0"),
        ({"weights": [1, 1]}, "weights: has 2 admissions"),
        ({"strata": [0, 0, 1]}, "a single cluster"),
        ({"strata": [0, 1, 1]}, "a cluster is in two"),
    ],
)
def test_invalid_designs_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        Design.of(["a", "a", "b"], **options)
