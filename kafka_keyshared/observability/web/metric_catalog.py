"""Metrics of records, positions and workers, and the table of all.

Labels are few and bounded: never a key, a slot, an offset or a process id. Only gauges have the
label ``partition``, and it can be left out. The collector adds the label ``group``.
"""

from __future__ import annotations

from kafka_keyshared.observability.web.instance_metrics import CLIENT, DIAGNOSIS, GROUP
from kafka_keyshared.observability.web.metric_family import (
    PARTITION,
    MetricFamily,
    by_topic,
    by_worker,
    counts,
    lane_states,
    merged,
    of_member,
    of_partitions,
    one,
    shard_states,
    summed,
    summed_by_topic,
    worker_states,
)

WORKER = ("worker",)

RECORDS = (
    MetricFamily(
        "keyshared_records_fetched_total",
        "counter",
        "Records received from the Kafka client.",
        ("topic",),
        counts(lambda status: status.fetched),
    ),
    MetricFamily(
        "keyshared_records_processed_total",
        "counter",
        "Settled records by outcome, each record once: ok, dropped, dead_lettered, diverted "
        "(dead-lettered without an attempt, because the key is diverted), skipped (settled "
        "before this assignment), unmatched (settled without an attempt, because no worker was "
        "declared to take it).",
        ("topic", "outcome"),
        by_topic(lambda sub: sub.processed),
    ),
    MetricFamily(
        "keyshared_attempts_total",
        "counter",
        "Attempts by result: ok, dropped (the handler returned Drop), failed, timed_out "
        "(failed, because the ack timeout ended it). A record may take several attempts.",
        ("topic", "result"),
        by_topic(lambda sub: sub.attempts),
    ),
    MetricFamily(
        "keyshared_record_retries_total",
        "counter",
        "Retries by the error of the attempt before.",
        ("topic", "error"),
        by_topic(lambda sub: sub.retried),
    ),
    MetricFamily(
        "keyshared_undecodable_records_total",
        "counter",
        "Records whose key could not be read, with any outcome.",
        ("topic",),
        summed_by_topic(lambda sub: sub.undecodable),
    ),
    MetricFamily(
        "keyshared_keyless_records_total",
        "counter",
        "Records for which the key function (key=) found no key. They have no order relative "
        "to the keyed records of their topic.",
        ("topic",),
        summed_by_topic(lambda sub: sub.keyless),
    ),
    MetricFamily(
        "keyshared_partitions_key_unreadable",
        "gauge",
        "Partitions that wait because the key of a record cannot be read yet: the schema "
        "registry does not answer, or a schema or format is unknown.",
        (),
        summed(lambda sub: len(sub.unreadable_keys)),
    ),
    MetricFamily(
        "keyshared_dlq_writes_total",
        "counter",
        "Writes to the dead-letter topic by result. A failed write is retried.",
        ("topic", "result"),
        by_topic(lambda sub: sub.dlq_writes),
    ),
    MetricFamily(
        "keyshared_process_duration_seconds",
        "histogram",
        "Time in the handler. The time of a slice is spread evenly over its records.",
        (),
        merged(lambda sub: sub.process_seconds),
    ),
    MetricFamily(
        "keyshared_queue_wait_seconds",
        "histogram",
        "Time from the fetch to the start of the handler, for the first record of sampled slices.",
        (),
        merged(lambda sub: sub.wait_seconds),
    ),
    MetricFamily(
        "keyshared_record_age_seconds",
        "histogram",
        "Time from the timestamp of a record to the end of its handler, for the last record of "
        "sampled slices.",
        (),
        merged(lambda sub: sub.age_seconds),
    ),
    MetricFamily(
        "keyshared_inflight_records",
        "gauge",
        "Records whose handler is running.",
        (),
        summed(lambda sub: sum(worker.runs for worker in sub.workers)),
    ),
    MetricFamily(
        "keyshared_leased_records",
        "gauge",
        "Records leased to workers: running, or waiting in a worker's mailbox.",
        (),
        summed(lambda sub: sum(worker.leased for worker in sub.workers)),
    ),
    MetricFamily(
        "keyshared_queued_records",
        "gauge",
        "Records that wait for their worker and are not leased yet.",
        WORKER,
        by_worker(lambda worker: worker.queued),
    ),
    MetricFamily(
        "keyshared_unsettled_records",
        "gauge",
        "Received and not yet settled records: the fill of the window.",
        (),
        summed(lambda sub: sub.records),
    ),
    MetricFamily(
        "keyshared_unsettled_bytes",
        "gauge",
        "Bytes of the values of received and not yet settled records, by sampling.",
        (),
        summed(lambda sub: sub.bytes),
    ),
    MetricFamily(
        "keyshared_active_keys",
        "gauge",
        "Keys with received and not yet settled records.",
        (),
        summed(lambda sub: sub.keys),
    ),
    MetricFamily(
        "keyshared_hottest_key_records",
        "gauge",
        "Unsettled records of the key that has the most of them.",
        (),
        one(lambda status: max(sub.hottest for sub in status.subscriptions)),
    ),
    MetricFamily(
        "keyshared_hot_keys",
        "gauge",
        "Keys whose slot is a shard of its own, because they had most of a long queue.",
        (),
        summed(lambda sub: 0 if sub.shared is None else sub.shared.hot),
    ),
    MetricFamily(
        "keyshared_closed_lanes",
        "gauge",
        "Closed lanes by state. A failed record closes the lane of its key.",
        ("state",),
        lane_states,
    ),
    MetricFamily(
        "keyshared_closed_lane_records",
        "gauge",
        "Records that wait in closed lanes, including the failed ones.",
        (),
        summed(lambda sub: sub.lane_records),
    ),
)

OFFSETS = (
    MetricFamily(
        "keyshared_partition_committed_offset",
        "gauge",
        "The committed position: the next offset, as the broker has accepted it.",
        PARTITION,
        of_partitions(lambda each: each.committed),
    ),
    MetricFamily(
        "keyshared_partition_safe_offset",
        "gauge",
        "The safe position: every record before it is settled, so it may be committed.",
        PARTITION,
        of_partitions(lambda each: each.safe),
    ),
    MetricFamily(
        "keyshared_partition_settled_offset_max",
        "gauge",
        "One past the highest settled offset.",
        PARTITION,
        of_partitions(lambda each: each.settled_max),
    ),
    MetricFamily(
        "keyshared_partition_fetched_offset",
        "gauge",
        "The next offset to be received.",
        PARTITION,
        of_partitions(lambda each: each.fetched),
    ),
    MetricFamily(
        "keyshared_partition_unsettled_records",
        "gauge",
        "Received and not yet settled records of the partition.",
        PARTITION,
        of_partitions(lambda each: each.unsettled),
    ),
    MetricFamily(
        "keyshared_partition_oldest_unsettled_seconds",
        "gauge",
        "How long the record at the safe position has been the oldest unsettled one.",
        PARTITION,
        of_partitions(lambda each: each.oldest_seconds),
    ),
    MetricFamily(
        "keyshared_lag_records",
        "gauge",
        "Offsets from the committed position to the end of the log.",
        PARTITION,
        of_partitions(lambda each: each.lag),
    ),
    MetricFamily(
        "keyshared_lag_seconds",
        "gauge",
        "Age of the record at the safe position, by its timestamp; 0 without a lag.",
        PARTITION,
        of_partitions(lambda each: each.lag_seconds),
    ),
    MetricFamily(
        "keyshared_backlog_records",
        "gauge",
        "The lag less the records settled beyond the committed position: the work that is left.",
        PARTITION,
        of_partitions(lambda each: each.backlog),
    ),
    MetricFamily(
        "keyshared_commits_total",
        "counter",
        "Commits by the broker's answer.",
        ("result",),
        counts(lambda status: status.commits),
    ),
    MetricFamily(
        "keyshared_commit_duration_seconds",
        "histogram",
        "Time from sending a commit to its answer.",
        (),
        of_member(lambda status: status.commit_seconds),
    ),
    MetricFamily(
        "keyshared_commit_metadata_bytes",
        "histogram",
        "Size of the commit metadata of one partition. By default a broker accepts 4,095 bytes.",
        (),
        of_member(lambda status: status.metadata_bytes),
    ),
)

WORKERS = (
    MetricFamily(
        "keyshared_workers",
        "gauge",
        "Workers by state.",
        ("pool", "state"),
        worker_states,
    ),
    MetricFamily(
        "keyshared_worker_busy_seconds_total",
        "counter",
        "Time that the worker spent on slices that have ended.",
        WORKER,
        by_worker(lambda worker: worker.busy_seconds),
    ),
    MetricFamily(
        "keyshared_worker_starved_seconds_total",
        "counter",
        "Time in which the worker had no record, measured every 0.5 s.",
        WORKER,
        by_worker(lambda worker: worker.starved_seconds),
    ),
    MetricFamily(
        "keyshared_worker_restarts_total",
        "counter",
        "Restarts of the worker after its thread or process had ended.",
        WORKER,
        by_worker(lambda worker: worker.restarts),
    ),
    MetricFamily(
        "keyshared_worker_dropped_records_total",
        "counter",
        "Records dropped because the worker was full. It is 0 unless delivery='at-most-once'.",
        WORKER,
        by_worker(lambda worker: worker.dropped),
    ),
    MetricFamily(
        "keyshared_worker_slots_ratio",
        "gauge",
        "Share of all slots that the worker owns.",
        WORKER,
        by_worker(lambda worker: worker.share),
    ),
    MetricFamily(
        "keyshared_shards",
        "gauge",
        "Shards by state, if workers share waiting records: idle, ready for any worker, or "
        "held by one.",
        ("state",),
        shard_states,
    ),
    MetricFamily(
        "keyshared_records_stuck_total",
        "counter",
        "Records that ran past the ack timeout and could not be ended.",
        (),
        summed(lambda sub: sub.stuck),
    ),
    MetricFamily(
        "keyshared_stuck_records",
        "gauge",
        "Records that run past the ack timeout and cannot be ended. Their keys wait.",
        (),
        summed(lambda sub: sum(worker.stuck for worker in sub.workers)),
    ),
    MetricFamily(
        "keyshared_records_detached_total",
        "counter",
        "Records that ran so long that other workers took over all keys but theirs.",
        (),
        summed(lambda sub: sub.detached),
    ),
    MetricFamily(
        "keyshared_detached_records",
        "gauge",
        "Records that run for long while other workers process all keys but theirs.",
        (),
        summed(lambda sub: sum(worker.detached for worker in sub.workers)),
    ),
    MetricFamily(
        "keyshared_late_acks_total",
        "counter",
        "Acknowledgements of members that were rejected: the lease had timed out, or the "
        "partition was revoked.",
        (),
        summed(lambda sub: sub.late_acks),
    ),
    MetricFamily(
        "keyshared_written_off_records_total",
        "counter",
        "Records that evicted workers had not started and that were acknowledged unprocessed "
        "(on_evict=ack): they are lost.",
        (),
        summed(lambda sub: sub.written_off),
    ),
    MetricFamily(
        "keyshared_draining_slots",
        "gauge",
        "Slots that have a new worker while their old worker still has leases of them.",
        (),
        summed(lambda sub: sub.draining_slots),
    ),
    MetricFamily(
        "keyshared_draining_pending_records",
        "gauge",
        "Leases that have to end before their slots have drained.",
        (),
        summed(lambda sub: sub.draining_pending_records),
    ),
    MetricFamily(
        "keyshared_draining_blocked_records",
        "gauge",
        "Records that wait for a slot to drain.",
        (),
        summed(lambda sub: sub.draining_blocked_records),
    ),
    MetricFamily(
        "keyshared_drained_slots_total",
        "counter",
        "Slots that have drained.",
        (),
        summed(lambda sub: sub.drained_slots),
    ),
)

FAMILIES: tuple[MetricFamily, ...] = (*(*DIAGNOSIS, *RECORDS, *OFFSETS, *WORKERS, *GROUP, *CLIENT),)
