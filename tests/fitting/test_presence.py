"""The token matrix against a dense matrix, in memory and on disk."""

import numpy as np
import pytest

from mlci.fitting import _presence
from mlci.fitting._presence import Presence
from mlci.tokens import Tokens

LISTS = [[3, 1, 3], [], [2], [4, 4, 4, 1], [1]]
DENSE = np.array([[0, 1, 0, 1, 0], [0, 0, 0, 0, 0], [0, 0, 1, 0, 0], [0, 1, 0, 0, 1], [0, 1, 0, 0, 0]], float)


def tokens() -> Tokens:
    return Tokens(np.concatenate(LISTS).astype(np.int32), np.cumsum([0, *map(len, LISTS)]))


@pytest.fixture(params=[1, 2, 100], autouse=True)
def few_rows_at_once(request, monkeypatch):
    monkeypatch.setattr(_presence, "ROWS", request.param)


def test_a_token_counts_once_per_admission(few_rows_at_once):
    presence, weights = Presence.of(tokens(), 5), np.arange(10.0).reshape(5, 2)
    np.testing.assert_array_equal(presence.times(weights), DENSE @ weights)
    total = sum(block.T @ weights[rows] for rows, block in presence.blocks(np.float64))
    np.testing.assert_array_equal(total, DENSE.T @ weights)
    np.testing.assert_array_equal(presence.take(np.array([3, 0])).times(weights), DENSE[[3, 0]] @ weights)
    assert Presence.of(Tokens(np.empty(0, np.int32), np.zeros(1, np.int64)), 5).times(weights).shape == (0, 2)


def test_tokens_on_disk_stay_there(tmp_path):
    plain = tokens()
    plain.ids.tofile(tmp_path / "train.ids")
    mapped = Presence.of(Tokens(np.memmap(tmp_path / "train.ids", np.int32, "r"), plain.offsets), 5)
    assert isinstance(mapped.ids, np.memmap)
    np.testing.assert_array_equal(mapped.ids, Presence.of(plain, 5).ids)
    np.testing.assert_array_equal(mapped.offsets, Presence.of(plain, 5).offsets)
    block = next(mapped.blocks(np.float32))[1]
    assert np.shares_memory(block.indices, mapped.ids)  # no copy
