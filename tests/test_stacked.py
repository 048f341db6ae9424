from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch

from mlci.config import Config, OptimiserConfig
from mlci.stacked import Layout, Resident, fit_many
from mlci.tokens import Tokens
from mlci.training import Data, fit

OUTCOMES = ("mortality", "long_stay", "icu_transfer")


def made(rows: int, seed: int, *, vocabulary: int = 40) -> Data:
    """Admissions whose outcomes depend on their tokens; some empty, some outcomes unknown."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, 7, rows)
    offsets = np.concatenate([[0], np.cumsum(counts)])
    ids = rng.integers(1, vocabulary, offsets[-1]).astype(np.int32)
    severity = np.array([(ids[a:b] % 7).sum() for a, b in pairwise(offsets)]) + rng.normal(0, 3, rows)
    outcomes = np.column_stack([severity > np.quantile(severity, q) for q in (0.9, 0.7, 0.8)]).astype(np.float32)
    outcomes[rng.random(outcomes.shape) < 0.02] = np.nan
    return Data(Tokens(ids, offsets), outcomes)


@pytest.mark.parametrize("kernel", ["rbf", "multi-rbf", "energy"])
def test_stacked_fits_equal_fits_on_their_own(kernel):
    """In float64 only the algebra is left to differ."""
    train, valid = made(300, 1), made(120, 2)
    config = Config(optimiser=OptimiserConfig(batch=64, stage1_epochs=2, stage2_epochs=3))
    config = replace(config, objective=replace(config.objective, kernel=kernel))
    facts = {"config": config, "outcomes": OUTCOMES, "vocabulary_size": 40}
    torch.set_default_dtype(torch.float64)
    try:
        stacked = fit_many(train, valid, seeds=(11, 101), device="cpu", **facts)
        alone = [fit(train, valid, seed=seed, **facts) for seed in (11, 101)]
    finally:
        torch.set_default_dtype(torch.float32)
    for one, other in zip(stacked, alone):
        assert one.bandwidth == (other.bandwidth and pytest.approx(other.bandwidth, rel=1e-9))
        assert one.orientation == other.orientation
        assert one.weights == pytest.approx(other.weights, rel=1e-6)
        assert [each.epoch for each in one.stage1.values()] == [each.epoch for each in other.stage1.values()]
        for name, tensor in other.state.items():
            np.testing.assert_allclose(one.state[name], tensor, rtol=1e-6, atol=1e-8, err_msg=name)


def test_a_layout_holds_every_token_of_every_fit_once():
    data = made(50, 3)
    orders = torch.stack([torch.randperm(50), torch.randperm(50)])
    layout = Layout.of(Resident.of(data, torch.device("cpu")), orders, 16, 40, (0, 0))
    steps, fits = layout.tokens.shape[:2]
    for step in range(steps):
        for fit_number in range(fits):
            for place in range(16):
                bag = fit_number * 16 + place
                first, last = layout.offsets[step, bag : bag + 2].tolist()
                rows = layout.where[step, first:last]
                found = (layout.tokens[step].flatten()[rows] - fit_number * 40).tolist()
                position = step * 16 + place
                expected = []
                if position < 50:
                    admission = int(orders[fit_number, position])
                    expected = data.tokens.ids[data.tokens.offsets[admission] : data.tokens.offsets[admission + 1]]
                assert found == list(expected)
                assert (layout.bags[step, first:last] == bag).all()
