"""One subscription: routing, backlogs, leases, closed lanes and the window over the fetched stream.

The way of a record: :meth:`Subscription.admit` routes it to its owner's backlog, :meth:`flush`
leases it to that worker in a slice, and a report ends the lease. What happens after a failure
stands in :mod:`kafka_keyshared.core.failures`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from kafka_keyshared.core.backlog import Backlog
from kafka_keyshared.core.blocked import Blocked
from kafka_keyshared.core.bursts import Bursts
from kafka_keyshared.core.events import Command, Lease, Slice
from kafka_keyshared.core.lanes import ClosedLane, ClosedLanes, Lane, LaneEvent
from kafka_keyshared.core.leases import WorkerLeases, merged
from kafka_keyshared.core.meters import Counts
from kafka_keyshared.core.one_lease import OneLease
from kafka_keyshared.core.originals import Chunk, Originals, Place, kept_from, place_of
from kafka_keyshared.core.parking import Parking
from kafka_keyshared.core.places import WaitingPlace
from kafka_keyshared.core.routing.ring import ROUTING_VNODES, VnodeRing
from kafka_keyshared.core.settings import SubscriptionSettings
from kafka_keyshared.core.window import Window
from kafka_keyshared.hashing import SLOTS, slot_of
from kafka_keyshared.model import Record, TopicPartition, partition_of


class Subscription:
    """The state of one subscription. Only the dispatcher calls it."""

    def __init__(self, settings: SubscriptionSettings) -> None:
        settings.check()
        self.settings = settings
        self.name = settings.name
        self.keys = settings.keys()
        self.window = Window(settings.window_records, settings.window_bytes)
        self.counts = Counts()
        self.bursts = Bursts()
        self.closed = ClosedLanes()
        # Partitions about to be given up: nothing of them starts any more.
        self.closing: set[TopicPartition] = set()
        self.parking = Parking()
        self.keyless = Backlog()
        self.workers = [
            WorkerLeases(
                name, index, settings.leases_per_worker, individually=settings.individually
            )
            for index, name in enumerate(settings.workers)
        ]
        self._owners: list[int] = []
        self._rows: list[list[Record]] = []
        self.shares: list[float] = []
        self.project()
        self.one_lease = OneLease(self.keys.lane) if settings.max_leases_per_key == 1 else None
        # Whatever can hold a record that is not leased: what is held is what waits in these.
        self.places: list[WaitingPlace] = [*self.workers, self.keyless, self.closed, self.keys]
        self.places += [self.parking, *([self.one_lease] if self.one_lease is not None else [])]
        self.stopped = False
        self.blocked = Blocked(settings.window_records)
        # Whether a backlog may have got older records behind newer ones.
        self.mixed = False
        self._tidy_at = 0

    def project(self) -> None:
        """Project the ring to the slot table. Who is gone keeps its slots until it is removed."""
        able = [worker for worker in self.workers if not worker.removed]
        table = VnodeRing([worker.name for worker in able], ROUTING_VNODES).table()
        self._owners = [able[place].index for place in table]
        owned = Counter(self._owners)
        self.shares = [owned[worker.index] / SLOTS for worker in self.workers]
        self._rows = [self.workers[index].backlog.records for index in self._owners]

    # --- in ---

    def receive(self, records: Sequence[Record], *, park: bool = False) -> list[Record]:
        """Take a chunk in and route it; return those that are client events.

        With ``park`` some of it may stand beyond its partition's ceiling, and is parked.
        """
        chunk = Chunk(records, self.window.received)
        self.window.receive(chunk)
        if park:
            records = self.parking.park(records)
            chunk = Chunk(records, self.window.received)
        events = self._route(chunk)
        if events:
            self.window.settle(len(events))
        if self.window.received >= self._tidy_at:
            self._let_go()
        return events

    def unpark(self) -> bool:
        """Route what is below its partition's ceiling by now; say whether there was any."""
        freed = self.parking.free(self.closing)
        if freed:
            self.mixed = True
            self._route(Chunk(freed))
        return bool(freed)

    def _route(self, chunk: Chunk) -> list[Record]:
        """Route records to their owners' backlogs; return those that are client events."""
        if self.keys.crowded():
            self.keys.keep(self.held())
        events = self.keys.route(chunk.records, self._rows, self.keyless.records)
        for worker in self.workers:
            worker.backlog.came_in(chunk)
        self.keyless.came_in(chunk)
        return events

    def _let_go(self) -> None:
        """See that chunks of which a slow worker holds a little do not keep all the rest alive."""
        window = self.window
        spare = window.spare()
        self._tidy_at = window.received + (spare + 1) // 2
        keepers: list[Backlog | Originals] = [self.keyless]
        for worker in self.workers:
            keepers += [worker.backlog, *(share.came for share in worker.slices)]
        young = kept_from((of for each in keepers for of in each.chunks()), spare)
        if young:
            for each in keepers:
                each.let_go(young)

    def read_again(self, partition: TopicPartition) -> None:
        """Route what could not be routed because the key of its first record was not readable."""
        self.mixed = True
        self._route(Chunk(self.keys.unread.pop(partition).records))

    def owner(self, record: Record) -> WorkerLeases:
        """Return the worker that owns the record's slot now (keyless: the least loaded one)."""
        key = self.keys.key(record)
        if key is None:
            able = [worker for worker in self.workers if not worker.gone]
            return min(able, key=lambda worker: (worker.leased + len(worker.retries), worker.index))
        return self.workers[self._owners[slot_of(key)]]

    # --- out ---

    def flush(self) -> Iterator[Command]:
        """Lease whatever may start now."""
        if self.stopped:
            return
        for worker in self.workers:
            if worker.front:
                worker.merge_front()
            if worker.retries:
                yield from self._lease_heads(worker)
        if self.keyless.records:
            yield from self._flush_keyless()
        for worker in self.workers:
            while (worker.backlog.records or worker.granted) and (room := worker.room()):
                taken, chunks = self._take(worker, room)
                if not taken:
                    break
                yield self._lease(worker, taken, chunks)

    def _lease(
        self,
        worker: WorkerLeases,
        records: list[Record],
        chunks: Sequence[Chunk],
        retries: tuple[Lane, ...] = (),
        *,
        also: Sequence[Record] = (),
    ) -> Lease:
        """Lease records as one slice; ``also`` are those of them that came another way."""
        lane_of = self.keys.lane
        share = Slice(
            self.name,
            worker.index,
            records,
            retries,
            lane_of,
            topic=self.counts.topic,
            first=(records[0], *also[:1]),
            claimed=() if self.one_lease is None else [*map(lane_of, records)],
            chunks=chunks,
        )
        worker.hold(share)
        return Lease(share)

    def _lease_heads(self, worker: WorkerLeases) -> Iterator[Command]:
        """Lease the heads of closed lanes for their next attempt, in slices like all others."""
        closing = self.closing
        while worker.retries and (room := worker.room()):
            # The head of a partition on its way out is not retried: it is about to be forgotten.
            heads = [
                (closed, closed.head)
                for closed in worker.take_ready(room)
                if closed.head is not None and closed.partition not in closing
            ]
            if not heads:
                continue
            lanes = tuple(closed.lane for closed, _ in heads)
            lease = self._lease(worker, [head for _, head in heads], (), lanes)
            for closed, head in heads:
                closed.on(LaneEvent.LEASED)
                closed.attempt = lease.slice
                self.counts.retry(head, closed.last)
            yield lease

    def _flush_keyless(self) -> Iterator[Command]:
        able = [worker for worker in self.workers if worker.room()]
        able.sort(key=lambda worker: worker.leased)
        for left, worker in zip(range(len(able), 0, -1), able, strict=True):
            room = worker.room()
            share = min(-(-len(self.keyless) // left), room)
            part, chunks = self.keyless.take(share)
            keyed, came_in = self._take(worker, room - len(part))
            part = self._startable(part)
            records = merged(keyed, part) if worker.individually else keyed + part
            if records:
                yield self._lease(worker, records, chunks + came_in, also=part)

    def _take(self, worker: WorkerLeases, room: int) -> tuple[list[Record], list[Chunk]]:
        """Take up to so many records that may start from the backlog, and what they came in."""
        backlog = worker.backlog
        if not self.closed.keys and not self.closing and self.one_lease is None:
            return backlog.take(room)
        taken = self._take_granted(worker, room) if worker.granted else []
        chunks = [Chunk(taken[:])] if taken else []
        worker.merge_front()  # a grant given up puts what waited behind it before the backlog
        while backlog.records and len(taken) < room:
            part, came_in = backlog.take(room - len(taken))
            chunks += came_in
            taken += self._startable(part)
        return taken, chunks

    def _startable(self, records: list[Record]) -> list[Record]:
        """Return the records that may start; put the others where they have to wait."""
        if self.closing:
            records = self._staying(records)
        if closed_keys := self.closed.keys:
            passed = []
            key_of, lane_of = self.keys.key, self.keys.lane
            for record in records:
                if key_of(record) in closed_keys and (closed := self.closed.get(lane_of(record))):
                    closed.queue.append(record)
                    self.count_blocked(closed, (record,))
                else:
                    passed.append(record)
            records = passed
        if self.one_lease is None:
            return records
        return [record for record in records if self.one_lease.claim(record)]

    def count_blocked(self, closed: ClosedLane, records: Iterable[Record]) -> None:
        """Count what a lane has come to hold, if it is blocked."""
        self.blocked.count(closed, map(partition_of, records))

    def _staying(self, records: list[Record]) -> list[Record]:
        """Return the records whose partitions stay; the others wait to be forgotten."""
        passed = []
        for record in records:
            if partition_of(record) in self.closing:
                self.parking.keep(record)
            else:
                passed.append(record)
        return passed

    def unclaim(self, share: Slice) -> None:
        """With one lease per key: they have ended, the next record of each lane is granted one."""
        if self.one_lease is None:
            return
        # What was taken back had stood at the end, and has left its lane to others.
        for following in self.one_lease.ended(share.claimed[: len(share.records)]):
            self.owner(following).granted.append(following)

    def _take_granted(self, worker: WorkerLeases, room: int) -> list[Record]:
        granted, worker.granted[:] = worker.granted[:room], worker.granted[room:]
        if not self.closing:
            return granted
        passed = self._staying(granted)
        for record in granted:
            if not any(record is each for each in passed):
                self.give_back(record)
        return passed

    def give_back(self, record: Record) -> None:
        """Give up the lease that a record was granted; what waits in its lane is as before it."""
        if self.one_lease is not None:
            self.put_back(self.one_lease.release(self.keys.lane(record)))

    def put_back(self, records: Iterable[Record]) -> None:
        """Put records, in order, before everything that waits at their owners.

        Whatever comes back comes this way: leases that were not started, what waited in a lane that
        opens, what was granted a lease, the backlog of a worker that has gone. It is older than all
        that its owner has and younger than what came back before; without a key there is no order.
        """
        self.mixed = True
        keyless: list[Record] = []
        for record in records:
            if self.keys.key(record) is None:
                keyless.append(record)
            else:
                self.owner(record).front.append(record)
        self.keyless.extend(keyless)

    # --- what is held ---

    def in_arrival_order(self) -> bool:
        """Say whether :meth:`oldest` can tell the oldest record: nothing is out of its order."""
        if self.mixed or self.one_lease is not None or self.settings.individually:
            return False
        return all(each.empty() for each in self.places[len(self.workers) + 1 :])

    def oldest(self) -> Iterator[Place]:
        """Yield where records are of which one arrived before all others that are held."""
        for worker in self.workers:
            for share in worker.slices:
                yield from share.oldest()
            yield from map(place_of, worker.backlog.records[:1])
        yield from map(place_of, self.keyless.records[:1])

    def unsettled(self, progress: Mapping[Slice, int]) -> Iterator[tuple[TopicPartition, Record]]:
        """Yield every record that is not settled with its partition, in no particular order.

        ``progress`` says for each outstanding slice how many of its records had not started when it
        was read; the one before them counts as running. It must have been read before the last
        reports were handled: a failure among the started ones is then known here already. A record
        that has started since may be written into meanwhile: of those that are leased only the
        partition is sure.
        """
        for record in self.waiting():
            yield partition_of(record), record
        for worker in self.workers:
            for share in worker.slices:
                for index in range(share.ended(progress), len(share.records)):
                    partition, record = share.came.partition_of(index), share.records[index]
                    if share.stale and (partition, record.offset()) in share.stale:
                        continue
                    yield partition, record

    def waiting(self) -> Iterator[Record]:
        """Yield every record that is held and not leased."""
        for place in self.places:
            yield from place.waiting()

    def held(self) -> Iterator[Record]:
        """Yield every record that is held, leased or not; one may come twice."""
        yield from self.waiting()
        for worker in self.workers:
            for share in worker.slices:
                yield from share.records

    def leased(self) -> int:
        """Return how many records are leased."""
        return sum([worker.leased for worker in self.workers])
