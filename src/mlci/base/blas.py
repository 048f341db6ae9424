"""One thread for matrix products that are too small to share: on a busy machine its threads wait for each other.

Where several ask for it at the same time, it lasts until the first of them leaves; the others lose nothing but time.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import numpy as np  # noqa: F401  brings BLAS, which the controller then finds
from threadpoolctl import ThreadpoolController

_first = threading.Lock()


@contextmanager
def single_thread() -> Iterator[None]:
    """Keep BLAS to one thread while this lasts.

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
