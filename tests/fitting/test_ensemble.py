"""The ensemble: which process trains which member, threads, and out-of-fold logits."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from mlci.fitting._context import FitContext
from mlci.fitting._data import folds_by_subject
from mlci.fitting._engines import stacked
from mlci.fitting._ensemble import Posteriors, schedule_members, train_members
from mlci.fitting._loop import torch_threads
from small_fits import LEARNING, split_and_logits

(TRAIN, _), (VALID, _) = split_and_logits(1, 1500), split_and_logits(2, 600)
FOLDS = folds_by_subject(TRAIN, 3, seed=5)


def test_processes_share_all_members_and_the_first_has_at_least_one(monkeypatch):
    monkeypatch.setattr(stacked, "STACKED_DEVICES", ("cpu",))
    for processes, left in product(range(1, 7), range(1, 7)):
        [groups] = schedule_members(FitContext(LEARNING, 5), range(6 - left, 6), processes)
        assert len(groups) == processes
        assert [number for group in groups for number in group] == list(range(6 - left, 6))
        assert groups[0]  # it reports progress
        assert max(map(len, groups)) == -(-left // processes)


@pytest.mark.parametrize("threads", [2, 3])
def test_members_do_not_depend_on_the_number_of_threads(threads):
    """Each member has its own generator for dropout."""
    config = replace(LEARNING, posterior=replace(LEARNING.posterior, epochs=1, dropout=0.3))
    context = FitContext(config, 5)
    logits = []
    for many in (1, threads):
        with torch_threads(1):  # as `deep.fit` does: more threads would split sums differently
            members = [*train_members(context, TRAIN, [VALID], FOLDS, range(3), threads=many)]
        logits.append(np.stack([member.logits for member in members]))
    np.testing.assert_array_equal(*logits)


def test_out_of_fold_logits_are_of_members_that_have_not_seen_the_admission():
    logits = np.arange(3 * (len(TRAIN) + 2) * 2, dtype=np.float32).reshape(3, -1, 2)
    posteriors = Posteriors(logits, FOLDS)
    for row in (0, 1, 77):
        np.testing.assert_array_equal(posteriors.training_logits("out-of-fold")[row], logits[FOLDS[row], row])
    np.testing.assert_array_equal(posteriors.training_logits("ensemble"), logits[:, :-2].mean(0))
    assert len(posteriors.out_of_fold) == len(TRAIN)
