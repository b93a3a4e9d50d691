"""Suspects: records that may have ended the last owner of their partition.

The last owner's commit names them as running
(:mod:`kafka_keyshared.core.offsets.metadata_sections`). A suspect and the records behind it in its
lane wait here until the partition's other records have made progress
(:mod:`kafka_keyshared.core.partitions.careful_starts`). Otherwise a record that ends its process
would run first in each new process. No other record would ever run to its end.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Collection, Iterator, Mapping
from itertools import chain
from math import inf
from operator import methodcaller

from kafka_keyshared.core.offsets.metadata_sections import COUNTED_MOST, WAITING
from kafka_keyshared.core.records.lane_identity import Lane
from kafka_keyshared.model import Record, TopicPartition, partition_of

_OFFSET = methodcaller("offset")


class Suspects:
    """The suspects of one subscription; false while there are none.

    A suspect is deferred until :meth:`start` returns it. Before that, all records ahead of it in
    its lane must have settled. One of them may have been leased and recalled, and a returned
    suspect precedes all other waiting records of a worker.
    """

    def __init__(self) -> None:
        # The numbers that the last owner's commit gave the deferred suspects, by offset.
        self.deferred: dict[TopicPartition, dict[int, int]] = {}
        # The numbers under which a commit names the started suspects, by offset.
        self._started: dict[TopicPartition, dict[int, int]] = {}
        self._held: dict[tuple[TopicPartition, Lane], list[Record]] = {}
        # By lane the records that were let through, unless they had settled at the last look.
        self._passed: dict[TopicPartition, dict[Lane, set[int]]] = {}

    def __bool__(self) -> bool:
        return bool(self.deferred)

    def begin(self, partition: TopicPartition, numbers: Mapping[int, int]) -> None:
        """Defer these suspects of a newly assigned partition."""
        self.deferred[partition] = dict(numbers)
        self._passed[partition] = {}

    # --- records ---

    def hold(self, record: Record, lane: Lane) -> bool:
        """Return whether the record has to wait; if so, keep it.

        It waits if it is a suspect, or behind one in its lane.
        """
        partition = partition_of(record)
        numbers = self.deferred.get(partition)
        if numbers is None:
            return False
        held = self._held.get((partition, lane))
        if held is not None and record.offset() >= held[0].offset():
            insort(held, record, key=_OFFSET)
            return True
        if record.offset() not in numbers:
            self._passed[partition].setdefault(lane, set()).add(record.offset())
            return False
        insort(self._held.setdefault((partition, lane), []), record, key=_OFFSET)
        return True

    def waiting(self) -> Iterator[Record]:
        """Yield every record that waits here."""
        return chain.from_iterable(self._held.values())

    def empty(self) -> bool:
        """Say whether no record waits here."""
        return not self._held

    def held(self, partition: TopicPartition) -> int:
        """Return how many records of a partition wait here."""
        return sum(len(records) for (each, _), records in self._held.items() if each == partition)

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """Drop the suspects and records of these partitions."""
        for partition in partitions:
            self.deferred.pop(partition, None)
            self._started.pop(partition, None)
            self._passed.pop(partition, None)
        for place in [place for place in self._held if place[0] in partitions]:
            del self._held[place]

    # --- suspects ---

    def look(self, partition: TopicPartition, unsettled: Collection[int], end: int) -> None:
        """Drop the suspects below the received ``end`` that are settled or were never received."""
        for offset in [
            offset
            for offset in self.deferred.get(partition, ())
            if offset < end and offset not in unsettled
        ]:
            self._drop(partition, offset)
        if started := self._started.get(partition):
            for offset in started.keys() - unsettled:
                del started[offset]
        if passed := self._passed.get(partition):
            for lane, offsets in list(passed.items()):
                offsets -= {offset for offset in offsets if offset not in unsettled}
                if not offsets:
                    del passed[lane]

    def running(self, partition: TopicPartition) -> Collection[int]:
        """Return the suspects that have started and were not settled at the last look."""
        return self._started.get(partition, {})

    def ready(self, partition: TopicPartition) -> list[tuple[int, int]]:
        """Return number and offset of the deferred suspects that are first in their lane."""
        numbers, passed = self.deferred.get(partition, {}), self._passed.get(partition, {})
        heads = [
            records[0].offset()
            for (each, lane), records in self._held.items()
            if each == partition and lane not in passed
        ]
        return [(numbers[offset], offset) for offset in heads if offset in numbers]

    def to_come(self, partition: TopicPartition) -> bool:
        """Return whether a deferred suspect waits for more than the records ahead in its lane."""
        return bool(self.deferred.get(partition, {}).keys() - self._behind(partition))

    def least(self) -> float:
        """Return the least number of the deferred suspects that no record of their lane delays."""
        found = inf
        for partition, numbers in self.deferred.items():
            behind = self._behind(partition)
            left = (number for offset, number in numbers.items() if offset not in behind)
            found = min(found, min(left, default=inf))
        return found

    def _behind(self, partition: TopicPartition) -> set[int]:
        """Return the records that wait here behind others of their lane."""
        passed = self._passed.get(partition, {})
        return {
            record.offset()
            for (each, lane), records in self._held.items()
            if each == partition
            for record in records[lane not in passed :]
        }

    def start(self, partition: TopicPartition, offset: int) -> list[Record]:
        """Start a suspect: return it and the records behind it in its lane, in order."""
        number = self._drop(partition, offset)
        self._started.setdefault(partition, {})[offset] = _once_more(number)
        for place, records in self._held.items():
            if place[0] == partition and records[0].offset() == offset:
                del self._held[place]
                return records
        return []

    def _drop(self, partition: TopicPartition, offset: int) -> int:
        """Remove a deferred suspect; return its number, :data:`WAITING` if it was none."""
        numbers = self.deferred.get(partition, {})
        number = numbers.pop(offset, WAITING)
        if not numbers:
            self.deferred.pop(partition, None)
            self._passed.pop(partition, None)
        return number

    def named(self, partition: TopicPartition, starting: Collection[int]) -> dict[int, int]:
        """Return the numbers under which a commit names the suspects; ``starting`` start next.

        A waiting suspect keeps its number. Otherwise, with several records that end each process,
        the first would precede an innocent one again in every other process.
        """
        numbers = {
            offset: _once_more(number) if offset in starting else number
            for offset, number in self.deferred.get(partition, {}).items()
        }
        return numbers | self._started.get(partition, {})


def _once_more(number: int) -> int:
    return min(number + 1, COUNTED_MOST)
