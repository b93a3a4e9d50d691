"""Lanes limited to one lease, and the records that wait for it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import TypeAlias

from kafka_keyshared.core.records.backlog import without
from kafka_keyshared.core.records.lane_identity import Lane
from kafka_keyshared.model import Record, TopicPartition

Grant: TypeAlias = tuple[Lane, Record]
"""A lane and the record that has its lease, although it is not leased yet."""


class OneLease:
    """The lanes whose lease is out or granted to one of their records.

    A caller that takes a lane out places the records that waited in it.
    """

    def __init__(self, lane_of: Callable[[Record], Lane]) -> None:
        self._lane_of = lane_of
        self._lanes: dict[Lane, deque[Record]] = {}

    def claim(self, record: Record) -> Lane | None:
        """Take the lane for this record and return it, or let it wait for the end of its lease."""
        lane = self._lane_of(record)
        waiting = self._lanes.get(lane)
        if waiting is not None:
            waiting.append(record)
            return None
        self._lanes[lane] = deque()
        return lane

    def following(self, lane: Lane) -> Record | None:
        """End the lane's lease; return the record that is granted the next one, if any waits.

        Only that record leaves the lane's queue. Otherwise each lease would walk the whole queue.
        """
        waiting = self._lanes.get(lane)
        if waiting:
            return waiting.popleft()
        if waiting is not None:
            del self._lanes[lane]
        return None

    def release(self, lane: Lane) -> Iterable[Record]:
        """Take the lane out; return the records that waited in it."""
        return self._lanes.pop(lane, ())

    def lanes_of(self, records: Iterable[Record]) -> set[Lane]:
        """Return the lanes of these records."""
        return {self._lane_of(record) for record in records}

    def behind(self, lane: Lane) -> Collection[Record]:
        """Return the records that wait for the end of the lane's lease."""
        return self._lanes.get(lane, ())

    def waiting(self) -> Iterator[Record]:
        """Yield every record that waits for the end of a lease."""
        for waiting in self._lanes.values():
            yield from waiting

    def empty(self) -> bool:
        """Return whether no record waits here."""
        return not any(self._lanes.values())

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """Drop the waiting records of these partitions; lanes keep their lease."""
        for lane, waiting in self._lanes.items():
            self._lanes[lane] = deque(without(waiting, partitions))
