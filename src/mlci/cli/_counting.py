"""A line at a terminal that counts admissions while a file is worked on; nothing elsewhere, and nothing imported."""

import contextlib
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def counting(quiet: bool) -> Iterator[Callable[[int], None] | None]:
    """Give what is called after each batch with the admissions written so far: a line that moves, on a terminal."""
    import sys
    import time

    if quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console

    start = time.perf_counter()
    with Console(stderr=True).status("Reading ...") as line:
        yield lambda written: line.update(
            f"{written:,} admissions, {written / (time.perf_counter() - start):,.0f} a second"
        )
