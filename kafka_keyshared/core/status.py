"""Takes the status of an instance (:mod:`kafka_keyshared.status`) from its core."""

from __future__ import annotations

from collections import Counter

from kafka_keyshared.core import draining, lending
from kafka_keyshared.core.blocked import oldest_blocked
from kafka_keyshared.core.dispatcher import Dispatcher
from kafka_keyshared.core.events import CommitResult
from kafka_keyshared.core.failure_lines import in_short
from kafka_keyshared.core.heartbeat import Watch
from kafka_keyshared.core.lanes import ClosedLane, LaneState
from kafka_keyshared.core.meters import Histogram, Rebalance
from kafka_keyshared.core.pending import pending_acks
from kafka_keyshared.core.routing.filters import shown
from kafka_keyshared.core.routing.ranges import nobodys, written
from kafka_keyshared.core.slices import Progress
from kafka_keyshared.core.subscription import Subscription
from kafka_keyshared.core.workers import Worker
from kafka_keyshared.hashing import SLOTS
from kafka_keyshared.model import TopicPartition, partition_of
from kafka_keyshared.status import (
    KEY_CHARS,
    VERSION,
    BlockedKey,
    Distribution,
    DrainingHash,
    PartitionStatus,
    RunningRecord,
    ShownState,
    Status,
    SubscriptionStatus,
    Surroundings,
    WorkerStatus,
)


def take(core: Dispatcher, progress: Progress, now: float, around: Surroundings) -> Status:
    """Return the status; ``progress`` and ``now`` as for a commit."""
    meters = core.meters
    topics = _topics(core, around)
    return Status(
        version=VERSION,
        taken_at=around.wall,
        started_at=around.started_at,
        phase=around.phase,
        joined=around.joined,
        group=around.group,
        partitions=tuple(
            _partition(core, partition, now, around)
            for partition in sorted(core.holds.assigned(core.partitions))
        ),
        subscriptions=tuple(
            _subscription(core, sub, progress, now, around) for sub in core.subscriptions.values()
        ),
        fetched={topic: meters.fetched[topic] for topic in topics},
        rebalances={event.value: meters.rebalances[event] for event in Rebalance},
        drain_seconds=_distribution(meters.drain_seconds),
        commits={result.value: meters.commits[result] for result in CommitResult},
        commit_seconds=_distribution(meters.commit_seconds),
        metadata_bytes=_distribution(meters.metadata_bytes),
        paused_seconds=meters.paused_seconds,
        stalls={topic: around.stalls.get(topic, 0) for topic in topics},
        polled_at=around.polled_at,
        poll_used=around.poll_used,
        client=around.client,
    )


def _topics(core: Dispatcher, around: Surroundings) -> list[str]:
    return sorted({*around.topics, *core.meters.topics})


def _partition(
    core: Dispatcher, partition: TopicPartition, now: float, around: Surroundings
) -> PartitionStatus:
    state = core.partitions.get(partition)
    seen = core.snapshots.derived.get(partition)
    end = around.log_ends.get(partition)
    committed = core.commits.committed(partition)
    lag = backlog = lag_seconds = None
    if end is not None and committed is not None:
        lag = max(0, end - committed)
        backlog = max(0, lag - (seen.islands if seen else 0))
        if not lag:
            lag_seconds = 0.0
        elif seen is not None and seen.oldest_ms is not None:
            lag_seconds = max(0.0, around.wall - seen.oldest_ms / 1000)
    return PartitionStatus(
        topic=partition.topic,
        partition=partition.partition,
        fetched=None if state is None else state.received_end,
        safe=seen.position if seen else None,
        completed=seen.completed if seen else None,
        committed=committed,
        log_end=end,
        incomplete=seen.incomplete if seen else 0,
        oldest_seconds=now - seen.since if seen and seen.incomplete else 0.0,
        lag=lag,
        backlog=backlog,
        lag_seconds=lag_seconds,
        paused=partition in around.paused,
        held_back=tuple(map(str, core.holds.reasons(partition))),
    )


def _subscription(
    core: Dispatcher,
    sub: Subscription,
    progress: Progress,
    now: float,
    around: Surroundings,
) -> SubscriptionStatus:
    counts = sub.counts
    topics = _topics(core, around)
    lanes = Counter(closed.state for closed in sub.closed.lanes.values())
    keys: Counter[bytes] = Counter(
        key
        for _, record in sub.unsettled(progress)
        # Of one that runs this may be what its handler has set.
        if sub.keys.knows(record) and isinstance(key := sub.keys.key(record), bytes)
    )
    watch, drains = core.watches[sub.name], _drains(sub)
    return SubscriptionStatus(
        name=sub.name,
        pool=around.pool,
        routing=sub.settings.routing.mode,
        on_unmatched=sub.settings.routing.on_unmatched,
        ranges=written(sub.table.routing),
        unassigned=nobodys(sub.table.routing),
        filters=shown(sub.table.filtered),
        workers=tuple(
            _worker(
                worker,
                (sub.table.shares.get(worker.id, 0.0), drains.get(worker.id, ())),
                progress,
                watch,
                now,
                lends_to=lending.takers(sub, worker),
            )
            for worker in sorted((*sub.workers.values(), *sub.gone.values()), key=_id)
        ),
        records=sub.window.records,
        bytes=int(sub.window.bytes),
        records_max=sub.window.records_max,
        processed=counts.processed.shown(topics),
        retried=counts.retried.shown(topics),
        letters=counts.letters.shown(topics),
        stuck=counts.stuck,
        timed_out=counts.timed_out,
        late=counts.late,
        written_off=counts.written_off,
        stale=counts.stale,
        lanes={state.value: lanes[state] for state in LaneState},
        lane_records=sum(sum(1 for _ in closed.records()) for closed in sub.closed.lanes.values()),
        blocked=tuple(_blocked(each, now) for each in oldest_blocked(sub.closed.lanes.values())[0]),
        keys=len(keys),
        hottest=max(keys.values(), default=0),
        draining_hashes_count=sub.draining.count,
        draining_hashes_pending_messages=sum(
            each.pending for some in drains.values() for each in some
        ),
        draining_hashes_blocked_messages=sum(1 for _ in sub.draining.waiting()),
        draining_hashes_cleared_total=sub.draining.cleared_total,
        loans=0 if sub.lending is None else sub.lending.lent_total,
        returned=0 if sub.lending is None else sub.lending.returned_total,
        pending=tuple(pending_acks(sub, progress)) if around.pending else None,
        process_seconds=_distribution(counts.process_seconds),
        wait_seconds=_distribution(counts.wait_seconds),
        age_seconds=_distribution(counts.age_seconds),
    )


def _drains(sub: Subscription) -> dict[int, tuple[DrainingHash, ...]]:
    """Return by worker the slots that drain there."""
    return {
        id_: tuple(
            DrainingHash(
                hash=slot % SLOTS, pending=pending, blocked=blocked, owner=sub.owner_name(slot)
            )
            for slot, pending, blocked in those
        )
        for id_, those in draining.listing(sub).items()
    }


def _blocked(closed: ClosedLane, now: float) -> BlockedKey:
    key, last = closed.key, closed.last
    return BlockedKey(
        key=None if key is None else key.decode("utf-8", "backslashreplace")[:KEY_CHARS],
        topic=closed.partition.topic,
        partition=closed.partition.partition,
        offset=-1 if closed.head is None else closed.head.offset(),
        seconds=now - closed.blocked_at,
        attempts=closed.failures,
        error="" if last is None else in_short(last),
    )


def _worker(
    worker: Worker,
    slots: tuple[float, tuple[DrainingHash, ...]],
    progress: Progress,
    watch: Watch,
    now: float,
    *,
    lends_to: tuple[str, ...],
) -> WorkerStatus:
    share, drains = slots
    running = None
    runs = stuck = 0
    # What is stuck has been running for longest.
    for id_, leased in sorted(worker.slices.items(), key=lambda each: each[0] not in worker.apart):
        for index in leased.running(progress):
            runs += 1
            known = watch.running.get((id_, index))
            stuck += id_ in worker.apart
            if running is None:
                record = leased.slice.came[index]
                since = now if known is None else known.since
                topic, partition = partition_of(record)
                running = RunningRecord(
                    topic=topic, partition=partition, offset=record.offset(), seconds=now - since
                )
    state: ShownState = "idle"
    if worker.waits:
        state = "stuck"
    elif running is not None:
        state = "running"
    elif not worker.present:
        state = "gone"
    return WorkerStatus(
        name=worker.name,
        state=state,
        leased=worker.leased,
        queued=len(worker.row) + len(worker.row.granted) + len(worker.row.retries),
        running=running,
        runs=runs,
        stuck=stuck,
        busy_seconds=worker.busy_seconds,
        starved_seconds=worker.starved_seconds,
        restarts=worker.restarts,
        dropped=worker.shed,
        share=share,
        draining=drains,
        lends_to=lends_to,
    )


def _id(worker: Worker) -> int:
    return worker.id


def _distribution(histogram: Histogram) -> Distribution:
    return Distribution(
        bounds=histogram.bounds, counts=tuple(histogram.counts), total=histogram.total
    )
