"""Schedule requests: quick ones run at once, longer ones in a few threads, first come, first served.

With a thread for each request, threads contend for the GIL: 50 clients at once then cost two to three times the
processor time of one.
"""

from collections.abc import Callable
from typing import TypeVar

from anyio import CapacityLimiter
from anyio.to_thread import run_sync

AT_ONCE = 2  # threads; a third only slows down the others

T = TypeVar("T")


class Turns:
    """A queue for work of several requests."""

    def __init__(self) -> None:
        self.limiter = CapacityLimiter(AT_ONCE)

    async def __call__(self, work: Callable[[], T], *, short: bool = False) -> T:
        """Return the result of `work`; `short` work of a few milliseconds runs without a thread."""
        return work() if short else await run_sync(work, limiter=self.limiter)
