"""Routings without keys: all records in one lane, or one lane each."""

from __future__ import annotations

from collections.abc import Iterable

from kafka_keyshared.core.keys.extraction import OwnKeys, Rows
from kafka_keyshared.core.records.lane_identity import Lane, lane_by
from kafka_keyshared.core.records.pristine import Chunk
from kafka_keyshared.model import Record


class WholeKey(bytes):
    """The key of every record of a one-lane subscription."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "everything"


WHOLE_KEY = WholeKey()


class OneLane(OwnKeys):
    """Puts all records in one lane, in arrival order (``Exclusive``)."""

    def __init__(self) -> None:
        super().__init__("subscription", "one-lane")
        self.key, self.lane = _whole_key, _whole_lane

    def route(self, chunk: Chunk, rows: Rows, alone: list[Record]) -> list[Record]:
        """Append all records to the one backlog; return the client events."""
        del alone
        events, found = _told_apart(chunk.records)
        rows[self.slot(WHOLE_KEY)].extend(found)
        return events


class NoLanes(OwnKeys):
    """Makes each record its own lane, like one without a key (``Unordered``)."""

    def __init__(self) -> None:
        super().__init__("topic", "any")
        self.key, self.lane = _no_key, _own_lane

    def route(self, chunk: Chunk, rows: Rows, alone: list[Record]) -> list[Record]:
        """Append all records to those that any worker may run; return the client events."""
        del rows
        events, found = _told_apart(chunk.records)
        alone.extend(found)
        return events


def _told_apart(records: Iterable[Record]) -> tuple[list[Record], list[Record]]:
    """Return the client events, and the other records."""
    events: list[Record] = []
    found: list[Record] = []
    for record in records:
        (found if record.error() is None else events).append(record)
    return events, found


def _whole_key(record: Record) -> bytes:
    del record
    return WHOLE_KEY


def _whole_lane(record: Record) -> Lane:
    return lane_by(record, WHOLE_KEY, "subscription")


def _no_key(record: Record) -> None:
    del record


def _own_lane(record: Record) -> Lane:
    return lane_by(record, None, "topic")
