"""The read timeout for dead-letter commands."""

from __future__ import annotations

import time
from collections.abc import Callable

from confluent_kafka import KafkaError

PATIENCE = 30.0
"""Seconds without any answer after which the cluster counts as unavailable."""


class ReadTimeout:
    """Counts the seconds since the last answer; all clients of a command share one."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since = clock()

    def heard(self, _error: KafkaError) -> None:
        """Accept a client's error, which does not restart the timeout."""

    def began(self) -> None:
        """Restart the timeout, because a wait begins."""
        self._since = self._clock()

    def came(self) -> None:
        """Restart the timeout, because an answer has come."""
        self.began()

    def over(self) -> str | None:
        """Return the reason for giving up once the timeout is over; None before.

        The caller asks about twice a second while no answer comes.
        """
        silent = self._clock() - self._since
        return f"nothing came for {silent:.0f} s" if silent > PATIENCE else None
