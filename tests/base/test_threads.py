"""Threads: a block that ends well waits for them, one that is stopped does not."""

import threading

import pytest

from mlci.base.threads import threads


def test_a_block_that_ends_well_has_all_its_work_done():
    done = []
    with threads(2) as pool:
        for number in range(20):
            pool.submit(done.append, number)
    assert sorted(done) == list(range(20))


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit, ValueError])
def test_a_stopped_block_drops_what_has_not_begun_and_does_not_wait(stop):
    begun, end, done, dropped = threading.Event(), threading.Event(), [], []

    def work():
        with threads(1) as pool:
            pool.submit(lambda: (begun.set(), end.wait()))
            dropped.append(pool.submit(done.append, 1))
            begun.wait()
            raise stop

    with pytest.raises(stop):
        work()
    assert dropped[0].cancelled()  # while the first is still at work
    end.set()
    assert not done
