"""Run the web pages in one process, by default reachable only from this machine, without leaving files behind."""

import contextlib
import logging
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from mlci.base.errors import InputError
from mlci.base.files import scratch
from mlci.index.estimator import MLCI
from mlci.web.app import HOSTS, create_app

if TYPE_CHECKING:
    import uvicorn

CLEANER = "import shutil, sys; sys.stdin.read(); shutil.rmtree(sys.argv[1], ignore_errors=True)"


def serve(index: MLCI, *, host: str, port: int, on_ready: Callable[[str], None], name: str = "") -> None:
    """Serve the pages until interrupted.

    Args:
        index: the index that scores.
        host: the address to listen on, such as 127.0.0.1.
        port: the port; 0 takes any free port.
        on_ready: called with the address of the page.
        name: name of the model, shown on printed pages.

    >>> import mlci
    >>> with socket.create_server(("127.0.0.1", 0)) as other:  # a port that is in use
    ...     serve(mlci.load("us2010"), host="127.0.0.1", port=other.getsockname()[1], on_ready=print)
    Traceback (most recent call last):
    mlci.base.errors.InputError: 127.0.0.1, port 8000: cannot be used (Address already in use); choose another --port.
    """
    import uvicorn

    from mlci.web._protocol import LONGEST_HEAD, PatientProtocol

    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, port), family=family)
    except OSError as error:
        raise InputError(f"{host}, port {port}: cannot be used ({error.strerror}); choose another --port.") from error
    # Connections inherit this; otherwise the body of an answer waits 40 ms for the client to acknowledge the headers.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    shown = f"[{host}]" if ":" in host else host
    # Requests are not logged: their addresses hold codes.
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    with listener, _private_temporary_folder():
        app = create_app(index, hosts=(*HOSTS, shown) if is_loopback(host) else ("*",), name=name)
        config = uvicorn.Config(
            app,
            http=PatientProtocol,
            h11_max_incomplete_event_size=LONGEST_HEAD,
            access_log=False,
            log_level="warning",
            server_header=False,
            limit_concurrency=256,
            timeout_keep_alive=5,
        )
        on_ready(f"http://{shown}:{listener.getsockname()[1]}/")
        _server(config).run(sockets=[listener])


def _server(config: "uvicorn.Config") -> "uvicorn.Server":
    """Return a server that handles SIGHUP like other stop signals: it finishes open requests, then ends."""
    import uvicorn

    class Server(uvicorn.Server):
        @contextlib.contextmanager
        def capture_signals(self) -> Iterator[None]:
            with super().capture_signals():
                before = signal.getsignal(signal.SIGHUP)
                if before != signal.SIG_IGN:  # as nohup sets it
                    signal.signal(signal.SIGHUP, self.handle_exit)
                try:
                    yield
                finally:
                    signal.signal(signal.SIGHUP, before)

    return Server(config)


def is_loopback(host: str) -> bool:
    """Return whether `host` is reachable only from this machine.

    >>> is_loopback("127.0.0.1"), is_loopback("0.0.0.0")
    (True, False)
    """
    return host in ("localhost", "::1") or host.startswith("127.")


@contextlib.contextmanager
def _private_temporary_folder() -> Iterator[str]:
    """Keep all temporary files of this process in one folder, which a second process deletes when this one ends.

    The second process waits until a pipe closes, which happens however this process ends. If both are killed, the next
    run finds the folder without a lock and deletes it.
    """
    before = tempfile.tempdir
    with scratch() as folder:
        words = [sys.executable, "-I", "-c", CLEANER, str(folder)]
        cleaner = subprocess.Popen(words, stdin=subprocess.PIPE, start_new_session=True)
        tempfile.tempdir = str(folder)
        try:
            yield str(folder)
        finally:
            tempfile.tempdir = before
            shutil.rmtree(folder, ignore_errors=True)
            cleaner.communicate()
