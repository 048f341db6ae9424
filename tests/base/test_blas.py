import threading

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from conftest import PATIENCE
from mlci.base.blas import single_thread
from mlci.measures import alignment


def threads() -> set[int]:
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


def test_the_threads_come_back_also_from_within_another():
    with threadpool_limits(2, user_api="blas"):
        many = threads()
        with single_thread(), single_thread():
            assert threads() == {1}
        assert threads() == many
        with pytest.raises(ZeroDivisionError), single_thread():
            raise ZeroDivisionError
        assert threads() == many


@pytest.mark.parametrize(("shared", "single"), [(alignment.SHARED, True), (0.0, False)])
def test_nhsic_shares_only_large_products(monkeypatch, shared, single):
    seen = []
    expanded = alignment._expanded
    monkeypatch.setattr(alignment, "SHARED", shared)
    monkeypatch.setattr(alignment, "_expanded", lambda *given: (seen.append(threads()), expanded(*given))[1])
    rng = np.random.default_rng(0)
    score = rng.random(9000) * 10
    with threadpool_limits(2, user_api="blas"):
        alignment.nhsic(score, rng.random(9000) < 0.3, sigma=1.0)
    assert [found == {1} for found in seen] == [single]


def test_the_limit_lasts_until_the_last_of_several_threads_leaves():
    entered, leave = threading.Event(), threading.Event()

    def other() -> None:
        with single_thread():
            entered.set()
            leave.wait(PATIENCE)

    thread = threading.Thread(target=other)
    with threadpool_limits(2, user_api="blas"):
        many = threads()
        thread.start()
        assert entered.wait(PATIENCE)
        with single_thread():
            leave.set()
            thread.join()
            assert threads() == {1}
        assert threads() == many
