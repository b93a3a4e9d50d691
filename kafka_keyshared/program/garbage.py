"""Records in flight are no garbage: they do not set off the cyclic collector.

Python looks for cycles whenever some 700 more objects have been made than have gone, and each fetch
makes up to 2,000 records that stay until they are settled. Looking at them took a sixth of the time
of a busy instance, and records have no cycles. So while an instance runs, the first threshold is
higher by as many as may be in flight. What handlers make is collected as before, that much later.
Who has set thresholds keeps them.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

MOST = 50_000
"""A window may be larger; so many more objects are looked at within milliseconds."""

DEFAULTS = (700, 2_000)
"""The first threshold where nobody has set one: up to Python 3.12, and from 3.13 on."""


class Threshold:
    """The first threshold of the process, and what is added to it for all instances together."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._in_flight = 0
        self._set: int | None = None

    def add(self, extra: int) -> None:
        """Raise it by so much, or lower it again."""
        with self._lock:
            before, self._in_flight = self._in_flight, self._in_flight + extra
            first, *others = gc.get_threshold()
            if first != self._set if before else first not in DEFAULTS:
                self._set = None  # it is somebody else's, until nobody runs any more
                return
            self._set = first + extra
            gc.set_threshold(self._set, *others)


PROCESS = Threshold()
"""There is but one collector."""


@contextmanager
def in_flight(records: int, threshold: Threshold = PROCESS) -> Iterator[None]:
    """Let so many records be in flight without a search for garbage; others may run beside it.

    It is for the whole process. Where the collector is switched off, or somebody has set thresholds
    or sets them meanwhile, those stay as they are.
    """
    extra = min(MOST, records + records // 4)
    threshold.add(extra)
    try:
        yield
    finally:
        threshold.add(-extra)
