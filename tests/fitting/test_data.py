"""The data of a fit; nothing here needs torch."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlci.fitting._data import Split, fingerprint, folds_by_subject
from mlci.fitting._numbers import Numbers
from mlci.tokens import Tokens


def split(n: int, subjects=None) -> Split:
    """Admission i has the tokens 2 .. 2 + i % 3."""
    counts = 1 + np.arange(n) % 3
    ids = np.concatenate([np.arange(2, 2 + count) for count in counts]).astype(np.int32)
    outcomes = np.column_stack([np.arange(n) % 2, np.arange(n) % 5 == 0]).astype(np.float32)
    return Split(Tokens(ids, np.concatenate([[0], np.cumsum(counts)])), outcomes, ("a", "b"), 5, subjects)


@given(st.integers(10, 60), st.integers(2, 9), st.integers(0, 5), st.booleans())
def test_folds_are_balanced_and_do_not_divide_patients(n, many, seed, shared):
    subjects = np.arange(n) // 2 if shared else None
    folds = folds_by_subject(split(n, subjects), many, seed=seed)
    if subjects is not None:
        assert all(len(set(folds[subjects == one])) == 1 for one in subjects)
        folds = folds[::2]
    counts = np.bincount(folds, minlength=many)
    assert counts.max() - counts.min() <= 1


def test_rows_and_outcomes_may_be_chosen():
    whole = split(9, np.arange(9))
    part = whole.take(np.array([8, 0])).only(["b"])
    assert part.tokens.counts.tolist() == [3, 1]
    assert (part.names, part.outcomes.tolist(), part.subjects.tolist()) == (("b",), [[0], [1]], [8, 0])
    assert len(whole) == 9


@pytest.mark.parametrize("other", [split(8), split(9).only(["b", "a"]), split(9).take(np.arange(9)[::-1])])
def test_another_fit_has_another_fingerprint(other):
    valid = split(4)
    assert fingerprint(split(9), valid, "x") == fingerprint(split(9), valid, "x")
    assert fingerprint(split(9), valid, "x") != fingerprint(split(9), valid, "y")
    assert fingerprint(split(9), valid, "x") != fingerprint(other, valid, "x")


def test_the_fingerprint_tells_the_kinds_of_numbers_apart():
    """Else a fit with --numeric cost=gaussian would go on from the checkpoint of one with cost=poisson."""
    valid, cost = split(4), np.arange(9.0)[:, None]
    kinds = [replace(split(9), numbers=Numbers(cost, ("cost",), (kind,))) for kind in ("poisson", "gaussian")]
    assert fingerprint(kinds[0], valid) != fingerprint(kinds[1], valid)


def test_modules_for_recipes_without_torch_do_not_import_it():
    names = ("_data", "_events", "_checkpoint")
    program = f"import sys; {'; '.join(f'import mlci.fitting.{name}' for name in names)}; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout == "False\n"
