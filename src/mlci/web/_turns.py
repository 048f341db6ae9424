"""Who is answered when: what takes a moment at once, what takes longer by a few threads, who comes first first.

A thread for each request would wrest Python's lock from the others and from the server: 50 clients at once then cost
two to three times the processor time of one.
"""

from collections.abc import Callable
from typing import TypeVar

from anyio import CapacityLimiter
from anyio.to_thread import run_sync

AT_ONCE = 2  # threads: a third only slows down the others

T = TypeVar("T")


class Turns:
    def __init__(self) -> None:
        self.limiter = CapacityLimiter(AT_ONCE)

    async def __call__(self, work: Callable[[], T], *, short: bool = False) -> T:
        """Return what the work gives; short work, of some milliseconds, is not worth a thread."""
        return work() if short else await run_sync(work, limiter=self.limiter)
