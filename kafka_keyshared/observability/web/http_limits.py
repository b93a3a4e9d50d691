"""Connections with an incomplete request, limited in number and time.

Each of them holds a thread. A client may open many and send nothing, or send byte by byte. It must
not block other clients, above all an orchestrator's probes.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable

ASKED_WITHIN = 10.0
"""Seconds in which a request has to arrive completely."""

WAITING_MOST = 100
"""Maximum number of waiting connections. One more closes the one that has waited longest."""


class ConnectionLimits:
    """Closes connections that are too slow or too many. Any thread may call it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        # In the order in which they began.
        self._since: dict[socket.socket, float] = {}

    def begin(self, connection: socket.socket) -> None:
        """Register a connection that waits for its request, and close the oldest if needed."""
        with self._lock:
            self._since.pop(connection, None)
            self._since[connection] = self._clock()
            too_many = list(self._since)[:-WAITING_MOST]
        self._end(too_many)

    def over(self, connection: socket.socket) -> None:
        """Note that the request has arrived, or that the connection has ended."""
        with self._lock:
            self._since.pop(connection, None)

    def end_late(self) -> None:
        """Close the connections that have waited too long."""
        late_since = self._clock() - ASKED_WITHIN
        with self._lock:
            late = [each for each, since in self._since.items() if since <= late_since]
        self._end(late)

    def _end(self, connections: list[socket.socket]) -> None:
        for each in connections:
            self.over(each)
            with contextlib.suppress(OSError):  # it has already ended
                each.shutdown(socket.SHUT_RDWR)
