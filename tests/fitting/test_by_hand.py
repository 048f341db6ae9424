"""The hand-written passes of DeepSets equal autograd."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mlci.fitting._engines.by_hand import ByHand, supports
from mlci.fitting._engines.single import Autograd
from mlci.fitting._pooling import max_pool
from mlci.fitting.encoders import DeepSets, tensors_on
from mlci.tokens import Tokens

SETS = st.lists(st.lists(st.integers(1, 11), max_size=6), min_size=1, max_size=6)


def flat(sets: list[list[int]]) -> Tokens:
    offsets = np.concatenate([[0], np.cumsum([len(one) for one in sets])])
    return Tokens(np.array([token for one in sets for token in one], dtype=np.int32), offsets)


def encoder(**options) -> DeepSets:
    torch.manual_seed(3)
    return DeepSets(12, width=8, **options)


@pytest.mark.parametrize("options", [{}, {"outputs": 3, "dropout": 0.4}])
@given(steps=st.lists(SETS, min_size=1, max_size=3))
@settings(deadline=None, max_examples=15)
def test_hand_written_passes_equal_autograd(options, steps):
    hand, auto = ByHand(encoder(**options)), Autograd(encoder(**options))
    for passes in (hand, auto):
        passes.model.dropout.generator = torch.Generator().manual_seed(5)
    nearly = {"rtol": 1e-4, "atol": 1e-6}
    for sets in steps:  # steps are independent of each other
        scores = hand.forward(hand.lay_out(flat(sets)))
        torch.testing.assert_close(scores, auto.forward(tensors_on(torch.device("cpu"), flat(sets))), **nearly)
        pull = torch.linspace(-1, 1, scores.numel()).view_as(scores)
        hand.backward(pull)
        auto.backward(pull)
        gradient = torch.cat([p.new_zeros(p.numel()) if p.grad is None else p.grad.flatten() for p in auto.parameters])
        found = torch.cat([parameter.grad.flatten() for parameter in hand.parameters])
        torch.testing.assert_close(found, gradient, **nearly)


@given(SETS, st.integers(0, 99))
@settings(deadline=None, max_examples=25)
def test_the_maximum_and_its_row_are_exact(sets, seed):
    tokens, rng = flat(sets), np.random.default_rng(seed)
    # Values that differ in the last bit, ties and zeros.
    table = torch.from_numpy(rng.choice([0, 1e-38, 1e-3, 1, 1 + 2**-23, 1 + 2**-22, 3e38], (12, 8)).astype(np.float32))
    best, rows = max_pool(torch.from_numpy(tokens.ids).long(), table, torch.from_numpy(tokens.offsets))
    for one, value, row in zip(sets, best, rows):
        assert torch.equal(value, table[one].amax(0) if one else torch.zeros(8))
        won = value > 0
        assert torch.equal(table.gather(0, row[None])[0][won], value[won])
        assert set(row[won].tolist()) <= set(one)


def test_only_the_default_architecture_is_supported():
    assert supports(encoder())
    for options in ({"pooling": "max"}, {"phi_layers": 3}, {"rho_layers": 1}):
        assert not supports(encoder(**options))
