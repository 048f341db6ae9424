"""Fitting can be interrupted, and refuses settings that mean nothing."""

import threading

import numpy as np
import pytest

from conftest import PATIENCE
from mlci.base.errors import InputError
from mlci.index import learning
from mlci.index.model import load_model


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_does_not_wait_for_background_imports(monkeypatch, stop):
    started, release = threading.Event(), threading.Event()

    def importing(*_) -> None:
        started.set()
        release.wait(PATIENCE)  # like a thread that waits for a lock that is never released

    def reading(_) -> None:
        assert started.wait(PATIENCE)
        raise stop

    monkeypatch.setattr(learning, "_fit_function", importing)
    monkeypatch.setattr(learning, "read_cohort", reading)
    timer = threading.Timer(PATIENCE / 5, release.set)  # ends the test if the interrupt does wait
    timer.start()
    with pytest.raises(stop):
        learning.learn(learning.FitSettings(), "cohort.parquet")
    assert not release.is_set()
    release.set()
    timer.cancel()


@pytest.mark.parametrize("seed", [-1, 1.5, "a", None, 2**64])
def test_a_seed_is_a_whole_number_from_0(seed):
    with pytest.raises(InputError, match=f"seed is {seed!r}; allowed are whole numbers from 0"):
        learning.FitSettings(seed=seed).resolve()


@pytest.mark.parametrize("seed", [2**64 - 1, np.int64(3)])
def test_a_model_of_any_seed_can_be_read_back(seed, tmp_path):
    data = [["I50.9"], ["E11.9"]] * 40, {"mortality": [1, 0] * 40}
    learning.learn(learning.FitSettings(seed=seed), *data, icd_version=10).save(tmp_path / "model")
    assert load_model(tmp_path / "model").card["seed"] == seed
