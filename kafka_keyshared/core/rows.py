"""Rows: what waits to be leased to one worker, in the order in which it will be.

A slot-table entry *is* the list of records of a row: routing a record is one look-up and one
append.
"""

from __future__ import annotations

from collections.abc import Collection

from kafka_keyshared.core.backlog import Backlog
from kafka_keyshared.core.places import without
from kafka_keyshared.model import Record, TopicPartition


class Row:
    """What waits in some slots, and the id of the worker that it is leased to.

    A row without a holder is one whose slots are on their way to a worker: they drain at those that
    had them, and nothing of it is leased until that is over.
    """

    __slots__ = ("backlog", "front", "holder")

    def __init__(self, holder: int | None) -> None:
        self.holder = holder
        self.backlog = Backlog()
        # What came back, in order: it is older than the backlog.
        self.front: list[Record] = []

    def __len__(self) -> int:
        return len(self.backlog) + len(self.front)

    def merge(self) -> Backlog:
        """Put what came back at the head of the backlog; return that."""
        if self.front:
            self.backlog.put_first(self.front)
            self.front = []
        return self.backlog

    def empty(self) -> bool:
        """Say whether nothing waits here."""
        return not (self.front or self.backlog.records)

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """Drop what is of these partitions."""
        self.front[:] = without(self.front, partitions)
        self.backlog.forget(partitions)
