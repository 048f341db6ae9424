"""Signals that end a command by an exception, except where an exception would not end it.

An exception that a handler raises within Python's import system can be lost there, and can leave the lock of imports
behind: the program goes on, or waits for ever. Extension modules that register classes (`abc`) while they are imported
lose it, too. Commands import for up to two seconds, so a Ctrl-C often comes then.
"""

import signal
import threading
from collections.abc import Callable
from types import FrameType

FROZEN = "<frozen "  # how the names of the files of `importlib` and `abc` begin
AGAIN = 0.01  # seconds until a signal that came within it is sent again


def on_signal(number: int, stop: Callable[[int], object]) -> None:
    """Call `stop` with the number of a signal, which may raise; a signal that is ignored, as by nohup, stays ignored.

    >>> on_signal(signal.SIGUSR1, print)
    >>> signal.raise_signal(signal.SIGUSR1)
    10
    """

    def handle(number: int, frame: FrameType | None) -> None:
        if frame is not None and frame.f_code.co_filename.startswith(FROZEN):
            main = threading.main_thread().ident or 0  # which handles signals
            threading.Timer(AGAIN, signal.pthread_kill, [main, number]).start()
        else:
            stop(number)

    if signal.getsignal(number) != signal.SIG_IGN:
        signal.signal(number, handle)
