"""Diverted lanes: all their records go to the dead-letter topic.

They go in order, until the lane is released. The record that used up its attempts goes first; later
records of its lane go to no handler. A lane has one dead letter in flight at a time, because the
next may be written only if it was. A record is settled when its dead letter is acknowledged, and no
sooner.

The commit metadata has the hashes of diverted lanes, at most
:data:`~kafka_keyshared.core.offsets.metadata_sections.LANES_MOST` a partition. So the next owner
goes on diverting them. It recognises such a lane by its hash when the first record of it comes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import chain

from kafka_keyshared.core.contract.commands import Command, Fence, Publish
from kafka_keyshared.core.contract.outcomes import Disposition, Failure
from kafka_keyshared.core.failures.follow_up import block
from kafka_keyshared.core.lanes.closed import ClosedLane, LaneEvent, LaneState
from kafka_keyshared.core.records.lane_identity import Lane, NullKey
from kafka_keyshared.core.subscription.subscription import Subscription
from kafka_keyshared.core.telemetry.failure_kinds import in_short
from kafka_keyshared.errors import InvariantError
from kafka_keyshared.model import Record, named_key, partition_of


def recognise(sub: Subscription) -> None:
    """Close the lanes that came diverted with their partitions, when records of them come."""
    keys, book, lanes = sub.keys, sub.diverted, sub.closed.lanes
    arrived, book.arrived = book.arrived, []
    found: dict[Lane, Record] = {}
    for record in chain.from_iterable(arrived):
        if record.error() is not None or not keys.knows(record):
            continue
        key = keys.key(record)
        if key is None:
            continue
        where = record.topic(), record.partition(), key, type(key) is NullKey
        if book.seen(where):
            continue
        lane = keys.lane(record)
        if book.meet(lane, where):
            found[lane] = record
    for lane, record in found.items():
        if lane in lanes:
            continue  # closed for its own failure; it is diverted when it opens
        partition = partition_of(record)
        closed = ClosedLane(lane, keys.key(record), LaneState.DIVERTED, None, partition)
        sub.closed.close(closed)
        if sub.one_lease is not None:
            closed.queue.extend(sub.one_lease.release(lane))
        book.to_fence[closed] = None


def next_letters(sub: Subscription, now: float, wall_offset: float | None) -> list[Command]:
    """Return the due dead letters of diverted lanes, and the fences that have to pass."""
    if sub.stopped:
        return []
    commands = _fences(sub) if sub.diverted.to_fence else []
    due, sub.diverted.due = sub.diverted.due, {}
    for closed in due:
        if closed.state is not LaneState.DIVERTED or closed.fence_at is not None:
            continue
        record = next(closed.waiting(), None)
        if record is None or partition_of(record) in sub.standing():
            continue
        if closed.aside:
            del closed.aside[0]
        else:
            closed.queue.popleft()
        at_ms = record.timestamp()[1]
        if wall_offset is not None:
            at_ms = round((now + wall_offset) * 1000)
        if sub.diverted.may_add(closed.lane, partition_of(record)):
            commands.append(_letter(sub, closed, record, at_ms))
        else:
            commands += _block_there(sub, closed, record, at_ms, now)
    return commands


def _letter(sub: Subscription, closed: ClosedLane, record: Record, at_ms: int) -> Publish:
    """Make the record its lane's head, and return its dead letter."""
    closed.on(LaneEvent.DIVERT)
    closed.head, closed.partition = record, partition_of(record)
    closed.failures = closed.unlimited = 0
    sub.diverted.add(closed.lane, closed.partition)
    failure = _unrun(closed, at_ms)
    return closed.write(Publish(sub.name, closed.lane, record, 0, failure, failure))


def _unrun(closed: ClosedLane, at_ms: int) -> Failure:
    """Return the reason why no handler got a record of the lane."""
    why = "" if closed.last is None else f"; it failed with {in_short(closed.last)}"
    text = f"{named_key(closed.key)} is diverted{why}"
    return Failure(Disposition.DIVERT, "Diverted", text, "", at_ms)


def _block_there(
    sub: Subscription, closed: ClosedLane, record: Record, at_ms: int, now: float
) -> list[Command]:
    """Block the lane at a record whose partition's metadata has no room for the hash."""
    where, why = partition_of(record), _unrun(closed, at_ms)
    waiting = deque(suspend(sub, closed))
    blocked = ClosedLane(closed.lane, closed.key, LaneState.WAITING, record, where, queue=waiting)
    blocked.first = blocked.last = why
    sub.closed.close(blocked)
    return block(sub, blocked, now)


def join(sub: Subscription, closed: ClosedLane, record: Record) -> None:
    """Take in, as the oldest, a record that ran when its lane was diverted and has failed."""
    closed.aside.insert(0, record)
    sub.look_ahead.grown += 1


def suspend(sub: Subscription, closed: ClosedLane) -> Iterable[Record]:
    """Take the lane out for a record of it that is not diverted; return its waiting records.

    It is diverted anew when the lane opens behind that record.
    """
    sub.diverted.due.pop(closed, None)
    sub.diverted.to_fence.pop(closed, None)
    sub.closed.open(closed)
    return closed.waiting()


def _fences(sub: Subscription) -> list[Command]:
    """Return fences, so that these lanes' earlier leases end before the first dead letter.

    Such leases can only be of partitions assigned before the one with which the lane came diverted.
    """
    fenced, sub.diverted.to_fence = sub.diverted.to_fence, {}
    lanes = {closed.lane: closed for closed in fenced}
    lane_of = sub.keys.lane
    commands: list[Command] = []
    for leased in sub.unsettled.leases():
        for index in leased.indices():
            closed = lanes.get(lane_of(leased.slice.came[index]))
            if closed is None or closed.fence_at == leased.slice.worker:
                continue
            if closed.fence_at is not None:
                raise InvariantError(f"lane {closed.lane} is leased to two workers")
            closed.fence_at = leased.slice.worker
            commands.append(Fence(sub.name, leased.slice.worker, (closed.lane,)))
    return commands
