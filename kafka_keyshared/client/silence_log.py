"""Reports of missing records: first, once a minute, and at the end.

A group-less reader waits for brokers that are down or hang just as for slow ones: it keeps
retrying. Without these lines its user would see nothing at all.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from kafka_keyshared.client.standalone import cause_in

SAY_AFTER = 5.0
SAY_EVERY = 60.0
"""Seconds without records before the first report, and between two reports."""


class Silence:
    """Watches a reader. ``reasons`` is the list to which its client adds error texts."""

    def __init__(
        self,
        address: str,
        reasons: list[str],
        tell: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._address = address
        self.reasons = reasons
        self._tell = tell
        self._clock = clock
        self._since = clock()
        self._tell_at = self._since + SAY_AFTER
        self.told = False

    def came(self) -> None:
        """Note that something arrived, even if only the end of a partition."""
        now = self._clock()
        if self.told:
            self._tell(f"records come again, after {now - self._since:.0f} s")
            self.told = False
        self._since, self._tell_at = now, now + SAY_AFTER

    def waited(self) -> None:
        """Note that a wait returned nothing."""
        now = self._clock()
        if now < self._tell_at:
            return
        self._tell_at = now + SAY_EVERY
        self.told = True
        reason = cause_in(self.reasons) or "reason unknown"
        self._tell(
            f"nothing has come from {self._address} for {now - self._since:.0f} s ({reason}); "
            "the request is repeated"
        )
