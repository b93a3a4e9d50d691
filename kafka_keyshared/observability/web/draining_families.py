"""Metrics of draining slots, named after PIP-379, and of detached records."""

from __future__ import annotations

from kafka_keyshared.observability.web.metric_family import MetricFamily, summed

DRAINING = (
    MetricFamily(
        "keyshared_draining_hashes",
        "gauge",
        "Slots that have a new worker while their old one still has leases of them.",
        (),
        summed(lambda sub: sub.draining_hashes_count),
    ),
    MetricFamily(
        "keyshared_draining_pending_records",
        "gauge",
        "Leases that draining slots wait for.",
        (),
        summed(lambda sub: sub.draining_hashes_pending_messages),
    ),
    MetricFamily(
        "keyshared_draining_blocked_records",
        "gauge",
        "Records that wait for a slot to drain.",
        (),
        summed(lambda sub: sub.draining_hashes_blocked_messages),
    ),
    MetricFamily(
        "keyshared_draining_hashes_cleared_total",
        "counter",
        "Slots that have drained.",
        (),
        summed(lambda sub: sub.draining_hashes_cleared_total),
    ),
    MetricFamily(
        "keyshared_detached_records",
        "gauge",
        "Records that run for long, while all other keys go on with other workers.",
        (),
        summed(lambda sub: sum(worker.detached for worker in sub.workers)),
    ),
    MetricFamily(
        "keyshared_detached_total",
        "counter",
        "Records that ran so long that all other keys went on without their worker.",
        (),
        summed(lambda sub: sub.detached),
    ),
)
