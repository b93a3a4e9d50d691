"""Handling of records that no worker takes.

``on_unmatched`` applies to a record that no worker was declared to take. ``skip`` settles it
without running it, ``hold`` keeps it, ``error`` ends the instance and settles nothing. A record of
an absent worker is held under every policy. :mod:`kafka_keyshared.core.subscription.unmatched` has
the waiting records.
"""

from __future__ import annotations

from kafka_keyshared.core.contract.commands import Command, Halt
from kafka_keyshared.core.leasing.reopening import settle_head
from kafka_keyshared.core.subscription.subscription import Subscription
from kafka_keyshared.core.telemetry.burst import EventLine
from kafka_keyshared.core.telemetry.meters import Processed, topics_of
from kafka_keyshared.core.workers.run_queue import RunQueue
from kafka_keyshared.model import About, Record, name_of, named_key, partition_of

IS_AN_ERROR = "and on_unmatched='error'"
"""Part of the reason text of :func:`_halt`, which distinguishes it from other reasons."""


def look(sub: Subscription, now: float) -> list[Command]:
    """Apply the policy to records without a worker since the last look."""
    policy, nobody, away = sub.settings.routing.on_unmatched, sub.unowned.nobody, sub.unowned.away
    commands: list[Command] = []
    if not nobody.empty() or nobody.retries:
        if policy == "skip":
            _skip(sub, nobody)
        elif policy == "error":
            return [_halt(sub, next(nobody.waiting(), None))]
    if len(away) > sub.unowned.told:
        commands += _told(sub, (away.routed or away.front)[-1], now)
    sub.unowned.told = len(away)
    return commands


def _skip(sub: Subscription, row: RunQueue) -> None:
    """Settle all records in the row, and those that they make ready."""
    while not row.empty() or row.retries:
        records = row.merge().take(len(row))[0]
        granted, row.granted = row.granted, []
        for lane, record in granted:
            records.append(record)
            if sub.one_lease is not None:
                following = sub.one_lease.following(lane)
                if following is not None:
                    sub.grant([(lane, following)])
        sub.window.free(len(records))
        for closed in row.take_ready(len(row.retries)):
            if closed.head is not None:
                records.append(closed.head)
                settle_head(sub, closed)
        sub.counts.unmatched += len(records)
        sub.dropped += records
        for topic, times in topics_of(records).items():
            sub.counts.processed.add(topic, Processed.UNMATCHED, times)


def _halt(sub: Subscription, record: Record | None) -> Halt:
    which = "a record" if record is None else f"{name_of(record)} ({_key(sub, record)})"
    return Halt(
        f"{which} is for none of the workers that subscription {sub.name!r} was declared to have, "
        "and on_unmatched='error'; nothing of it is settled. Give a worker its range or filter, or "
        "choose on_unmatched='skip' or 'hold'"
    )


def _told(sub: Subscription, record: Record, now: float) -> list[Command]:
    text = (
        f"{name_of(record)} ({_key(sub, record)}) is held: no worker that takes it is there; it "
        "waits until one joins"
    )
    about = About(partition_of(record), record.offset(), sub.keys.key(record))
    return [*sub.bursts.held.add(EventLine(text, about), now)]


def _key(sub: Subscription, record: Record) -> str:
    return named_key(sub.keys.key(record))
