"""All metrics: name, kind, help, labels, and status reader.

Labels are few and bounded: never a key, a slot, an offset or a process id. Only gauges have the
label ``partition``, and it can be left out.
"""

from __future__ import annotations

from kafka_keyshared.observability.web.client_families import CLIENT
from kafka_keyshared.observability.web.diagnosis_families import DIAGNOSIS
from kafka_keyshared.observability.web.draining_families import DRAINING
from kafka_keyshared.observability.web.group_families import GROUP
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
    summed,
    summed_by_topic,
    worker_states,
)
from kafka_keyshared.observability.web.shard_families import SHARDS

WORKER = ("worker",)

FLOW = (
    MetricFamily(
        "keyshared_records_fetched_total",
        "counter",
        "Records taken from the Kafka client.",
        ("topic",),
        counts(lambda status: status.fetched),
    ),
    MetricFamily(
        "keyshared_records_processed_total",
        "counter",
        "How records ended: ok, dropped, dead_lettered, diverted (dead-lettered unrun: their key "
        "is diverted), skipped (settled before this assignment), "
        "unmatched (no worker was declared to take it, so it was settled unrun); "
        "failed counts attempts, each of which may be followed by another, and undecodable records "
        "whose key could not be read, whatever became of them.",
        ("topic", "outcome"),
        by_topic(lambda sub: sub.processed),
    ),
    MetricFamily(
        "keyshared_keyless_records_total",
        "counter",
        "Records for which the key function (key=) found no key. Beside records of the same topic "
        "that have one they run in no order.",
        ("topic",),
        summed_by_topic(lambda sub: sub.keyless),
    ),
    MetricFamily(
        "keyshared_unread_partitions",
        "gauge",
        "Partitions that wait because the key of a record cannot be read yet: the schema registry "
        "is away, or a schema or format is unknown.",
        (),
        summed(lambda sub: len(sub.unread)),
    ),
    MetricFamily(
        "keyshared_record_retries_total",
        "counter",
        "Further attempts, by the error of the one before.",
        ("topic", "error"),
        by_topic(lambda sub: sub.retried),
    ),
    MetricFamily(
        "keyshared_dlq_records_total",
        "counter",
        "Dead letters by the broker's answer; one that failed is sent again.",
        ("topic", "outcome"),
        by_topic(lambda sub: sub.letters),
    ),
    MetricFamily(
        "keyshared_process_duration_seconds",
        "histogram",
        "Time in the handler; the time of a slice is spread evenly over its records.",
        (),
        merged(lambda sub: sub.process_seconds),
    ),
    MetricFamily(
        "keyshared_queue_wait_seconds",
        "histogram",
        "Time from the fetch to the start of the handler, at the first record of sampled slices.",
        (),
        merged(lambda sub: sub.wait_seconds),
    ),
    MetricFamily(
        "keyshared_record_age_seconds",
        "histogram",
        "Time from a record's timestamp to the end of its handler, at the last of sampled slices.",
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
        "Records handed to workers: running, or waiting in a worker's mailbox.",
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
        "keyshared_buffered_records",
        "gauge",
        "Received, unsettled records: the fill of the window.",
        (),
        summed(lambda sub: sub.records),
    ),
    MetricFamily(
        "keyshared_buffered_bytes",
        "gauge",
        "Bytes of the values of received, unsettled records, by sampling.",
        (),
        summed(lambda sub: sub.bytes),
    ),
    MetricFamily(
        "keyshared_active_hashes",
        "gauge",
        "Keys that have received, unsettled records.",
        (),
        summed(lambda sub: sub.keys),
    ),
    MetricFamily(
        "keyshared_hottest_hash_queued_records",
        "gauge",
        "Received, unsettled records of the key that has the most of them.",
        (),
        one(lambda status: max(sub.hottest for sub in status.subscriptions)),
    ),
    MetricFamily(
        "keyshared_closed_lanes",
        "gauge",
        "Keys closed by a failed record, by what they wait for.",
        ("state",),
        lane_states,
    ),
    MetricFamily(
        "keyshared_closed_lane_records",
        "gauge",
        "Records that wait in closed lanes, their failed heads included.",
        (),
        summed(lambda sub: sub.lane_records),
    ),
)

OFFSETS = (
    MetricFamily(
        "keyshared_partition_committed_offset",
        "gauge",
        "The position that the broker accepted (the next offset).",
        PARTITION,
        of_partitions(lambda each: each.committed),
    ),
    MetricFamily(
        "keyshared_partition_safe_offset",
        "gauge",
        "End of the contiguous settled run: what may be committed.",
        PARTITION,
        of_partitions(lambda each: each.safe),
    ),
    MetricFamily(
        "keyshared_partition_completed_offset",
        "gauge",
        "One past the highest settled offset.",
        PARTITION,
        of_partitions(lambda each: each.completed),
    ),
    MetricFamily(
        "keyshared_partition_fetched_offset",
        "gauge",
        "The next offset to be received.",
        PARTITION,
        of_partitions(lambda each: each.fetched),
    ),
    MetricFamily(
        "keyshared_partition_incomplete_offsets",
        "gauge",
        "Received, unsettled records of the partition.",
        PARTITION,
        of_partitions(lambda each: each.incomplete),
    ),
    MetricFamily(
        "keyshared_partition_oldest_incomplete_seconds",
        "gauge",
        "For how long the record at the safe position has been the oldest unsettled one.",
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
        "The lag less what is settled beyond the committed position: the work that is left.",
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
        "Size of the commit metadata of one partition; the broker takes 4,095.",
        (),
        of_member(lambda status: status.metadata_bytes),
    ),
)

WORK = (
    MetricFamily(
        "keyshared_workers",
        "gauge",
        "Workers by what they do.",
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
        "Time in which the worker had nothing to do, looked at every 0.5 s.",
        WORKER,
        by_worker(lambda worker: worker.starved_seconds),
    ),
    MetricFamily(
        "keyshared_worker_restarts_total",
        "counter",
        "How often the worker's thread had ended and was started again.",
        WORKER,
        by_worker(lambda worker: worker.restarts),
    ),
    MetricFamily(
        "keyshared_worker_dropped_records_total",
        "counter",
        "Records dropped because the worker was full; always 0 but with delivery='at-most-once'.",
        WORKER,
        by_worker(lambda worker: worker.dropped),
    ),
    MetricFamily(
        "keyshared_ring_ownership_ratio",
        "gauge",
        "Share of all slots that the worker owns.",
        WORKER,
        by_worker(lambda worker: worker.share),
    ),
    MetricFamily(
        "keyshared_stuck_records_total",
        "counter",
        "Records that ran past the ack timeout and could not be ended.",
        (),
        summed(lambda sub: sub.stuck),
    ),
    MetricFamily(
        "keyshared_stuck_records",
        "gauge",
        "Records that run past the ack timeout and cannot be ended; their keys wait.",
        (),
        summed(lambda sub: sum(worker.stuck for worker in sub.workers)),
    ),
    MetricFamily(
        "keyshared_timed_out_attempts_total",
        "counter",
        "Attempts that were ended because the ack timeout was over; each has failed.",
        (),
        summed(lambda sub: sub.timed_out),
    ),
    MetricFamily(
        "keyshared_late_settlements_total",
        "counter",
        "What members settled that was theirs no more: timed out, or of a partition that had gone.",
        (),
        summed(lambda sub: sub.late),
    ),
    MetricFamily(
        "keyshared_written_off_records_total",
        "counter",
        "Records that evicted workers had not started and that count as done (on_evict=ack): lost.",
        (),
        summed(lambda sub: sub.written_off),
    ),
)

FAMILIES: tuple[MetricFamily, ...] = (
    *(*DIAGNOSIS, *FLOW, *DRAINING, *SHARDS, *OFFSETS, *WORK, *GROUP, *CLIENT),
)
