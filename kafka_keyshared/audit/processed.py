"""The processed log: what a run did with each record, a row for each handler call, to be kept.

A ledger is evidence of one run on one machine, and its judge reads it whole. This log is kept for
as long as somebody may ask, comes from any number of machines, and is read by Spark: so each row
stands for itself, and its times are of the calendar. It is written by way of the same calls
(:class:`ProcessedLog` is a ledger), so whatever keeps a ledger can keep this.

The names and the meaning of the columns are :class:`Row`'s. A reader leaves columns alone that it
does not know; the meaning of one never changes.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable
from typing import Final, Literal, TypeAlias

import msgspec

from kafka_keyshared.audit.ledger import (
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
from kafka_keyshared.model import Record

What = Literal["produced", "handled", "dropped", "dead_lettered"]
PRODUCED: Final = "produced"
HANDLED: Final = "handled"
DROPPED_BY_POLICY: Final = "dropped"
DEAD_LETTERED: Final = "dead_lettered"

TOPIC: Final = "topic:"
"""Stands before the name of a topic where rows go; anything else is a folder."""

LINES_SUFFIX = ".jsonl"
"""Of a file of rows, one JSON object a line."""


class Row(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One row; what does not apply to its ``event`` is left out.

    ``event`` is ``produced`` (the broker acknowledged the record to its producer), ``handled`` (a
    handler was called with it and ended), ``dropped`` (it was settled without its handler saying
    so) or ``dead_lettered`` (the broker acknowledged its dead letter). ``topic``, ``partition`` and
    ``offset`` are the record's own.

    ``key`` is what its order goes by, in base64 where the row is JSON; a row without one is of a
    record that is in no order. ``incarnation`` is one start of one process, ``worker`` the worker
    in it. ``attempt`` counts the calls with this record in this incarnation, from 1.

    ``started`` and ``ended`` are nanoseconds since 1970: of the call, or both of the moment of
    which the row tells. Within an incarnation they never go back. ``outcome`` is ``ok``,
    ``dropped`` or ``failed``: what the call settled, and ``failed`` settles nothing.
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


COLUMNS: Final = Row.__struct_fields__

Sink: TypeAlias = Callable[[Row, bytes], None]
"""Takes a row, and the row as one line of JSON; any thread may call it."""

_Place: TypeAlias = tuple[str, int, int]


class ProcessedLog(Ledger):
    """A ledger whose events become rows of the processed log.

    ``worker`` says by which name the running worker goes; unless given, that of its thread. A call
    that a kill cuts short leaves no row. Commits and partitions that come and go leave none either.
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
        # One difference for the whole incarnation: a clock that is set must not turn calls around.
        self._epoch = time.time_ns() - time.monotonic_ns()
        self._running: dict[int, tuple[Started, str]] = {}
        self._failed: dict[_Place, int] = {}

    def take(self, event: Event) -> None:
        """Take an event of this incarnation, on the thread on which it happened."""
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
        row = Row(
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
        row = Row(what, *place, self.incarnation, at, at, key)
        self._sink(row, self._encode(row))


def incarnation_name() -> str:
    """Return a name that no other start of a process on any machine has."""
    return f"{socket.gethostname()}-{os.getpid()}-{time.time_ns():x}"


def to_lines(file: LineFile) -> Sink:
    """Return what adds rows to a file."""
    return lambda _, line: file.write(line)
