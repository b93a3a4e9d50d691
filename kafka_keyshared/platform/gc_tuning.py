"""The garbage collection threshold, raised for records in flight.

Python looks for cycles whenever some 700 more objects were made than freed (2,000 from Python 3.13
on). Each fetch makes up to 2,000 records that stay until they are settled. Scanning them took a
sixth of the time of a busy instance, and records have no cycles. While an instance runs, the first
threshold is therefore raised by the possible number of records in flight. Objects of handlers are
still collected, that much later. Thresholds set by the program are kept.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

MOST = 50_000
"""A window may be larger. Scanning this many more objects takes milliseconds."""

DEFAULTS = (700, 2_000)
"""Python's default first threshold: up to 3.12, and from 3.13 on."""


class Threshold:
    """The first threshold of the process, and the amount added for all instances."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._in_flight = 0
        self._set: int | None = None

    def add(self, extra: int) -> None:
        """Raise the threshold by ``extra``, or lower it by a negative amount."""
        with self._lock:
            before, self._in_flight = self._in_flight, self._in_flight + extra
            first, *others = gc.get_threshold()
            if first != self._set if before else first not in DEFAULTS:
                self._set = None  # set by other code; left alone until no instance runs
                return
            self._set = first + extra
            gc.set_threshold(self._set, *others)


PROCESS = Threshold()
"""Shared, since a process has only one collector."""


@contextmanager
def in_flight(records: int, threshold: Threshold = PROCESS) -> Iterator[None]:
    """Allow this many records in flight without garbage collection; others may do the same.

    It affects the whole process. A disabled collector stays disabled. Thresholds that other code
    has set, or sets while this is active, stay as they are.
    """
    extra = min(MOST, records + records // 4)
    threshold.add(extra)
    try:
        yield
    finally:
        threshold.add(-extra)
