"""Backpressure on single partitions, caused by their own received records.

Other partitions go on. A key that cannot be read yet also holds its partition back
(:mod:`kafka_keyshared.core.failures.undecodable`). :mod:`.pause_reasons` lists all reasons.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from kafka_keyshared.core.backpressure.pause_reasons import Holds, Reason
from kafka_keyshared.core.contract.commands import Command, Notice
from kafka_keyshared.core.contract.dlq_limit import DlqWatch
from kafka_keyshared.core.contract.facts import (
    BlockedRecordsFull,
    DlqLimitReached,
    SettledSetFull,
    WaitingRecordsFull,
    WaitsFor,
)
from kafka_keyshared.core.lanes.closed import ClosedLane, LaneState
from kafka_keyshared.core.leasing.recall import of_partitions, recall
from kafka_keyshared.core.leasing.reopening import advance
from kafka_keyshared.core.limits.blocked_quota import Behind
from kafka_keyshared.core.limits.slow_records import LongRunning
from kafka_keyshared.core.subscription.subscription import Subscription
from kafka_keyshared.core.telemetry.bursts import about_head
from kafka_keyshared.core.workers.shards import Shard
from kafka_keyshared.model import About, TopicPartition, partition_of

PARKED_SHARE = 8
"""Parked records of a partition may fill ``1 / PARKED_SHARE`` of the window."""


def weigh_parked(holds: Holds, sub: Subscription, now: float) -> list[Command]:
    """Hold back partitions with many parked records; release those that have few left."""
    commands: list[Command] = []
    parking, window = sub.parking, sub.window
    most = max(1, window.records_max // PARKED_SHARE), max(1, window.bytes_max // PARKED_SHARE)
    back = holds.held_back_by(Reason.SET_FULL, sub.name)
    part = {each: parking.part(each, window, *most) for each in {*back, *parking.parked}}
    holds.let_go(Reason.SET_FULL, [each for each in back if part[each] * 2 < 1], sub.name)
    for partition in parking.parked:
        if part[partition] < 1 or partition in back or partition in sub.standing():
            continue
        if partition in parking.gates:
            continue  # the partition begins, and waits for a commit
        holds.hold_back(Reason.SET_FULL, [partition], sub.name)
        full = SettledSetFull(partition, parking.ceilings.get(partition))
        commands += sub.bursts.held_back.add(full, now)
    return commands


def stop_lettered(holds: Holds, sub: Subscription, watch: DlqWatch) -> list[Command]:
    """Stop partitions at their dead-letter limit: their remaining records do not start."""
    reached, watch.reached = watch.reached, {}
    commands: list[Command] = []
    for partition, (dead_letters, records) in reached.items():
        watch.stopped.add(partition)
        holds.hold_back(Reason.DLQ_LIMIT, [partition], sub.name)
        commands += recall(sub, sub.workers.values(), of_partitions({partition}))
        commands.append(Notice(DlqLimitReached(partition, dead_letters, records)))
    return commands


def lift_dlq_limit(
    holds: Holds, subs: Iterable[Subscription], partitions: Collection[TopicPartition]
) -> None:
    """Resume those of the partitions that were stopped by their dead-letter limit."""
    for sub in subs:
        watch = sub.dlq_watch
        if watch is None:
            continue
        these = watch.stopped.intersection(partitions)
        sub.routing.put_back(watch.lift(these))
        holds.let_go(Reason.DLQ_LIMIT, these, sub.name)
        for closed in list(sub.closed.lanes.values()):
            # A lane without a head may hold records of other partitions than its last head's.
            if closed.head is None or closed.partition in these:
                advance(sub, closed)


def look_at_closed(holds: Holds, sub: Subscription, assigned: int, now: float) -> list[Command]:
    """Weigh the records in closed lanes from time to time, if they may be or were too many."""
    held_back = any(holds.held_back_by(each, sub.name) for each in (Reason.BLOCKED, Reason.WAITING))
    if held_back or sub.look_ahead.worth_it():
        return weigh_closed(holds, sub, assigned, now)
    return []


def weigh_closed(holds: Holds, sub: Subscription, assigned: int, now: float) -> list[Command]:
    """Hold back partitions with too many records in closed lanes; release those with few.

    Blocked records stop any partition. Records that only wait do not stop the sole assigned
    partition, because no other partition could use the room. A partition is stopped for one of the
    two reasons, never for both. The returned commands report newly stopped partitions.
    """
    look = sub.look_ahead
    found = look.look(now)
    commands: list[Command] = []
    stopped = look.overfull(found.blocked, assigned)
    back = holds.held_back_by(Reason.BLOCKED, sub.name)
    little = [each for each in back if look.holds_little(each, found.blocked, assigned)]
    for partition, behind in _stop(holds, sub, Reason.BLOCKED, stopped, little).items():
        key = behind.lane.key if isinstance(behind.lane, ClosedLane) else None
        commands.append(Notice(BlockedRecordsFull(partition, key, behind.of_lane)))
    blocked = holds.held_back_by(Reason.BLOCKED, sub.name)
    stopped = look.overfull(found.every, assigned) if assigned > 1 else {}
    stopped = {each: behind for each, behind in stopped.items() if each not in blocked}
    little = [
        each
        for each in holds.held_back_by(Reason.WAITING, sub.name)
        if assigned == 1 or each in blocked or look.holds_little(each, found.every, assigned)
    ]
    for partition, behind in _stop(holds, sub, Reason.WAITING, stopped, little).items():
        commands += sub.bursts.held_back.add(_waiting(sub, partition, behind, now), now)
    return commands


def _stop(
    holds: Holds,
    sub: Subscription,
    reason: Reason,
    stopped: Mapping[TopicPartition, Behind],
    little: Collection[TopicPartition],
) -> dict[TopicPartition, Behind]:
    """Hold back ``stopped``, release ``little``; return the partitions that are newly held back."""
    holds.let_go(reason, little, sub.name)
    back = {*holds.held_back_by(reason, sub.name), *sub.closing}
    new = {each: behind for each, behind in stopped.items() if each not in back}
    holds.hold_back(reason, new, sub.name)
    return new


def _waiting(
    sub: Subscription, partition: TopicPartition, behind: Behind, now: float
) -> WaitingRecordsFull:
    lane, count = behind.lane, behind.of_lane
    if lane is None:
        return WaitingRecordsFull(partition, count, WaitsFor.WORKER)
    if isinstance(lane, LongRunning):
        record = lane.record
        head = About(partition_of(record), record.offset(), lane.key)
        return WaitingRecordsFull(
            partition, count, WaitsFor.RUNNING, lane.key, head, now - lane.since
        )
    if isinstance(lane, Shard):
        key = sub.keys.key(lane.records[0])
        return WaitingRecordsFull(partition, count, WaitsFor.EACH_OTHER, key)
    if lane.state is LaneState.STUCK and lane.head is not None:
        head = about_head(lane)
        return WaitingRecordsFull(partition, count, WaitsFor.DETACHED, lane.key, head)
    delay = None if lane.due is None else lane.due - now
    return WaitingRecordsFull(partition, count, WaitsFor.RETRY, lane.key, seconds=delay)
