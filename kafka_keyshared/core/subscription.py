"""One subscription: routing, backlogs, leases, closed lanes and the window over the fetched stream.

The way of a record: :meth:`Subscription.admit` routes it to its owner's backlog, :meth:`flush`
leases it to that worker in a slice, and a report ends the lease. What happens after a failure
stands in :mod:`kafka_keyshared.core.failures`.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence

from kafka_keyshared.core.bursts import Bursts
from kafka_keyshared.core.events import Command, Lease, Recall, Slice
from kafka_keyshared.core.lanes import (
    ClosedLane,
    ClosedLanes,
    Lane,
    LaneState,
)
from kafka_keyshared.core.leases import WorkerLeases, merged
from kafka_keyshared.core.meters import Counts
from kafka_keyshared.core.restrictions import Restrictions
from kafka_keyshared.core.routing.ring import VnodeRing
from kafka_keyshared.core.settings import SubscriptionSettings
from kafka_keyshared.core.window import Window
from kafka_keyshared.hashing import SLOTS, slot_of
from kafka_keyshared.model import Record, TopicPartition

BLOCKED_SHARE = 4
"""Records behind blocked lanes may fill one part in this many of the window."""


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
        self.restrictions = Restrictions()
        self.parked: dict[TopicPartition, list[Record]] = {}
        self.keyless: list[Record] = []
        self.workers = [
            WorkerLeases(
                name, index, settings.leases_per_worker, individually=settings.individually
            )
            for index, name in enumerate(settings.workers)
        ]
        self._owners: list[int] = []
        self._rows: list[list[Record]] = []
        self.shares: list[float] = []
        self._project()
        self.busy: dict[Lane, deque[Record]] | None = (
            {} if settings.max_leases_per_key == 1 else None
        )
        self.stopped = False
        self.blocked_waiting = 0
        self.overfull: dict[TopicPartition, ClosedLane] = {}

    def _project(self) -> None:
        """Project the ring to the slot table. Who is gone keeps its slots until it is removed."""
        able = [worker for worker in self.workers if not worker.removed]
        table = VnodeRing([worker.name for worker in able]).table()
        self._owners = [able[place].index for place in table]
        owned = Counter(self._owners)
        self.shares = [owned[worker.index] / SLOTS for worker in self.workers]
        self._rows = [self.workers[index].backlog for index in self._owners]

    def remove(self, worker: WorkerLeases) -> None:
        """Take a worker that is gone and holds nothing off the ring; move what waits at it."""
        worker.removed = True
        self._project()
        worker.merge_front()
        granted, waiting, heads = worker.granted[:], worker.backlog[:], worker.retries[:]
        worker.granted.clear()
        worker.backlog.clear()
        worker.retries.clear()
        for record in granted:
            self.put_first([record])
            self.give_back(record)
        self.put_first(waiting)
        for closed in heads:
            if closed.head is not None:
                self.owner(closed.head).retries.append(closed)

    # --- in ---

    def admit(self, records: Sequence[Record]) -> list[Record]:
        """Route the records to their owners' backlogs; return those that are client events."""
        self.window.receive(records)
        if self.keys.crowded():
            self.keys.keep(self.held())
        events = self.keys.route(records, self._rows, self.keyless)
        if events:
            self.window.settle(len(events))
        return events

    def read_again(self, partition: TopicPartition) -> None:
        """Route what could not be routed because the key of its first record was not readable."""
        self.keys.route(self.keys.unread.pop(partition).records, self._rows, self.keyless)

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
            worker.merge_front()
            if worker.retries:
                yield from self._lease_heads(worker)
        if self.keyless:
            yield from self._flush_keyless()
        for worker in self.workers:
            while (worker.backlog or worker.granted) and (room := worker.room()):
                taken = self._take(worker, room)
                if not taken:
                    break
                yield self._lease(worker, taken)

    def _lease(
        self, worker: WorkerLeases, records: list[Record], retries: tuple[Lane, ...] = ()
    ) -> Lease:
        share = Slice(self.name, worker.index, records, retries, self.keys.lane)
        worker.hold(share)
        return Lease(share)

    def _lease_heads(self, worker: WorkerLeases) -> Iterator[Command]:
        """Lease the heads of closed lanes for their next attempt."""
        closing = self.restrictions.closing
        room = worker.leases_free()
        ready, worker.retries[:] = worker.retries[:room], worker.retries[room:]
        # The head of a partition on its way out is not retried: it is about to be forgotten.
        heads = [
            (closed, closed.head)
            for closed in ready
            if closed.head is not None and not (closing and partition_of(closed.head) in closing)
        ]
        if not heads:
            return
        together = 1 if worker.individually else len(heads)
        for first in range(0, len(heads), together):
            part = heads[first : first + together]
            lanes = tuple(closed.lane for closed, _ in part)
            lease = self._lease(worker, [head for _, head in part], lanes)
            for closed, head in part:
                closed.state = LaneState.RUNNING
                closed.attempt = lease.slice
                self.counts.retry(head, closed.last)
            yield lease

    def _flush_keyless(self) -> Iterator[Command]:
        able = [worker for worker in self.workers if worker.room()]
        able.sort(key=lambda worker: worker.leased)
        for left, worker in zip(range(len(able), 0, -1), able, strict=True):
            room = worker.room()
            share = min(-(-len(self.keyless) // left), room)
            part = self.keyless[:share]
            del self.keyless[:share]
            keyed, part = self._take(worker, room - len(part)), self._startable(part)
            records = merged(keyed, part) if worker.individually else keyed + part
            if records:
                yield self._lease(worker, records)

    def _take(self, worker: WorkerLeases, room: int) -> list[Record]:
        backlog = worker.backlog
        if not self.closed.keys and not self.restrictions and self.busy is None:
            taken = backlog[:room]
            del backlog[:room]
            return taken
        taken = self._take_granted(worker, room) if worker.granted else []
        worker.merge_front()  # a grant given up puts what waited behind it before the backlog
        while backlog and len(taken) < room:
            part = backlog[: room - len(taken)]
            del backlog[: len(part)]
            taken += self._startable(part)
        return taken

    def _startable(self, records: list[Record]) -> list[Record]:
        """Return the records that may start; put the others where they have to wait."""
        if self.restrictions:
            records = self._unrestricted(records)
        if closed_keys := self.closed.keys:
            passed = []
            key_of, lane_of = self.keys.key, self.keys.lane
            for record in records:
                if key_of(record) in closed_keys and (closed := self.closed.get(lane_of(record))):
                    closed.queue.append(record)
                    self.count_blocked(closed, record)
                else:
                    passed.append(record)
            records = passed
        if self.busy is None:
            return records
        return [record for record in records if self._claim(record)]

    def count_blocked(self, closed: ClosedLane, record: Record, count: int = 1) -> None:
        """Note the partition once what blocked lanes hold fills a quarter of the window."""
        if closed.state is not LaneState.BLOCKED:
            return
        self.blocked_waiting += count
        if self.blocked_waiting * BLOCKED_SHARE >= self.window.records_max:
            self.overfull.setdefault(partition_of(record), closed)

    def _unrestricted(self, records: list[Record]) -> list[Record]:
        passed = []
        for record in records:
            partition = partition_of(record)
            if self.restrictions.hold(partition, record.offset()):
                self.parked.setdefault(partition, []).append(record)
            else:
                passed.append(record)
        return passed

    def unpark(self, partition: TopicPartition) -> None:
        """Let go what waited for room in the commit metadata.

        What the partition has in backlogs is partly older and partly newer than what was parked:
        both are merged by offset, which is their order in every lane. They do not go to the front:
        what a recall brings back there is older still.
        """
        self.restrictions.gates.pop(partition, None)
        freed = self.parked.pop(partition, [])
        for worker in self.workers:
            worker.merge_front()
            freed += [each for each in worker.backlog if partition_of(each) == partition]
            worker.backlog[:] = [e for e in worker.backlog if partition_of(e) != partition]
        freed.sort(key=lambda record: record.offset())
        self.put_first(freed)
        for worker in self.workers:
            worker.merge_front()

    def _claim(self, record: Record) -> bool:
        """With one lease per key: take the lane for this record, or queue it behind the lease."""
        busy = self.busy
        if busy is None:
            return True
        lane = self.keys.lane(record)
        waiting = busy.get(lane)
        if waiting is not None:
            waiting.append(record)
            return False
        busy[lane] = deque()
        return True

    def unclaim(self, record: Record) -> None:
        """With one lease per key: the lease has ended, the next record of its lane is granted one.

        Only that one leaves the lane's queue, or each lease would walk all that wait behind it.
        """
        if self.busy is None:
            return
        lane = self.keys.lane(record)
        waiting = self.busy.get(lane)
        if waiting:
            following = waiting.popleft()
            self.owner(following).granted.append(following)
        elif waiting is not None:
            del self.busy[lane]

    def _take_granted(self, worker: WorkerLeases, room: int) -> list[Record]:
        granted, worker.granted[:] = worker.granted[:room], worker.granted[room:]
        if not self.restrictions:
            return granted
        passed = self._unrestricted(granted)
        for record in granted:
            if not any(record is each for each in passed):
                self.give_back(record)
        return passed

    def give_back(self, record: Record) -> None:
        """Give up the lease that a record was granted; what waits in its lane is as before it."""
        if self.busy is not None:
            self.put_first(self.busy.pop(self.keys.lane(record), ()))

    def put_first(self, records: Iterable[Record]) -> None:
        """Put records, in order, before everything that waits at their owners."""
        for record in records:
            if self.keys.key(record) is None:
                self.keyless.append(record)
            else:
                self.owner(record).front.append(record)

    # --- taking back ---

    def recall_all(self) -> list[Command]:
        """Return the commands that take back every unstarted lease."""
        return [Recall(self.name, worker.index) for worker in self.workers if worker.slices]

    def recalled(self, slices: Iterable[tuple[Slice, list[Record]]]) -> None:
        """Put unstarted leases back, in order, to where they came from."""
        behind: dict[Lane, list[Record]] = {}
        for share, unstarted in slices:
            worker = self.workers[share.worker]
            worker.take_back(share, unstarted)
            for record in unstarted:
                lane = self.keys.lane(record)
                closed = self.closed.get(lane)
                if closed is None:
                    self._recalled_open(record, lane, worker)
                elif closed.head is record:
                    closed.state = LaneState.WAITING
                    closed.attempt = None
                    self.owner(record).retries.append(closed)
                else:
                    behind.setdefault(lane, []).append(record)
        # They left the backlog before anything that the lane's queue took from it since.
        for lane, records in behind.items():
            closed = self.closed.lanes[lane]
            closed.queue.extendleft(reversed(records))
            self.count_blocked(closed, records[0], len(records))

    def _recalled_open(self, record: Record, lane: Lane, worker: WorkerLeases) -> None:
        target = self.keyless if self.keys.key(record) is None else worker.front
        target.append(record)
        if self.busy is not None:
            target.extend(self.busy.pop(lane, ()))

    # --- what is held ---

    def unsettled(self, progress: Mapping[Slice, int]) -> Iterator[Record]:
        """Yield every record that is not settled, in no particular order.

        ``progress`` says for each outstanding slice how many of its records had not started when it
        was read; the one before them counts as running. It must have been read before the last
        reports were handled: a failure among the started ones is then known here already.
        """
        yield from self.waiting()
        for worker in self.workers:
            for share in worker.slices:
                unstarted = progress.get(share, len(share.records))
                running_from = max(0, len(share.records) - unstarted - 1)
                for record in share.records[running_from:]:
                    if share.stale and (partition_of(record), record.offset()) in share.stale:
                        continue
                    yield record

    def waiting(self) -> Iterator[Record]:
        """Yield every record that is held and not leased."""
        for worker in self.workers:
            yield from worker.granted
            yield from worker.front
            yield from worker.backlog
        yield from self.keyless
        for closed in self.closed.lanes.values():
            yield from closed.records()
        for parked in self.parked.values():
            yield from parked
        for unread in self.keys.unread.values():
            yield from unread.records
        if self.busy:
            for waiting in self.busy.values():
                yield from waiting

    def held(self) -> Iterator[Record]:
        """Yield every record that is held, leased or not; one may come twice."""
        yield from self.waiting()
        for worker in self.workers:
            for share in worker.slices:
                yield from share.records

    def leased(self) -> int:
        """Return how many records are leased."""
        return sum(worker.leased for worker in self.workers)


def partition_of(record: Record) -> TopicPartition:
    """Return the partition that the record came from."""
    return TopicPartition(record.topic(), record.partition())
