"""Child processes end with their parent, whether it is killed or asked to stop."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from conftest import PATIENCE
from mlci.base.children import STOPPED, Children

CHILD = """
import atexit, os, time
atexit.register(open, 'left', 'w')
open('child', 'w').write(str(os.getpid()))
time.sleep(600)
"""
PARENT = f"""
import sys, time
from mlci.base.children import Children
def stop(*_): sys.exit(143)
import signal; signal.signal(signal.SIGTERM, stop)
with Children() as children:
    import threading
    threading.Thread(target=children.run, args=[{CHILD!r}], kwargs={{"env": {{}}}}).start()
    while True: time.sleep(0.1)  # a signal between two of these is heard, too
"""


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rsplit(")")[-1].split()[0] == "Z"


def until(condition):
    deadline = time.monotonic() + PATIENCE
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
    return condition()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_child_ends_with_its_parent(number, tmp_path):
    parent = subprocess.Popen([sys.executable, "-c", PARENT], cwd=tmp_path)
    try:
        assert until(lambda: (tmp_path / "child").exists() and (tmp_path / "child").read_text())
        parent.send_signal(number)
        assert until(lambda: gone(int((tmp_path / "child").read_text())))
        assert (tmp_path / "left").exists()  # by its own end, at which it removes its files
        parent.wait(PATIENCE)
    finally:
        parent.kill()
        parent.wait()


def test_a_child_that_starts_while_all_end_ends_too(monkeypatch):
    starting, found, popen, children = threading.Event(), [], subprocess.Popen, Children()

    def slow(*words, **options):
        starting.set()
        time.sleep(0.3)  # meanwhile the block ends
        return popen(*words, **options)

    def run():
        found.append(children.run("import time; time.sleep(600)", env={})[0])

    monkeypatch.setattr(subprocess, "Popen", slow)
    thread = threading.Thread(target=run, daemon=True)
    with children:
        thread.start()
        starting.wait()
    thread.join(PATIENCE)
    assert found in ([STOPPED], [-signal.SIGTERM])  # by its own handler, or before it had one
    assert children.run("", env={}) == (STOPPED, "stopped")


def test_a_child_returns_its_exit_code_and_its_last_line():
    with Children() as children:
        assert children.run("pass", env={}) == (0, "ended with 0")
        code, last = children.run(
            "import os, sys; sys.exit(f'{sys.argv[1]}: {os.environ[\"WORD\"]}')", "a", env={"WORD": "b"}
        )
    assert (code, last) == (1, "a: b")
