"""Signals end a command also while it imports; ignored ones stay ignored."""

import signal
import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest

from conftest import PATIENCE
from mlci.base.signals import on_signal


@pytest.fixture
def handled():
    """Return the signals that are handled, an event that is set with each, and the handler of SIGUSR1."""
    seen, event, before = [], threading.Event(), signal.getsignal(signal.SIGUSR1)
    on_signal(signal.SIGUSR1, lambda number: (seen.append(number), event.set()))
    yield seen, event, signal.getsignal(signal.SIGUSR1)
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("file", ["<frozen importlib._bootstrap>", "<frozen abc>"])
def test_a_signal_within_an_import_is_sent_again(handled, file):
    """An exception there could be lost, and leave the lock of imports to nobody."""
    seen, event, handler = handled
    handler(signal.SIGUSR1, SimpleNamespace(f_code=SimpleNamespace(co_filename=file)))
    assert not seen
    assert event.wait(PATIENCE)
    assert seen == [signal.SIGUSR1]


def test_a_signal_elsewhere_is_handled_at_once(handled):
    seen, _, _ = handled
    signal.raise_signal(signal.SIGUSR1)
    assert seen == [signal.SIGUSR1]


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT])
def test_a_command_goes_on_after_a_signal_that_was_ignored_when_it_began(number):
    """So do nohup and a shell that starts a command in the background."""
    program = f"""
import os, signal
signal.signal({int(number)}, signal.SIG_IGN)
from mlci import cli
cli.cli.main = lambda **_: os.kill(os.getpid(), {int(number)})
cli.main()
"""
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0
