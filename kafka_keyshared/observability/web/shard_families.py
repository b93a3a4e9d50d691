"""Metrics of shards and hot keys, where workers share waiting records."""

from __future__ import annotations

from collections.abc import Iterator

from kafka_keyshared.observability.web.metric_family import MetricFamily, Sample, summed
from kafka_keyshared.status import Status

SHARD_STATES = ("idle", "ready", "held")


def _shards(status: Status) -> Iterator[Sample]:
    """Read the number of shards in each state."""
    shared = [sub.shared for sub in status.subscriptions if sub.shared is not None]
    ready, held = sum(each.ready for each in shared), sum(each.held for each in shared)
    counts = (sum(each.shards for each in shared) - ready - held, ready, held)
    for state, count in zip(SHARD_STATES, counts, strict=True):
        yield (state,), count


SHARDS = (
    MetricFamily(
        "keyshared_shards",
        "gauge",
        "Shards where workers share what waits: idle, ready for any worker, or held by one.",
        ("state",),
        _shards,
    ),
    MetricFamily(
        "keyshared_hot_keys",
        "gauge",
        "Keys whose slot is a shard of its own, because they had most of a long queue.",
        (),
        summed(lambda sub: 0 if sub.shared is None else sub.shared.hot),
    ),
)
