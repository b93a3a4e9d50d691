"""A connection that nobody can keep by asking slowly.

The server itself bounds only how long a connection waits for its next request. One that sends its
request byte by byte would hold a place of those that there are for as long as it likes.
"""

from __future__ import annotations

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

ASKED_WITHIN = 10.0
"""Seconds in which the head of a request has to be there."""


class Impatient(H11Protocol):
    """Ends a connection whose request is not there in time, from its first byte or the opening."""

    _overdue: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request."""
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Go on waiting, unless the head of a request is there."""
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._wait_no_more()
        elif self._overdue is None:
            self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing any more."""
        self._wait_no_more()
        super().connection_lost(exc)

    def _wait(self) -> None:
        self._overdue = self.loop.call_later(ASKED_WITHIN, self.transport.close)

    def _wait_no_more(self) -> None:
        if self._overdue is not None:
            self._overdue.cancel()
            self._overdue = None
