"""``keyshared bench noop``: the cost of the layer with an empty handler, as a ratio.

Pairs of runs, bare loop and package, alternate so that the machine's moods hit both alike; what counts
is the median of the pairs' ratios.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import msgspec
from confluent_kafka import Producer

from kafka_keyshared.bench.side import Result, Task
from kafka_keyshared.errors import ConfigError, KeySharedError
from kafka_keyshared.local.cluster import Cluster

SUSPECT_BELOW = 500_000
EMBEDDED_RECORDS_MAX = 30_000
"""Most records per partition on the embedded cluster, which deletes what is beyond 5 MB."""


class NoopPlan(msgspec.Struct, kw_only=True):
    """What to measure. ``null_share`` of the records have no key; ``fail_every`` as in Task."""

    records: int = 2_000_000
    partitions: int = 8
    keys: int = 10_000
    value_bytes: int = 100
    workers: str = "thread:8"
    repeat: int = 9
    null_share: float = 0.0
    fail_every: int = 0
    max_leases_per_key: int | None = None

    def check(self) -> None:
        """Raise :class:`ConfigError` for numbers that make no sense."""
        for name in ("records", "partitions", "keys", "repeat"):
            if getattr(self, name) < 1:
                raise ConfigError(f"--{name} {getattr(self, name)}: give at least 1")
        if self.value_bytes < 0 or not 0 <= self.null_share <= 1:
            raise ConfigError("--value-bytes must not be negative, --null-share is from 0 to 1")


def open_cluster(bootstrap: str | None) -> tuple[AbstractContextManager[Any], str, str]:
    """Return a cluster to close, its address and its kind: the given one, else the best there is."""
    if bootstrap is not None:
        return nullcontext(), bootstrap, "given"
    from kafka_keyshared.errors import MissingPartError
    from kafka_keyshared.local.jars import find_jars, java

    cluster: Cluster
    try:
        java()
        real = find_jars() is not None
    except MissingPartError:
        real = False
    if real:
        from kafka_keyshared.local.broker import RealCluster

        cluster = RealCluster()
    else:
        from kafka_keyshared.local.embedded import EmbeddedCluster

        cluster = EmbeddedCluster()
    return cluster, cluster.bootstrap, cluster.kind


def fill(bootstrap: str, topic: str, plan: NoopPlan) -> None:
    """Produce the topic's records; keys go round robin, null keys evenly between them."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 20,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": 1_000_000,
            "compression.type": "none",
        }
    )
    value = b"x" * plan.value_bytes
    keys = [b"key-%d" % number for number in range(plan.keys)]
    null_every = round(1 / plan.null_share) if plan.null_share else 0
    failures: list[str] = []

    def delivered(error: Any, _message: Any) -> None:
        if error is not None:
            failures.append(str(error))

    for number in range(plan.records):
        key = None if null_every and number % null_every == 0 else keys[number % plan.keys]
        # Spread by number, not by key: a bench with few keys must fill all partitions alike.
        while True:
            try:
                producer.produce(topic, value, key, number % plan.partitions, on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.05)
        if number % 10_000 == 0:
            producer.poll(0)
    producer.flush(120)
    if failures:
        raise KeySharedError(f"{len(failures)} records could not be produced: {failures[0]}")


def run_side(task: Task) -> Result:
    """Run one side in a fresh process."""
    done = subprocess.run(
        [sys.executable, "-m", "kafka_keyshared.bench.side"],
        input=msgspec.json.encode(task),
        stdout=subprocess.PIPE,
        check=False,
    )
    if done.returncode != 0:
        raise KeySharedError(f"the {task.side} side ended with status {done.returncode}")
    return msgspec.json.decode(done.stdout, type=Result)


def measure(
    plan: NoopPlan, bootstrap: str | None, progress: Callable[[str], None]
) -> dict[str, Any]:
    """Return the measurement. Raises :class:`KeySharedError` when a run did not commit."""
    plan.check()
    cluster, address, kind = open_cluster(bootstrap)
    with cluster:
        if kind == "embedded" and plan.records > plan.partitions * EMBEDDED_RECORDS_MAX:
            plan.records = plan.partitions * EMBEDDED_RECORDS_MAX
            progress(f"embedded cluster: {plan.records} records, it keeps no more")
        topic = f"bench-{uuid.uuid4().hex[:8]}"
        if isinstance(cluster, Cluster):
            cluster.create_topic(topic, plan.partitions)
        else:
            from kafka_keyshared.local.cluster import create_by_admin

            create_by_admin(address, topic, plan.partitions, 30)
        progress(f"producing {plan.records} records to {topic} on {kind} Kafka at {address}")
        fill(address, topic, plan)
        pairs = [_pair(plan, address, topic, number, progress) for number in range(plan.repeat)]
    return _summary(plan, kind, pairs)


def _pair(
    plan: NoopPlan, address: str, topic: str, number: int, progress: Callable[[str], None]
) -> dict[str, Result]:
    sides = ("bare", "keyshared") if number % 2 == 0 else ("keyshared", "bare")
    pair: dict[str, Result] = {}
    for side in sides:
        task = Task(
            side=side,
            bootstrap=address,
            topic=topic,
            group=f"bench-{side}-{uuid.uuid4().hex[:8]}",
            records=plan.records,
            workers=plan.workers,
            max_leases_per_key=plan.max_leases_per_key,
            fail_every=plan.fail_every if side == "keyshared" else 0,
        )
        pair[side] = run_side(task)
        if not pair[side].commits:
            raise KeySharedError(f"the {side} side never committed: give more records")
    bare, layer = pair["bare"], pair["keyshared"]
    progress(
        f"pair {number + 1}/{plan.repeat}: bare {bare.records / bare.seconds:,.0f}/s, "
        f"keyshared {layer.records / layer.seconds:,.0f}/s, ratio {bare.seconds / layer.seconds:.2f}"
    )
    return pair


def _summary(plan: NoopPlan, kind: str, pairs: list[dict[str, Result]]) -> dict[str, Any]:
    bare = statistics.median(pair["bare"].records / pair["bare"].seconds for pair in pairs)
    layer = statistics.median(
        pair["keyshared"].records / pair["keyshared"].seconds for pair in pairs
    )
    ratios = [pair["bare"].seconds / pair["keyshared"].seconds for pair in pairs]
    return {
        "records": plan.records,
        "bare_per_s": round(bare),
        "keyshared_per_s": round(layer),
        "ratio": round(statistics.median(ratios), 3),
        "ratios": [round(ratio, 3) for ratio in ratios],
        "kafka": kind,
        "median_batch": round(statistics.median(pair["keyshared"].median_batch for pair in pairs)),
        "commits": min(pair["keyshared"].commits for pair in pairs),
        "suspect": bare < SUSPECT_BELOW,
    }
