"""Limit BLAS to one thread, for matrix products that are too small to share among threads.

On a busy machine, the threads of a small product wait for each other, and a product that is shared among threads may be
rounded differently. The limit holds for the whole process: while blocks run, in one thread or in several, the first one
sets it and the last one lifts it.
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache

import numpy as np  # noqa: F401  loads BLAS, so that the controller finds it
from threadpoolctl import LibController, ThreadpoolController

_lock = threading.Lock()
_running = 0  # blocks
_before: Sequence[int] = ()  # threads of each library without the limit


@contextmanager
def single_thread() -> Iterator[None]:
    """Limit BLAS to one thread during the block.

    >>> with single_thread():
    ...     [library.num_threads for library in _libraries()][:1]
    [1]
    """
    global _running, _before
    with _lock:
        if not _running:
            _before = [library.num_threads for library in _libraries()]
        _running += 1
        _set_threads([1] * len(_before))
    try:
        yield
    finally:
        with _lock:
            _running -= 1
            if not _running:
                _set_threads(_before)


def _set_threads(numbers: Sequence[int]) -> None:
    """Set the number of threads of each library.

    From threadpoolctl 3.8 on, OpenBLAS takes the number only from the thread that controls it.
    """
    for library, number in zip(_libraries(), numbers):
        release = getattr(library, "clear_controlling_thread", lambda force: None)
        release(force=True)
        library.set_num_threads(number)
        release(force=True)


@cache
def _libraries() -> list[LibController]:
    return ThreadpoolController().select(user_api="blas").lib_controllers
