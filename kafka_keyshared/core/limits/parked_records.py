"""Records beyond their partition's ceiling, parked before routing.

Backlogs and leases hold only records below the ceiling. The settled set can therefore never
outgrow the commit metadata (see :mod:`kafka_keyshared.core.partitions.offset_ceilings`). A
partition with many parked records is held back
(:mod:`kafka_keyshared.core.backpressure.pause_rules`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Sequence
from operator import methodcaller

from kafka_keyshared.core.records.window import Window
from kafka_keyshared.model import Record, TopicPartition, partition_of


class Parking:
    """The ceilings of one subscription and the records beyond them; false while it is empty.

    A partition that begins also has a *gate*: :mod:`kafka_keyshared.core.partitions.careful_starts`
    admits its records up to there.

    The records of a partition are in offset order. While a partition is being
    revoked, its routed records are kept here too, in any order. They must no longer start.
    """

    def __init__(self) -> None:
        self.ceilings: dict[TopicPartition, int] = {}
        self.gates: dict[TopicPartition, int] = {}
        self.parked: dict[TopicPartition, list[Record]] = {}
        # Whether a partition has parked records now and had none at the last look.
        self.begun = False
        # The number of records weighed last, and their weight in bytes.
        self._weighed: dict[TopicPartition, tuple[int, float]] = {}

    def __bool__(self) -> bool:
        return bool(self.parked)

    def waiting(self) -> Iterator[Record]:
        """Yield all parked records."""
        for records in self.parked.values():
            yield from records

    def empty(self) -> bool:
        """Say whether nothing is parked."""
        return not self.parked

    def park(self, records: Sequence[Record]) -> list[Record]:
        """Park records beyond their partition's ceiling; return the others and client events."""
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
        """Return the offset from which the records of a partition are parked."""
        ceiling, gate = self.ceilings.get(partition, 0), self.gates.get(partition)
        return ceiling if gate is None else min(ceiling, gate)

    def keep(self, record: Record) -> None:
        """Add a record whose partition is being revoked."""
        self.parked.setdefault(partition_of(record), []).append(record)

    def part(self, partition: TopicPartition, window: Window, records: int, bytes_: int) -> float:
        """Return the parked share of a partition: of ``records`` or ``bytes_``, the larger."""
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
        """Remove and return records now below the ceiling, except of ``closing`` ones."""
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
        """Drop the records and limits of these partitions."""
        for partition in partitions:
            self.parked.pop(partition, None)
            self.ceilings.pop(partition, None)
            self.gates.pop(partition, None)
            self._weighed.pop(partition, None)
