"""Fitting: the settings, and interrupts."""

import threading

import pytest

from conftest import PATIENCE
from mlci.index import learning


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_does_not_wait_for_background_imports(monkeypatch, stop):
    begun, go_on = threading.Event(), threading.Event()

    def importing(*_) -> None:
        begun.set()
        go_on.wait(PATIENCE)  # as a thread does that waits for a lock which nobody releases

    def reading(_) -> None:
        assert begun.wait(PATIENCE)
        raise stop

    monkeypatch.setattr(learning, "_fit_function", importing)
    monkeypatch.setattr(learning, "read_cohort", reading)
    late = threading.Timer(20, go_on.set)  # so that a failure ends
    late.start()
    with pytest.raises(stop):
        learning.learn(learning.FitSettings(), "cohort.parquet")
    assert not go_on.is_set()
    go_on.set()
    late.cancel()
