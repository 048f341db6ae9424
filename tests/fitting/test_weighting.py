"""The paper's Stage-2 weights."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlci.config import WeightConfig
from mlci.fitting._weighting import stage2_weights


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=6))
def test_weights_follow_the_papers_formula(strengths):
    weights = stage2_weights(strengths, WeightConfig())
    top = max(*strengths, 0.02)
    raw = [min(max((top / max(h, 0.02)) ** 0.25, 1 / 3), 3) for h in strengths]
    np.testing.assert_allclose(weights, np.array(raw) / np.mean(raw))


def test_weights_of_the_open_benchmark():
    # Stage-1 strengths that the published code found on NHDS with seed 11: mortality, its own anchor, weighs least.
    weights = stage2_weights([0.316, 0.102, 0.048, 0.181], WeightConfig())
    np.testing.assert_allclose(weights, np.array([1, 1.3267, 1.6018, 1.1495]) / 1.2695, rtol=1e-3)
    assert stage2_weights([1, 0.0], WeightConfig(clip=2)) == pytest.approx([2 / 3, 4 / 3])
