"""Metrics of a whole instance: its diagnosis, group and Kafka client."""

from __future__ import annotations

from collections.abc import Iterator

from kafka_keyshared.core.backpressure.pause_reasons import Reason
from kafka_keyshared.observability.diagnosis.causes import CAUSES
from kafka_keyshared.observability.diagnosis.judge import diagnose
from kafka_keyshared.observability.web.metric_family import (
    PARTITION,
    MetricFamily,
    Sample,
    client_lag,
    counts,
    of_member,
    one,
    round_trips,
    summed,
)
from kafka_keyshared.status import Status


def _failures(status: Status) -> float:
    return sum(each.level == "fail" for each in diagnose(status).findings)


def _causes(status: Status) -> Iterator[Sample]:
    """Read 1 for each cause that is present, and 0 for every other known cause.

    Each cause then has a series from the start. A rule can compare it with 0, ``for:`` ends when it
    falls, and ``absent()`` finds a misspelt cause or an instance that is gone.
    """
    found = {each.code for each in diagnose(status).findings}
    for cause in CAUSES:
        yield (cause.code,), cause.code in found


DIAGNOSIS = (
    MetricFamily(
        "keyshared_diagnosis",
        "gauge",
        "1 for each cause that the diagnosis has found, 0 for every other known cause.",
        ("cause",),
        _causes,
    ),
    MetricFamily(
        "keyshared_diagnosis_failures",
        "gauge",
        "Findings that need operator action.",
        (),
        one(_failures),
    ),
)

GROUP = (
    MetricFamily(
        "keyshared_partitions_assigned",
        "gauge",
        "Partitions that are assigned to this instance.",
        (),
        one(lambda status: len(status.partitions)),
    ),
    MetricFamily(
        "keyshared_partitions_paused",
        "gauge",
        "Assigned partitions that are paused in the client.",
        (),
        one(lambda status: sum(each.paused for each in status.partitions)),
    ),
    MetricFamily(
        "keyshared_partitions_paused_by_hand",
        "gauge",
        "Assigned partitions that an operator has paused.",
        (),
        one(lambda status: sum(Reason.BY_HAND in each.held_back for each in status.partitions)),
    ),
    MetricFamily(
        "keyshared_paused_seconds_total",
        "counter",
        "Time in which partitions were held back, summed over partitions, measured every 0.5 s.",
        (),
        one(lambda status: status.paused_seconds),
    ),
    MetricFamily(
        "keyshared_partition_stalls_total",
        "counter",
        "Stalls: a partition delivered nothing for 30 s although it had unread records and was "
        "not held back. It is then read again.",
        ("topic",),
        counts(lambda status: status.stalls),
    ),
    MetricFamily(
        "keyshared_rebalances_total",
        "counter",
        "Assignments, revocations and losses of partitions.",
        ("event",),
        counts(lambda status: status.rebalances),
    ),
    MetricFamily(
        "keyshared_revoke_duration_seconds",
        "histogram",
        "Time from the start of a revocation until the partitions were released.",
        (),
        of_member(lambda status: status.revoke_seconds),
    ),
    MetricFamily(
        "keyshared_stale_results_total",
        "counter",
        "Records that ended after their partition had been revoked or lost. Their result "
        "settles nothing.",
        (),
        summed(lambda sub: sub.stale_results),
    ),
    MetricFamily(
        "keyshared_last_poll_timestamp_seconds",
        "gauge",
        "Time of the last poll of the client, in seconds since 1970.",
        (),
        one(lambda status: status.polled_at),
    ),
    MetricFamily(
        "keyshared_poll_interval_used_ratio",
        "gauge",
        "Longest recent time between two polls, as a share of max.poll.interval.ms.",
        (),
        one(lambda status: status.poll_used),
    ),
    MetricFamily(
        "keyshared_instance_reports_total",
        "counter",
        "Reports of this instance to its group view (group_view_topic), by result of the write.",
        ("result",),
        counts(lambda status: status.instance_reports),
    ),
    MetricFamily(
        "keyshared_start_time_seconds",
        "gauge",
        "Start time of the instance, in seconds since 1970.",
        (),
        one(lambda status: status.started_at),
    ),
)

CLIENT = (
    MetricFamily(
        "keyshared_rdkafka_consumer_lag_records",
        "gauge",
        "The lag as the Kafka client reports it in its statistics.",
        PARTITION,
        client_lag,
    ),
    MetricFamily(
        "keyshared_rdkafka_fetchq_records",
        "gauge",
        "Records that the Kafka client has fetched and not yet delivered.",
        (),
        one(lambda status: status.client.fetch_queue if status.client else None),
    ),
    MetricFamily(
        "keyshared_rdkafka_rtt_seconds",
        "gauge",
        "Mean round trip to a broker, from the Kafka client's statistics.",
        ("broker",),
        round_trips,
    ),
    MetricFamily(
        "keyshared_rdkafka_rebalances_total",
        "counter",
        "Rebalances that the Kafka client has counted.",
        (),
        one(lambda status: status.client.rebalances if status.client else None),
    ),
)
