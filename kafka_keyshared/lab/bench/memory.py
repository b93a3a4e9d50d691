"""``keyshared bench memory``: memory growth over ten million keys, and peak memory.

Every record has a key of its own, so any state that the layer kept per key would show as growth.
The bare loop with the same client settings shows how much of the peak is the client's own.
"""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec

from kafka_keyshared.errors import ConfigError, KeySharedError, MissingPartError
from kafka_keyshared.lab.bench.child import Side
from kafka_keyshared.lab.bench.common import (
    RECORD_OVERHEAD,
    Progress,
    group_of,
    key_of,
    open_cluster,
    produce_all,
    require_positive,
    run_child,
    topic_of_our_own,
)
from kafka_keyshared.lab.bench.memory_side import Footprint, MemoryTask
from kafka_keyshared.lab.bench.noop import EMBEDDED_BYTES_MAX
from kafka_keyshared.testing.clusters.cluster import Cluster

MARK = 1_000_000
"""Growth counts from this many records on: every buffer has then reached its size."""

KEYS_LEAST = 1_000
DISK_SPARE = 1 << 30
MIB = 1 << 20


class MemoryPlan(msgspec.Struct, kw_only=True, frozen=True):
    """Parameters: one record of ``value_bytes`` for each of ``keys`` keys."""

    keys: int = 10_000_000
    partitions: int = 8
    value_bytes: int = 100
    workers: str = "thread:8"

    def check(self) -> None:
        """Raise :class:`ConfigError` for numbers that make no sense."""
        require_positive(self, "partitions")
        if self.keys < KEYS_LEAST:
            raise ConfigError(f"--keys {self.keys}: give at least {KEYS_LEAST:,}")
        if self.value_bytes < 0:
            raise ConfigError(f"--value-bytes {self.value_bytes}: must not be negative")

    def mark(self) -> int:
        """Return after how many records growth begins to count: a million, or the first tenth."""
        return min(MARK, self.keys // 10)

    def size(self) -> int:
        """Return about how many bytes the broker will keep."""
        return self.keys * (self.value_bytes + len(key_of(self.keys)) + RECORD_OVERHEAD)


def require_space(plan: MemoryPlan, cluster: Cluster) -> None:
    """Raise :class:`KeySharedError` if the records do not fit into the cluster's storage.

    The room of a cluster that this bench has not started is unknown here.
    """
    if cluster.kind == "embedded":
        if plan.size() > plan.partitions * EMBEDDED_BYTES_MAX:
            raise MissingPartError(
                f"--keys {plan.keys} needs a real Kafka, and the embedded one keeps 5 MB per "
                "partition; install Java 17 and Maven and run make kafka once, or give -b host:port"
            )
        return
    directory: Path | None = getattr(cluster, "directory", None)
    if directory is None:
        return
    free, needed = shutil.disk_usage(directory).free, plan.size() + DISK_SPARE
    if free < needed:
        raise KeySharedError(
            f"--keys {plan.keys} needs {needed / MIB:,.0f} MiB of disk at {directory}, where "
            f"{free / MIB:,.0f} MiB are free; free some, set TMPDIR to a larger disk, or give "
            "fewer --keys"
        )


def measure(plan: MemoryPlan, cluster: Cluster, progress: Progress) -> dict[str, Any]:
    """Return the measurement. Raises :class:`KeySharedError` when a side failed."""
    plan.check()
    require_space(plan, cluster)
    with topic_of_our_own(cluster, plan.partitions, progress) as topic:
        progress(
            f"producing {plan.keys:,} records, each with its own key, to {topic}, {cluster.kind} "
            f"Kafka at {cluster.bootstrap}; about {plan.size() / MIB:,.0f} MiB"
        )
        keys = map(key_of, range(plan.keys))
        produce_all(cluster.bootstrap, topic, keys, plan.partitions, plan.value_bytes)
        bare = _side(plan, cluster, topic, "bare", progress)
        layer = _side(plan, cluster, topic, "keyshared", progress)
    return summary(plan, cluster.kind, bare, layer)


def _side(
    plan: MemoryPlan, cluster: Cluster, topic: str, side: Side, progress: Progress
) -> Footprint:
    task = MemoryTask(
        side=side,
        bootstrap=cluster.bootstrap,
        topic=topic,
        group=group_of(side),
        workers=plan.workers,
        records=plan.keys,
        roomy=False,
        mark=plan.mark(),
    )
    found = run_child("memory_side", task, Footprint, f"{side} side")
    progress(
        f"{side}: peak {found.peak_mib:.1f} MiB, {found.mark_mib:.1f} MiB after {plan.mark():,} "
        f"records, {found.end_mib:.1f} MiB at the end, {found.seconds:.1f} s"
    )
    return found


def summary(plan: MemoryPlan, kind: str, bare: Footprint, layer: Footprint) -> dict[str, Any]:
    """Summarize both sides, with the reasons to doubt the figures."""
    suspect = []
    if plan.mark() < MARK:
        suspect.append(
            f"{plan.keys:,} keys are few: growth counts from {plan.mark():,} records on, when "
            "buffers may still grow; give 10,000,000 --keys"
        )
    if not (bare.exact and layer.exact):
        suspect.append(
            "this system does not report its current resident memory, so the peak is used"
        )
    return {
        "peak_mib": round(layer.peak_mib, 1),
        "bare_peak_mib": round(bare.peak_mib, 1),
        "above_bare_mib": round(layer.peak_mib - bare.peak_mib, 1),
        "growth_mib": round(layer.end_mib - layer.mark_mib, 1),
        "bare_growth_mib": round(bare.end_mib - bare.mark_mib, 1),
        "before_mib": round(layer.before_mib, 1),
        "after_million_mib": round(layer.mark_mib, 1),
        "end_mib": round(layer.end_mib, 1),
        "curve_mib": [round(each, 1) for each in layer.curve_mib],
        "bare_curve_mib": [round(each, 1) for each in bare.curve_mib],
        "keys": plan.keys,
        "seconds": round(layer.seconds, 3),
        "bare_seconds": round(bare.seconds, 3),
        "client_settings": "the package's defaults on both sides",
        "kafka": kind,
        "suspect": suspect,
    }


def measure_at(plan: MemoryPlan, bootstrap: str | None, progress: Progress) -> dict[str, Any]:
    """Measure on the cluster at this address, or on the best that can be started here."""
    plan.check()
    with closing(open_cluster(bootstrap)) as cluster:
        return measure(plan, cluster, progress)
