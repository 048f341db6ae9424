"""Runs are sorted correctly, wherever the windows cut them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlci.base.ordered import WINDOW, sort_runs


@given(
    lengths=st.lists(st.integers(0, 90), max_size=30), seed=st.integers(0, 9), kind=st.sampled_from(["u4", "u8", "i8"])
)
def test_runs_become_sorted(lengths, seed, kind):
    run = np.repeat(np.arange(len(lengths)), lengths)
    keys = (run * 100 + np.random.default_rng(seed).integers(0, 100, len(run))).astype(kind)
    given = keys.copy()
    found = sort_runs(keys, max(lengths, default=0))
    np.testing.assert_array_equal(found, np.sort(keys))
    assert found.dtype == keys.dtype
    np.testing.assert_array_equal(keys, given)  # left as they were


@pytest.mark.parametrize("many", [0, 1, WINDOW - 1, WINDOW, WINDOW + 1])
def test_the_largest_number_of_its_kind_is_not_lost_among_the_padding(many):
    keys = np.full(many, np.iinfo(np.uint32).max, dtype=np.uint32)
    np.testing.assert_array_equal(sort_runs(keys, 1), keys)
