"""Backpressure on single partitions, caused by their own received records.

Other partitions go on. A key that cannot be read yet also holds its partition back
(:mod:`kafka_keyshared.core.failures.undecodable`). :mod:`.pause_reasons` lists all reasons.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from kafka_keyshared.core.backpressure.pause_reasons import Holds, Reason
from kafka_keyshared.core.contract.commands import Command, Level, Notice
from kafka_keyshared.core.contract.dlq_limit import DlqWatch
from kafka_keyshared.core.lanes.closed import ClosedLane, LaneState
from kafka_keyshared.core.leasing.recall import of_partitions, recall
from kafka_keyshared.core.leasing.reopening import advance
from kafka_keyshared.core.limits.blocked_quota import Behind
from kafka_keyshared.core.limits.slow_records import LongRunning
from kafka_keyshared.core.subscription.subscription import Subscription
from kafka_keyshared.core.telemetry.burst import EventLine
from kafka_keyshared.core.workers.shards import Shard
from kafka_keyshared.model import TopicPartition, counted, in_words, name_of, named_key

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
        text = (
            f"{partition}: {Reason.SET_FULL}; until "
            f"older records settle, only those before {parking.ceilings.get(partition)} start"
        )
        commands += sub.bursts.held_back.add(EventLine(text), now)
    return commands


def stop_lettered(holds: Holds, sub: Subscription, watch: DlqWatch) -> list[Command]:
    """Stop partitions at their dead-letter limit: their remaining records do not start."""
    reached, watch.reached = watch.reached, {}
    commands: list[Command] = []
    for partition, what in reached.items():
        watch.stopped.add(partition)
        holds.hold_back(Reason.DLQ_LIMIT, [partition], sub.name)
        commands += recall(sub, sub.workers.values(), of_partitions({partition}))
        text = (
            f"{partition} is stopped: {Reason.DLQ_LIMIT} ({what}, dlq_limit). Nothing more of it "
            "starts, what has settled stays committed, other partitions go on. Mend the cause, "
            "then lift the limit (app.lift_dlq_limit()) or restart"
        )
        commands.append(Notice(Level.ERROR, text))
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
        sub.put_back(watch.lift(these))
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
        commands.append(Notice(Level.ERROR, _in_words(partition, behind)))
    blocked = holds.held_back_by(Reason.BLOCKED, sub.name)
    stopped = look.overfull(found.every, assigned) if assigned > 1 else {}
    stopped = {each: behind for each, behind in stopped.items() if each not in blocked}
    little = [
        each
        for each in holds.held_back_by(Reason.WAITING, sub.name)
        if assigned == 1 or each in blocked or look.holds_little(each, found.every, assigned)
    ]
    for partition, behind in _stop(holds, sub, Reason.WAITING, stopped, little).items():
        commands += sub.bursts.held_back.add(_waits(sub, partition, behind, now), now)
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


def _in_words(partition: TopicPartition, behind: Behind) -> str:
    key = behind.lane.key if isinstance(behind.lane, ClosedLane) else None
    return (
        f"{partition} is stopped: records behind blocked, diverted or stuck keys fill their part "
        f"of the window (half of window_share); the {named_key(key)} holds "
        f"{counted(behind.of_lane, 'record')} of it. Other partitions go on"
    )


def _waits(sub: Subscription, partition: TopicPartition, behind: Behind, now: float) -> EventLine:
    lane, most = behind.lane, f"{partition}: {Reason.WAITING}; {counted(behind.of_lane, 'record')}"
    if lane is None:
        return EventLine(f"{most} of it are of slots that have no worker; other partitions go on")
    if isinstance(lane, LongRunning):
        where = f"{name_of(lane.record)} ({named_key(lane.key)})"
        since = f"which has been running for {in_words(now - lane.since)}"
        return EventLine(f"{most} of it wait for {where}, {since}; other partitions go on")
    if isinstance(lane, Shard):
        key = named_key(sub.keys.key(lane.records[0]))
        return EventLine(
            f"{most} of the {key} wait for each other, because it gets more than one worker can do "
            "(give its records finer keys, or make its handler faster); other partitions go on"
        )
    if lane.state is LaneState.STUCK and lane.head is not None:
        where = f"{name_of(lane.head)} ({named_key(lane.key)})"
        return EventLine(
            f"{most} of it wait for {where}, which is detached; other partitions go on"
        )
    again = "" if lane.due is None else f" (next try in {in_words(lane.due - now)})"
    follows = f"{again}; other partitions go on"
    return EventLine(f"{most} of the {named_key(lane.key)} are behind a failure", follows=follows)
