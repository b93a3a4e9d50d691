"""Without reliability: what a worker has no place for is dropped, so that nothing ever waits long.

The rule is that of the non-reliable mode of Danube's Key-Shared dispatcher: a record goes to the
worker of its key, and where that one is full it is dropped. There are no retries, and nothing is
committed. What a worker may hold, leased or waiting, is its lease bound, but no more than its share
of the window: so the window is never full, and what comes is always fetched.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from kafka_keyshared.core.burst import Line
from kafka_keyshared.core.commands import Notice
from kafka_keyshared.core.meters import Processed, topics_of
from kafka_keyshared.core.subscription import Subscription
from kafka_keyshared.core.workers import Worker
from kafka_keyshared.model import Record, counted


def capacity(sub: Subscription) -> int:
    """Return how many records one worker may hold, leased and waiting together."""
    share = sub.settings.window_records // max(1, len(sub.workers))
    return max(1, min(sub.settings.leases_per_worker, share))


def shed(sub: Subscription, now: float) -> Sequence[Notice]:
    """Drop what no worker has a place for, the newest first; call it before leases go out.

    Where the window's bytes are used up, a worker has a place for one record.
    """
    if sub.settings.reliable:
        return ()
    most = capacity(sub) if sub.window.room() else 1
    dropped: dict[Worker, list[Record]] = {}
    for worker in sub.workers.values():
        backlog = worker.row.merge()
        if over := _over(len(backlog), most - worker.leased):
            dropped[worker] = backlog.take_last(over)
    draining = sub.draining
    # What waits for slots to drain has one row for all: it may have as many as a worker.
    if over := _over(len(draining.row), most):
        for record in draining.take_last(over):
            owner = sub.owner(record)
            if isinstance(owner, Worker):  # what drains is on its way to one
                dropped.setdefault(owner, []).append(record)
    if sub.keyless.records:
        # They are anybody's: all workers together have a place for what they do not hold yet.
        held = sum(worker.leased + len(worker.row) for worker in sub.workers.values())
        if over := _over(len(sub.keyless), most * len(sub.workers) - held):
            least = min(sub.workers.values(), key=lambda worker: (worker.leased, worker.id))
            dropped.setdefault(least, []).extend(sub.keyless.take_last(over))
    return [
        note for worker, records in dropped.items() for note in _note(sub, worker, records, now)
    ]


def _over(waiting: int, places: int) -> int:
    return max(0, waiting - max(0, places))


def _note(sub: Subscription, worker: Worker, records: list[Record], now: float) -> list[Notice]:
    """Count what was dropped at a worker, and tell of it."""
    sub.window.free(len(records))
    worker.shed += len(records)
    sub.counts.dropped += len(records)
    sub.dropped += records
    topics: Counter[str] = topics_of(records)
    for topic, times in topics.items():
        sub.counts.processed.add(topic, Processed.DROPPED, times)
    if sub.bursts.shed.only_counted(now):
        return []
    text = f"{worker.name} is full: {counted(len(records), 'record')} dropped (reliable=false)"
    return sub.bursts.shed.add(Line(text), now)
