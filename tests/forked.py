"""Runs of `mlci` that start at once, for tests that kill them."""

import json
import os
import subprocess
import sys
from pathlib import Path


class Fits:
    """Runs of `mlci` forked from one process that has everything imported, so that starting one takes no time."""

    # A run that is to be killed brings its own end with it: a test beside it might come too late, when all is done.
    PROGRAM = """
import json, os, signal, sys, mlci.index.learning, mlci.index._model_of_fit, mlci.fitting.deep, mlci.fitting.paper
from mlci.cli import main
def end(seconds, checkpoint):
    if checkpoint is None:
        return signal.setitimer(signal.ITIMER_REAL, seconds)
    written = []
    def heard(event, given):
        if event == "os.rename" and os.fspath(given[1]) == checkpoint:
            written.append(event)
            if len(written) > 1:
                os.kill(os.getpid(), signal.SIGALRM)
            signal.setitimer(signal.ITIMER_REAL, seconds)
    sys.addaudithook(heard)
for line in sys.stdin:
    words, killed = json.loads(line)
    child = os.fork()
    if child == 0:
        sys.argv = ["mlci", *words]
        if killed:
            end(*killed)
        main()
    print(os.waitpid(child, 0)[1], flush=True)
"""

    def __enter__(self):
        words = [sys.executable, "-c", self.PROGRAM]
        streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.parent = subprocess.Popen(words, env={**os.environ, "OMP_NUM_THREADS": "2"}, **streams)
        return self

    def __exit__(self, *_):
        self.parent.communicate()

    def run(self, *words: object, killed: float | None = None, after: Path | None = None) -> int:
        """What became of it: 0, or SIGALRM where it was `killed` in so many seconds.

        They count from its start, or from when it first renews the checkpoint `after`; it never does so twice. The
        signal ends it as a power cut would: whatever it is doing, and without a word.
        """
        end = None if killed is None else (killed, None if after is None else str(after))
        self.parent.stdin.write(json.dumps([[str(word) for word in words], end]) + "\n")
        self.parent.stdin.flush()
        return int(self.parent.stdout.readline())
