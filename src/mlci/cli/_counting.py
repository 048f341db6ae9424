"""A progress line that counts admissions, on a terminal only; elsewhere nothing is printed or imported."""

import contextlib
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def counting(quiet: bool) -> Iterator[Callable[[int], None] | None]:
    """Yield a callback that takes the number of admissions written so far, or None if there is no terminal."""
    import sys
    import time

    if quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console

    start = time.perf_counter()
    with Console(stderr=True).status("Reading ...") as line:
        yield lambda written: line.update(
            f"{written:,} admissions, {written / (time.perf_counter() - start):,.0f} per second"
        )
