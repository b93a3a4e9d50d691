"""Rows: records waiting for a lease to one worker, in lease order.

A slot-table entry *is* the list of records of a row: routing a record is one look-up and one
append.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterator, Sequence
from itertools import chain

from kafka_keyshared.core.lanes.closed import ClosedLane
from kafka_keyshared.core.lanes.single_inflight import Grant
from kafka_keyshared.core.records.backlog import Backlog, without
from kafka_keyshared.core.records.pristine import Chunk
from kafka_keyshared.model import Record, TopicPartition, partition_of

SLICE_SECONDS = 0.1


class RunQueue:
    """The waiting records of some slots, and the id of the worker that they are leased to.

    ``slice_seconds`` is the approximate duration of a slice of this row.

    A row without a holder is not leased. It belongs to a joining worker that gets no records yet,
    or to draining slots.
    """

    __slots__ = ("backlog", "front", "granted", "holder", "retries", "routed", "slice_seconds")

    def __init__(self, holder: int | None) -> None:
        self.holder = holder
        self.slice_seconds = SLICE_SECONDS
        self.backlog = Backlog()
        self.routed = self.backlog.records
        # Returned records, in order: they are older than the backlog.
        self.front: list[Record] = []
        # With one lease per key: records whose lane already holds its lease.
        self.granted: list[Grant] = []
        # The lanes whose heads are to run again, in order; their number is not limited. The heads
        # themselves wait in their lanes.
        self.retries: OrderedDict[ClosedLane, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self.backlog) + len(self.front)

    def merge(self) -> Backlog:
        """Put returned records at the head of the backlog; return the backlog."""
        if self.front:
            self.backlog.put_first(self.front)
            self.front = []
        return self.backlog

    def came_in(self, chunk: Chunk) -> int:
        """Assign the records appended since the last call to this chunk; return their number."""
        return self.backlog.came_in(chunk)

    def backlogs(self) -> Sequence[Backlog]:
        """Return the queues of the row."""
        return (self.backlog,)

    def behind(self, worker: int) -> Iterator[Record]:
        """Return the records that wait for this worker and for no other."""
        del worker
        return self.waiting()

    def ready(self, closed: ClosedLane) -> None:
        """Queue the head of a closed lane to run again, unless a row has it queued already."""
        if not closed.readied:
            closed.readied = True
            self.retries[closed] = None

    def withdraw(self, closed: ClosedLane) -> None:
        """Remove the head of a closed lane from the retries, if it is there."""
        if closed in self.retries:
            del self.retries[closed]
            closed.readied = False

    def take_ready(self, most: int) -> list[ClosedLane]:
        """Take the lanes that were queued first, up to ``most``."""
        ready = [self.retries.popitem(last=False)[0] for _ in range(min(most, len(self.retries)))]
        for closed in ready:
            closed.readied = False
        return ready

    def waiting(self) -> Iterator[Record]:
        """Return every record that waits here."""
        # Not a generator: there may be ten thousand records, and each commit reads them all.
        return chain([record for _, record in self.granted], self.front, self.routed)

    def strays(self) -> Iterator[Record]:
        """Yield the records that are in no unchanged chunk."""
        yield from (record for _, record in self.granted)
        yield from self.front
        yield from self.backlog.strays()

    def empty(self) -> bool:
        """Say whether nothing waits here."""
        return not (self.granted or self.front or self.routed)

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """Drop the records of these partitions."""
        self.granted = [each for each in self.granted if partition_of(each[1]) not in partitions]
        self.front[:] = without(self.front, partitions)
        self.backlog.forget(partitions)
