"""The members of an ensemble: who trains which, the same bits by any number of threads, what each may speak of."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from mlci.fitting._context import FitContext
from mlci.fitting._data import folds_by_subject
from mlci.fitting._engines import stacked
from mlci.fitting._ensemble import Posteriors, schedule_members, train_members
from small_fits import LEARNING, split_and_logits

(TRAIN, _), (VALID, _) = split_and_logits(1, 1500), split_and_logits(2, 600)
FOLDS = folds_by_subject(TRAIN, 3, seed=5)


def test_processes_share_all_members_and_the_first_has_some(monkeypatch):
    monkeypatch.setattr(stacked, "STACKED_DEVICES", ("cpu",))
    for processes, left in product(range(1, 7), range(1, 7)):
        [groups] = schedule_members(FitContext(LEARNING, 5), range(6 - left, 6), processes)
        assert len(groups) == processes
        assert [number for group in groups for number in group] == list(range(6 - left, 6))
        assert groups[0]  # it tells how far they are
        assert max(map(len, groups)) == -(-left // processes)


@pytest.mark.parametrize("threads", [2, 3])
def test_threads_train_members_to_the_same_bits(threads):
    """Dropout is drawn from generators of their own."""
    config = replace(LEARNING, posterior=replace(LEARNING.posterior, epochs=1, dropout=0.3))
    context = FitContext(config, 5)
    alone, aside = (
        np.stack([member.logits for member in train_members(context, TRAIN, [VALID], FOLDS, range(3), threads=many)])
        for many in (1, threads)
    )
    np.testing.assert_array_equal(alone, aside)


def test_members_speak_only_of_what_they_have_not_seen():
    logits = np.arange(3 * (len(TRAIN) + 2) * 2, dtype=np.float32).reshape(3, -1, 2)
    said = Posteriors(logits, FOLDS)
    for row in (0, 1, 77):
        np.testing.assert_array_equal(said.training_logits("out-of-fold")[row], logits[FOLDS[row], row])
    np.testing.assert_array_equal(said.training_logits("ensemble"), logits[:, :-2].mean(0))
    assert len(said.out_of_fold) == len(TRAIN)
