"""An album that is drawn by a second process, so that drawing and computing do not contend for the GIL.

The second process loads matplotlib while this one loads other libraries and reads data. Sketches are sent as they are
made; the pictures come back at the end. The second process writes no files, and ends when the pipe between the two
closes, however this process ends. If it cannot be started, or dies, the sketches are drawn here.
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
    """Like `Album`, but sketches are drawn by a second process, which ends with the `with` block."""

    def __init__(self) -> None:
        self.sent: list[Sketch] = []
        self.process: subprocess.Popen | None = None
        self.pipe, theirs = Pipe()
        with theirs, suppress(OSError, ValueError):  # no process can be started, or none can inherit a pipe (Windows)
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-c", PROGRAM, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,  # an error will be raised again here
                start_new_session=True,  # so that Ctrl-C reaches only this process
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.pipe.close()
        if self.process is None:
            return
        if kind is None:
            self.process.wait()
        else:  # do not wait for the second process, which may be importing matplotlib
            threading.Thread(target=self.process.wait, daemon=True).start()

    def draw(self, sketch: Sketch) -> None:
        """Send a sketch to be drawn."""
        self.sent.append(sketch)
        with suppress(OSError):  # the second process has ended
            self.pipe.send(sketch)

    @property
    def pictures(self) -> dict[str, list[Picture]]:
        """All pictures by section, when all are drawn."""
        with suppress(EOFError, OSError):
            self.pipe.send(None)
            return self.pipe.recv()
        return _drawn(self.sent)


def serve(number: int) -> None:
    """Draw the sketches that come through the pipe with this `number`, and send the pictures: the second process."""
    with Connection(number) as pipe, suppress(EOFError, OSError):
        from mlci.showing import plots  # noqa: F401  imported before the first sketch arrives

        pipe.send(_drawn(iter(pipe.recv, None)))
    os._exit(0)  # without the cleanup of libraries


def _drawn(sketches: Iterable[Sketch]) -> dict[str, list[Picture]]:
    album = Album()
    for sketch in sketches:
        album.draw(sketch)
    return album.pictures
