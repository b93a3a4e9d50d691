"""The simulated slow calls of the demo.

Each late flight makes a call that takes a while, as to a database. Many workers help with such
waiting. The calls are counted at the caller. So the demo can show how many ran at the same time,
and their total duration.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import NamedTuple

from kafka_keyshared.lab.demo.flights import Flights
from kafka_keyshared.model import Record

CALL_SECONDS = 0.005


class WaitTotals(NamedTuple):
    """The totals of all calls; ``at_once`` is the maximum number of concurrent calls."""

    calls: int
    at_once: int
    one_by_one_s: float
    """Seconds that one consumer waits, which handles one record at a time."""
    per_partition_s: float
    """Seconds for one consumer per partition: those of the partition with the most calls."""


class CallLog:
    """The calls of one run; any thread may make them and read the counts."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._made: Counter[int] = Counter()
        self._most = 0
        self.under_way = 0

    def make(self, partition: int) -> None:
        """Wait for an answer; ``partition`` is the partition of the record."""
        with self._counted(partition):
            time.sleep(CALL_SECONDS)

    async def make_async(self, partition: int) -> None:
        """Wait like :meth:`make`, without blocking the event loop."""
        with self._counted(partition):
            await asyncio.sleep(CALL_SECONDS)

    @contextmanager
    def _counted(self, partition: int) -> Iterator[None]:
        with self._lock:
            self._made[partition] += 1
            self.under_way += 1
            self._most = max(self._most, self.under_way)
        yield
        with self._lock:
            self.under_way -= 1

    def waiting(self) -> WaitTotals:
        """Return the totals so far."""
        with self._lock:
            calls, busiest = self._made.total(), max(self._made.values(), default=0)
            return WaitTotals(
                calls,
                self._most,
                round(calls * CALL_SECONDS, 1),
                round(busiest * CALL_SECONDS, 1),
            )


def calling(calls: CallLog) -> type[Flights]:
    """Return the handler class that makes one of these calls for each late flight."""

    class Calling(Flights):
        def late(self, record: Record) -> None:
            calls.make(record.partition())

    return Calling


def awaiting(calls: CallLog) -> type[Flights]:
    """Return the same handler class for coroutines, which all share one instance."""

    class Awaiting(Flights):
        _was_late = False

        async def handle(self, record: Record) -> None:  # type: ignore[override]
            super().handle(record)  # without an await, so no other coroutine runs in between
            if self._was_late:
                self._was_late = False
                await calls.make_async(record.partition())

        def late(self, record: Record) -> None:
            del record
            self._was_late = True

    return Awaiting


class CallingElsewhere(Flights):
    """The handler in a separate process: it waits as long, but its calls are not counted."""

    def late(self, record: Record) -> None:
        """Wait for an answer."""
        del record
        time.sleep(CALL_SECONDS)
