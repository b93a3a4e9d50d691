"""Tells the core how long commit metadata may be, once the brokers have said it."""

from __future__ import annotations

from collections.abc import Callable

from kafka_keyshared.client.port import Client, MetadataLimitAsked
from kafka_keyshared.core import events as ev

WAIT = 1.0
"""Seconds for which the first assignment waits for the limit: what is leased before it is known may
settle beyond what fits. It is asked before the group is joined, so mostly it is there."""


class MetadataLimit:
    """The question for the limit, which is asked once."""

    def __init__(self, client: Client, tell: Callable[[ev.Event], None]) -> None:
        self._client = client
        self._tell = tell
        self._asked: MetadataLimitAsked | None = None
        self._waited = False

    def ask(self) -> None:
        """Ask, and wait for nothing."""
        self._asked = self._client.ask_metadata_limit()

    def wait(self) -> None:
        """Wait for the answer, once and not for long."""
        self.hear(0.0 if self._waited else WAIT)
        self._waited = True

    def hear(self, timeout: float = 0.0) -> None:
        """Tell the core what was answered, if it is; wait at most ``timeout`` seconds."""
        asked = self._asked
        if asked is None or not asked.answered(timeout):
            return
        self._asked = None
        if asked.limit is not None:
            self._tell(ev.TextLimitTold(asked.limit))
