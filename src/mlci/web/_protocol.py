"""uvicorn's HTTP protocol, hardened against clients that never finish their requests.

A connection without a complete request is closed after some seconds, or at once if other connections need its place. So
the server keeps answering, however many connections are opened.
"""

import asyncio
import time

from uvicorn.protocols.http.h11_impl import H11Protocol

HEADER_SECONDS = 10.0
LONGEST_HEAD = 500_000  # bytes of an address and headers: two texts of 20,000 characters that are all escaped
MOST_CONNECTIONS = 200  # less than the limit of the server itself


class PatientProtocol(H11Protocol):
    """One connection."""

    born = 0.0
    waiting: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        super().connection_made(transport)
        self.born = time.monotonic()
        self._wait()
        others = [
            connection
            for connection in self.connections
            if isinstance(connection, PatientProtocol) and connection is not self
        ]
        idle = sorted(
            (connection for connection in others if connection.is_idle()), key=lambda connection: connection.born
        )
        for connection in idle[: max(0, len(others) - MOST_CONNECTIONS)]:
            connection.transport.close()

    def data_received(self, data: bytes) -> None:
        if self.waiting is None and self.is_idle():
            self._wait()
        super().data_received(data)
        if not self.is_idle():
            self._arrived()

    def connection_lost(self, exc: Exception | None) -> None:
        self._arrived()
        super().connection_lost(exc)

    def is_idle(self) -> bool:
        """Return whether no request is being read or answered; a slow body is handled by `Guard`."""
        return self.cycle is None or self.cycle.response_complete

    def _wait(self) -> None:
        self.waiting = self.loop.call_later(HEADER_SECONDS, self._late)

    def _arrived(self) -> None:
        if self.waiting is not None:
            self.waiting.cancel()
            self.waiting = None

    def _late(self) -> None:
        self.waiting = None
        if self.is_idle() and not self.transport.is_closing():
            self.transport.close()
