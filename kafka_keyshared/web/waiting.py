"""Connections whose request is not there yet: how many there may be, and for how long.

Each of them holds a thread. Whoever opens many and sends nothing, or sends byte by byte, must not
keep those out who ask: an orchestrator's probes, above all.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable

ASKED_WITHIN = 10.0
"""Seconds in which a request has to be there whole, however slowly it comes."""

WAITING_MOST = 100
"""So many at once; one more ends the one that has waited for longest."""


class Waiting:
    """Ends those that are too late or too many. Any thread may call it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        # In the order in which they began.
        self._since: dict[socket.socket, float] = {}

    def begin(self, connection: socket.socket) -> None:
        """Take note that a request is waited for, and make room for it."""
        with self._lock:
            self._since.pop(connection, None)
            self._since[connection] = self._clock()
            too_many = list(self._since)[:-WAITING_MOST]
        self._end(too_many)

    def over(self, connection: socket.socket) -> None:
        """Take note that it is there, or that it will not come."""
        with self._lock:
            self._since.pop(connection, None)

    def end_late(self) -> None:
        """End those that have waited for too long."""
        late_since = self._clock() - ASKED_WITHIN
        with self._lock:
            late = [each for each, since in self._since.items() if since <= late_since]
        self._end(late)

    def _end(self, connections: list[socket.socket]) -> None:
        for each in connections:
            self.over(each)
            with contextlib.suppress(OSError):  # it has ended meanwhile
                each.shutdown(socket.SHUT_RDWR)
