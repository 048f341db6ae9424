"""Run child processes that end when their parent ends, however the parent ends.

The parent holds one end of a pipe and never writes to it. The other end is the child's standard input, which ends with
the parent. A parent that is asked to stop ends its children itself.

`concurrent.futures.ProcessPoolExecutor` does not do this:

- In Python 3.11 a worker that is killed (by the system, for its memory) breaks the pool, and all other runs fail.
- A worker whose parent is killed ends its task and then waits for ever.
- Before Python 3.14 there is no way to stop a worker.
- A worker imports the caller's script, and would start the benchmark again if the script has no
  `if __name__ == "__main__"`.
"""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from types import TracebackType
from typing import NoReturn, Self

from mlci.base.signals import on_signal

STOPPED = 128 + signal.SIGTERM
BEGIN = "from mlci.base.children import _end_with_parent; _end_with_parent(); "


class Children:
    """The child processes of a `with` block; several threads may run one each."""

    def __init__(self) -> None:
        self.running: set[subprocess.Popen[str]] = set()
        self.over = False
        self.lock = threading.Lock()  # no child may start while the block ends

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        with self.lock:
            self.over = True
            for child in self.running:
                child.terminate()

    def run(self, program: str, *words: str, env: Mapping[str, str]) -> tuple[int, str]:
        """Run a Python program to its end.

        Args:
            program: the program's text.
            *words: its arguments.
            env: further environment variables.

        Returns:
            The exit code, and the last line of standard error; after the end of the block, `STOPPED` and "stopped".

        >>> with Children() as children:
        ...     children.run("import sys; sys.exit(sys.argv[1])", "no admissions", env={})
        (1, 'no admissions')
        """
        ours, theirs = os.pipe()
        try:
            with self.lock:
                if self.over:
                    return STOPPED, "stopped"
                child = subprocess.Popen(
                    [sys.executable, "-c", BEGIN + program, *words],
                    stdin=ours,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    text=True,
                    env={**os.environ, **env},
                )
                self.running.add(child)
            _, errors = child.communicate()
            with self.lock:
                self.running.discard(child)
        finally:
            os.close(ours)
            os.close(theirs)
        return child.returncode, (errors.strip().splitlines() or [f"ended with {child.returncode}"])[-1]


def _end_with_parent() -> None:
    """End this process when its standard input ends, and remove its temporary files; children call this first."""

    def stop(_: int) -> NoReturn:
        sys.exit(STOPPED)

    main = threading.main_thread().ident or 0

    def watch() -> None:
        os.read(0, 1)
        signal.pthread_kill(main, signal.SIGTERM)  # the main thread handles signals, so it must receive this one
        last = threading.Timer(10, os._exit, [STOPPED])  # if a call never returns to Python
        last.daemon = True
        last.start()

    on_signal(signal.SIGTERM, stop)
    threading.Thread(target=watch, daemon=True).start()
