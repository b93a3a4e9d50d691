"""Poison records: dead letter for a lane's head, and lane blocking.

:mod:`kafka_keyshared.core.contract.retry_policy` decides which policy applies. :mod:`.divert`
sends all records behind the head to the dead-letter topic as well.
"""

from __future__ import annotations

from kafka_keyshared.core.contract.commands import Command, Publish
from kafka_keyshared.core.contract.facts import LaneBlocked
from kafka_keyshared.core.lanes.closed import ClosedLane, LaneEvent, LaneState
from kafka_keyshared.core.subscription.subscription import Subscription
from kafka_keyshared.core.telemetry.bursts import about_head
from kafka_keyshared.errors import InvariantError


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
    traceback = sub.bursts.attempts.first_block(last, now)
    settings, diverted = sub.settings, sub.diverted
    full = settings.poison == "divert" and diverted.full(closed.partition)
    fact = LaneBlocked(
        about_head(closed),
        closed.failures,
        last,
        archived=closed.archived,
        diverted=diverted.most if full else None,
        dlq=settings.dlq,
        traceback=traceback,
    )
    blocks = sub.bursts.blocks
    return [*(blocks.at_once(fact, now) if traceback else blocks.add(fact, now))]
