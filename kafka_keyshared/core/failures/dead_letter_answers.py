"""Handling of the broker's answers to dead letters.

A record is settled when the broker has acknowledged its dead letter, and not before. A dead letter
that was not written is retried, and its lane waits for it.
"""

from __future__ import annotations

from kafka_keyshared.core.contract.commands import Command
from kafka_keyshared.core.contract.events import DeadLetterAnswer
from kafka_keyshared.core.failures.poison_records import attempts_of, block
from kafka_keyshared.core.lanes.closed import LETTERS_ON_THEIR_WAY, ClosedLane, LaneEvent, LaneState
from kafka_keyshared.core.leasing.reopening import settle_head
from kafka_keyshared.core.subscription.subscription import Subscription
from kafka_keyshared.core.telemetry.burst import EventLine
from kafka_keyshared.core.telemetry.meters import LetterAnswer, Processed
from kafka_keyshared.model import About, Record, name_of, named_key

PUBLISH_BACKOFF = 1.0
PUBLISH_BACKOFF_MAX = 30.0


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
        return _refused(sub, closed, head, error, now)
    closed.letter = None
    if sub.dlq_watch is not None:
        sub.dlq_watch.letter(closed.partition)
    if closed.state is LaneState.ARCHIVING:
        closed.archived = True
        return block(sub, closed, now, LaneEvent.ARCHIVED)
    # In a diverted lane the first head had its attempts, and the others were not run.
    unrun = closed.state is LaneState.DIVERTING and not closed.failures
    how = Processed.DIVERTED if unrun else Processed.DEAD_LETTERED
    sub.counts.dead_lettered += 1
    sub.counts.processed.add(head.topic(), how)
    sub.failure_watch.gave_up(closed.partition, closed.lane, closed.last)
    settle_head(sub, closed)
    if unrun:
        return _told_unrun(sub, closed, head, now)
    burst = sub.bursts.dead_letters
    if burst.only_counted(now):
        return []
    at = f" as {event.at}" if event.at else ""
    where, about = _named(closed, head)
    text = f"{where} went to the dead-letter topic{at} ({attempts_of(closed)})"
    return [*burst.add(EventLine(text, about), now)]


def _refused(
    sub: Subscription, closed: ClosedLane, head: Record, error: str, now: float
) -> list[Command]:
    """Retry later: a dead letter that is not written settles nothing."""
    closed.publish_failures += 1
    closed.refusal = error
    delay = min(PUBLISH_BACKOFF * 2 ** min(closed.publish_failures - 1, 16), PUBLISH_BACKOFF_MAX)
    sub.closed.wake_at(closed, now + delay)
    where, about = _named(closed, head)
    text = f"dead letter of {where} was not written (try {closed.publish_failures}): {error}"
    follows = f"; the record stays unsettled and its key waits, next try in {delay:.0f} s"
    return [*sub.bursts.refusals.add(EventLine(text, about, follows), now)]


def _told_unrun(sub: Subscription, closed: ClosedLane, head: Record, now: float) -> list[Command]:
    burst = sub.bursts.diverted
    if burst.only_counted(now):
        return []
    where, about = _named(closed, head)
    text = f"{where} went to the dead-letter topic unrun: its key is diverted"
    return [*burst.add(EventLine(text, about), now)]


def _named(closed: ClosedLane, head: Record) -> tuple[str, About]:
    where = f"{name_of(head)} ({named_key(closed.key)})"
    return where, About(closed.partition, head.offset(), closed.key)
