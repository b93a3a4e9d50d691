"""Routings that look at no key: all records are one lane, or each is one of its own."""

from __future__ import annotations

from collections.abc import Iterable

from kafka_keyshared.core.keying import OwnKeys, Rows
from kafka_keyshared.core.lane_identity import Lane, lane_by
from kafka_keyshared.core.originals import Chunk
from kafka_keyshared.model import Record


class WholeKey(bytes):
    """The key that every record goes by where a subscription is one lane."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "everything"


WHOLE_KEY = WholeKey()


class OneLane(OwnKeys):
    """All records are in one lane, in the order in which they came: Exclusive."""

    def __init__(self) -> None:
        super().__init__("subscription", "one-lane")
        self.key, self.lane = _whole_key, _whole_lane

    def route(self, chunk: Chunk, rows: Rows, alone: list[Record]) -> list[Record]:
        """Append all records to the one backlog; return those that are client events."""
        del alone
        events, found = _told_apart(chunk.records)
        rows[self.slot(WHOLE_KEY)].extend(found)
        return events


class NoLanes(OwnKeys):
    """Each record is a lane of its own, as one without a key is: Unordered."""

    def __init__(self) -> None:
        super().__init__("topic", "any")
        self.key, self.lane = _no_key, _own_lane

    def route(self, chunk: Chunk, rows: Rows, alone: list[Record]) -> list[Record]:
        """Append all records to what goes to no particular worker; return the client events."""
        del rows
        events, found = _told_apart(chunk.records)
        alone.extend(found)
        return events


def _told_apart(records: Iterable[Record]) -> tuple[list[Record], list[Record]]:
    """Return those that are events of the client, and the others."""
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
