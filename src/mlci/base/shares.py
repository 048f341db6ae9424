"""The paper's rule for splits: the part of a key depends on the key alone, on every machine."""

import hashlib
from collections.abc import Iterable, Sequence

import numpy as np

PARTS = 10_000


def md5_split(keys: Iterable[str], proportions: Sequence[float]) -> np.ndarray:
    """Return the part of a split to which each key belongs, as a number from 0.

    The MD5 of the key's text, as an integer modulo 10,000, is compared with the cumulative proportions. A cohort is
    divided in this way into training, validation and test (0.7, 0.1, 0.2), with the patient's number as text as key.

    Args:
        keys: texts.
        proportions: the share of each part; they sum to 1.

    >>> md5_split(["1", "2", "3"], [0.7, 0.1, 0.2])
    array([2, 2, 0])
    """
    digests = b"".join([hashlib.md5(key.encode(), usedforsecurity=False).digest() for key in keys])
    high, low = np.frombuffer(digests, dtype=">u8").reshape(-1, 2).T % PARTS
    place = (high * (2**64 % PARTS) + low) % PARTS
    return np.searchsorted(np.round(np.cumsum(proportions)[:-1] * PARTS), place, side="right")
