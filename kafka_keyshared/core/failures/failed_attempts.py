"""Lane handling from a lane's first failure until it opens again.

1. The worker reports a failed record and from then on sets aside later records of its lane. The
   core closes the lane and puts a *fence* behind everything already leased to that worker.
2. When the worker has passed the fence, every leased record of the lane has come back, in order.
   Nothing of the lane, not even the retry, is leased before that.
3. The head runs again alone when its delay is over, at the owner that its slot has then. Otherwise
   it goes to the dead-letter topic, is dropped, or blocks the lane (:mod:`.follow_up`). Or the
   whole lane is diverted (:mod:`.divert`).
4. In the same ``handle`` call in which the head settles, the lane opens and its waiting records go
   first.

PIP-379 leaves order under negative acknowledgement out of its scope; this is how it is kept here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from kafka_keyshared.core.contract.commands import Command, Fence
from kafka_keyshared.core.contract.events import (
    Failed,
    FencePassed,
    SetAside,
    SliceEnded,
    SomeEnded,
)
from kafka_keyshared.core.contract.facts import (
    AttemptFailed,
    RetryRequested,
)
from kafka_keyshared.core.contract.outcomes import NO_ATTEMPT, Disposition, Failure
from kafka_keyshared.core.contract.slices import Slice, SliceState
from kafka_keyshared.core.failures.divert import join
from kafka_keyshared.core.failures.follow_up import decide_head, follow_up
from kafka_keyshared.core.lanes.closed import (
    DIVERTS,
    HEAD_LEASED,
    LETTERS_ON_THEIR_WAY,
    ClosedLane,
    LaneEvent,
    LaneState,
)
from kafka_keyshared.core.leasing.reopening import advance
from kafka_keyshared.core.offsets.metadata_sections import Tried
from kafka_keyshared.core.records.lane_identity import Lane, is_keyless
from kafka_keyshared.core.subscription.subscription import Subscription
from kafka_keyshared.errors import InvariantError
from kafka_keyshared.model import About, Record, name_of, partition_of

FIRED_AT_ONCE = 1_000
"""Lanes that wake in one step of the owner, which has to poll and to commit in between."""


def ended(sub: Subscription, leased: SliceState, report: SliceEnded) -> None:
    """End the leases of a slice; settle the records that did not come back as unsettled.

    Raises :class:`InvariantError`, and changes nothing, where the slice cannot end yet, or drops a
    record that it never had.
    """
    worker, count = sub.workers[leased.slice.worker], len(leased)
    for index in report.dropped:
        if not 0 <= index < len(leased.slice.records):
            raise InvariantError(f"the end of slice {report.slice} drops record {index} of it")
    was_stuck = leased.slice.id in worker.apart
    worker.release(leased, count, report.seconds)
    sub.counts.unstuck += was_stuck
    if worker.evicted:
        sub.commit_at_once = True
        if worker.written_off:
            sub.counts.written_off += len(report.dropped)
            sub.dropped += [leased.slice.records[index] for index in report.dropped]
    sub.book.strike(leased)
    sub.leased -= count
    sub.window.free(count - len(leased.unsettled))
    _count(sub, leased, leased.indices(), leased.unsettled, report.dropped)
    if leased.claimed:
        # Recalled records have left their lane to others.
        sub.unclaim(leased, leased.indices())
    for lane in leased.retries:
        _head_ended(sub, leased, lane)


def _head_ended(sub: Subscription, leased: SliceState, lane: Lane) -> None:
    """Advance a lane whose head has ended in this slice."""
    closed = sub.closed.get(lane)
    # A head that failed or was recalled may run in another slice already; that one decides.
    if closed is not None and closed.attempt == leased.slice.id:
        closed.on(LaneEvent.SETTLED)
        closed.attempt = None
        closed.head = None
        advance(sub, closed)


def some_ended(sub: Subscription, leased: SliceState, report: SomeEnded) -> None:
    """End some leases of a slice, each as :func:`ended` would; others go on.

    Raises :class:`InvariantError`, and changes nothing, where there is no such lease.
    """
    worker, indices, slice_ = sub.workers[leased.slice.worker], report.indices, leased.slice
    for index in indices:
        if index in leased.back or not 0 <= index < len(slice_.records):
            raise InvariantError(f"record {index} of slice {slice_.id} ends, and is not leased")
    count, unsettled = len(indices), leased.unsettled
    if unsettled:
        unsettled = frozenset(unsettled).intersection(indices)
        leased.unsettled = frozenset(leased.unsettled) - unsettled
        leased.aside = 0  # all set aside are among these: each ended then
    sub.leased -= count
    sub.window.free(count - len(unsettled))
    _count(sub, leased, indices, unsettled, report.dropped)
    worker.end(leased, indices, report.seconds)
    if leased.claimed:
        sub.unclaim(leased, indices)
    for index in indices if leased.retries else ():
        _head_ended(sub, leased, leased.retries[index])


def _count(
    sub: Subscription,
    leased: SliceState,
    indices: Sequence[int],
    unsettled: Collection[int],
    dropped: Collection[int],
) -> None:
    """Count how these leases of a slice ended. Records that ended too late settled nothing.

    No record is read: a failed one may run again already, and its handler write into it.
    """
    if leased.slice.epoch != sub.epochs.now:
        late = {index for index in indices if _is_late(sub, leased, index)}
        sub.counts.stale_results += len(late)
        unsettled = late.union(unsettled)
    if dropped:
        dropped = [each for each in dropped if each not in unsettled and each not in leased.back]
    unrun = sub.workers[leased.slice.worker].written_off
    sub.counts.settled(leased, indices, unsettled, dropped, unrun=unrun)
    if dropped and unrun:
        # No handler has seen these records, so they do not show that its dependency works.
        unsettled = {*unsettled, *dropped}
    if sub.breaker is not None:
        sub.breaker.ended(leased.slice.id, len(indices) - len(unsettled))
    sub.failure_watch.ended(leased, indices, unsettled)
    if sub.dlq_watch is not None:
        sub.dlq_watch.settled(leased, indices, unsettled)


def _is_late(sub: Subscription, leased: SliceState, index: int) -> bool:
    """Return whether the lease of a record was over before the record had ended."""
    return index not in leased.in_time and sub.epochs.ended(leased, index)


def failed(sub: Subscription, leased: SliceState, report: Failed, now: float) -> list[Command]:
    """Close the record's lane, or keep it closed, and decide the record's disposition."""
    slice_, failure = leased.slice, report.failure
    record = slice_.records[report.index]
    lane = sub.keys.lane(record)
    if sub.epochs.ended(leased, report.index):
        leased.came_back(report.index)
        return _failed_late(sub, slice_, record, lane)
    closed = sub.closed.get(lane)
    if closed is not None and closed.state in DIVERTS:
        leased.came_back(report.index)
        return _failed_in_a_diverted_lane(sub, slice_, closed, record, failure)
    if closed is not None and closed.head is not record:
        raise InvariantError(
            f"{name_of(record)} failed while its lane {lane} is closed by another record"
        )
    leased.came_back(report.index)
    closed = closed or close_lane(sub, lane, record)
    closed.attempt = None
    tried = failure.disposition not in NO_ATTEMPT
    policy = sub.retry_after(failure)
    first = closed.first is None and not closed.put_off
    if not sub.settings.individually:
        sub.failure_watch.done_before(leased, report.index)
    sub.failure_watch.failed(closed.partition, lane, failure, first=first)
    closed.put_off = closed.put_off or failure.disposition is Disposition.PUT_OFF
    if tried:
        closed.failed(failure, policy)
        sub.counts.failed += 1
        sub.counts.failed_attempt(record.topic(), timed_out=failure.timed_out)
        sub.errors.note(failure, closed.partition, record.offset(), closed.key)
    commands: list[Command] = []
    if not is_keyless(lane):
        closed.fence_at = slice_.worker
        commands.append(Fence(sub.name, slice_.worker, (lane,)))
    decision = decide_head(sub, closed, failure, policy)
    if sub.breaker is not None:
        before = report.index - 1
        if not (sub.settings.individually or before < 0 or before in leased.unsettled):
            sub.breaker.succeeded()  # the record before it was done; its slice has not ended yet
        sub.breaker.note(lane, failure, now, first=first)
        sub.breaker.probe_failed(slice_.id, failure, now)
    follows = follow_up(sub, closed, failure, decision, now)
    if tried:
        again = decision.disposition is Disposition.RETRY
        asked = again and failure.disposition is Disposition.RETRY
        burst = sub.bursts.requested if asked else sub.bursts.attempts
        if not burst.only_counted_as(failure, now):
            about = About(closed.partition, record.offset(), closed.key)
            kind = RetryRequested if asked else AttemptFailed
            delay = decision.delay if again else None
            most = None if policy.forever else policy.attempts
            fact = kind(about, closed.attempts, most, failure, decision.disposition, delay)
            commands += burst.note(fact, now)
    return commands + follows


def set_aside(sub: Subscription, leased: SliceState, report: SetAside) -> None:
    """Take back a record that the worker did not run because its lane had failed."""
    record = leased.slice.records[report.index]
    over = sub.epochs.ended(leased, report.index)
    closed = None if over else sub.closed.get(sub.keys.lane(record))
    if closed is None and not over:
        raise InvariantError(f"{name_of(record)} was set aside although its lane is open")
    leased.came_back(report.index)
    leased.aside += 1
    if closed is None:
        sub.window.free(1)
        return
    closed.aside.append(record)
    sub.look_ahead.grown += 1


def fence_passed(sub: Subscription, report: FencePassed) -> None:
    """Advance the lanes of a fence, because all their earlier leases have come back."""
    for lane in report.lanes:
        closed = sub.closed.get(lane)
        if closed is not None and closed.fence_at == report.worker:
            closed.fence_at = None
            advance(sub, closed)


def fire(sub: Subscription, now: float) -> list[Command]:
    """Wake the lanes that are due; lanes above the limit of one step stay due."""
    commands: list[Command] = []
    for closed in sub.closed.pop_due(now, FIRED_AT_ONCE):
        if closed.letter is not None and closed.state in LETTERS_ON_THEIR_WAY:
            commands.append(closed.letter)
        else:
            advance(sub, closed)
    return commands


def exhausted(sub: Subscription) -> Iterable[ClosedLane]:
    """Return waiting lanes whose head has used up its attempts; there should be none."""
    return [
        closed
        for closed in sub.closed.lanes.values()
        if closed.state is LaneState.WAITING
        and sub.retry_after(closed.last).used_up(closed.failures)
    ]


def close_lane(
    sub: Subscription,
    lane: Lane,
    record: Record,
    state: LaneState = LaneState.WAITING,
    *,
    over: bool = False,
) -> ClosedLane:
    """Close the lane of a record that has failed or is stuck; ``over``: it is of an old epoch."""
    head, partition = None if over else record, partition_of(record)
    closed = ClosedLane(lane, sub.keys.key(record), state, head, partition)
    if sub.carried and not over:
        known = sub.carried.get(partition, {}).pop(record.offset(), None)
        closed.failures, closed.archived = known or (0, False)
    sub.closed.close(closed)
    if sub.one_lease is not None:
        closed.queue.extend(sub.one_lease.release(lane))
        sub.look_ahead.grown += len(closed.queue)
    return closed


def _failed_late(sub: Subscription, slice_: Slice, record: Record, lane: Lane) -> list[Command]:
    """Clear the worker's memory of a lane whose failed record belongs to an earlier epoch."""
    sub.window.free(1)
    if is_keyless(lane):
        return []
    closed = sub.closed.get(lane)
    if closed is None:
        # Records of the new epoch may stand behind it at the worker, and will be set aside.
        closed = close_lane(sub, lane, record, LaneState.OPENING, over=True)
    elif closed.head is None and closed.state in HEAD_LEASED:
        closed.on(LaneEvent.FORGOTTEN)
        closed.attempt = None
    closed.fence_at = slice_.worker
    return [Fence(sub.name, slice_.worker, (lane,))]


def _failed_in_a_diverted_lane(
    sub: Subscription, slice_: Slice, closed: ClosedLane, record: Record, failure: Failure
) -> list[Command]:
    """Divert a record that was running when its lane was diverted, and has failed.

    Its attempt still counts if the lane's diversion ends before the record is sent.
    """
    closed.fence_at = slice_.worker
    join(sub, closed, record)
    sub.failure_watch.failed(partition_of(record), closed.lane, failure, first=True)
    if failure.disposition not in NO_ATTEMPT:
        sub.counts.failed_attempt(record.topic(), timed_out=failure.timed_out)
        known = sub.carried.setdefault(partition_of(record), {})
        tried = known.get(record.offset(), Tried(0))
        used = not sub.retry_after(failure).forever
        known[record.offset()] = tried._replace(attempts=tried.attempts + used)
    return [Fence(sub.name, slice_.worker, (closed.lane,))]
