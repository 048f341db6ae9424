import hashlib

import numpy as np
import pytest

from mlci.base.shares import md5_split

KEYS = [str(number) for number in range(4000)] + ["é", ""]


@pytest.mark.parametrize("proportions", [(0.7, 0.1, 0.2), (0.875, 0.125)])
def test_the_rule_is_the_papers(proportions):
    ends = np.cumsum(proportions)
    for key, part in zip(KEYS, md5_split(KEYS, proportions)):
        share = int(hashlib.md5(key.encode()).hexdigest(), 16) % 10_000
        assert part == sum(share >= round(end * 10_000) for end in ends[:-1])


def test_no_keys_fall_nowhere():
    assert len(md5_split([], (0.7, 0.1, 0.2))) == 0
