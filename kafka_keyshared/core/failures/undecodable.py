"""Handling of fetched records whose key cannot be read.

An undecodable record goes at once where the policy says. A key may be unreadable only for now, as
when a schema registry does not answer. Such a record stops its partition from there on. Later
records may have the same key, so running them first could break the order. Other partitions go on.
A record in a format that the reader does not know also stops its partition, unless
:mod:`kafka_keyshared.core.keys.unknown_formats` finds it broken.
"""

from __future__ import annotations

from kafka_keyshared.core.backpressure.pause_reasons import Holds, Reason
from kafka_keyshared.core.contract.commands import Command
from kafka_keyshared.core.contract.facts import (
    KeyNotYetReadable,
    KeyUnreadable,
    UnreadableKeyBlocked,
)
from kafka_keyshared.core.contract.outcomes import Disposition, Failure
from kafka_keyshared.core.failures import failed_attempts
from kafka_keyshared.core.failures.decision import UNREADABLE
from kafka_keyshared.core.failures.follow_up import letter_of
from kafka_keyshared.core.keys.extraction import DerivedKeys, UnreadableKey
from kafka_keyshared.core.lanes.closed import LaneEvent
from kafka_keyshared.core.subscription.subscription import Subscription
from kafka_keyshared.core.telemetry.meters import Processed
from kafka_keyshared.model import About, UnknownFormat, partition_of

UNDECODABLE = "Undecodable"
"""The error of a record whose key cannot be read."""

READ_AGAIN_AFTER = 1.0
"""Seconds until a key is read again, when the key function gives no delay."""


def routed(sub: Subscription, holds: Holds, now: float, wall_offset: float | None) -> list[Command]:
    """Act on the records of a chunk that could not be routed.

    ``wall_offset`` converts a monotonic time to seconds since 1970; None before the first
    heartbeat.
    """
    _judge(sub, now)
    commands: list[Command] = []
    refused, sub.keys.refused = sub.keys.refused, []
    for each in refused:
        at_ms = each.record.timestamp()[1]
        if wall_offset is not None:
            at_ms = round((now + wall_offset) * 1000)
        commands += _undecodable(sub, each, at_ms, now)
    for partition, unread in sub.keys.unread.items():
        if unread.due is not None:
            continue
        asked = unread.cause.delay()
        after = READ_AGAIN_AFTER if asked is None else asked
        if isinstance(unread.cause, UnknownFormat) and unread.cause.patience:
            after = min(after, unread.cause.patience)
        unread.due = now + after
        holds.hold_back(Reason.UNREAD, [partition], sub.name)
        about = About(partition, unread.records[0].offset())
        fact = KeyNotYetReadable(about, reason_of(unread.cause), after)
        commands += sub.bursts.unread.add(fact, now)
    return commands


def _undecodable(
    sub: Subscription, refused: UnreadableKey, at_ms: int, now: float
) -> list[Command]:
    """Act on a record whose key cannot be read: no handler ever sees it.

    ``at_ms`` is the wall-clock time in milliseconds. The record is a lane of its own, so only the
    position waits for it.
    """
    record, reason = refused
    follows = UNREADABLE[sub.settings.when_undecodable()]
    sub.counts.undecodable[record.topic()] += 1
    about = About(partition_of(record), record.offset())
    if follows is Disposition.RETRY:
        return [*sub.bursts.unreadable.add(KeyUnreadable(about, reason, follows), now)]
    if follows is Disposition.DROP:
        sub.counts.dropped += 1
        sub.counts.processed.add(record.topic(), Processed.DROPPED)
        sub.dropped.append(record)
        sub.window.free(1)
        failure = Failure(follows, UNDECODABLE, reason, "", at_ms)
        sub.failure_watch.gave_up(partition_of(record), sub.keys.lane(record), failure)
        return [*sub.bursts.unreadable.add(KeyUnreadable(about, reason, follows), now)]
    closed = failed_attempts.close_lane(sub, sub.keys.lane(record), record)
    closed.unreadable = True
    closed.first = closed.last = Failure(Disposition.DEAD_LETTER, UNDECODABLE, reason, "", at_ms)
    if follows is Disposition.DEAD_LETTER:
        closed.on(LaneEvent.DEAD_LETTER)
        return [letter_of(sub, closed)]
    closed.on(LaneEvent.BLOCK)
    closed.blocked_at = now
    sub.reminder.blocked = True
    return [*sub.bursts.blocks.add(UnreadableKeyBlocked(about, reason, sub.settings.dlq), now)]


def _judge(sub: Subscription, now: float) -> None:
    """Make broken records undecodable, and route the records behind them."""
    keys = sub.keys
    if not isinstance(keys, DerivedKeys) or keys.judge is None:
        return
    for partition in [*keys.unread]:
        while (unread := keys.unread.get(partition)) is not None and unread.due is None:
            cause = unread.cause
            if not isinstance(cause, UnknownFormat):
                break
            if not keys.judge.finds_broken(cause, unread.records, now, sub.window.received):
                break
            keys.broken = unread.records[0]
            sub.read_again(partition)
            keys.broken = None


def read_again(
    sub: Subscription, holds: Holds, now: float, wall_offset: float | None
) -> list[Command]:
    """Route the records that could not be routed before and are due."""
    due = [
        partition
        for partition, unread in sub.keys.unread.items()
        if unread.due is not None and unread.due <= now
    ]
    for partition in due:
        sub.read_again(partition)
    commands = routed(sub, holds, now, wall_offset)
    read = [partition for partition in due if partition not in sub.keys.unread]
    holds.let_go(Reason.UNREAD, read, sub.name)
    return commands


def reason_of(cause: Exception) -> str:
    """Return why a key cannot be read yet, as text."""
    why = cause.__cause__ or cause
    return str(why) if isinstance(why, UnknownFormat) else f"{type(why).__name__}: {why}"
