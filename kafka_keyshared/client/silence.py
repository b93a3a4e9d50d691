"""Tells of records that do not come: once it is so, once a minute, and when it is over.

A reader beside a group waits for brokers that went away, or stand still, as for slow ones: it asks
again and again. Whoever watches it would see nothing at all.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from kafka_keyshared.client.groupless import cause_in

SAY_AFTER = 5.0
SAY_EVERY = 60.0
"""Seconds of silence until it is told first, and again."""


class Silence:
    """Listens to a reader. ``reasons`` is where its client puts what it says is wrong."""

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
        """Take note that something came, be it the end of a partition."""
        now = self._clock()
        if self.told:
            self._tell(f"records come again, after {now - self._since:.0f} s")
            self.told = False
        self._since, self._tell_at = now, now + SAY_AFTER

    def waited(self) -> None:
        """Take note that a wait has brought nothing."""
        now = self._clock()
        if now < self._tell_at:
            return
        self._tell_at = now + SAY_EVERY
        self.told = True
        reason = cause_in(self.reasons) or "no reason is told"
        self._tell(
            f"nothing has come from {self._address} for {now - self._since:.0f} s ({reason}); "
            "it is asked again and again"
        )
