"""Bits of many indices, with more categories than one word holds, compared with the definition."""

import numpy as np
import pytest

from mlci.codes.family import family
from mlci.codes.rules import WORD, Rules, rules

EVERY = rules(tuple(family()))


def wanted(code: str, version: int, late: bool) -> set[str]:
    """The categories of a code by a search of the lists."""
    found = set()
    for index in family().values():
        for item in index.categories:
            hits = [own for own in item.codes[version] if (code == own if index.exact else code.startswith(own))]
            present = bool(hits) and not item.only_late
            found |= {item.column} if (any(item.counts_late(own) for own in hits) if late else present) else set()
    return found


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("version", [9, 10])
def test_bits_equal_those_of_a_search_of_the_lists(version, late):
    listed = sorted({code for item in EVERY.categories for code in item.codes[version]})[::37]
    tries = [*listed, *(code + "1" for code in listed), *(code[:-1] for code in listed), "", "Q2381", "I69910", "I639"]
    bits = EVERY.code_bits(tries, version, late=late)
    assert bits.shape == (EVERY.words, len(tries))
    for place, code in enumerate(tries):
        own = bits[:, place].tolist()
        found = {item.column for k, item in enumerate(EVERY.categories) if own[k // WORD] >> (k % WORD) & 1}
        assert found == wanted(code, version, late), code


def test_scores_are_sums_of_weights_and_flags_are_bits():
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2**64, (EVERY.words, 50), dtype=np.uint64)
    flags = EVERY.flags(bits)
    assert len(flags) == len([item for item in EVERY.categories if item.words])
    for index in family().values():
        for name in index.weights:
            column = f"{index.short}_{name}"
            total = sum(EVERY.has(bits, item.column).astype(float) * item.weights[name] for item in index.categories)
            total = np.maximum(total, index.floor) if index.floor is not None else total
            np.testing.assert_allclose(EVERY.scores(bits, [column])[column], total, atol=1e-9)


def test_settling_looks_at_what_was_there_before_it():
    own = Rules(["ahrq"])
    bits = own.mask(["ahrq_cancer_mets", "ahrq_cancer_solid", "ahrq_cancer_nsitu"])[:, None]
    assert [name for name, flag in own.flags(own.settled(bits)).items() if flag[0]] == ["ahrq_cancer_mets"]
    assert (own.settled(bits, hierarchy=False) == bits).all()
