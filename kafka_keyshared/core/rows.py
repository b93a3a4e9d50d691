"""Rows: what waits to be leased to one worker, in the order in which it will be.

A slot-table entry *is* the list of records of a row: routing a record is one look-up and one
append.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterator, Sequence
from itertools import chain

from kafka_keyshared.core.backlog import Backlog
from kafka_keyshared.core.lanes import ClosedLane
from kafka_keyshared.core.one_lease import Grant
from kafka_keyshared.core.originals import Chunk
from kafka_keyshared.core.places import without
from kafka_keyshared.model import Record, TopicPartition, partition_of

SLICE_SECONDS = 0.1


class Row:
    """What waits in some slots, and the id of the worker that it is leased to.

    ``slice_seconds`` is how long a slice of it is to take, about.

    A row without a holder is leased to nobody: it is that of a worker that does not get anything
    yet, or of slots that drain.
    """

    __slots__ = ("backlog", "front", "granted", "holder", "retries", "routed", "slice_seconds")

    def __init__(self, holder: int | None) -> None:
        self.holder = holder
        self.slice_seconds = SLICE_SECONDS
        self.backlog = Backlog()
        self.routed = self.backlog.records
        # What came back, in order: it is older than the backlog.
        self.front: list[Record] = []
        # With one lease per key: records that hold their lane's lease already.
        self.granted: list[Grant] = []
        # The lanes whose heads are to run again, in order; there may be any number of them. The
        # heads themselves wait in their lanes.
        self.retries: OrderedDict[ClosedLane, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self.backlog) + len(self.front)

    def merge(self) -> Backlog:
        """Put what came back at the head of the backlog; return that."""
        if self.front:
            self.backlog.put_first(self.front)
            self.front = []
        return self.backlog

    def came_in(self, chunk: Chunk) -> int:
        """Note that whatever was appended since came in this chunk; return how many these are."""
        return self.backlog.came_in(chunk)

    def backlogs(self) -> Sequence[Backlog]:
        """Return the queues of the row."""
        return (self.backlog,)

    def behind(self, worker: int) -> Iterator[Record]:
        """Return what waits here for this worker, and would wait for no other one."""
        del worker
        return self.waiting()

    def ready(self, closed: ClosedLane) -> None:
        """Let the head of a closed lane run again; once, however often and of whichever row."""
        if not closed.readied:
            closed.readied = True
            self.retries[closed] = None

    def withdraw(self, closed: ClosedLane) -> None:
        """Let the head of a closed lane wait here no longer, if it does."""
        if closed in self.retries:
            del self.retries[closed]
            closed.readied = False

    def take_ready(self, most: int) -> list[ClosedLane]:
        """Take the lanes that were readied first, up to ``most``."""
        ready = [self.retries.popitem(last=False)[0] for _ in range(min(most, len(self.retries)))]
        for closed in ready:
            closed.readied = False
        return ready

    def waiting(self) -> Iterator[Record]:
        """Return every record that waits here."""
        # No generator: there may be ten thousand, and each commit walks over all of them.
        return chain([record for _, record in self.granted], self.front, self.routed)

    def strays(self) -> Iterator[Record]:
        """Yield the records that are in no chunk that is as it came in."""
        yield from (record for _, record in self.granted)
        yield from self.front
        yield from self.backlog.strays()

    def empty(self) -> bool:
        """Say whether nothing waits here."""
        return not (self.granted or self.front or self.routed)

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """Drop what is of these partitions."""
        self.granted = [each for each in self.granted if partition_of(each[1]) not in partitions]
        self.front[:] = without(self.front, partitions)
        self.backlog.forget(partitions)
