"""What it costs to tell a group how one is: the package with beats to a topic, and without."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from kafka_keyshared.bench.common import Progress, topic_of_our_own
from kafka_keyshared.bench.noop import NoopPlan, fill
from kafka_keyshared.errors import KeySharedError
from kafka_keyshared.local.cluster import Cluster
from tests.benchmarks.disturbed import run_on

LEAST = 3
"""Records in a run: with the last word, and what is told before the first record comes."""


@dataclass(frozen=True, slots=True)
class TellingPlan:
    """The empty handler with a beat every second, which is the most there may be, and without."""

    noop: NoopPlan


def measure(plan: NoopPlan, cluster: Cluster, progress: Progress) -> dict[str, Any]:
    """Return ``lost``: the median share of the throughput that beats take.

    And ``busier``, as :func:`tests.benchmarks.watched.measure` does.
    """
    lost, busier, rates = [], [], []
    with (
        topic_of_our_own(cluster, plan.partitions, progress) as topic,
        topic_of_our_own(cluster, 1, progress) as beats,
    ):
        fill(cluster.bootstrap, topic, plan)
        for number in range(plan.repeat):
            # In turn, so that the machine's moods hit both alike.
            if number % 2:
                telling = run_on(plan, cluster, topic, beats=beats)
                silent = run_on(plan, cluster, topic)
            else:
                silent = run_on(plan, cluster, topic)
                telling = run_on(plan, cluster, topic, beats=beats)
            lost.append(1.0 - silent.seconds / telling.seconds)
            busier.append(telling.processor / silent.processor - 1.0)
            rates.append(plan.records / silent.seconds)
            progress(f"{number + 1} of {plan.repeat}: {lost[-1]:.3f} lost, {busier[-1]:.3f} busier")
        written = _end_of(cluster, beats)
    if written < LEAST * plan.repeat:
        raise KeySharedError(f"hardly anything was told: {written} beats in {plan.repeat} runs")
    return {
        "lost": round(statistics.median(lost), 3),
        "all_lost": [round(each, 3) for each in lost],
        "busier": round(statistics.median(busier), 3),
        "all_busier": [round(each, 3) for each in busier],
        "silent_per_s": round(statistics.median(rates)),
        "beats": written,
    }


def _end_of(cluster: Cluster, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "unused"})
    try:
        end: int = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)[1]
        return end
    finally:
        consumer.close()
