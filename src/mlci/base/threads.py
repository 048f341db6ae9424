"""A pool of threads that drops its work when the user stops the program.

A pool of `concurrent.futures` finishes all its work, even after Ctrl-C, and Python waits for its threads again before
it ends. Here, work that has not begun is dropped, and the command line (`mlci.cli.main`) ends its process without
waiting for the rest.
"""

import contextlib
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

MOST = 8  # with more threads, memory bandwidth is the limit
T = TypeVar("T")
_here = threading.local()  # .pool: the pool for all processors to which this thread belongs


@dataclass(frozen=True)
class Crew:
    """A pool of threads that takes work in the order of submission.

    >>> with threads(2) as pool:
    ...     pool.submit(abs, -1).result()
    1
    """

    executor: ThreadPoolExecutor

    def submit(self, work: Callable[..., T], *given: Any, **named: Any) -> Future[T]:
        """Return the future of a call of `work` with these arguments, by position (`given`) or by name (`named`)."""
        return self.executor.submit(work, *given, **named)

    def map(self, work: Callable[..., T], *items: Iterable[Any]) -> list[T]:
        """Return `work` of all `items`; if the caller is a thread of the pool, it does what no other has begun.

        >>> with threads(2) as pool:
        ...     pool.map(abs, [-1, 2])
        [1, 2]
        """
        coming = [(self.submit(work, *given), given) for given in zip(*items)]
        helps = getattr(_here, "pool", None) is self
        try:
            return [work(*given) if helps and future.cancel() else future.result() for future, given in coming]
        finally:
            for future, _ in coming:
                future.cancel()


@contextlib.contextmanager
def threads(number: int | None = None) -> Iterator[Crew]:
    """Give a pool of threads; the end of the block waits for them, unless it ends with an error or a stop.

    Args:
        number: the number of threads; by default one for each processor, up to 8. A thread of such a pool that asks
            for a pool gets the pool that it belongs to: more threads than processors would contend for the GIL.

    Returns:
        A context manager that gives the pool.

    >>> with threads() as pool:
    ...     pool.submit(abs, -1).result()
    1
    """
    if number is None and hasattr(_here, "pool"):
        yield _here.pool
        return
    initializer = None if number else lambda: setattr(_here, "pool", pool)
    pool = Crew(ThreadPoolExecutor(number or min(MOST, os.cpu_count() or 1), initializer=initializer))
    try:
        yield pool
    except BaseException:
        pool.executor.shutdown(wait=False, cancel_futures=True)
        raise
    pool.executor.shutdown()
