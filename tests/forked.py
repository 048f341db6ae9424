"""Runs of `mlci` that start at once, for tests that kill them."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable


class Fits:
    """Runs of `mlci` forked from one process that has everything imported, so that starting one takes no time."""

    PROGRAM = """
import os, sys, mlci.index.learning, mlci.index._making, mlci.fitting.deep, mlci.fitting.paper
from mlci.cli import main
for line in sys.stdin:
    child = os.fork()
    if child == 0:
        sys.argv = ["mlci", *line.rstrip().split(chr(9))]
        main()
    print(child, flush=True)
    print(os.waitpid(child, 0)[1], flush=True)
"""

    def __enter__(self):
        words = [sys.executable, "-c", self.PROGRAM]
        streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.parent = subprocess.Popen(words, env={**os.environ, "OMP_NUM_THREADS": "2"}, **streams)
        return self

    def __exit__(self, *_):
        self.parent.communicate()

    def run(self, *words, until: Callable[[], bool] | None = None) -> int:
        """What became of it: 0, or the signal that ended it, sent as soon as `until` holds."""
        self.parent.stdin.write("\t".join(map(str, words)) + "\n")
        self.parent.stdin.flush()
        child = int(self.parent.stdout.readline())
        if until is not None:
            while not until():
                os.kill(child, 0)  # an error if it ended before its time
                time.sleep(0.002)
            os.kill(child, signal.SIGKILL)
        return int(self.parent.stdout.readline())
