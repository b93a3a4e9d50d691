"""What was received beyond a partition's ceiling: it waits here before it is routed.

So backlogs and leases hold only what is below its ceiling, and the settled set can never outgrow
the commit metadata (see :mod:`kafka_keyshared.core.ceilings`). Where much is parked its partition
is held back (:mod:`.pressure`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Sequence
from operator import methodcaller

from kafka_keyshared.core.window import Window
from kafka_keyshared.model import Record, TopicPartition, partition_of


class Parking:
    """The ceilings of one subscription, and the records beyond them; false while there are none.

    A partition that begins has a *gate* besides, at which :mod:`.careful` lets its records in.

    A partition's records are in the order of their offsets. A partition that is about to be given
    up has here also what was routed and is not to start any more, in any order.
    """

    def __init__(self) -> None:
        self.ceilings: dict[TopicPartition, int] = {}
        self.gates: dict[TopicPartition, int] = {}
        self.parked: dict[TopicPartition, list[Record]] = {}
        # Whether a partition has anything here of which nothing was parked at the last look.
        self.begun = False
        # How many records were weighed last, and what they weigh.
        self._weighed: dict[TopicPartition, tuple[int, float]] = {}

    def __bool__(self) -> bool:
        return bool(self.parked)

    def waiting(self) -> Iterator[Record]:
        """Yield all that is parked."""
        for records in self.parked.values():
            yield from records

    def empty(self) -> bool:
        """Say whether nothing is parked."""
        return not self.parked

    def park(self, records: Sequence[Record]) -> list[Record]:
        """Park what stands beyond its partition's ceiling; return the others, and client events."""
        below: list[Record] = []
        for record in records:
            partition = partition_of(record)
            if record.error() is None and record.offset() >= self._limit(partition):
                self.begun = self.begun or partition not in self.parked
                self.parked.setdefault(partition, []).append(record)
            else:
                below.append(record)
        return below

    def _limit(self, partition: TopicPartition) -> int:
        """Return the offset from which on the records of a partition are parked."""
        ceiling, gate = self.ceilings.get(partition, 0), self.gates.get(partition)
        return ceiling if gate is None else min(ceiling, gate)

    def keep(self, record: Record) -> None:
        """Take in a record whose partition is about to be given up."""
        self.parked.setdefault(partition_of(record), []).append(record)

    def part(self, partition: TopicPartition, window: Window, records: int, bytes_: int) -> float:
        """Return what part of so many records, or of so many bytes, is parked of a partition."""
        waiting = self.parked.get(partition, [])
        count = len(waiting)
        part = count / records
        if window.bytes < bytes_:
            return part
        weighed = self._weighed.get(partition)
        if weighed is None or weighed[0] != count:
            weighed = self._weighed[partition] = count, window.weigh(waiting)
        return max(part, weighed[1] / bytes_)

    def free(self, closing: Collection[TopicPartition]) -> list[Record]:
        """Take out what is below its partition's ceiling by now."""
        freed: list[Record] = []
        for partition, waiting in list(self.parked.items()):
            if partition in closing:
                continue
            count = bisect_left(waiting, self._limit(partition), key=methodcaller("offset"))
            freed += waiting[:count]
            del waiting[:count]
            if not waiting:
                del self.parked[partition]
        return freed

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Drop what concerns these partitions."""
        for partition in partitions:
            self.parked.pop(partition, None)
            self.ceilings.pop(partition, None)
            self.gates.pop(partition, None)
            self._weighed.pop(partition, None)
