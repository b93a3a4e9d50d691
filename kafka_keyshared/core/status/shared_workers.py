"""Status of shared work: shards, hot keys and detached records."""

from __future__ import annotations

from collections import Counter

from kafka_keyshared.core.failures.lane_actions import shown_state
from kafka_keyshared.core.keys.key_text import key_text
from kafka_keyshared.core.lanes.closed import LaneState
from kafka_keyshared.core.subscription.subscription import Subscription
from kafka_keyshared.core.workers.shards import SharedRow
from kafka_keyshared.core.workers.worker import Worker
from kafka_keyshared.hashing import SLOTS
from kafka_keyshared.model import Record
from kafka_keyshared.shared_status import DetachedRecord, SharedStatus


def shared(sub: Subscription, now: float) -> SharedStatus | None:
    """Return the shards, hot keys and detached records; None where workers own their keys."""
    row = sub.shared
    if row is None:
        return None
    every = [*row.every()]
    return SharedStatus(
        shards=len(every),
        ready=sum(1 for shard in every if shard.records and shard.at is None),
        held=sum(1 for shard in every if shard.at is not None),
        hot=len(sub.hot_keys.heats),
        hot_keys=sub.hot_keys.shown(sub, now),
        detached=_detached(sub, row, now),
    )


def shards_at(worker: Worker) -> int:
    """Return how many shards a worker holds."""
    return len({id(shard) for leased in worker.slices.values() for shard, _ in leased.shards})


def detached_since(sub: Subscription, slice_id: int, otherwise: float) -> float:
    """Return when the detached record of a slice was first seen running."""
    return otherwise if sub.detaching is None else sub.detaching.since.get(slice_id, otherwise)


def lane_states(sub: Subscription) -> Counter[LaneState]:
    """Return how many closed lanes are in each state, as the status shows them."""
    return Counter(shown_state(sub, closed) for closed in sub.closed.lanes.values())


def _behind(sub: Subscription, row: SharedRow, record: Record, key: bytes | None) -> int:
    """Return how many records wait for the end of a detached one."""
    closed = sub.closed.get(sub.keys.lane(record))
    count = 0 if closed is None else len(closed.aside) + len(closed.queue)
    if key is not None:
        key_of = sub.keys.key
        count += sum(1 for each in row.shard_of(record).records if key_of(each) == key)
    return count


def _detached(sub: Subscription, row: SharedRow, now: float) -> tuple[DetachedRecord, ...]:
    found = []
    for worker in sub.workers.values():
        if worker.detached is None:
            continue
        leased = worker.slices[worker.detached]
        for index in leased.indices():
            (topic, partition), offset = leased.slice.came.coordinates_of(index)
            record = leased.slice.came[index]
            key = sub.keys.key(record)
            found.append(
                DetachedRecord(
                    topic=topic,
                    partition=partition,
                    offset=offset,
                    worker=worker.name,
                    seconds=now - detached_since(sub, worker.detached, now),
                    waiting=_behind(sub, row, record, key),
                    key=key_text(key),
                    slot=None if key is None else sub.keys.slot(key) % SLOTS,
                )
            )
    return tuple(sorted(found, key=lambda each: -each.seconds))
