"""Stuck records: running past the ack timeout, and impossible to end.

Such a record is not a failed attempt: its result counts, once, however late. Until then its lane is
closed, and only its lane. Its slice keeps that record alone, *apart* from the worker's other
slices. If no replacement can do the worker's work, the worker waits for it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from kafka_keyshared.core.contract.commands import Command, Halt, TimeOut
from kafka_keyshared.core.contract.events import Recalled, SliceEnded, Stuck
from kafka_keyshared.core.contract.facts import RecordStuck
from kafka_keyshared.core.contract.slices import SliceState
from kafka_keyshared.core.failures import failed_attempts
from kafka_keyshared.core.failures.divert import suspend
from kafka_keyshared.core.lanes.closed import LaneEvent, LaneState
from kafka_keyshared.core.leasing import recall
from kafka_keyshared.core.leasing.reopening import advance
from kafka_keyshared.core.records.lane_identity import Lane, is_keyless
from kafka_keyshared.core.subscription.subscription import Subscription
from kafka_keyshared.core.worker_changes import slot_draining
from kafka_keyshared.core.workers.worker import Worker
from kafka_keyshared.errors import InvariantError
from kafka_keyshared.model import About, Record, name_of


def time_out(sub: Subscription, worker: Worker, past: list[tuple[int, int]]) -> TimeOut:
    """Return the command to end these records of a worker, each given as slice and index."""
    worker.recalls += 1
    return TimeOut(sub.name, worker.id, tuple(past))


def recalled(sub: Subscription, event: Recalled, now: float) -> tuple[Worker, list[Command]]:
    """Apply the answer to a recall or a time-out; return the worker, and what to report.

    The lane of a stuck record is closed before any other record of it is put back.
    """
    if not event.stuck:
        return recall.recalled(sub, event), []
    worker = recall.believed(sub, event)
    found = [(_stuck_at(sub, worker, each), each) for each in event.stuck]
    new = [
        (leased, each)
        for leased, each in found
        if leased.slice.id not in worker.apart or leased.slice.id == worker.detached
    ]
    for leased, each in new:
        if leased.slice.id not in worker.apart:
            _close(sub, leased, each.index)
    recall.recalled(sub, event)
    for leased, each in found:
        _set_apart(sub, worker, leased, each)
    if worker.waits:  # heads without a key can run at another worker
        sub.routing.ready(worker.row.take_ready(len(worker.row.retries)))
    return worker, [said for leased, each in new for said in _said(sub, worker, leased, each, now)]


def set_beside(sub: Subscription, worker: Worker, leased: SliceState, index: int) -> None:
    """Close the lane of a long-running record, and let the rest of its slice go on.

    All failures among the ended records of its slice have to be known already, as at a commit. The
    worker gets no leases until the record has ended, because no replacement does its work.
    """
    _close(sub, leased, index)
    _set_apart(sub, worker, leased, Stuck(leased.slice.id, index, goes_on=False))
    worker.detached = leased.slice.id
    _pass_fences(sub, worker, sub.keys.lane(leased.slice.came[index]))


def _pass_fences(sub: Subscription, worker: Worker, running: Lane) -> None:
    """Advance the lanes whose fences stand behind the record that the worker runs.

    All other leases of the worker have come back, so nothing of these lanes is left there. Their
    next attempts run elsewhere, because the worker gets no leases until that record has ended. By
    then the worker has passed the fences.
    """
    for closed in list(sub.closed.lanes.values()):
        if closed.fence_at == worker.id and closed.lane != running:
            closed.fence_at = None
            advance(sub, closed)


def _stuck_at(sub: Subscription, worker: Worker, stuck: Stuck) -> SliceState:
    """Return the notes on the slice; raise :class:`InvariantError` for an unknown lease."""
    leased = sub.book.find(stuck.slice)
    gone = not 0 <= stuck.index < len(leased.slice.records) or stuck.index in leased.back
    if gone or leased.slice.id not in worker.slices:
        raise InvariantError(
            f"{worker.name} says that record {stuck.index} of slice {stuck.slice} is stuck, and "
            "does not have it"
        )
    return leased


def _close(sub: Subscription, leased: SliceState, index: int) -> None:
    """Close the lane, unless the record has come back failed just before this call."""
    if not leased.has(index):
        return
    record = leased.slice.came[index]  # as received: its handler may have changed it
    lane = sub.keys.lane(record)
    over = sub.epochs.ended(leased, index)
    closed = sub.closed.get(lane)
    waiting: Iterable[Record] = ()
    # A released lane waits for records leased before it was diverted, such as this one.
    released = closed is not None and closed.state is LaneState.OPENING and not over
    if closed is not None and (closed.state is LaneState.DIVERTED or released):
        waiting, closed = suspend(sub, closed), None
    if closed is None:
        # A keyless lane is one record: the same offset received again is not in it.
        if not (over and is_keyless(lane)):
            closed = failed_attempts.close_lane(sub, lane, record, LaneState.STUCK, over=over)
            closed.head = None if over else leased.slice.records[index]
            closed.attempt = leased.slice.id
            closed.queue.extend(waiting)
    elif closed.attempt == leased.slice.id:
        closed.on(LaneEvent.STUCK)
    elif not over:
        raise InvariantError(f"{name_of(record)} is stuck and its lane {lane} is closed by another")


def _set_apart(sub: Subscription, worker: Worker, leased: SliceState, stuck: Stuck) -> None:
    """End the leases of all other records of the slice, which have returned."""
    index, lane = stuck.index, sub.keys.lane(leased.slice.came[stuck.index])
    rest = frozenset(leased.indices()) - {index}
    if rest:
        done = replace(
            leased,
            back=leased.back | {index},
            unsettled=frozenset(leased.unsettled) - {index},
            retries=tuple(each for each in leased.retries if each != lane),
        )
        dropped = [each for each in stuck.dropped if each in rest]
        failed_attempts.ended(sub, done, SliceEnded(leased.slice.id, 0.0, dropped))
        if slot_draining.is_waited_for(sub, done):
            slot_draining.ended(sub, [(done, None)])
        leased.back |= rest
        leased.unsettled = frozenset(leased.unsettled) & {index}
        leased.let_go &= {index}
        leased.beside, leased.aside = len(rest) - leased.aside, 0
        leased.first = (leased.slice.records[index],)
        leased.shards = ()  # they were released with the rest
        sub.book.enter(leased)
    leased.retries = (lane,)
    worker.detached = None
    worker.set_apart(leased, goes_on=stuck.goes_on)


def _said(
    sub: Subscription, worker: Worker, leased: SliceState, stuck: Stuck, now: float
) -> list[Command]:
    """Count a newly stuck record, and return its notice; or halt the instance."""
    limit = sub.settings.ack_timeout or 0.0
    if not leased.has(stuck.index):
        return []
    sub.counts.stuck += 1
    record = leased.slice.came[stuck.index]
    about = About(*leased.slice.came.coordinates_of(stuck.index), sub.keys.key(record))
    if sub.settings.exit_when_stuck:
        return [Halt(RecordStuck(about, worker.name, limit, stuck.goes_on, halts=True))]
    return [*sub.bursts.stuck.add(RecordStuck(about, worker.name, limit, stuck.goes_on), now)]
