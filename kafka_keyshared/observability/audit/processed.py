"""The processed log: one row for each handler call.

A ledger is evidence of one run on one machine, and its judge reads the whole ledger. The processed
log is stored for a long time, comes from any number of machines, and is read by Spark. Therefore
each row stands alone, and its times are calendar times. :class:`ProcessedLog` is a ledger and is
written through the same calls, so code that writes a ledger can also write this log.

:class:`ProcessedRow` defines the names and the meaning of the columns. A reader ignores columns
that it does not know. The meaning of a column never changes.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable
from typing import Final, Literal, TypeAlias

import msgspec

from kafka_keyshared.model import Record
from kafka_keyshared.observability.audit.ledger import (
    FAILED,
    DeadLettered,
    Dropped,
    Ended,
    Event,
    Ledger,
    LineFile,
    Outcome,
    Produced,
    Started,
    in_ns,
)

What = Literal["produced", "handled", "dropped", "dead_lettered"]
PRODUCED: Final = "produced"
HANDLED: Final = "handled"
DROPPED_BY_POLICY: Final = "dropped"
DEAD_LETTERED: Final = "dead_lettered"

TOPIC: Final = "topic:"
"""The prefix of a topic name as a destination of rows; any other text is a folder."""

LINES_SUFFIX = ".jsonl"
"""The suffix of a file of rows, one JSON object per line."""


class ProcessedRow(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One row; columns that do not apply to its ``event`` are omitted.

    ``event`` is one of four. ``produced``: the broker acknowledged the record to its producer.
    ``handled``: a handler was called with it and ended. ``dropped``: it was settled without a
    result of its handler. ``dead_lettered``: the broker acknowledged its dead letter. ``topic``,
    ``partition`` and ``offset`` are the record's own.

    ``key`` is the key that determines its order, in base64 if the row is JSON. A row without a key
    is of a record without an order. ``incarnation`` is one start of one process, ``worker`` the
    worker in it. ``attempt`` counts the calls with this record in this incarnation, from 1.

    ``started`` and ``ended`` are nanoseconds since 1970. They are the times of the call; for other
    events both are the time of the event. Within an incarnation they never go back. ``outcome`` is
    ``ok``, ``dropped`` or ``failed``; ``failed`` settles nothing.
    """

    event: What
    topic: str
    partition: int
    offset: int
    incarnation: str
    started: int
    ended: int
    key: bytes | None = None
    worker: str | None = None
    attempt: int | None = None
    outcome: str | None = None


COLUMNS: Final = ProcessedRow.__struct_fields__

Sink: TypeAlias = Callable[[ProcessedRow, bytes], None]
"""Callback for a row and its JSON line; any thread may call it."""

_Place: TypeAlias = tuple[str, int, int]


class ProcessedLog(Ledger):
    """A ledger whose events become rows of the processed log.

    ``worker`` returns the name of the running worker; the default is the name of its thread. A call
    that a kill cuts short leaves no row. Commits and rebalances leave no row either.
    """

    def __init__(
        self,
        sink: Sink,
        incarnation: str | None = None,
        worker: Callable[[], str] = lambda: threading.current_thread().name,
    ) -> None:
        super().__init__(self.take, incarnation)
        self._sink = sink
        self._worker = worker
        self._encode = msgspec.json.Encoder().encode
        # One offset for the whole incarnation, because a clock change must not reorder calls.
        self._epoch = time.time_ns() - time.monotonic_ns()
        self._running: dict[int, tuple[Started, str]] = {}
        self._failed: dict[_Place, int] = {}

    def take(self, event: Event) -> None:
        """Process an event of this incarnation, on the thread on which it happened."""
        if isinstance(event, Started):
            self._running[event.attempt] = event, self._worker()
        elif isinstance(event, Ended):
            self._ended(event)
        elif isinstance(event, Produced):
            now = time.monotonic_ns()
            self._put_row(PRODUCED, (event.topic, event.partition, event.offset), now, event.key)
        elif isinstance(event, Dropped | DeadLettered) and event.at is not None:
            place = event.topic, event.partition, event.offset
            self._failed.pop(place, None)
            what: What = DROPPED_BY_POLICY if isinstance(event, Dropped) else DEAD_LETTERED
            self._put_row(what, place, event.at)

    def called(
        self, record: Record, began: float, ended: float, outcome: Outcome, worker: str
    ) -> None:
        """Write the row of a call in another process."""
        place = record.topic(), record.partition(), record.offset()
        started = Started(0, *place, self.key_of(record), 0, in_ns(began))
        self._put_call(started, Ended(0, outcome, in_ns(ended)), worker)

    def _ended(self, event: Ended) -> None:
        started, worker = self._running.pop(event.attempt)
        self._put_call(started, event, worker)

    def _put_call(self, started: Started, event: Ended, worker: str) -> None:
        place = started.topic, started.partition, started.offset
        attempt = 1
        if event.outcome == FAILED:
            attempt = self._failed[place] = self._failed.get(place, 0) + 1
        elif self._failed:
            attempt = self._failed.pop(place, 0) + 1
        row = ProcessedRow(
            HANDLED,
            *place,
            self.incarnation,
            started.at + self._epoch,
            event.at + self._epoch,
            started.key,
            worker,
            attempt,
            event.outcome,
        )
        self._sink(row, self._encode(row))

    def _put_row(self, what: What, place: _Place, at: int, key: bytes | None = None) -> None:
        at += self._epoch
        row = ProcessedRow(what, *place, self.incarnation, at, at, key)
        self._sink(row, self._encode(row))


def incarnation_name() -> str:
    """Return a name that is unique to this start of the process on any machine."""
    return f"{socket.gethostname()}-{os.getpid()}-{time.time_ns():x}"


def to_lines(file: LineFile) -> Sink:
    """Return a sink that adds rows to a file."""
    return lambda _, line: file.write(line)
