"""A property that is computed once, without a lock between objects."""

import threading
from dataclasses import dataclass

from conftest import PATIENCE
from mlci.base.lazy import lazy_property


@dataclass(frozen=True)
class Meeting:
    other: threading.Barrier

    @lazy_property
    def place(self) -> int:
        """Wait until another object computes its own."""
        return self.other.wait(PATIENCE)


def test_threads_that_ask_different_objects_do_not_wait_for_each_other():
    meet = threading.Barrier(2)
    both = Meeting(meet), Meeting(meet)
    second = threading.Thread(target=lambda: both[1].place)
    second.start()
    found = {both[0].place, both[0].place}
    second.join()
    assert {*found, both[1].place} == {0, 1}  # no thread waited for the other


def test_the_class_keeps_its_words():
    assert Meeting.place.__doc__ == "Wait until another object computes its own."
