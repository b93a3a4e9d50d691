"""Handling of records that no worker takes.

``on_unmatched`` applies to a record that no worker was declared to take. ``skip`` settles it
without running it, ``hold`` keeps it, ``error`` ends the instance and settles nothing. A record of
an absent worker is held under every policy. :mod:`kafka_keyshared.core.subscription.unmatched` has
the waiting records.
"""

from __future__ import annotations

from kafka_keyshared.core.contract.commands import Command, Halt
from kafka_keyshared.core.contract.facts import RecordHeld, RecordUnmatched
from kafka_keyshared.core.leasing.reopening import settle_head
from kafka_keyshared.core.subscription.subscription import Subscription
from kafka_keyshared.core.telemetry.meters import Processed, topics_of
from kafka_keyshared.core.workers.run_queue import RunQueue
from kafka_keyshared.model import About, Record, partition_of


def look(sub: Subscription, now: float) -> list[Command]:
    """Apply the policy to records without a worker since the last look."""
    policy, unassigned, away = (
        sub.settings.routing.on_unmatched,
        sub.unowned.unassigned,
        sub.unowned.away,
    )
    commands: list[Command] = []
    if not unassigned.empty() or unassigned.retries:
        if policy == "skip":
            _skip(sub, unassigned)
        elif policy == "error":
            record = next(unassigned.waiting(), None)
            about = None if record is None else _about(sub, record)
            return [Halt(RecordUnmatched(about, sub.name))]
    if len(away) > sub.unowned.told:
        record = (away.routed or away.front)[-1]
        commands += sub.bursts.held.add(RecordHeld(_about(sub, record)), now)
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
                    sub.routing.grant([(lane, following)])
        sub.window.free(len(records))
        for closed in row.take_ready(len(row.retries)):
            if closed.head is not None:
                records.append(closed.head)
                settle_head(sub, closed)
        sub.counts.unmatched += len(records)
        sub.dropped += records
        for topic, times in topics_of(records).items():
            sub.counts.processed.add(topic, Processed.UNMATCHED, times)


def _about(sub: Subscription, record: Record) -> About:
    return About(partition_of(record), record.offset(), sub.keys.key(record))
