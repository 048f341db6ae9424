"""Limit BLAS to one thread, for matrix products that are too small to share among threads.

On a busy machine, the threads of a small product wait for each other. If several threads ask for the limit at the same
time, it ends when the first of them leaves its block; this costs the others time, but changes nothing else.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import numpy as np  # noqa: F401  loads BLAS, so that the controller finds it
from threadpoolctl import ThreadpoolController

_first = threading.Lock()


@contextmanager
def single_thread() -> Iterator[None]:
    """Limit BLAS to one thread during the block.

    >>> with single_thread():
    ...     [library["num_threads"] for library in _controller().info()][:1]
    [1]
    """
    if not _first.acquire(blocking=False):
        yield
        return
    try:
        with _controller().limit(limits=1):
            yield
    finally:
        _first.release()


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController().select(user_api="blas")
