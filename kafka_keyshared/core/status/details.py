"""Status details of single keys, records and slots."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from kafka_keyshared.core.failures.lane_actions import shown as lane_shown
from kafka_keyshared.core.failures.lane_actions import urgency
from kafka_keyshared.core.failures.undecodable import reason_of
from kafka_keyshared.core.offsets.commit_metadata import Runs
from kafka_keyshared.core.routing.filters import shown
from kafka_keyshared.core.routing.ranges import written
from kafka_keyshared.core.status.since import Lasting
from kafka_keyshared.core.subscription.subscription import Subscription
from kafka_keyshared.hashing import SLOTS
from kafka_keyshared.model import coordinates_of
from kafka_keyshared.status import LaneStatus, UnreadableKeyStatus

CLOSED_MOST = 20
"""Most closed lanes that a status names."""

RUNS_MOST = 100
"""Most runs of one partition that a status names."""

PENDING_MOST = 50
"""Most leases of one worker that a status names, unless the caller asks for all."""


def slot_of(sub: Subscription, key: bytes | None) -> int | None:
    """Return the 16-bit slot of a key, as other systems know it; None without a key."""
    return None if key is None else sub.keys.slot(key) % SLOTS


def closed_lanes(sub: Subscription, now: float, wall: float) -> tuple[LaneStatus, ...]:
    """Return the first closed lanes; those that wait for an operator come first."""
    first = heapq.nsmallest(CLOSED_MOST, sub.closed.lanes.values(), key=urgency)
    return tuple(lane_shown(sub, each, now, wall) for each in first)


def unreadable_keys(
    sub: Subscription, lasting: Lasting, now: float
) -> tuple[UnreadableKeyStatus, ...]:
    """Return the partitions that wait for an unreadable key, and the cause of each."""
    found: list[UnreadableKeyStatus] = []
    for partition, waits in sorted(sub.keys.unread.items()):
        found.append(
            UnreadableKeyStatus(
                topic=partition.topic,
                partition=partition.partition,
                offset=waits.records[0].offset(),
                records=len(waits.records),
                error=reason_of(waits.cause),
                seconds=lasting.seconds((sub.name, "unread", partition), now),
            )
        )
    return tuple(found)


def keyless(sub: Subscription, topics: Iterable[str]) -> dict[str, int]:
    """Return how many records the key function found no key for, by topic."""
    return by_topic({} if sub.keys.keyless is None else sub.keys.keyless.counts, topics)


def by_topic(counts: Mapping[str, int], topics: Iterable[str]) -> dict[str, int]:
    """Return the counts, and 0 for those of the topics that have none."""
    return {topic: counts.get(topic, 0) for topic in dict.fromkeys((*topics, *counts))}


def away(sub: Subscription, lasting: Lasting, now: float) -> Mapping[str, Any]:
    """Return the status fields for records that wait for absent workers."""
    row = sub.unowned.away
    first = next(row.waiting(), None)
    if first is None:
        return {}
    declared = {*written(sub.table.routing), *shown(sub.table.filtered)}
    there = {worker.name for worker in sub.workers.values() if worker.present}
    (topic, partition), offset = coordinates_of(first)
    return {
        "away": sum(1 for _ in row.waiting()),
        "away_at": (topic, partition, offset),
        "away_seconds": lasting.seconds((sub.name, "away"), now),
        "missing": tuple(sorted(declared - there)),
    }


def slots(sub: Subscription, names: list[str]) -> tuple[tuple[int, int, int], ...]:
    """Return the slots' owners from slot 0 on: first, last, index in ``names`` or -1."""
    place = {name: at for at, name in enumerate(names)}
    return tuple(
        (first, last, place.get(owner, -1) if isinstance(owner, str) else -1)
        for first, last, owner in sub.table.routing.spans()
    )


def islands(runs: Mapping[str, Runs]) -> Iterator[tuple[int, int]]:
    """Yield the first settled runs of the subscription that has settled least."""
    least = min(runs.values(), key=lambda each: sum(end - start for start, end in each), default=())
    yield from least[:RUNS_MOST]
