"""What it costs to tell a group how one is: the package with reports to a topic, and without."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from kafka_keyshared.errors import KeySharedError
from kafka_keyshared.lab.bench.common import Progress, topic_of_our_own
from kafka_keyshared.lab.bench.noop import NoopPlan, fill
from kafka_keyshared.testing.clusters.cluster import Cluster
from tests.benchmarks.disturbed import lost_beside, run_on

LEAST = 3
"""Records in a run: with the last word, and what is told before the first record comes."""


@dataclass(frozen=True, slots=True)
class TellingPlan:
    """The empty handler with a report every second, which is the most there may be, and without."""

    noop: NoopPlan


def measure(plan: NoopPlan, cluster: Cluster, progress: Progress) -> dict[str, Any]:
    """Return what reports take, as :func:`tests.benchmarks.disturbed.lost_beside` does."""
    with (
        topic_of_our_own(cluster, plan.partitions, progress) as topic,
        topic_of_our_own(cluster, 1, progress) as topic_of_reports,
    ):
        fill(cluster.bootstrap, topic, plan)
        found = lost_beside(
            plan,
            lambda: run_on(plan, cluster, topic),
            lambda: run_on(plan, cluster, topic, group_view=topic_of_reports),
            progress,
        )
        written = _end_of(cluster, topic_of_reports)
    if written < LEAST * plan.repeat:
        raise KeySharedError(f"hardly anything was told: {written} reports in {plan.repeat} runs")
    return found | {"reports": written}


def _end_of(cluster: Cluster, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "unused"})
    try:
        end: int = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)[1]
        return end
    finally:
        consumer.close()
