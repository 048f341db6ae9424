"""Integer points: recovered if they are the truth, and fitted to all outcomes."""

from itertools import combinations

import numpy as np
import pytest
from scipy import sparse

from mlci.base.errors import InputError
from mlci.codes.admissions import Admissions
from mlci.measures.discrimination import auroc
from mlci.showing.card._points import ages, fit_points, groups, target


def test_whole_points_are_found_again():
    """A target that is a card is recovered in the coarsest unit, without groups that lower it or have no effect."""
    rng = np.random.default_rng(0)
    present = (rng.random((4000, 8)) < 0.3).astype(np.int64)
    points = np.array([5, 2, 0, 1, 3, 0, 0, 4])
    aim = 0.3 * present @ points - 0.4 * present[:, 5] + 7
    np.testing.assert_array_equal(fit_points(sparse.csr_array(present), aim, size=8), points)
    assert (fit_points(sparse.csr_array(present), aim, size=2, free=4)[4:] > 0).sum() == 2


def test_a_short_card_takes_the_groups_that_explain_most():
    rng = np.random.default_rng(1)
    present = (rng.random((3000, 7)) < rng.uniform(0.1, 0.5, 7)).astype(np.int64)
    aim = present @ np.array([3, 0.2, 1, 2, 0.5, 0.1, 1.5]) + rng.normal(0, 0.3, 3000)

    def error(chosen) -> float:
        design = np.column_stack([np.ones(3000), present[:, chosen]])
        return np.linalg.lstsq(design, aim, rcond=None)[1][0]

    best = min(combinations(range(7), 3), key=lambda chosen: error(list(chosen)))
    found = np.flatnonzero(fit_points(sparse.csr_array(present), aim, size=3))
    assert tuple(found) == best


def test_a_target_without_points_is_reported():
    with pytest.raises(InputError, match="a card cannot be made"):
        fit_points(sparse.csr_array(np.eye(20, 3, dtype=np.int64)), -np.eye(20, 3).sum(axis=1), size=3)


def test_a_group_counts_once_and_external_causes_have_four_characters():
    admissions = Admissions.from_lists([["A001", "A002", "B021"], [], ["B021", "B021"]], icd_version=10)
    present, names = groups(admissions)
    assert names == [(10, "A00"), (10, "B02")]
    np.testing.assert_array_equal(present.todense(), [[1, 1], [0, 0], [0, 1]])
    assert groups(Admissions.from_lists([["E8889", "4280"]], icd_version=9))[1] == [(9, "428"), (9, "E888")]


def test_age_reaches_its_bands_one_by_one():
    assert ages(np.array([30, 45, 70, 99, np.nan])).sum(axis=1).tolist() == [0, 1, 2, 4, 0]


def test_the_aim_serves_the_frequent_outcome_as_well_as_the_rare():
    """An index that follows the rare outcome alone: a card that follows it would lose the frequent one."""
    rng = np.random.default_rng(2)
    present = (rng.random((6000, 10)) < 0.2).astype(np.int64)
    weights = np.zeros((10, 2))
    weights[:5, 0], weights[5:, 1] = 2.0, 1.5  # rare, frequent
    odds = present @ weights - [5, 1.5]
    outcomes = (rng.random(odds.shape) < 1 / (1 + np.exp(-odds))).astype(float)
    outcomes[:50, 1] = np.nan
    by_index = 1 / (1 + np.exp(-odds[:, :1]))
    matrix = sparse.csr_array(present)
    mixed = matrix @ fit_points(matrix, target(matrix, outcomes, by_index[:, 0], [1.0, 1.0]), size=10)
    alone = matrix @ fit_points(matrix, by_index[:, 0], size=10)
    assert auroc(mixed, outcomes[:, 1]) > auroc(alone, outcomes[:, 1]) + 0.05
    assert auroc(mixed, outcomes[:, 0]) > 0.7
    with pytest.raises(InputError, match="10 training admissions"):
        target(matrix, np.zeros((6000, 1)), np.arange(6000.0), [1.0])
