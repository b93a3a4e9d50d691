"""Load shedding for unreliable subscriptions: records for a full worker are dropped.

The rule is that of the non-reliable mode of Danube's Key-Shared dispatcher. A record goes to the
worker of its key, and is dropped if that worker is full. There are no retries and no commits. A
worker may hold up to its lease bound, leased or waiting, but at most its share of the window. The
window is therefore never full, and fetching never stops.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from kafka_keyshared.core.contract.commands import Notice
from kafka_keyshared.core.contract.facts import RecordsShed
from kafka_keyshared.core.subscription.subscription import Subscription
from kafka_keyshared.core.telemetry.meters import Processed, topics_of
from kafka_keyshared.core.workers.worker import Worker
from kafka_keyshared.model import Record


def capacity(sub: Subscription) -> int:
    """Return how many records one worker may hold, leased and waiting together."""
    share = sub.settings.window_records // max(1, len(sub.workers))
    return max(1, min(sub.settings.prefetch_records, share))


def shed(sub: Subscription, now: float) -> Sequence[Notice]:
    """Drop records that exceed their worker's capacity, newest first; call it before leasing.

    If the window's bytes are used up, the capacity is one record. Only an at-most-once subscription
    may drop records.
    """
    most = capacity(sub) if sub.window.room() else 1
    dropped: dict[Worker, list[Record]] = {}
    for worker in sub.workers.values():
        backlog = worker.row.merge()
        if over := _over(len(backlog), most - worker.leased):
            dropped[worker] = backlog.take_last(over)
    draining = sub.draining
    # Records of draining slots share one row; it may have as many as a worker.
    if over := _over(len(draining.row), most):
        for record in draining.take_last(over):
            owner = sub.routing.owner(record)
            if isinstance(owner, Worker):  # a draining slot has a new owner
                dropped.setdefault(owner, []).append(record)
    if sub.keyless.records:
        # Any worker may run them: the capacity is that of all workers, less their held records.
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
    """Count the records dropped at a worker; return the notices."""
    sub.window.free(len(records))
    worker.shed += len(records)
    sub.counts.dropped += len(records)
    sub.dropped += records
    topics: Counter[str] = topics_of(records)
    for topic, times in topics.items():
        sub.counts.processed.add(topic, Processed.DROPPED, times)
    if sub.bursts.shed.only_counted(now):
        return []
    return sub.bursts.shed.add(RecordsShed(worker.name, len(records)), now)
