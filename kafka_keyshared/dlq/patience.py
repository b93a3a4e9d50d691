"""How long it is borne that nothing comes from the cluster."""

from __future__ import annotations

import time
from collections.abc import Callable

from confluent_kafka import KafkaError

PATIENCE = 30.0
"""Seconds without a word after which a cluster is given up."""


class Patience:
    """Counts the seconds since something came; one for all clients of a command."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since = clock()

    def heard(self, _error: KafkaError) -> None:
        """Take an error of a client's."""

    def began(self) -> None:
        """Count from now: something is waited for, and nothing was before."""
        self._since = self._clock()

    def came(self) -> None:
        """Take note that something came."""
        self.began()

    def over(self) -> str | None:
        """Return why not to wait any longer; None while it is worth it.

        To be asked about twice a second, while nothing comes.
        """
        silent = self._clock() - self._since
        return f"nothing came for {silent:.0f} s" if silent > PATIENCE else None
