"""Consequences of a failed head: retry, drop, dead letter, block or diversion.

:mod:`.decision` decides which of them follows a failed attempt, and this module carries it out. A
record in the dead-letter topic is settled when the broker has acknowledged the dead letter, and not
before. A dead letter that was not written is written again, and its lane waits for it.
:mod:`.divert` sends the later records of a diverted lane.
"""

from __future__ import annotations

from kafka_keyshared.core.contract.commands import Command, Publish
from kafka_keyshared.core.contract.events import DeadLetterAnswer
from kafka_keyshared.core.contract.facts import (
    DeadLetterRefused,
    LaneBlocked,
    LaneDiverted,
    RecordDeadLettered,
    RecordDiverted,
)
from kafka_keyshared.core.contract.outcomes import Disposition, Failure
from kafka_keyshared.core.contract.retry_policy import RetryPolicy
from kafka_keyshared.core.failures.decision import Decision, HeadState, decide, publish_delay
from kafka_keyshared.core.lanes.closed import (
    LETTERS_ON_THEIR_WAY,
    ClosedLane,
    LaneEvent,
    LaneState,
)
from kafka_keyshared.core.leasing.reopening import settle_head
from kafka_keyshared.core.records.lane_identity import is_keyless
from kafka_keyshared.core.subscription.subscription import Subscription
from kafka_keyshared.core.telemetry.bursts import about_head
from kafka_keyshared.core.telemetry.meters import LetterAnswer, Processed
from kafka_keyshared.errors import InvariantError


def decide_head(
    sub: Subscription, closed: ClosedLane, failure: Failure, policy: RetryPolicy
) -> Decision:
    """Decide what follows the latest failure of a lane's head, by this retry policy."""
    settings, lane = sub.settings, closed.lane
    may_divert = settings.on_exhausted != "divert" or sub.diverted.may_add(lane, closed.partition)
    return decide(
        failure,
        closed.failures,
        policy,
        settings.on_exhausted,
        dlq=settings.dlq,
        at_least_once=settings.at_least_once,
        head=HeadState(closed.in_row, is_keyless(lane), closed.archived, may_divert),
    )


def follow_up(
    sub: Subscription, closed: ClosedLane, failure: Failure, decision: Decision, now: float
) -> list[Command]:
    """Carry out the decision on a lane's head, which has failed so."""
    follows = decision.disposition
    if follows is Disposition.RETRY:
        closed.on(LaneEvent.RETRY)
        sub.closed.wake_at(closed, now + decision.delay)
        return []
    if follows is Disposition.DEAD_LETTER:
        closed.on(LaneEvent.DEAD_LETTER)
        return [letter_of(sub, closed)]
    if follows is Disposition.DIVERT:
        return _divert(sub, closed, now)
    if follows is Disposition.ARCHIVE:
        closed.on(LaneEvent.ARCHIVE)
        return [letter_of(sub, closed)]
    if follows is Disposition.BLOCK:
        return block(sub, closed, now)
    if follows is not Disposition.DROP:  # else a new disposition would settle the record
        raise InvariantError(f"unknown disposition of a failed record: {follows}")
    _drop(sub, closed, failure)
    return []


def _drop(sub: Subscription, closed: ClosedLane, failure: Failure) -> None:
    """Settle the head without an attempt that succeeded."""
    sub.counts.dropped += 1
    if closed.head is not None:
        sub.counts.processed.add(closed.head.topic(), Processed.DROPPED)
        sub.dropped.append(closed.head)
        sub.failure_watch.gave_up(closed.partition, closed.lane, failure)
    settle_head(sub, closed)


# --- block ---


def block(
    sub: Subscription, closed: ClosedLane, now: float, event: LaneEvent = LaneEvent.BLOCK
) -> list[Command]:
    """Keep the lane closed: its head is not settled, and no record behind it starts."""
    closed.on(event)
    closed.blocked_at = now
    last = closed.last
    if closed.head is None or last is None:
        raise InvariantError(f"lane {closed.lane} is blocked by nothing")
    sub.look_ahead.grown += 1
    sub.reminder.blocked = True
    traceback = sub.bursts.attempts.first_block(last, now)
    settings, diverted = sub.settings, sub.diverted
    full = settings.on_exhausted == "divert" and diverted.full(closed.partition)
    fact = LaneBlocked(
        about_head(closed),
        closed.attempts,
        last,
        archived=closed.archived,
        diverted=diverted.most if full else None,
        dlq=settings.dlq,
        traceback=traceback,
    )
    blocks = sub.bursts.blocks
    return [*(blocks.at_once(fact, now) if traceback else blocks.add(fact, now))]


def _divert(sub: Subscription, closed: ClosedLane, now: float) -> list[Command]:
    """Divert the lane from its head on."""
    closed.on(LaneEvent.DIVERT)
    closed.blocked_at = now
    sub.diverted.add(closed.lane, closed.partition)
    sub.look_ahead.grown += 1
    fact = LaneDiverted(about_head(closed), closed.attempts, closed.last)
    return [letter_of(sub, closed), *sub.bursts.diversions.add(fact, now)]


# --- dead letters ---


def letter_of(sub: Subscription, closed: ClosedLane) -> Publish:
    """Return the command that writes the head's dead letter.

    The lane of a copy (:attr:`.LaneState.ARCHIVING`) is blocked once the broker has acknowledged
    it. Celeriant calls this policy BlockAndDlq.
    """
    if closed.head is None or closed.first is None or closed.last is None:
        raise InvariantError(f"lane {closed.lane} has nothing to dead-letter")
    copy = closed.state is LaneState.ARCHIVING
    letter = Publish(
        sub.name, closed.lane, closed.head, closed.attempts, closed.first, closed.last, copy
    )
    return closed.write(letter)


def dead_lettered(sub: Subscription, event: DeadLetterAnswer, now: float) -> list[Command]:
    """Act on the broker's answer: settle an acknowledged record, retry a failed dead letter."""
    head, error = event.publish.record, event.error
    closed = sub.closed.get(event.publish.lane)
    if closed is None or closed.head is not head or closed.state not in LETTERS_ON_THEIR_WAY:
        return []  # forgotten with its partition: the record runs again at its next owner
    answer = LetterAnswer.ACKNOWLEDGED if error is None else LetterAnswer.FAILED
    sub.counts.dlq_writes.add(head.topic(), answer)
    if error is not None:
        closed.refused_for_good = event.for_good
        return _refused(sub, closed, error, now)
    closed.letter = None
    if sub.dlq_watch is not None:
        sub.dlq_watch.letter(closed.partition)
    if closed.state is LaneState.ARCHIVING:
        closed.archived = True
        return block(sub, closed, now, LaneEvent.ARCHIVED)
    # In a diverted lane the first head had its attempts, and the others were not run.
    unrun = closed.state is LaneState.DIVERTING and not closed.attempts
    how = Processed.DIVERTED if unrun else Processed.DEAD_LETTERED
    sub.counts.dead_lettered += 1
    sub.counts.processed.add(head.topic(), how)
    sub.failure_watch.gave_up(closed.partition, closed.lane, closed.last)
    about = about_head(closed)
    settle_head(sub, closed)
    if (sub.bursts.diverted if unrun else sub.bursts.dead_letters).only_counted(now):
        return []
    if unrun:
        return [*sub.bursts.diverted.add(RecordDiverted(about), now)]
    fact = RecordDeadLettered(about, event.at, closed.attempts, closed.last)
    return [*sub.bursts.dead_letters.add(fact, now)]


def _refused(sub: Subscription, closed: ClosedLane, error: str, now: float) -> list[Command]:
    """Write the dead letter again later: one that is not written settles nothing."""
    closed.publish_failures += 1
    closed.refusal = error
    delay = publish_delay(closed.publish_failures)
    sub.closed.wake_at(closed, now + delay)
    fact = DeadLetterRefused(about_head(closed), closed.publish_failures, error, delay)
    return [*sub.bursts.refusals.add(fact, now)]
