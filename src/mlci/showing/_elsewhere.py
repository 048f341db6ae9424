"""An album that a process of its own draws, beside the one that computes: in one, both want Python's lock.

The other process loads matplotlib while this one loads the rest and reads. Sketches go there as they are made, the
pictures come back at the end. It writes nothing, and ends with the pipe between the two, whatever this one died of;
where it cannot be had or dies itself, what it was sent is drawn here.
"""

import os
import subprocess
import sys
import threading
from collections.abc import Iterable
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe
from typing import Self

from mlci.showing._pages import Album, Picture, Sketch

PROGRAM = "import sys; from mlci.showing._elsewhere import serve; serve(int(sys.argv[1]))"


class DrawnElsewhere:
    """What `Album` does with sketches, by another process, which ends with the `with` block."""

    def __init__(self) -> None:
        self.sent: list[Sketch] = []
        self.process: subprocess.Popen | None = None
        self.pipe, theirs = Pipe()
        with theirs, suppress(OSError, ValueError):  # no further process, or none that takes over a pipe (Windows)
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-c", PROGRAM, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,  # an error comes again here
                start_new_session=True,  # Ctrl-C is for this process
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.pipe.close()
        if self.process is None:
            return
        if kind is None:
            self.process.wait()
        else:  # nobody waits for an import that the other process may be amid
            threading.Thread(target=self.process.wait, daemon=True).start()

    def draw(self, sketch: Sketch) -> None:
        """Have a picture drawn."""
        self.sent.append(sketch)
        with suppress(OSError):  # the other process is gone
            self.pipe.send(sketch)

    @property
    def pictures(self) -> dict[str, list[Picture]]:
        """All pictures by section, once they are drawn."""
        with suppress(EOFError, OSError):
            self.pipe.send(None)
            return self.pipe.recv()
        return _drawn(self.sent)


def serve(number: int) -> None:
    """Draw what comes through the pipe of this `number`, and answer with the pictures: for the other process."""
    with Connection(number) as pipe, suppress(EOFError, OSError):
        from mlci.showing import plots  # noqa: F401  while nothing has come yet

        pipe.send(_drawn(iter(pipe.recv, None)))
    os._exit(0)  # without putting away what ends anyway


def _drawn(sketches: Iterable[Sketch]) -> dict[str, list[Picture]]:
    album = Album()
    for sketch in sketches:
        album.draw(sketch)
    return album.pictures
