"""``keyshared bench noop``: cost ratio of the layer with an empty handler.

Pairs of runs, bare loop and package, alternate so that changes of the machine affect both alike.
The median of the pairs' ratios counts.
"""

from __future__ import annotations

import random
import statistics
from contextlib import closing
from typing import Any, Literal

import msgspec

from kafka_keyshared.errors import ConfigError, KeySharedError
from kafka_keyshared.lab.bench.child import COMMIT_INTERVAL, SEED, Side
from kafka_keyshared.lab.bench.common import (
    RECORD_OVERHEAD,
    Progress,
    group_of,
    key_of,
    open_cluster,
    produce_all,
    require_positive,
    run_child,
    sides_of,
    topic_of_our_own,
)
from kafka_keyshared.lab.bench.side import SideResult, Task
from kafka_keyshared.testing.clusters.cluster import Cluster

KEY_HEADER = "key"
SUSPECT_BELOW = 500_000
SEVERAL = 2
"""A run should last this many commit intervals, or the measurement contains no commits."""

EMBEDDED_RECORDS_MAX = 30_000
EMBEDDED_BYTES_MAX = 4_500_000
"""Most bytes of a partition on the embedded cluster, which silently deletes data beyond 5 MB."""


class NoopPlan(msgspec.Struct, kw_only=True, frozen=True):
    """Parameters. ``null_share`` of the records have no key; ``fail_every`` as in Task.

    ``key`` says where the key is. The bare loop reads a key in a header too, with ``bare_reads``.
    """

    records: int = 2_000_000
    partitions: int = 8
    keys: int = 10_000
    value_bytes: int = 100
    workers: str = "thread:8"
    repeat: int = 9
    null_share: float = 0.0
    fail_every: int = 0
    one_in_flight_per_key: bool = False
    key: Literal["record", "header"] = "record"
    bare_reads: bool = True

    @property
    def key_header(self) -> str | None:
        """Return the name of the header that has the key."""
        return None if self.key == "record" else KEY_HEADER

    def task(self, side: Side, bootstrap: str, topic: str) -> Task:
        """Return the task of one side over the topic, in a group of its own."""
        return Task(
            side=side,
            bootstrap=bootstrap,
            topic=topic,
            group=group_of(side),
            records=self.records,
            workers=self.workers,
            one_in_flight_per_key=self.one_in_flight_per_key,
            fail_every=self.fail_every,
            key_header=self.key_header,
            bare_reads=self.bare_reads,
        )

    def check(self) -> None:
        """Raise :class:`ConfigError` for numbers that make no sense."""
        require_positive(self, "records", "partitions", "keys", "repeat")
        if self.value_bytes < 0 or self.fail_every < 0 or not 0 <= self.null_share <= 1:
            raise ConfigError(
                "--value-bytes and --fail-every must not be negative, --null-share is from 0 to 1"
            )

    def that_fits(self, cluster: Cluster) -> NoopPlan:
        """Return the plan with as many records as the cluster can hold."""
        if cluster.kind != "embedded":
            return self
        each = embedded_room(self.value_bytes, self.keys)
        return msgspec.structs.replace(self, records=min(self.records, self.partitions * each))


def embedded_room(value_bytes: int, keys: int) -> int:
    """Return how many records of this size a partition of the embedded cluster keeps."""
    size = value_bytes + len(key_of(keys)) + RECORD_OVERHEAD
    return min(EMBEDDED_RECORDS_MAX, max(1, EMBEDDED_BYTES_MAX // size))


def fill(bootstrap: str, topic: str, plan: NoopPlan) -> None:
    """Produce the plan's records; keys go round robin, null keys at random between them."""
    names = [key_of(number) for number in range(plan.keys)]
    # Random, but always the same: in turn they would reach only some partitions.
    chance = random.Random(SEED).random
    keys = (
        None if plan.null_share and chance() < plan.null_share else names[number % plan.keys]
        for number in range(plan.records)
    )
    produce_all(bootstrap, topic, keys, plan.partitions, plan.value_bytes, header=plan.key_header)


def run_side(task: Task) -> SideResult:
    """Run one side in a fresh process."""
    return run_child("side", task, SideResult, f"{task.side} side")


def measure(plan: NoopPlan, cluster: Cluster, progress: Progress) -> dict[str, Any]:
    """Return the measurement. Raises :class:`KeySharedError` when a run did not commit.

    The records go to a topic of their own. It is deleted at the end from a cluster that lives
    longer than the measurement.
    """
    plan.check()
    fitting = plan.that_fits(cluster)
    if fitting != plan:
        progress(f"embedded cluster: {fitting.records:,} records, because it holds no more")
        plan = fitting
    with topic_of_our_own(cluster, plan.partitions, progress) as topic:
        progress(
            f"producing {plan.records:,} records to {topic}, {cluster.kind} Kafka at "
            f"{cluster.bootstrap}"
        )
        fill(cluster.bootstrap, topic, plan)
        pairs = [run_pair(plan, cluster, topic, number, progress) for number in range(plan.repeat)]
    return _summary(plan, cluster.kind, pairs)


def run_pair(
    plan: NoopPlan, cluster: Cluster, topic: str, number: int, progress: Progress
) -> dict[str, SideResult]:
    """Return the results of both sides of one pair; the first side alternates with its number."""
    pair: dict[str, SideResult] = {}
    for side in sides_of(number):
        pair[side] = run_side(plan.task(side, cluster.bootstrap, topic))
        check_commits(side, pair[side])
    bare, layer = pair["bare"], pair["keyshared"]
    progress(
        f"pair {number + 1} of {plan.repeat}: bare {bare.records / bare.seconds:,.0f}/s, keyshared "
        f"{layer.records / layer.seconds:,.0f}/s, ratio {bare.seconds / layer.seconds:.2f}"
    )
    return pair


def check_commits(side: str, result: SideResult) -> None:
    """Check that a run committed about as often as due; otherwise it measured less work."""
    # The final commit, and all periodic ones but two that fell into the start or the end.
    least = 1 + max(0, int(result.seconds / COMMIT_INTERVAL) - 2)
    if result.commits < least:
        raise KeySharedError(
            f"the {side} side ran {result.seconds:.1f} s and committed {result.commits} times, at "
            f"least {least} were due: the measurement misses a part of the work"
        )


def slow_bare(per_s: float) -> list[str]:
    """Return why a bare loop with this many records per second is doubtful, if it is."""
    if per_s >= SUSPECT_BELOW:
        return []
    return [
        f"the bare loop reached {per_s:,.0f}/s, below {SUSPECT_BELOW:,}/s: the machine is busy or "
        "slow, measure again when it is idle"
    ]


def short_runs(shortest: float) -> list[str]:
    """Return why a shortest run of this many seconds is doubtful, if it is."""
    if shortest >= SEVERAL * COMMIT_INTERVAL:
        return []
    return [
        f"a run lasted {shortest:.1f} s, less than {SEVERAL} commit intervals of "
        f"{COMMIT_INTERVAL:g} s: measure with more --records"
    ]


def _summary(plan: NoopPlan, kind: str, pairs: list[dict[str, SideResult]]) -> dict[str, Any]:
    bare = statistics.median(pair["bare"].records / pair["bare"].seconds for pair in pairs)
    layer = statistics.median(
        pair["keyshared"].records / pair["keyshared"].seconds for pair in pairs
    )
    ratios = [pair["bare"].seconds / pair["keyshared"].seconds for pair in pairs]
    shortest = min(result.seconds for pair in pairs for result in pair.values())
    return {
        "records": plan.records,
        "bare_per_s": round(bare),
        "keyshared_per_s": round(layer),
        "ratio": round(statistics.median(ratios), 3),
        "ratios": [round(ratio, 3) for ratio in ratios],
        "kafka": kind,
        "median_batch": round(statistics.median(pair["keyshared"].median_batch for pair in pairs)),
        "commits": min(result.commits for pair in pairs for result in pair.values()),
        "failed_attempts": max(pair["keyshared"].failed for pair in pairs),
        "shortest_s": round(shortest, 2),
        "suspect": [*slow_bare(bare), *short_runs(shortest)],
    }


def measure_at(plan: NoopPlan, bootstrap: str | None, progress: Progress) -> dict[str, Any]:
    """Measure on the cluster at this address, or on the best that can be started here."""
    plan.check()
    with closing(open_cluster(bootstrap)) as cluster:
        return measure(plan, cluster, progress)
