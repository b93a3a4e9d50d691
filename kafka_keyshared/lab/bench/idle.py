"""``keyshared bench idle``: the cost of waiting, as a core share.

Three processes wait at the same time for records that do not come. They are a bare poll loop, the
package with nothing to do, and the package with one lane blocked for ever by a failed record.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import msgspec

from kafka_keyshared.errors import ConfigError
from kafka_keyshared.lab.bench.child import Side
from kafka_keyshared.lab.bench.common import (
    Progress,
    group_of,
    open_cluster,
    produce_all,
    require_positive,
    run_child,
    topic_of_our_own,
)
from kafka_keyshared.lab.bench.idle_side import IdleTask, Spent
from kafka_keyshared.testing.clusters.cluster import Cluster

CALM = 3.0
"""Seconds of waiting that do not count: the group is joined, and the first commit is over."""

SECONDS_LEAST = 20.0
BLOCKED_RECORDS = 50


class IdlePlan(msgspec.Struct, kw_only=True, frozen=True):
    """Parameters: ``seconds`` of waiting."""

    seconds: float = 20.0
    partitions: int = 8
    workers: str = "thread:8"

    def check(self) -> None:
        """Raise :class:`ConfigError` for numbers that make no sense."""
        require_positive(self, "partitions")
        if not self.seconds > 0:
            raise ConfigError(f"--seconds {self.seconds:g}: give more than 0")


def measure(plan: IdlePlan, cluster: Cluster, progress: Progress) -> dict[str, Any]:
    """Return the measurement. Raises :class:`KeySharedError` when a side failed."""
    plan.check()
    with (
        topic_of_our_own(cluster, plan.partitions, progress) as empty,
        topic_of_our_own(cluster, plan.partitions, progress) as poisoned,
    ):
        # All records have one key, and the first one fails. The others wait behind it for ever.
        produce_all(cluster.bootstrap, poisoned, [b"poison"] * BLOCKED_RECORDS, 1, 100)
        progress(
            f"three consumers wait for {plan.seconds:g} s, {cluster.kind} Kafka at "
            f"{cluster.bootstrap}; one of them says that a key is blocked, which is meant"
        )

        def run(side: Side, topic: str, blocked: int) -> Spent:
            task = IdleTask(
                side=side,
                bootstrap=cluster.bootstrap,
                topic=topic,
                group=group_of(side),
                workers=plan.workers,
                partitions=plan.partitions,
                blocked=blocked,
                calm=CALM,
                seconds=plan.seconds,
            )
            return run_child("idle_side", task, Spent, f"{side} side")

        with ThreadPoolExecutor(3) as pool:
            bare = pool.submit(run, "bare", empty, 0)
            idle = pool.submit(run, "keyshared", empty, 0)
            blocked = pool.submit(run, "keyshared", poisoned, BLOCKED_RECORDS)
            found = [each.result() for each in (bare, idle, blocked)]
    return summary(plan, cluster.kind, *found)


def summary(plan: IdlePlan, kind: str, bare: Spent, idle: Spent, blocked: Spent) -> dict[str, Any]:
    """Summarize the three processes."""
    suspect = []
    if plan.seconds < SECONDS_LEAST:
        suspect.append(
            f"{plan.seconds:g} s are short: a commit or a heartbeat more or less shows; give at "
            f"least {SECONDS_LEAST:g} --seconds"
        )
    return {
        "bare_percent": _percent(bare),
        "idle_percent": _percent(idle),
        "blocked_percent": _percent(blocked),
        "blocked_records": blocked.held,
        "seconds": plan.seconds,
        "workers": plan.workers,
        "client_settings": "the package's defaults on both sides",
        "kafka": kind,
        "suspect": suspect,
    }


def _percent(spent: Spent) -> float:
    return round(100 * spent.cpu_s / spent.wall_s, 2)


def measure_at(plan: IdlePlan, bootstrap: str | None, progress: Progress) -> dict[str, Any]:
    """Measure on the cluster at this address, or on the best that can be started here."""
    plan.check()
    with closing(open_cluster(bootstrap)) as cluster:
        return measure(plan, cluster, progress)
