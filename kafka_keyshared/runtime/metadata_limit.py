"""The brokers' limit for commit metadata, passed to the core."""

from __future__ import annotations

from collections.abc import Callable

from kafka_keyshared.client.port import Client, MetadataLimitAsked
from kafka_keyshared.core.contract import events as ev

WAIT = 1.0
"""Seconds that the first assignment waits for the limit.

Records leased before the limit is known may settle beyond what fits. The query is sent before the
member joins the group, so the answer is usually there.
"""


class MetadataLimit:
    """The query for the limit, which is sent once."""

    def __init__(self, client: Client, tell: Callable[[ev.Event], None]) -> None:
        self._client = client
        self._tell = tell
        self._asked: MetadataLimitAsked | None = None
        self._waited = False

    def ask(self) -> None:
        """Send the query without waiting."""
        self._asked = self._client.ask_metadata_limit()

    def wait(self) -> None:
        """Wait for the answer, only once and at most :data:`WAIT` seconds."""
        self.hear(0.0 if self._waited else WAIT)
        self._waited = True

    def hear(self, timeout: float = 0.0) -> None:
        """Pass the answer to the core if it has come; wait at most ``timeout`` seconds."""
        asked = self._asked
        if asked is None or not asked.answered(timeout):
            return
        self._asked = None
        if asked.limit is not None:
            self._tell(ev.TextLimitTold(asked.limit))
