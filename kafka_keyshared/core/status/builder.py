"""Status of an instance (:mod:`kafka_keyshared.status`), read from its core."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from kafka_keyshared.core.contract.events import CommitResult
from kafka_keyshared.core.contract.slices import Progress
from kafka_keyshared.core.dispatch.dispatcher import Dispatcher
from kafka_keyshared.core.keys.key_text import key_text
from kafka_keyshared.core.lanes.closed import ClosedLane, LaneState, oldest_blocked
from kafka_keyshared.core.routing.filters import shown
from kafka_keyshared.core.routing.ranges import unassigned_slots, written
from kafka_keyshared.core.status.details import (
    PENDING_MOST,
    away,
    by_topic,
    closed_lanes,
    islands,
    keyless,
    slot_of,
    slots,
    unreadable_keys,
)
from kafka_keyshared.core.status.environment import CodePosition, StatusInputs
from kafka_keyshared.core.status.pending import pending_acks
from kafka_keyshared.core.status.shared_workers import (
    detached_since,
    lane_states,
    shards_at,
    shared,
)
from kafka_keyshared.core.status.since import Lasting
from kafka_keyshared.core.subscription.subscription import Subscription
from kafka_keyshared.core.telemetry.failure_kinds import in_short
from kafka_keyshared.core.telemetry.meters import Histogram, Rebalance
from kafka_keyshared.core.worker_changes import slot_draining
from kafka_keyshared.core.workers.worker import Worker
from kafka_keyshared.failure_status import DependencyWait
from kafka_keyshared.hashing import SLOTS
from kafka_keyshared.model import TopicPartition, partition_of
from kafka_keyshared.status import (
    VERSION,
    BlockedKey,
    Distribution,
    DrainingSlot,
    PartitionStatus,
    PendingAck,
    RunningRecord,
    ShownState,
    Status,
    SubscriptionStatus,
    WorkerStatus,
)

NEARLY_FULL = 10
"""A window counts as full while its room is at most ``1 / NEARLY_FULL`` of its records. A stricter
limit would toggle with every fetch."""


class _StatusLook(NamedTuple):
    core: Dispatcher
    progress: Progress
    now: float
    around: StatusInputs
    lasting: Lasting


def take(
    core: Dispatcher,
    progress: Progress,
    now: float,
    around: StatusInputs,
    lasting: Lasting | None = None,
) -> Status:
    """Return the status; ``progress`` and ``now`` are the same as for a commit.

    ``lasting`` has the start times noted by earlier statuses; without it all conditions are new.
    """
    lasting = Lasting() if lasting is None else lasting
    look = _StatusLook(core, progress, now, around, lasting)
    meters, failing = core.meters, core.commits.failing
    topics = _topics(core, around)
    status = Status(
        version=VERSION,
        taken_at=around.wall,
        started_at=around.started_at,
        phase=around.phase,
        joined=around.joined,
        group=around.group,
        partitions=tuple(
            _partition(look, partition)
            for partition in sorted(core.holds.assigned(core.partitions))
        ),
        subscriptions=tuple(_subscription(look, sub) for sub in core.subscriptions.values()),
        fetched={topic: meters.fetched[topic] for topic in topics},
        rebalances={event.value: meters.rebalances[event] for event in Rebalance},
        revoke_seconds=_distribution(meters.revoke_seconds),
        commits={result.value: meters.commits[result] for result in CommitResult},
        commit_seconds=_distribution(meters.commit_seconds),
        metadata_bytes=_distribution(meters.metadata_bytes),
        paused_seconds=meters.paused_seconds,
        stalls={topic: around.stalls.get(topic, 0) for topic in topics},
        polled_at=around.polled_at,
        poll_used=around.poll_used,
        client=around.client,
        commit_failures=failing.in_a_row,
        commit_failing_seconds=None if failing.since is None else now - failing.since,
        commit_error=failing.error,
        commit_waiting_seconds=meters.unanswered(now),
        brokers_away_seconds=around.brokers_away_seconds,
        client_error=around.client_error,
        rebalance_seconds=around.unjoined_seconds,
        rebalanced=around.rebalanced,
        lately=around.lately,
        instance_reports={"written": around.reports.written, "failed": around.reports.failed},
        report_failing_seconds=around.reports.failing_seconds,
        report_error=around.reports.error,
        refused=around.refused,
        standstill=around.standstill,
    )
    lasting.over()
    return status


def _topics(core: Dispatcher, around: StatusInputs) -> list[str]:
    return sorted({*around.topics, *core.meters.topics})


def _partition(look: _StatusLook, partition: TopicPartition) -> PartitionStatus:
    core, _, now, around, lasting = look
    state = core.partitions.get(partition)
    seen = core.snapshots.derived.get(partition)
    end = around.log_ends.get(partition)
    committed = core.commits.committed(partition)
    reasons = core.holds.reasons(partition)
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
        settled_max=seen.settled_max if seen else None,
        committed=committed,
        log_end=end,
        unsettled=seen.unsettled if seen else 0,
        oldest_seconds=now - seen.since if seen and seen.unsettled else 0.0,
        lag=lag,
        backlog=backlog,
        lag_seconds=lag_seconds,
        paused=partition in around.paused,
        held_back=tuple(map(str, reasons)),
        held_seconds=tuple(lasting.seconds((partition, each), now) for each in reasons),
        settled=tuple(islands(seen.runs)) if around.full and seen else None,
    )


def _subscription(look: _StatusLook, sub: Subscription) -> SubscriptionStatus:
    core, progress, now, around, lasting = look
    counts = sub.counts
    topics = _topics(core, around)
    lanes = lane_states(sub)
    keys: Counter[bytes] = Counter(
        key
        for _, record in sub.unsettled.records(progress)
        # A running handler may have changed its record, so the key may not be bytes.
        if sub.keys.knows(record) and isinstance(key := sub.keys.key(record), bytes)
    )
    drains = _drains(sub, lasting, now)
    hottest_key = max(keys, key=keys.__getitem__, default=None)
    oldest, _ = oldest_blocked(sub.closed.lanes.values())
    workers = sorted((*sub.workers.values(), *sub.gone.values()), key=_id)
    full = sub.window.room() * NEARLY_FULL <= sub.window.records_max
    return SubscriptionStatus(
        name=sub.name,
        pool=around.pool,
        routing=sub.settings.routing.mode,
        on_unmatched=sub.settings.routing.on_unmatched,
        ranges=written(sub.table.routing),
        unassigned=unassigned_slots(sub.table.routing),
        filters=shown(sub.table.filtered),
        workers=tuple(_worker(look, sub, worker, drains.get(worker.id, ())) for worker in workers),
        records=sub.window.records,
        bytes=int(sub.window.bytes),
        records_max=sub.window.records_max,
        processed=counts.processed.shown(topics),
        retried=counts.retried.shown(topics),
        dlq_writes=counts.dlq_writes.shown(topics),
        stuck=counts.stuck,
        attempts=counts.attempts.shown(topics),
        undecodable=by_topic(counts.undecodable, topics),
        late_acks=counts.late_acks,
        written_off=counts.written_off,
        stale_results=counts.stale_results,
        lanes={state.value: lanes[state] for state in LaneState},
        lane_records=sum(sum(1 for _ in closed.records()) for closed in sub.closed.lanes.values()),
        blocked=tuple(_blocked(sub, each, now) for each in oldest),
        keys=len(keys),
        hottest=0 if hottest_key is None else keys[hottest_key],
        hottest_key=key_text(hottest_key),
        hottest_slot=slot_of(sub, hottest_key),
        closed=closed_lanes(sub, now, around.wall),
        unreadable_keys=unreadable_keys(sub, lasting, now),
        keyless=keyless(sub, topics),
        errors=sub.errors.shown(lambda key: slot_of(sub, key)),
        failure_rates=sub.failure_watch.rates,
        waiting=_waiting(sub, now),
        slots=slots(sub, [each.name for each in workers]) if around.full else None,
        full_seconds=lasting.seconds((sub.name, "full"), now) if full else 0.0,
        **away(sub, lasting, now),
        draining_slots=sub.draining.count,
        draining_pending_records=sum(each.pending for some in drains.values() for each in some),
        draining_blocked_records=sum(1 for _ in sub.draining.waiting()),
        drained_slots=sub.draining.cleared_total,
        detached=0 if sub.detaching is None else sub.detaching.total,
        shared=shared(sub, now),
        slot_function=sub.settings.slot_function,
        pending=_pending(sub, progress, around),
        process_seconds=_distribution(counts.process_seconds),
        wait_seconds=_distribution(counts.wait_seconds),
        age_seconds=_distribution(counts.age_seconds),
    )


def _pending(
    sub: Subscription, progress: Progress, around: StatusInputs
) -> tuple[PendingAck, ...] | None:
    if around.pending:
        return tuple(pending_acks(sub, progress))
    return tuple(pending_acks(sub, progress, PENDING_MOST)) if around.full else None


def _drains(sub: Subscription, lasting: Lasting, now: float) -> dict[int, tuple[DrainingSlot, ...]]:
    """Return the draining slots by worker."""
    return {
        id_: tuple(
            DrainingSlot(
                slot=slot % SLOTS,
                pending=pending,
                blocked=blocked,
                owner=sub.routing.owner_name(slot),
                seconds=lasting.seconds((sub.name, id_, slot), now),
            )
            for slot, pending, blocked in those
        )
        for id_, those in slot_draining.listing(sub).items()
    }


def _waiting(sub: Subscription, now: float) -> DependencyWait | None:
    """Return the outage that the subscription waits for."""
    breaker = sub.breaker
    if breaker is None or breaker.outage is None:
        return None
    outage, due = breaker.outage, breaker.next_due()
    return DependencyWait(
        error=outage.error,
        where=outage.where,
        message=outage.message,
        seconds=now - outage.since,
        probes=breaker.probes,
        probe_in=None if due is None else max(0.0, due - now),
    )


def _blocked(sub: Subscription, closed: ClosedLane, now: float) -> BlockedKey:
    key, last = closed.key, closed.last
    return BlockedKey(
        key=key_text(key),
        slot=slot_of(sub, key),
        topic=closed.partition.topic,
        partition=closed.partition.partition,
        offset=-1 if closed.head is None else closed.head.offset(),
        seconds=now - closed.blocked_at,
        attempts=closed.attempts,
        error="" if last is None else in_short(last),
    )


def _worker(
    look: _StatusLook, sub: Subscription, worker: Worker, drains: tuple[DrainingSlot, ...]
) -> WorkerStatus:
    core, progress, now, around, _ = look
    watch = core.watches[sub.name]
    running = None
    runs = stuck = 0
    # A stuck record has been running for longest.
    for id_, leased in sorted(worker.slices.items(), key=lambda each: each[0] not in worker.apart):
        for index in leased.running(progress):
            runs += 1
            known = watch.running.get((id_, index))
            stuck += id_ in worker.apart and id_ != worker.detached
            if running is None:
                record = leased.slice.came[index]
                since = detached_since(sub, id_, now if known is None else known.since)
                topic, partition = partition_of(record)
                key = sub.keys.key(record)
                where, stack = around.stands.get(
                    (sub.name, worker.id, id_, index), CodePosition("", "")
                )
                running = RunningRecord(
                    topic=topic,
                    partition=partition,
                    offset=record.offset(),
                    seconds=now - since,
                    key=key_text(key),
                    slot=slot_of(sub, key),
                    where=where,
                    stack=stack,
                )
    state: ShownState = "idle"
    if worker.waits and worker.detached is None:
        state = "stuck"
    elif running is not None:
        state = "running"
    elif not worker.present:
        state = "gone"
    return WorkerStatus(
        name=worker.name,
        state=state,
        leased=worker.leased,
        queued=worker.waiting() + (0 if worker.shares else len(worker.row.retries)),
        running=running,
        runs=runs,
        stuck=stuck,
        busy_seconds=worker.busy_seconds,
        starved_seconds=worker.starved_seconds,
        restarts=worker.restarts,
        dropped=worker.shed,
        share=sub.table.shares.get(worker.id, 0.0),
        draining=drains,
        detached=worker.detached is not None,
        shards=shards_at(worker),
    )


def _id(worker: Worker) -> int:
    return worker.id


def _distribution(histogram: Histogram) -> Distribution:
    return Distribution(
        bounds=histogram.bounds, counts=tuple(histogram.counts), total=histogram.total
    )


def settled_in(status: Status) -> int:
    """Return how many records have settled since the start, with any outcome."""
    return sum(
        sum(outcomes.values())
        for sub in status.subscriptions
        for outcomes in sub.processed.values()
    )
