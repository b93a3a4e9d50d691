"""Poison records: dead letter for a lane's head, and lane blocking.

:mod:`kafka_keyshared.core.contract.retry_policy` decides which policy applies. :mod:`.divert`
sends all records behind the head to the dead-letter topic as well.
"""

from __future__ import annotations

from kafka_keyshared.core.contract.commands import Command, Publish
from kafka_keyshared.core.contract.outcomes import Disposition
from kafka_keyshared.core.keys.fixed_lanes import WHOLE_KEY
from kafka_keyshared.core.lanes.closed import ClosedLane, LaneEvent, LaneState
from kafka_keyshared.core.subscription.subscription import Subscription
from kafka_keyshared.core.telemetry.blocked_reminder import cure
from kafka_keyshared.core.telemetry.burst import EventLine
from kafka_keyshared.core.telemetry.failure_lines import in_short
from kafka_keyshared.errors import InvariantError
from kafka_keyshared.model import About, counted


def letter_of(sub: Subscription, closed: ClosedLane) -> Publish:
    """Return the command that writes the head's dead letter."""
    if closed.head is None or closed.first is None or closed.last is None:
        raise InvariantError(f"lane {closed.lane} has nothing to dead-letter")
    copy = closed.state is LaneState.ARCHIVING
    letter = Publish(
        sub.name, closed.lane, closed.head, closed.failures, closed.first, closed.last, copy
    )
    return closed.write(letter)


def archive(sub: Subscription, closed: ClosedLane, now: float) -> list[Command]:
    """Write a copy of the head to the dead-letter topic, unless it is there, and block the lane.

    The lane is blocked once the broker has acknowledged the copy. Celeriant calls this policy
    BlockAndDlq.
    """
    if closed.archived:
        return block(sub, closed, now)
    closed.on(LaneEvent.ARCHIVE)
    return [letter_of(sub, closed)]


def block(
    sub: Subscription, closed: ClosedLane, now: float, event: LaneEvent = LaneEvent.BLOCK
) -> list[Command]:
    """Keep the lane closed: its head is not settled, and no record behind it starts."""
    closed.on(event)
    closed.blocked_at = now
    head, last = closed.head, closed.last
    if head is None or last is None:
        raise InvariantError(f"lane {closed.lane} is blocked by nothing")
    sub.look_ahead.grown += 1
    sub.reminder.blocked = True
    why = _WHY.get(last.disposition, "it failed")
    trace = sub.bursts.attempts.first_block(last, now)
    text = (
        f"key {closed.key!r:.80} is blocked at {closed.partition}@{head.offset()}: {why} "
        f"({attempts_of(closed)}); other keys go on. {_cure(sub, closed)}"
    )
    if closed.key is WHOLE_KEY:
        text = (
            f"everything is blocked at {closed.partition}@{head.offset()}: {why} "
            f"({attempts_of(closed)}); the subscription is one lane, so nothing goes on. "
            f"{_cure(sub, closed)}"
        )
    line = EventLine(text, About(closed.partition, head.offset(), closed.key), traceback=trace)
    blocks = sub.bursts.blocks
    return [*(blocks.at_once(line, now) if trace else blocks.add(line, now))]


_WHY = {
    Disposition.DEAD_LETTER: "its handler asked for a dead letter",
    Disposition.DIVERT: "it is diverted in another partition",
}


def _cure(sub: Subscription, closed: ClosedLane) -> str:
    settings = sub.settings
    if closed.archived:
        return "Its copy is in the dead-letter topic; mend the handler and restart, or release it"
    if settings.on_exhausted == "divert" and sub.diverted.full(closed.partition):
        return (
            f"It is not diverted, because {sub.diverted.most} keys of its partition are: release "
            "one of them, or mend the handler and restart"
        )
    return cure(dlq=settings.dlq)


def attempts_of(closed: ClosedLane) -> str:
    """Return text with the failed attempts of the lane's head and its last error."""
    last = closed.last
    error = "" if last is None else f", last: {in_short(last)}"
    return f"{counted(closed.failures, 'attempt')}{error}"
