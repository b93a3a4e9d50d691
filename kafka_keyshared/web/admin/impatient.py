"""A connection that nobody can keep by asking slowly.

The server itself bounds only how long a connection waits for its next request. One that sends its
request byte by byte would hold a place of those that there are for as long as it likes.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from kafka_keyshared.logs import Seldom, hand_on, log_of

ASKED_WITHIN = 10.0
"""Seconds in which the head of a request has to be there."""


_seldom = Seldom(log_of("kafka_keyshared.web"))


class Few(logging.Logger):
    """What the server says of requests, in a line a minute of each kind.

    It warns of each that is no HTTP and of each that is one too many, so whoever sends such fills
    the log.
    """

    def handle(self, record: logging.LogRecord) -> None:
        """Take a line; errors are the program's own and all told."""
        if record.levelno > logging.WARNING:
            hand_on(record)
        else:
            _seldom.warning(str(record.msg), f"admin API: {record.getMessage()}")


class Impatient(H11Protocol):
    """Ends a connection whose request is not there in time, from its first byte or the opening."""

    _overdue: asyncio.TimerHandle | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.logger = Few("kafka_keyshared.web", logging.INFO)

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
