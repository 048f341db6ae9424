"""Threads that nobody waits for once their work is not wanted any more.

A pool of `concurrent.futures` finishes all it was given, even where the person who asked has pressed Ctrl-C; and Python
joins its threads once more before it ends. Here what has not begun is dropped, and the command line (`mlci.cli.main`)
ends its process without waiting for the rest.
"""

import contextlib
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

MOST = 8  # threads beyond which shared memory, not processors, is the limit
T = TypeVar("T")
_here = threading.local()  # .pool: the one for all processors that this thread belongs to


@dataclass(frozen=True)
class Crew:
    """Threads that take work in the order in which it is handed out.

    >>> with threads(2) as pool:
    ...     pool.submit(abs, -1).result()
    1
    """

    executor: ThreadPoolExecutor

    def submit(self, work: Callable[..., T], *given: Any, **named: Any) -> Future[T]:
        """Return the future of some `work` with what it is `given`, by place or by name (`named`)."""
        return self.executor.submit(work, *given, **named)

    def map(self, work: Callable[..., T], *items: Iterable[Any]) -> list[T]:
        """Return what `work` makes of all `items`; a thread of the pool that asks does what no other has begun.

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
    """Give a pool of threads; a block that ends well waits for them, one that ends by an error or a stop does not.

    Args:
        number: of threads; by default one for each processor, 8 at most. A thread of such a pool that asks for one is
            given its own pool: more threads than processors would wrest Python's lock from each other.

    Returns:
        A context manager that gives the pool.

    >>> with threads() as pool:
    ...     pool.submit(abs, -1).result()
    1
    """
    if number is None and hasattr(_here, "pool"):
        yield _here.pool
        return
    belong = None if number else lambda: setattr(_here, "pool", pool)
    pool = Crew(ThreadPoolExecutor(number or min(MOST, os.cpu_count() or 1), initializer=belong))
    try:
        yield pool
    except BaseException:
        pool.executor.shutdown(wait=False, cancel_futures=True)
        raise
    pool.executor.shutdown()
