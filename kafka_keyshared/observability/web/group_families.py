"""Metrics of an instance's membership in its group."""

from __future__ import annotations

from kafka_keyshared.core.backpressure.pause_reasons import Reason
from kafka_keyshared.observability.web.metric_family import (
    MetricFamily,
    counts,
    of_member,
    one,
    summed,
)

GROUP = (
    MetricFamily(
        "keyshared_partitions_assigned",
        "gauge",
        "Partitions that this member owns.",
        (),
        one(lambda status: len(status.partitions)),
    ),
    MetricFamily(
        "keyshared_partitions_paused",
        "gauge",
        "Assigned partitions that are not fetched from just now.",
        (),
        one(lambda status: sum(each.paused for each in status.partitions)),
    ),
    MetricFamily(
        "keyshared_partitions_paused_by_hand",
        "gauge",
        "Of those, the ones that somebody has paused until they are resumed.",
        (),
        one(lambda status: sum(Reason.BY_HAND in each.held_back for each in status.partitions)),
    ),
    MetricFamily(
        "keyshared_paused_seconds_total",
        "counter",
        "Time in which partitions were held back, added up over them, looked at every 0.5 s.",
        (),
        one(lambda status: status.paused_seconds),
    ),
    MetricFamily(
        "keyshared_partition_stalls_total",
        "counter",
        "Times that a partition delivered nothing for 30 s although there was something to read "
        "and nothing held it back; each time it is read again.",
        ("topic",),
        counts(lambda status: status.stalls),
    ),
    MetricFamily(
        "keyshared_rebalances_total",
        "counter",
        "Times that partitions were assigned, revoked or lost.",
        ("event",),
        counts(lambda status: status.rebalances),
    ),
    MetricFamily(
        "keyshared_rebalance_drain_seconds",
        "histogram",
        "Time from the begin of a revoke until the partitions were let go.",
        (),
        of_member(lambda status: status.drain_seconds),
    ),
    MetricFamily(
        "keyshared_stale_completions_total",
        "counter",
        "Records that ended after their partition had gone; they settle nothing here.",
        (),
        summed(lambda sub: sub.stale),
    ),
    MetricFamily(
        "keyshared_last_poll_timestamp_seconds",
        "gauge",
        "When the client was last polled.",
        (),
        one(lambda status: status.polled_at),
    ),
    MetricFamily(
        "keyshared_poll_interval_used_ratio",
        "gauge",
        "The longest time between two polls lately, as a share of max.poll.interval.ms.",
        (),
        one(lambda status: status.poll_used),
    ),
    MetricFamily(
        "keyshared_group_beats_total",
        "counter",
        "What it told its group of itself, by whether that was written (group_view_topic).",
        ("result",),
        counts(lambda status: status.beats),
    ),
    MetricFamily(
        "keyshared_start_time_seconds",
        "gauge",
        "When the instance was started.",
        (),
        one(lambda status: status.started_at),
    ),
)
