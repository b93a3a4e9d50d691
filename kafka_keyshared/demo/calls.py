"""The demo's slow part: a late flight costs a call that takes a while, as to a database.

Such waiting is what many workers are for. The calls are counted where they are made, so that the
demo can say how many were under way at once, and how long they take one after the other.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import NamedTuple

from kafka_keyshared.demo.flights import Flights
from kafka_keyshared.model import Record

CALL_SECONDS = 0.005


class Waiting(NamedTuple):
    """What was waited for, added up; ``at_once`` is the most calls that were under way together."""

    calls: int
    at_once: int
    one_by_one_s: float
    """Seconds that one consumer waits, which has one record at a time."""
    per_partition_s: float
    """The same for as many consumers as there are partitions: the one with the most calls."""


class Calls:
    """The calls of one run; any thread makes them, any thread may look."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._made: Counter[int] = Counter()
        self._most = 0
        self.under_way = 0

    def make(self, partition: int) -> None:
        """Wait for an answer; ``partition`` is that of the record it is about."""
        with self._counted(partition):
            time.sleep(CALL_SECONDS)

    async def make_async(self, partition: int) -> None:
        """Wait as :meth:`make` does, while the loop turns."""
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

    def waiting(self) -> Waiting:
        """Return what was waited for so far."""
        with self._lock:
            calls, busiest = self._made.total(), max(self._made.values(), default=0)
            return Waiting(
                calls,
                self._most,
                round(calls * CALL_SECONDS, 1),
                round(busiest * CALL_SECONDS, 1),
            )


def calling(calls: Calls) -> type[Flights]:
    """Return the handler class that makes one of these calls for each late flight."""

    class Calling(Flights):
        def late(self, record: Record) -> None:
            calls.make(record.partition())

    return Calling


def awaiting(calls: Calls) -> type[Flights]:
    """Return the handler class that does the same in coroutines: all of them share one instance."""

    class Awaiting(Flights):
        _was_late = False

        async def handle(self, record: Record) -> None:  # type: ignore[override]
            super().handle(record)  # in one piece: no other coroutine runs in between
            if self._was_late:
                self._was_late = False
                await calls.make_async(record.partition())

        def late(self, record: Record) -> None:
            del record
            self._was_late = True

    return Awaiting


class CallingElsewhere(Flights):
    """The handler in a process of its own: it waits as long, and nobody counts it."""

    def late(self, record: Record) -> None:
        """Wait for an answer."""
        del record
        time.sleep(CALL_SECONDS)
