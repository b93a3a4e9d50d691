"""Metrics from the Kafka client's own statistics."""

from __future__ import annotations

from kafka_keyshared.observability.web.metric_family import (
    PARTITION,
    MetricFamily,
    client_lag,
    one,
    round_trips,
)

CLIENT = (
    MetricFamily(
        "keyshared_rdkafka_consumer_lag_records",
        "gauge",
        "The Kafka client's own idea of the lag, from its statistics.",
        PARTITION,
        client_lag,
    ),
    MetricFamily(
        "keyshared_rdkafka_fetchq_records",
        "gauge",
        "Records that the Kafka client has fetched and not handed out.",
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
        "Rebalances that the Kafka client counted.",
        (),
        one(lambda status: status.client.rebalances if status.client else None),
    ),
)
