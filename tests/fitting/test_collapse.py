"""The collapsed score of an ensemble that knows the true log-odds."""

from dataclasses import replace

import numpy as np
import pytest

from mlci.config import SpacingConfig
from mlci.fitting._collapse import CollapsedScore, collapse_to_score
from mlci.fitting._context import FitContext
from mlci.fitting._data import folds_by_subject
from mlci.fitting._ensemble import Posteriors
from mlci.measures.alignment import distance_correlation
from small_fits import LEARNING, split_and_logits

(TRAIN, TRUE), (VALID, TRUE_VALID) = split_and_logits(1, 1500), split_and_logits(2, 600)
KNOWN = Posteriors(np.stack([np.concatenate([TRUE, TRUE_VALID])] * 3), folds_by_subject(TRAIN, 3, seed=5))


def collapse(cuts: int = 0, **collapse) -> CollapsedScore:
    config = replace(LEARNING, collapse=replace(LEARNING.collapse, **collapse), spacing=SpacingConfig(cuts=cuts))
    return collapse_to_score(FitContext(config, 5), KNOWN, TRAIN, VALID)


def squares(collapsed: CollapsedScore) -> np.ndarray:
    return distance_correlation(collapsed.train, TRAIN.outcomes) ** 2


@pytest.mark.slow
def test_the_collapse_beats_the_sum_of_logits_and_weights_matter():
    plain, energy, balanced = collapse(method="sum"), collapse(objective="energy"), collapse()
    assert min(squares(energy).sum(), squares(balanced).sum()) > squares(plain).sum() + 0.03
    variance = np.nanvar(TRAIN.outcomes, axis=0, dtype=np.float64) ** 0.4
    np.testing.assert_allclose(balanced.weights, variance / variance.mean(), rtol=1e-6)
    common = collapse(objective="energy", balance=1.0)
    assert squares(common)[1] > squares(energy)[1] + 0.01  # the more frequent of the two
    assert squares(common)[0] < squares(energy)[0] - 0.01
    deaths = collapse(objective="energy", importance={"mortality": 3.0})
    assert deaths.weights.tolist() == [1.5, 0.5]
    assert squares(deaths)[0] > squares(energy)[0] + 0.01
    assert squares(deaths)[1] < squares(energy)[1] - 0.01
    weights = collapse(weights="two-stage", balance=0.0).weights
    assert weights[0] < 1 < weights[1]  # the risk of a long stay predicts death less well
    for collapsed in (plain, energy, balanced):
        assert (collapsed.out_of_fold.mean(), collapsed.out_of_fold.std()) == (
            pytest.approx(0, abs=1e-9),
            pytest.approx(1),
        )


def test_spacing_keeps_the_order_and_does_not_lower_the_alignment():
    before, after = collapse(method="sum"), collapse(method="sum", cuts=200)
    order = np.argsort(before.train)
    assert (np.diff(after.train[order]) >= 0).all()
    assert len(np.unique(after.train)) < 250
    assert squares(after).sum() > squares(before).sum()


def test_the_score_points_upwards():
    opposite = replace(KNOWN, logits=-KNOWN.logits)
    few = replace(LEARNING, collapse=replace(LEARNING.collapse, epochs=6))
    collapsed = collapse_to_score(FitContext(few, 5), opposite, TRAIN, VALID)
    assert np.corrcoef(collapsed.train, TRAIN.outcomes[:, 0])[0, 1] > 0.3
