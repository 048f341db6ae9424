"""An album drawn by a second process: the same pictures even if that process fails, and it always ends."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from conftest import PATIENCE
from mlci.showing._elsewhere import DrawnElsewhere
from mlci.showing._pages import Album, Sketch

SKETCHES = [
    Sketch("shares", "Two bars", "singular_values", (np.array([3.0, 1.0]),)),
    Sketch("shares", "One bar", "singular_values", (np.array([1.0]),), {"unrelated": 0.5}, caption=False),
    Sketch("codes", "A code", "influence", (["I50.9"], np.array([0.4]))),
]


@pytest.fixture(scope="module")
def drawn():
    album = Album()
    for sketch in SKETCHES:
        album.draw(sketch)
    return album.pictures


def gone(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    with open(f"/proc/{process}/stat") as state:
        return state.read().rsplit(")", 1)[1].split()[0] == "Z"  # nobody has asked how it ended


@pytest.mark.parametrize("killed_before", [None, 0, 2, 3])
def test_pictures_are_the_same_and_drawn_here_where_the_process_dies(killed_before, drawn):
    with DrawnElsewhere() as album:
        for place, sketch in enumerate([*SKETCHES, None]):
            if place == killed_before:
                album.process.kill()
                album.process.wait()
            if sketch:
                album.draw(sketch)
        assert album.pictures == drawn
    assert album.process.returncode == (0 if killed_before is None else -signal.SIGKILL)


def test_an_error_of_a_drawing_is_raised_here():
    with DrawnElsewhere() as album:
        album.draw(Sketch("none", "", "no_such_plot", ()))
        with pytest.raises(AttributeError, match="no_such_plot"):
            _ = album.pictures


@pytest.mark.parametrize("end", ["os.kill(os.getpid(), signal.SIGKILL)", "raise KeyboardInterrupt"])
def test_the_process_ends_with_the_one_that_started_it(end):
    program = f"""
import os, signal
from mlci.showing._elsewhere import DrawnElsewhere
with DrawnElsewhere() as album:
    print(album.process.pid, flush=True)
    {end}
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=PATIENCE)
    process, last = int(done.stdout), time.monotonic() + PATIENCE
    assert done.returncode
    while not gone(process):
        assert time.monotonic() < last
        time.sleep(0.01)


@pytest.mark.parametrize("refusal", [OSError("no more processes"), ValueError("pass_fds not supported on Windows.")])
def test_pictures_are_drawn_here_where_no_process_can_be_had(refusal, drawn, monkeypatch):
    def refuse(*_, **__):
        raise refusal

    monkeypatch.setattr(subprocess, "Popen", refuse)
    with DrawnElsewhere() as album:
        for sketch in SKETCHES:
            album.draw(sketch)
        assert album.pictures == drawn
