"""Threads that nobody waits for once their work is not wanted any more.

A pool of `concurrent.futures` finishes all it was given, even where the person who asked has pressed Ctrl-C; and Python
joins its threads once more before it ends. Here what has not begun is dropped, and the command line (`mlci.cli.main`)
ends its process without waiting for the rest.
"""

import contextlib
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

MOST = 8  # threads beyond which shared memory, not processors, is the limit


@contextlib.contextmanager
def threads(number: int | None = None) -> Iterator[ThreadPoolExecutor]:
    """Give a pool of threads; a block that ends well waits for them, one that ends by an error or a stop does not.

    Args:
        number: of threads; by default one for each processor, 8 at most.

    Returns:
        A context manager that gives the pool.

    >>> with threads(2) as pool:
    ...     list(pool.map(abs, [-1, 2]))
    [1, 2]
    """
    pool = ThreadPoolExecutor(number or min(MOST, os.cpu_count() or 1))
    try:
        yield pool
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    pool.shutdown()
