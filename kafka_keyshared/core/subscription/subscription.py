"""One subscription: routing, backlogs, leases, closed lanes and the window.

:meth:`Subscription.receive` routes a record to its owner's row. :meth:`Subscription.lease_rows`
leases it to that worker in a slice, and a report ends the lease.
:mod:`kafka_keyshared.core.failures.failed_attempts` handles failed records.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet

from kafka_keyshared.core.contract.commands import Command, LeaseSlice
from kafka_keyshared.core.contract.dlq_limit import DlqWatch
from kafka_keyshared.core.contract.outcomes import Failure
from kafka_keyshared.core.contract.retry_policy import RetryPolicy
from kafka_keyshared.core.contract.slices import NO_RETRIES, Book, Epochs, Slice, SliceState
from kafka_keyshared.core.lanes.closed import ClosedLanes, LaneEvent, LaneState
from kafka_keyshared.core.lanes.single_inflight import OneLease
from kafka_keyshared.core.limits.blocked_quota import LookAhead
from kafka_keyshared.core.limits.circuit_breaker import CircuitBreaker
from kafka_keyshared.core.limits.parked_records import Parking
from kafka_keyshared.core.offsets.metadata_sections import Tried
from kafka_keyshared.core.records.backlog import Backlog, let_go
from kafka_keyshared.core.records.lane_identity import Lane
from kafka_keyshared.core.records.pristine import Chunk, Originals
from kafka_keyshared.core.records.window import Window
from kafka_keyshared.core.routing.filters import Filters
from kafka_keyshared.core.subscription.crash_suspects import Suspects
from kafka_keyshared.core.subscription.diverted_lanes import Diversions
from kafka_keyshared.core.subscription.hot_keys import HotKeys
from kafka_keyshared.core.subscription.routing_state import SlotOwnership
from kafka_keyshared.core.subscription.settings import SubscriptionSettings
from kafka_keyshared.core.subscription.unsettled import UnsettledRecords
from kafka_keyshared.core.telemetry.bursts import Bursts, Reminder
from kafka_keyshared.core.telemetry.failure_kinds import ErrorsSeen
from kafka_keyshared.core.telemetry.failure_watch import FailureWatch
from kafka_keyshared.core.telemetry.meters import OutcomeCounts
from kafka_keyshared.core.workers.shards import Detaching, Shard
from kafka_keyshared.core.workers.worker import Worker, merged
from kafka_keyshared.errors import InvariantError
from kafka_keyshared.model import Attempt, Coordinates, Record, TopicPartition, partition_of, some


class Subscription:
    """The state of one subscription. Only the dispatcher calls it.

    ``routing`` knows the owners of records and the places where records wait. ``unsettled`` has
    queries over all held records. The other attributes are the parts of the subscription; those
    that ``routing`` made are its own.
    """

    def __init__(
        self,
        settings: SubscriptionSettings,
        closing: AbstractSet[TopicPartition] = frozenset(),
        epochs: Epochs | None = None,
        book: Book | None = None,
    ) -> None:
        self.settings = settings
        self.name = settings.name
        self.routing = routing = SlotOwnership(settings)
        self.keys, self.table, self.workers = routing.keys, routing.table, routing.workers
        self.changing, self.gone = routing.changing, routing.gone
        self.keyless, self.unowned, self.shared = routing.keyless, routing.unowned, routing.shared
        self.draining, self.hand_overs = routing.draining, routing.hand_overs
        self.epochs = Epochs() if epochs is None else epochs
        self.book = Book() if book is None else book
        self.window = Window(settings.window_records, settings.window_bytes)
        self.counts = OutcomeCounts()
        self.bursts = Bursts()
        self.errors = ErrorsSeen()
        self.closed = ClosedLanes()
        self.failure_watch = FailureWatch(self.closed, self.counts)
        # Partitions that are being revoked, from the ledger of holds: none of their records start.
        self.closing = closing
        self.parking = Parking()
        self.suspects = Suspects()
        self.one_lease = OneLease(self.keys.lane) if settings.one_in_flight_per_key else None
        self.unsettled = UnsettledRecords(routing, self.epochs, self.one_lease)
        places = routing.places
        places += [self.keyless, self.closed, self.keys, self.parking, self.draining, self.suspects]
        self.dlq_watch = DlqWatch(settings.dlq_limit) if settings.dlq_limit else None
        places += [each for each in (self.one_lease, self.dlq_watch) if each is not None]
        waits = settings.at_least_once and (settings.breaker or settings.wait_on)
        self.breaker = CircuitBreaker(any_error=settings.breaker) if waits else None
        self.stopped = self.commit_at_once = False
        self.leased = 0  # records, at all workers
        self.hot_keys = HotKeys()
        self.detaching = None if settings.detaches is None else Detaching(settings.detaches)
        self.reminder = Reminder(dlq=settings.dlq)
        # Records settled without their handler since the last report.
        self.dropped: list[Record] = []
        self.diverted = Diversions()
        # The notes on unsettled records in the commit that their partition started from.
        self.carried: dict[TopicPartition, dict[int, Tried]] = {}
        hot = () if self.shared is None else self.shared.slow
        share = settings.window_share
        self.look_ahead = LookAhead(
            self.window, self.closed, self.epochs, self.one_lease, hot=hot, share=share
        )
        self.look_ahead.workers = self.workers
        self.look_ahead.held += self.unowned.rows if routing.has_gaps else []
        self._tidy_at = 0

    def begin_to_filter(self, filters: Filters) -> None:
        """Distinguish keys of one slot from now on, and weigh records without a worker."""
        if not self.routing.has_gaps:
            self.look_ahead.held += self.unowned.rows
        self.routing.begin_to_filter(filters)

    # --- in ---

    def receive(self, records: Sequence[Record], *, park: bool = False) -> list[Record]:
        """Receive a chunk and route it; return its client events.

        With ``park`` some of it may be beyond its partition's ceiling, and is parked.
        """
        received = chunk = Chunk(records, self.window.received)
        self.window.receive(chunk)
        if park and self.settings.at_least_once:
            records = self.parking.park(records)
            chunk = Chunk(records, self.window.received)
        if events := self._route(chunk):
            self.window.without(received, events)
        if self.window.received >= self._tidy_at:
            self._let_go()
        return events

    def next_due(self) -> float | None:
        """Return the earliest time at which a wait ends, in monotonic seconds."""
        breaks = None if self.breaker is None else self.breaker.next_due()
        due = self.closed.next_due(), self.keys.next_due(), self.draining.due, breaks
        return min([at for at in due if at is not None], default=None)

    def retry_after(self, failure: Failure | None) -> RetryPolicy:
        """Return the retry policy for a failure. One of a dependency uses up no attempt."""
        if failure is None:
            return self.settings.retry
        policy = failure.retry or self.settings.retry
        if failure.waits or (self.breaker is not None and self.breaker.covers(failure)):
            return policy._replace(forever=True)
        return policy

    def unpark(self) -> bool:
        """Route records that are now below their partition's ceiling; return whether any were."""
        freed = self.parking.free(self.standing())
        if freed:
            self.routing.mixed = True
            self._route(Chunk(freed))
        return bool(freed)

    def _route(self, chunk: Chunk) -> list[Record]:
        """Route records to their owners' backlogs; return the client events."""
        routing = self.routing
        if self.keys.crowded():
            self.keys.keep(self.unsettled.strays())
        alone = routing.alone() if routing.has_gaps else self.keyless.records
        events = self.keys.route(chunk, self.table.rows, alone)
        if self.diverted.unmet:
            self.diverted.arrived.append(chunk.records)
        for row in routing.own_rows():
            row.came_in(chunk)
        self.keyless.came_in(chunk)
        if self.draining.row.routed:
            self.draining.row.backlog.came_in(chunk)
        if routing.has_gaps:
            for row in self.unowned.rows:
                self.look_ahead.grown += row.backlog.came_in(chunk)
        return events

    def _let_go(self) -> None:
        """Free chunks that are kept alive by a few records of a slow worker."""
        spare = self.window.spare()
        self._tidy_at = self.window.received + (spare + 1) // 2
        keepers: list[Backlog | Originals] = [self.keyless]
        keepers += [backlog for row in self.routing.rows() for backlog in row.backlogs()]
        keepers += [leased.slice.came for leased in self.unsettled.leases()]
        let_go(keepers, spare)

    def read_again(self, partition: TopicPartition) -> None:
        """Route the records of a partition that waited for its first record's key."""
        self.routing.mixed = True
        self._route(Chunk(self.keys.unread.pop(partition).records))

    # --- out ---

    def lease_rows(self) -> Iterator[Command]:
        """Lease all records that may start now, where each worker has a row."""
        workers = self.workers.values()
        if self.draining.row.front:
            self.draining.merge()
        for worker in workers:
            row = worker.row
            if worker.joined_at:
                worker.hold_later()
            if row.front:
                row.merge()
            if row.retries:
                yield from self.lease_heads(worker)
        if self.keyless.records:
            yield from self._lease_keyless()
        for worker in workers:
            row = worker.row
            while (row.routed or row.granted) and (room := worker.room()):
                taken, chunks, lanes = self._take(worker, room)
                if not taken:
                    break
                yield self.lease(worker, taken, chunks, lanes)

    def lease(
        self,
        worker: Worker,
        records: list[Record],
        chunks: Sequence[Chunk],
        claimed: Sequence[Lane] = (),
        retries: tuple[Lane, ...] = (),
        *,
        also: Sequence[Record] = (),
        shards: Mapping[Shard, int] | None = None,
        attempts: Mapping[Coordinates, Attempt] = NO_RETRIES,
    ) -> LeaseSlice:
        """Lease records as one slice.

        ``also`` has the first records of other origins. ``shards`` maps their shards to the number
        of records of each. ``claimed`` are their lanes where each may have one lease only.
        ``attempts`` has the records that failed before.
        """
        came = Originals(records, self.counts.topic, chunks)
        slice_ = Slice(
            self.book.next_id(), self.name, worker.id, self.epochs.now, records, came, attempts
        )
        first = (records[0], *also)
        leased = SliceState(slice_, self.table.version, retries, claimed, first)
        if shards:
            leased.hold(shards.items())
        self.book.enter(leased)
        worker.lease(leased)
        self.leased += len(records)
        return LeaseSlice(slice_)

    def lease_heads(self, worker: Worker, most: int | None = None) -> Iterator[LeaseSlice]:
        """Lease the heads of closed lanes for their next attempt, in slices like all others.

        Each slice has up to ``most`` heads; None is as many as the worker has room for.
        """
        closing = self.standing()
        while worker.row.retries and (ready := worker.take_ready(most or worker.room())):
            # Heads of a partition that is being revoked are not retried: they will be forgotten.
            heads = [
                (closed, closed.head)
                for closed in ready
                if closed.head is not None and closed.partition not in closing
            ]
            if not heads:
                continue
            lanes = tuple(closed.lane for closed, _ in heads)
            claimed = () if self.one_lease is None else lanes
            records = [head for _, head in heads]
            attempts = {
                (closed.partition, head.offset()): closed.next_attempt(
                    self.retry_after(closed.last)
                )
                for closed, head in heads
            }
            lease = self.lease(worker, records, (), claimed, lanes, attempts=attempts)
            for closed, head in heads:
                closed.on(LaneEvent.LEASED)
                closed.attempt = lease.slice.id
                self.counts.retry(head, closed.last)
            yield lease

    def _lease_keyless(self) -> Iterator[Command]:
        takes = self.routing.takes_keyless
        able = [each for each in self.workers.values() if takes(each) and each.room()]
        able.sort(key=lambda worker: worker.leased)
        for left, worker in zip(range(len(able), 0, -1), able, strict=True):
            room = worker.places()
            share = min(-(-len(self.keyless) // left), room)
            if worker.individually and share:
                share = self._in_turn(worker, room, share)
            part, chunks = self.keyless.take(worker.bytes.fitting(self.keyless.records, share))
            keyed, came_in, _ = self._take(worker, room - len(part), part)
            part, _ = self.startable_of(part)
            if worker.individually:
                found = merged(keyed, part)
                most = worker.slice_max
                slices = [found[at : at + most] for at in range(0, len(found), most)]
            else:
                slices = [keyed + part] if keyed or part else []
            for records in slices:
                claimed = () if self.one_lease is None else [*map(self.keys.lane, records)]
                yield self.lease(worker, records, chunks + came_in, claimed, also=part[:1])

    def _in_turn(self, worker: Worker, room: int, share: int) -> int:
        """Return how many keyless records come before the others that fill the room, at least one.

        A member that settles by offsets gets no record below those that it has received.
        """
        found = merged(worker.row.routed[:room], self.keyless.records[:share])[:room]
        return max(1, sum(self.keys.key(record) is None for record in found))

    def _take(
        self, worker: Worker, room: int, beside: Sequence[Record] = ()
    ) -> tuple[list[Record], list[Chunk], Sequence[Lane]]:
        """Take up to ``room`` records that may start; return them, their chunks, claimed lanes."""
        backlog, fitting = worker.row.backlog, worker.bytes.fitting
        if self.all_may_start():
            return (*backlog.take(fitting(backlog.records, room, beside)), ())
        has_granted = bool(worker.row.granted)
        taken, lanes = self.take_granted(worker, room, beside) if has_granted else ([], [])
        chunks = [Chunk(taken[:])] if taken else []
        if worker.row.front:  # a returned grant puts the records behind it before the backlog
            worker.row.merge()
        while most := fitting(backlog.records, room - len(taken), beside, taken):
            part, came_in = backlog.take(most)
            chunks += came_in
            startable, claimed = self.startable_of(part)
            taken += startable
            lanes += claimed
        return taken, chunks, lanes

    def startable_of(self, records: list[Record]) -> tuple[list[Record], list[Lane]]:
        """Return the records that may start, and their claimed lanes; move the others.

        The others go to the place where they have to wait. Lanes are claimed only if each may have
        one lease.
        """
        if self.standing():
            records = self._staying(records)
        if self.suspects:
            hold, named = self.suspects.hold, self.keys.lane
            records = [record for record in records if not hold(record, named(record))]
        if closed_keys := self.closed.keys:
            passed = []
            key_of, lane_of = self.keys.key, self.keys.lane
            for record in records:
                if key_of(record) in closed_keys and (closed := self.closed.get(lane_of(record))):
                    closed.queue.append(record)
                    if closed.state is LaneState.DIVERTED:
                        self.diverted.due[closed] = None
                else:
                    passed.append(record)
            self.look_ahead.grown += len(records) - len(passed)
            records = passed
        if self.one_lease is None:
            return records, []
        claim = self.one_lease.claim
        grants = [(lane, record) for record in records if (lane := claim(record)) is not None]
        return [record for _, record in grants], [lane for lane, _ in grants]

    def _staying(self, records: list[Record]) -> list[Record]:
        """Return the records that may start; the others wait for the revoke, or for a limit."""
        passed, watch = [], self.dlq_watch
        for record in records:
            partition = partition_of(record)
            if partition in self.closing:
                self.parking.keep(record)
            elif watch is not None and partition in watch.stopped:
                watch.keep(record)
            else:
                passed.append(record)
        return passed

    def all_may_start(self) -> bool:
        """Return whether all records that wait in rows may start."""
        plain = not self.closed.keys and not self.suspects and self.one_lease is None
        return plain and not self.standing()

    def standing(self) -> AbstractSet[TopicPartition]:
        """Return the partitions whose records must not start."""
        stopped = self.dlq_watch and self.dlq_watch.stopped
        return stopped | self.closing if stopped else self.closing

    def unclaim(self, leased: SliceState, indices: Iterable[int]) -> None:
        """Grant each ended record's lease to the next one of its lane, with one lease per key."""
        if self.one_lease is None:
            return
        # While no slot has moved, the lane stays at its worker.
        same = leased.table == self.table.version
        stays = self.workers.get(leased.slice.worker) if same else None
        row_of = self.routing.row_of
        for at in indices:
            lane = leased.claimed[at]
            if (record := self.one_lease.following(lane)) is not None:
                (stays.row if stays else row_of(record)).granted.append((lane, record))

    def take_granted(
        self, worker: Worker, room: int, beside: Sequence[Record]
    ) -> tuple[list[Record], list[Lane]]:
        """Take records that already hold their lanes' leases; return them and these lanes."""
        row = worker.row
        room = worker.bytes.fitting([record for _, record in row.granted[:room]], room, beside)
        granted, row.granted = row.granted[:room], row.granted[room:]
        lanes, records = [lane for lane, _ in granted], [record for _, record in granted]
        if not self.standing():
            return records, lanes
        passed = self._staying(records)
        for record in records:
            if not any(record is each for each in passed):
                self.give_back(record)
        return passed, [*map(self.keys.lane, passed)]

    def give_back(self, record: Record) -> None:
        """Give up a record's granted lease, and put back the waiting records of its lane."""
        if self.one_lease is not None:
            self.routing.put_back(self.one_lease.release(self.keys.lane(record)))


class Subscriptions(dict[str, Subscription]):
    """All subscriptions by name; :class:`InvariantError` for an unknown one."""

    def __missing__(self, name: str) -> Subscription:
        known = some(map(repr, sorted(self)))
        raise InvariantError(f"there is no subscription {name!r}; there is {known}")
