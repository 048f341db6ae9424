"""A block of threads waits for its work, unless it is stopped."""

import threading
import time

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


def test_work_submitted_by_a_thread_of_a_pool_stays_in_that_pool(monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 3)
    busy, most, lock = 0, [], threading.Lock()

    def leaf(number: int) -> int:
        nonlocal busy
        with lock:
            busy += 1
            most.append(busy)
        time.sleep(0.001)
        with lock:
            busy -= 1
        return number

    def branch(number: int) -> list[list[int]]:
        with threads() as pool:
            return pool.map(lambda first: pool.map(leaf, range(first, first + 3)), range(number, number + 4))

    with threads() as pool:
        found = pool.map(branch, range(10))
    assert found == [[[*range(first, first + 3)] for first in range(number, number + 4)] for number in range(10)]
    assert 1 < max(most) <= 3


def test_an_error_in_submitted_work_reaches_the_caller_and_the_rest_is_dropped(monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 1)  # so that no other thread takes the rest
    done = []

    def fails(number: int) -> None:
        done.append(number)
        if number == 2:
            raise ValueError(number)

    def asks() -> None:
        with threads() as pool:
            pool.map(fails, range(9))

    with threads() as pool, pytest.raises(ValueError, match="2"):
        pool.submit(asks).result()
    assert done == [0, 1, 2]


def test_a_separate_thread_has_a_pool_of_its_own():
    with threads(1) as beside:
        assert beside.submit(lambda: _given(None) is not beside).result()
    with threads() as pool:
        assert pool.submit(lambda: _given(None) is pool and _given(1) is not pool).result()


def _given(number: int | None):
    with threads(number) as pool:
        return pool
