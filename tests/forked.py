"""Run `mlci` in forked processes, which start immediately, for tests that kill them."""

import json
import os
import subprocess
import sys
from pathlib import Path


class Fits:
    """Run `mlci` in children of one process that has imported everything, so that a run starts immediately."""

    # A run that is to be killed sets its own timer: a signal from the test could come after the run is finished.
    PROGRAM = """
import json, os, signal, sys, mlci.index.learning, mlci.index._model_of_fit, mlci.fitting.deep, mlci.fitting.paper
from mlci.cli import main
def end(seconds, checkpoint):
    if checkpoint is None:
        return signal.setitimer(signal.ITIMER_REAL, seconds)
    written = []
    def hook(event, arguments):
        if event == "os.rename" and os.fspath(arguments[1]) == checkpoint:
            written.append(event)
            if len(written) > 1:
                os.kill(os.getpid(), signal.SIGALRM)
            signal.setitimer(signal.ITIMER_REAL, seconds)
    sys.addaudithook(hook)
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
        """Run a command and return its wait status: 0, or SIGALRM if it was killed.

        `killed`: seconds until it is killed, from its start or, with `after`, from its first write of that checkpoint;
        a second write of the checkpoint ends it at once. Like a power cut, the signal ends it whatever it is doing.
        """
        end = None if killed is None else (killed, None if after is None else str(after))
        self.parent.stdin.write(json.dumps([[str(word) for word in words], end]) + "\n")
        self.parent.stdin.flush()
        return int(self.parent.stdout.readline())
