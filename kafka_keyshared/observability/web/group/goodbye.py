"""A wait at the stop until all askers have the last report.

A last report stays in a topic. But an address without an answer may belong to a killed instance. So
a stopping instance keeps answering until all recent askers have its last report.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from kafka_keyshared.observability.web.group.report import InstanceReport

LATELY = 6.0
"""Seconds after its last query for which an asker counts as present. Askers query every 2 s."""
WITHIN = 4.0
"""Maximum seconds that a stop waits.

Askers without a query in that time see the instance as silent.
"""
MOST = 200
"""Maximum number of remembered askers."""

_LOOK_EVERY = 0.1


class Farewell:
    """Askers that have not yet received the last report. Any thread may call.

    ``clock`` is monotonic, in seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._asked_at: dict[str, float] = {}

    def answered(self, asker: str, report: InstanceReport | None) -> None:
        """Note a query and its answer."""
        if not asker:
            return  # not an instance, so it will not ask again
        with self._changed:
            self._asked_at.pop(asker, None)
            if report is None or report.phase not in {"stopping", "stopped"}:
                self._asked_at[asker] = self._clock()
                if len(self._asked_at) > MOST:
                    del self._asked_at[next(iter(self._asked_at))]
            self._changed.notify_all()

    def wait(self, over: Callable[[], bool]) -> None:
        """Wait until all askers have received the last report, or until ``over`` returns True."""
        until = self._clock() + WITHIN
        with self._changed:
            while self._unaware() and self._clock() < until and not over():
                self._changed.wait(_LOOK_EVERY)

    def _unaware(self) -> bool:
        since = self._clock() - LATELY
        return any(at > since for at in self._asked_at.values())
