"""Rules that must hold between any two events, checked from scratch.

With ``check_invariants`` they run at every heartbeat; tests run them after every event. They cost
one walk over all held records, shared by all rules.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NoReturn, TypeAlias, cast

from kafka_keyshared.core.backpressure.pause_reasons import Holds, Reason
from kafka_keyshared.core.contract.slices import SliceState
from kafka_keyshared.core.lanes.closed import HEAD_LEASED
from kafka_keyshared.core.offsets.positions import PartitionState
from kafka_keyshared.core.records.lane_identity import Lane, is_keyless
from kafka_keyshared.core.subscription.subscription import Subscription
from kafka_keyshared.core.workers.shards import Shard, SharedRow
from kafka_keyshared.core.workers.worker import Worker, WorkerState
from kafka_keyshared.errors import InvariantError
from kafka_keyshared.model import Record, TopicPartition, name_of

_Offsets: TypeAlias = dict[tuple[str, int], list[int]]
"""By topic and partition."""


class _Held:
    """Held records: those that wait, their offsets, and the leased slices."""

    def __init__(self, sub: Subscription) -> None:
        unrouted = (sub.keys, sub.parking)
        self.routed = [
            record
            for place in sub.routing.places
            if place not in unrouted
            for record in place.waiting()
        ]
        self.leases = list(sub.unsettled.leases())
        self.unparked: _Offsets = {}
        _add(self.unparked, self.routed)
        _add(self.unparked, sub.keys.waiting())
        self.waiting = {at: offsets[:] for at, offsets in self.unparked.items()}
        _add(self.waiting, sub.parking.waiting())


def _add(offsets: _Offsets, records: Iterable[Record]) -> None:
    for record in records:
        at = record.topic(), record.partition()
        if at in offsets:
            offsets[at].append(record.offset())
        else:
            offsets[at] = [record.offset()]


def _going(sub: Subscription, leased: SliceState) -> Iterable[int]:
    """Return the leases of a slice that are not over, by index."""
    if leased.slice.epoch == sub.epochs.now:
        return leased.indices()
    return [index for index in leased.indices() if not sub.epochs.ended(leased, index)]


def check_subscription(
    sub: Subscription,
    partitions: Mapping[TopicPartition, PartitionState],
    holds: Holds,
    *,
    each_slot: bool = True,
) -> None:
    """Raise :class:`InvariantError` for the first rule that does not hold.

    ``each_slot`` checks all 65,536 slots while slots drain, which costs more than all other rules.
    """
    held = _Held(sub)
    _each_once(sub, held)
    _counted(sub, held)
    _assigned(sub, held, partitions)
    _keys_known(sub, held)
    _below_ceilings(sub, held)
    _closed_lanes_lease_only_their_head(sub, held)
    _remembered(sub, held)
    if sub.shared is None:
        _slots_at_one_worker(sub)
    else:
        _lanes_at_one_worker(sub)
    if sub.shared is None:
        _rows_of_slots(sub, each_slot=each_slot)
    else:
        _shards(sub, sub.shared)
    _held_back_for_a_cause(sub, partitions, holds)


def _each_once(sub: Subscription, held: _Held) -> None:
    for at, offsets in held.waiting.items():
        if len(set(offsets)) < len(offsets):
            twice = next(offset for offset, times in Counter(offsets).items() if times > 1)
            raise InvariantError(f"{sub.name}: {TopicPartition(*at)}@{twice} is held twice")


def _counted(sub: Subscription, held: _Held) -> None:
    for worker in sub.workers.values():
        leased = sum(map(len, worker.slices.values()))
        if worker.leased != leased:
            raise InvariantError(
                f"{sub.name}: {worker.name} counts {worker.leased} leases and holds {leased}"
            )
        beside = {id_: each for id_, each in worker.slices.items() if id_ not in worker.apart}
        if not worker.bytes.is_true_of(beside):
            raise InvariantError(f"{sub.name}: {worker.name} miscounts the bytes of its leases")
    out = sum([worker.leased for worker in sub.workers.values()])
    if sub.leased != out:
        raise InvariantError(f"{sub.name}: {sub.leased} leases are counted, {out} are out")
    back = sum([len(leased.unsettled) for leased in held.leases])
    count = sum(map(len, held.waiting.values())) + sub.leased - back
    # Records that failed and settled at once leave the window before their slice ends.
    if sub.window.records != count:
        raise InvariantError(
            f"{sub.name}: the window counts {sub.window.records} records, {count} are held"
        )


def _assigned(
    sub: Subscription, held: _Held, partitions: Mapping[TopicPartition, PartitionState]
) -> None:
    for at, offsets in held.waiting.items():
        partition = TopicPartition(*at)
        state = partitions.get(partition)
        if state is None:
            raise InvariantError(f"{sub.name}: {partition}@{offsets[0]} is held without assignment")
        end = state.received_end
        if end is not None and max(offsets) >= end:
            first = min(offset for offset in offsets if offset >= end)
            raise InvariantError(
                f"{sub.name}: {partition}@{first} is held, but the received end is {end}"
            )


def _keys_known(sub: Subscription, held: _Held) -> None:
    knows = sub.keys.knows
    for records in (held.routed, *(leased.records() for leased in held.leases)):
        for record in records:
            if not knows(record):
                raise InvariantError(
                    f"{sub.name}: {name_of(record)} is held and its key is not known any more"
                )


def _below_ceilings(sub: Subscription, held: _Held) -> None:
    """Check that records that may settle lie below their ceiling, so the set fits the metadata."""
    ceilings = sub.parking.ceilings
    for at, offsets in held.unparked.items():
        ceiling = ceilings.get(TopicPartition(*at))
        if ceiling is not None and max(offsets) >= ceiling:
            _beyond(sub, TopicPartition(*at), min(o for o in offsets if o >= ceiling), ceiling)
    for leased in held.leases:
        coordinates_of = leased.slice.came.coordinates_of
        for index in _going(sub, leased):
            partition, offset = coordinates_of(index)
            ceiling = ceilings.get(partition)
            if ceiling is not None and offset >= ceiling:
                _beyond(sub, partition, offset, ceiling)


def _beyond(sub: Subscription, partition: TopicPartition, offset: int, ceiling: int) -> NoReturn:
    raise InvariantError(
        f"{sub.name}: {partition}@{offset} is not parked, but its ceiling is {ceiling}"
    )


def _remembered(sub: Subscription, held: _Held) -> None:
    """Check that the original of each waiting or leased record is remembered."""
    for backlog in (sub.keyless, *(row.backlog for row in sub.routing.rows())):
        backlog.check()
    for leased in held.leases:
        find = leased.slice.came.find
        for record in leased.records():
            find(record)


def _held_back_for_a_cause(
    sub: Subscription, partitions: Mapping[TopicPartition, PartitionState], holds: Holds
) -> None:
    """Check that no hold outlasts its cause; its partition would never be fetched again."""
    causes: dict[Reason, Collection[TopicPartition]] = {
        Reason.SET_FULL: sub.parking.parked,
        Reason.UNREAD: sub.keys.unread,
        Reason.BLOCKED: partitions,  # released only at the next heartbeat
        Reason.DLQ_LIMIT: () if sub.dlq_watch is None else sub.dlq_watch.stopped,
        Reason.WAITING: partitions,
    }
    for reason, cause in causes.items():
        for partition in holds.held_back_by(reason, sub.name):
            if partition not in cause or partition not in partitions:
                raise InvariantError(f"{sub.name}: {partition} is held back ({reason}): it is not")
    if sub.keys.unread and (free := sub.keys.unread.keys() - holds.held_back(Reason.UNREAD)):
        raise InvariantError(f"{sub.name}: {min(free)} is fetched from: {Reason.UNREAD}")
    if sub.closing and (gone := sub.closing - partitions.keys()):
        raise InvariantError(f"{sub.name}: {min(gone)} has gone and is still being given up")


def _closed_lanes_lease_only_their_head(sub: Subscription, held: _Held) -> None:
    """Check that a closed lane leases at most its retried head once its fence has passed."""
    closed_now = {
        lane: closed
        for lane, closed in sub.closed.lanes.items()
        if closed.fence_at is None and not is_keyless(lane)
    }
    if not closed_now:
        return
    leased = Counter(
        sub.keys.lane(leased.slice.came[index])
        for leased in held.leases
        for index in leased.indices()
        if index not in leased.let_go
    )
    for lane, closed in closed_now.items():
        most = 1 if closed.state in HEAD_LEASED else 0
        if leased[lane] > most:
            raise InvariantError(
                f"{sub.name}: lane {lane} is {closed.state.value} and has {leased[lane]} leases"
            )


def _slots_at_one_worker(sub: Subscription) -> None:
    """Check that no slot is leased to two workers, and that drain counts match the leases."""
    at: dict[int, Worker] = {}
    pending: dict[int, int] = {}
    for worker in sub.workers.values():
        for slot in _leased_slots(sub, worker):
            if (other := at.setdefault(slot, worker)) is not worker:
                raise InvariantError(
                    f"{sub.name}: slot {slot} is leased to {other.name} and {worker.name}"
                )
            if sub.routing.waits_for(slot, worker.id):
                pending[slot] = pending.get(slot, 0) + 1
        if not worker.later.empty() and worker.state is not WorkerState.JOINING:
            raise InvariantError(f"{sub.name}: {worker.name} keeps records that it never gets")
    draining = sub.draining
    counted = {slot: draining.pending(slot) for slot in draining.draining()}
    if counted != pending or draining.count != len(pending):
        raise InvariantError(
            f"{sub.name}: {draining.count} slots drain by {counted}, and have leases by {pending}"
        )


def _lanes_at_one_worker(sub: Subscription) -> None:
    """Check that no lane is leased to two workers; old leases of keyless records are exempt."""
    at: dict[Lane, Worker] = {}
    for worker in sub.workers.values():
        for leased in worker.slices.values():
            for index in leased.indices():
                if not leased.has(index) or index in leased.let_go:
                    continue
                lane = sub.keys.lane(leased.slice.came[index])
                if is_keyless(lane):
                    continue
                if (other := at.setdefault(lane, worker)) is not worker:
                    raise InvariantError(
                        f"{sub.name}: lane {lane} is leased to {other.name} and {worker.name}"
                    )


def _leased_slots(sub: Subscription, worker: Worker) -> Iterator[int]:
    """Yield the slot of each lease of a worker that is not known to have ended."""
    for leased in worker.slices.values():
        for index in leased.indices():
            key = None if index in leased.let_go else sub.keys.key(leased.slice.came[index])
            if key is not None:
                yield sub.keys.slot(key)


def _shards(sub: Subscription, shared: SharedRow) -> None:
    """Check that shards hold only records of their slots and are leased to one worker each."""
    held: dict[Shard, list[tuple[int, int]]] = {}
    for worker in sub.workers.values():
        for leased in worker.slices.values():
            for shard, count in leased.shards:
                held.setdefault(cast("Shard", shard), []).append((worker.id, count))
    count = sum(len(shard.records) for shard in shared.every())
    if shared.count != count:
        raise InvariantError(f"{sub.name}: {count} records wait in shards, and not {shared.count}")
    for shard in shared.every():
        queues: list[int | None] = [None] if shard in shared.free else []
        queues += [worker for worker, queue in shared.held.items() if shard in queue]
        if queues != ([shard.at] if shard.records else []) or bool(queues) != bool(shard.turn):
            raise InvariantError(f"{sub.name}: shard {shard.number} has its turn at {queues}")
        those = held.get(shard, [])
        at = {worker for worker, _ in those}
        where = next(iter(at), None)
        if shard.leased != sum(n for _, n in those) or shard.at != where or len(at) > 1:
            raise InvariantError(
                f"{sub.name}: shard {shard.number} is with {shard.at}, and leased to {those}"
            )
        for record in shard.records:
            key = sub.keys.key(record)
            routed = None if key is None else sub.table.rows[sub.keys.slot(key)]
            of_slot = shard if shard.slot is None else shared.single[shard.slot]
            if shared.shard_of(record) is not shard or routed is not of_slot.records:
                raise InvariantError(f"{sub.name}: {name_of(record)} waits in another shard")


def _rows_of_slots(sub: Subscription, *, each_slot: bool) -> None:
    """Check that rows hold only records of their slots; records of draining slots wait apart."""
    draining = sub.draining
    waits = {*draining.draining(), *draining.cleared}
    if sub.hand_overs is not None:
        waits.update(sub.hand_overs.slots())
    if waits and each_slot:
        shut = sub.table.slots_to(draining.row.routed)
        if shut != waits:
            raise InvariantError(f"{sub.name}: slots {shut ^ waits} are not open, or do not drain")
    slots: dict[bytes, int] = {}
    for row in sub.routing.rows():
        for record in row.waiting():
            key = sub.keys.key(record)
            if key is None:
                continue
            slot = slots.get(key)
            if slot is None:
                slot = slots[key] = sub.keys.slot(key)
            if sub.table.rows[slot] is not row.routed or (row is draining.row) != (slot in waits):
                where = "for a slot to drain" if row.holder is None else f"at worker {row.holder}"
                raise InvariantError(
                    f"{sub.name}: {name_of(record)} waits {where}, and its slot is not there"
                )
