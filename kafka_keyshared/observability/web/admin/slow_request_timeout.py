"""A server protocol that closes connections with slow requests.

The server itself limits only the wait for a connection's next request. A client that sends its
request byte by byte would hold one of the limited connections indefinitely.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from kafka_keyshared.logs import Seldom, hand_on, log_of

ASKED_WITHIN = 10.0
"""Seconds in which the head of a request has to arrive."""


_seldom = Seldom(log_of("kafka_keyshared.web"))


class Few(logging.Logger):
    """A logger for the server's lines about requests, limited to one line a minute of each kind.

    The server warns of each request that is no HTTP and of each beyond the limit. So a client could
    fill the log.
    """

    def handle(self, record: logging.LogRecord) -> None:
        """Handle a line. Errors are the program's own and are all logged."""
        if record.levelno > logging.WARNING:
            hand_on(record)
        else:
            _seldom.warning(str(record.msg), f"admin API: {record.getMessage()}")


class Impatient(H11Protocol):
    """Closes a connection without a request in time, from its opening or its first byte."""

    _overdue: asyncio.TimerHandle | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.logger = Few("kafka_keyshared.web", logging.INFO)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request."""
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Continue to wait, unless the head of a request has arrived."""
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._wait_no_more()
        elif self._overdue is None:
            self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._wait_no_more()
        super().connection_lost(exc)

    def _wait(self) -> None:
        self._overdue = self.loop.call_later(ASKED_WITHIN, self.transport.close)

    def _wait_no_more(self) -> None:
        if self._overdue is not None:
            self._overdue.cancel()
            self._overdue = None
