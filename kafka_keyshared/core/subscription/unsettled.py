"""Queries over all records that a subscription holds.

A record is held from its receipt until it is settled. Commits, ceilings, revocations, and the
status use these queries; nothing here changes state.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import chain

from kafka_keyshared.core.contract.slices import Epochs, Progress, SliceState
from kafka_keyshared.core.lanes.single_inflight import OneLease
from kafka_keyshared.core.records.backlog import Backlog
from kafka_keyshared.core.records.pristine import column
from kafka_keyshared.core.subscription.routing_state import SlotOwnership
from kafka_keyshared.core.workers.run_queue import RunQueue
from kafka_keyshared.model import (
    Coordinates,
    Record,
    TopicPartition,
    coordinates_of,
    topic_partition,
)


class UnsettledRecords:
    """The records that a subscription holds: those at its workers, and those that wait."""

    def __init__(self, routing: SlotOwnership, epochs: Epochs, one_lease: OneLease | None) -> None:
        self._routing = routing
        self._epochs = epochs
        self._one_lease = one_lease
        self._individually = routing.settings.individually

    def in_arrival_order(self) -> bool:
        """Return whether all places are in arrival order, so that :meth:`oldest` works."""
        routing = self._routing
        if routing.mixed or self._one_lease is not None or self._individually:
            return False
        return all(
            each.empty() or each is routing.keyless or isinstance(each, RunQueue)
            for each in routing.places
        )

    def oldest(self) -> Iterator[Coordinates]:
        """Yield coordinates of candidates for the oldest held record; the oldest is among them."""
        routing = self._routing
        for worker in routing.workers.values():
            for leased in worker.slices.values():
                yield from leased.oldest()
        for row in routing.own_rows():
            for backlog in row.backlogs():
                yield from map(coordinates_of, backlog.records[:1])
        for row in routing.unowned.rows:
            # Returned records are merged into the backlog for a lease; this row is never leased.
            yield from map(coordinates_of, (*row.front[:1], *row.routed[:1]))
        yield from map(coordinates_of, routing.keyless.records[:1])

    def records(self, progress: Progress) -> Iterator[tuple[TopicPartition, Record]]:
        """Yield every unsettled record with its partition, in no particular order.

        Progress must have been read before the last reports were handled. Then a failure among the
        started records is known here already. A handler may modify a record that has started since,
        so of leased records only the partition is reliable.
        """
        waiting = list(self.waiting())
        topics, partitions = column("topic", waiting), column("partition", waiting)
        yield from zip(map(topic_partition, topics, partitions), waiting, strict=True)
        yield from self._leased(progress)

    def _leased(self, progress: Progress) -> Iterator[tuple[TopicPartition, Record]]:
        epochs = self._epochs
        for leased in self.leases():
            slice_ = leased.slice
            came, records, old = slice_.came, slice_.records, slice_.epoch != epochs.now
            for index in leased.outstanding(progress):
                partition = came.partition_of(index)
                if not (old and epochs.over(slice_.epoch, partition)):
                    yield partition, records[index]

    def by_partition(self) -> Counter[TopicPartition]:
        """Return the number of unsettled records of each partition, as far as is reported.

        The counting runs in C and takes a fifth of the time of :meth:`records`.
        """
        waiting = list(self.waiting())
        places = Counter(zip(column("topic", waiting), column("partition", waiting), strict=True))
        found = Counter({topic_partition(*place): count for place, count in places.items()})
        found.update(partition for partition, _ in self._leased({}))
        return found

    def ended_early(self, progress: Progress) -> int:
        """Return how many records have settled in slices that are not reported as ended."""
        count = 0
        for leased in self.leases():
            if leased.slice.epoch == self._epochs.now:
                rest = sum(1 for _ in leased.outstanding(progress))
                count += max(0, len(leased) - rest - len(leased.unsettled))
        return count

    def waiting(self) -> Iterator[Record]:
        """Return every record that is held and not leased."""
        return chain.from_iterable(place.waiting() for place in self._routing.places)

    def held(self) -> Iterator[Record]:
        """Yield every record that is held, leased or not; one may come twice."""
        yield from self.waiting()
        for leased in self.leases():
            yield from leased.records()

    def strays(self) -> Iterator[Record]:
        """Yield every held record that has left the chunk it was fetched in, and maybe others."""
        for place in self._routing.places:
            yield from place.strays() if isinstance(place, RunQueue | Backlog) else place.waiting()
        for leased in self.leases():
            yield from leased.slice.came.strays()

    def leases(self) -> Iterator[SliceState]:
        """Yield every slice that is leased."""
        for worker in self._routing.workers.values():
            yield from worker.slices.values()

    def startable(self) -> bool:
        """Return whether any routed record waits only for a worker."""
        routing = self._routing
        return bool(routing.keyless.records) or not all(row.empty() for row in routing.own_rows())
