"""Operator orders for closed lanes: unblock, drop, or dead-letter the head.

These orders decide cases that a policy leaves to an operator. A lane is named by its key or by the
coordinates of its head, as in the log. An order that the state table does not allow is refused with
a reason and changes nothing. The same holds for an order for a lane that is not closed.
"""

from __future__ import annotations

from kafka_keyshared.core.contract.commands import Command, LaneAnswer, Notice
from kafka_keyshared.core.contract.events import LaneAction, LaneOrder
from kafka_keyshared.core.contract.facts import DiversionEnded, LaneOrderDone
from kafka_keyshared.core.contract.outcomes import Disposition, Failure
from kafka_keyshared.core.failures.follow_up import letter_of
from kafka_keyshared.core.keys.key_text import key_text
from kafka_keyshared.core.lanes.closed import DIVERTS, LANE_TABLE, ClosedLane, LaneEvent, LaneState
from kafka_keyshared.core.leasing.reopening import advance, settle_head
from kafka_keyshared.core.records.lane_identity import NULL_KEY, lane_named
from kafka_keyshared.core.subscription.subscription import Subscription
from kafka_keyshared.core.telemetry.bursts import about_head
from kafka_keyshared.core.telemetry.failure_kinds import in_short, one_line
from kafka_keyshared.core.telemetry.meters import Processed
from kafka_keyshared.hashing import SLOTS
from kafka_keyshared.model import named_key
from kafka_keyshared.status import LaneStatus

EVENTS = {
    LaneAction.UNBLOCK: LaneEvent.UNBLOCKED,
    LaneAction.DROP: LaneEvent.DROPPED,
    LaneAction.DEAD_LETTER: LaneEvent.SENT,
}

_NOT_NOW = {
    LaneState.RUNNING: "its head is at a worker for another attempt; ask again when that has ended",
    LaneState.STUCK: "its head still runs; ask again when that has ended",
    LaneState.DEAD_LETTERING: "its head is on its way to the dead-letter topic already",
    LaneState.ARCHIVING: "the copy of its head is on its way to the dead-letter topic; ask again "
    "when it is blocked",
    LaneState.DIVERTING: "it is diverted: all of it goes to the dead-letter topic until it is "
    "unblocked",
    LaneState.DIVERTED: "it is diverted: all of it goes to the dead-letter topic until it is "
    "unblocked",
    LaneState.OPENING: "it is about to open by itself",
}


def obey(
    sub: Subscription, order: LaneOrder, now: float, wall_offset: float | None
) -> list[Command]:
    """Execute an order or refuse it; the answer is among the commands.

    ``wall_offset`` turns monotonic time into seconds since 1970; None before the first heartbeat.
    """
    at_ms = round((now + (wall_offset or 0.0)) * 1000)
    found = _find(sub, order)
    if len(found) != 1:
        if not found and order.action is LaneAction.UNBLOCK and _drop_unmet(sub, order):
            ended = DiversionEnded(order.key)
            return [LaneAnswer(ended), Notice(ended)]
        return [LaneAnswer(refused=_nothing_or_several(order, found))]
    (closed,) = found
    event = EVENTS[order.action]
    if event not in LANE_TABLE[closed.state]:
        return [LaneAnswer(refused=f"{_named(closed)}: {_NOT_NOW[closed.state]}")]
    if why := _not_of_this(sub, closed, event):
        return [LaneAnswer(refused=f"{_named(closed)}: {why}")]
    waiting = sum(1 for _ in closed.waiting())
    done = LaneOrderDone(about_head(closed), closed.state.value, _FOLLOWS[order.action], waiting)
    sub.routing.withdraw(closed)
    commands = _ACTIONS[order.action](sub, closed, now, at_ms)
    return [*commands, LaneAnswer(done), Notice(done)]


_FOLLOWS = {
    LaneAction.UNBLOCK: Disposition.RETRY,
    LaneAction.DROP: Disposition.DROP,
    LaneAction.DEAD_LETTER: Disposition.DEAD_LETTER,
}


def _not_of_this(sub: Subscription, closed: ClosedLane, event: LaneEvent) -> str:
    """Return why this lane refuses an order that its state allows; empty if it does not."""
    if event is LaneEvent.UNBLOCKED and closed.unreadable:
        # A handler would get it at any time, concurrently with other records of its key.
        letter = ", dead-letter it," if sub.settings.dlq else ""
        return (
            f"its key cannot be read, so no handler may have it; drop it{letter} or mend what "
            "reads the key and restart"
        )
    if event is LaneEvent.SENT and not sub.settings.dlq:
        rest = "drop the record" if closed.unreadable else "drop the record, or unblock it"
        return f"there is no dead-letter topic; give one (dlq=True), {rest}"
    return ""


def _find(sub: Subscription, order: LaneOrder) -> list[ClosedLane]:
    lanes = sub.closed.lanes.values()
    if order.partition is not None:
        return [
            closed
            for closed in lanes
            if closed.head is not None
            and closed.partition == order.partition
            and closed.head.offset() == order.offset
        ]
    return [closed for closed in lanes if closed.key is not None and closed.key == order.key]


def _drop_unmet(sub: Subscription, order: LaneOrder) -> bool:
    """Unblock a key that was diverted when its partition came and has had no record since."""
    if order.key is None:
        return False
    scope = sub.settings.order_scope
    keys = [order.key]
    if not order.key and sub.settings.null_keys == "one-lane":
        keys.append(NULL_KEY)  # lane listings show it as the empty key, too
    there = list(sub.diverted.partitions())
    lanes = {lane_named(each, key, scope) for each in there for key in keys}
    dropped = [lane for lane in sorted(lanes) if sub.diverted.drop(lane)]
    return bool(dropped)


def _nothing_or_several(order: LaneOrder, found: list[ClosedLane]) -> str:
    where = named_key(order.key) if order.partition is None else f"{order.partition}@{order.offset}"
    if not found:
        what = "no lane of" if order.partition is None else "no lane with its head at"
        return f"{what} {where} is closed; closed_keys() lists those that are"
    names = ", ".join(_named(each) for each in found)
    return f"{where} has closed {len(found)} lanes: {names}; name one by the place of its head"


def _unblock(sub: Subscription, closed: ClosedLane, now: float, at_ms: int) -> list[Command]:
    del now, at_ms
    was = closed.state
    closed.on(LaneEvent.UNBLOCKED)
    sub.diverted.drop(closed.lane)
    if was is LaneState.BLOCKED:
        closed.failures = closed.in_row = 0  # it has all its attempts again
    if was not in DIVERTS:
        sub.closed.cancel(closed)
    advance(sub, closed)
    return []


def _drop(sub: Subscription, closed: ClosedLane, now: float, at_ms: int) -> list[Command]:
    del now, at_ms
    sub.counts.dropped += 1
    sub.counts.processed.add(closed.partition.topic, Processed.DROPPED)
    _note_head(sub, closed)
    settle_head(sub, closed, LaneEvent.DROPPED)
    return []


def _dead_letter(sub: Subscription, closed: ClosedLane, now: float, at_ms: int) -> list[Command]:
    del now
    closed.on(LaneEvent.SENT)
    sub.closed.cancel(closed)
    if closed.archived:  # it is there already
        sub.counts.dead_lettered += 1
        sub.counts.processed.add(closed.partition.topic, Processed.DEAD_LETTERED)
        _note_head(sub, closed)
        settle_head(sub, closed)
        return []
    if closed.last is None:
        text = "an operator ordered it"
        closed.last = Failure(Disposition.DEAD_LETTER, "Ordered", text, "", at_ms)
    closed.first = closed.first or closed.last
    return [letter_of(sub, closed)]


def _note_head(sub: Subscription, closed: ClosedLane) -> None:
    if closed.head is not None:
        sub.dropped.append(closed.head)


_ACTIONS = {
    LaneAction.UNBLOCK: _unblock,
    LaneAction.DROP: _drop,
    LaneAction.DEAD_LETTER: _dead_letter,
}


def _named(closed: ClosedLane) -> str:
    head = closed.head
    where = str(closed.partition) if head is None else f"{closed.partition}@{head.offset()}"
    return f"{where} ({named_key(closed.key)}), {closed.state.value}"


def listing(sub: Subscription, now: float, wall: float) -> list[LaneStatus]:
    """Return every closed lane of a subscription, the most urgent first.

    ``wall`` is ``now`` in seconds since 1970.
    """
    lanes = sorted(sub.closed.lanes.values(), key=urgency)
    return [shown(sub, closed, now, wall) for closed in lanes]


_URGENCY = {
    state: place
    for place, state in enumerate(
        (
            *(LaneState.BLOCKED, LaneState.STUCK, LaneState.ARCHIVING, LaneState.DIVERTED),
            *(LaneState.DIVERTING, LaneState.DEAD_LETTERING, LaneState.WAITING),
            *(LaneState.RUNNING, LaneState.OPENING),
        )
    )
}


def urgency(closed: ClosedLane) -> int:
    """Return a sort key, lower for lanes that need operator action more."""
    return _URGENCY[closed.state]


def shown_state(sub: Subscription, closed: ClosedLane) -> LaneState:
    """Return the state of a lane for a status: a detached head is running, not stuck.

    Such a head is not past any ack timeout.
    """
    stuck = closed.state is LaneState.STUCK
    if stuck and any(each.detached == closed.attempt for each in sub.workers.values()):
        return LaneState.RUNNING
    return closed.state


def shown(sub: Subscription, closed: ClosedLane, now: float, wall: float) -> LaneStatus:
    """Return the status of a closed lane; ``wall`` is ``now`` in seconds since 1970."""
    head, first, last, key = closed.head, closed.first, closed.last, closed.key
    seconds = 0.0 if first is None else max(0.0, wall - first.at_ms / 1000)
    return LaneStatus(
        subscription=sub.name,
        key=key_text(key),
        state=shown_state(sub, closed).value,
        topic=closed.partition.topic,
        partition=closed.partition.partition,
        offset=-1 if head is None else head.offset(),
        attempts=closed.attempts,
        archived=closed.archived,
        waiting=sum(1 for _ in closed.waiting()),
        due_seconds=None if closed.due is None else max(0.0, closed.due - now),
        error="" if last is None else in_short(last),
        slot=None if key is None else sub.keys.slot(key) % SLOTS,
        seconds=now - closed.blocked_at if closed.state is LaneState.BLOCKED else seconds,
        refused=closed.publish_failures,
        refusal=one_line(closed.refusal),
        refused_for_good=closed.refused_for_good,
        stack="" if last is None else last.stack,
    )
