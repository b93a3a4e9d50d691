"""What choosing records by slot costs: a ``Reader`` beside a bare loop over the same partitions."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer
from confluent_kafka import TopicPartition as ClientPartition

from kafka_keyshared.errors import KeySharedError
from kafka_keyshared.lab.bench.common import (
    Progress,
    key_of,
    produce_all,
    sides_of,
    topic_of_our_own,
)
from kafka_keyshared.testing.clusters.cluster import Cluster

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT = 300.0


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """How many records there are, and which slots the reader takes of them: half."""

    records: int = 2_000_000
    partitions: int = 8
    keys: int = 10_000
    value_bytes: int = 100
    ranges: str = "0-32767"
    pairs: int = 9


@dataclass(frozen=True, slots=True)
class Task:
    """One side\'s work."""

    side: str
    bootstrap: str
    topic: str
    partitions: int
    records: int
    ranges: str


def measure(plan: ReadPlan, cluster: Cluster, progress: Progress) -> dict[str, Any]:
    """Return the median ratio of the pairs; each side runs in a fresh process.

    Raises :class:`KeySharedError` when a side did not read every record.
    """
    with topic_of_our_own(cluster, plan.partitions, progress) as topic:
        progress(f"producing {plan.records:,} records")
        keys = (key_of(number % plan.keys) for number in range(plan.records))
        produce_all(cluster.bootstrap, topic, keys, plan.partitions, plan.value_bytes)
        pairs: list[dict[str, dict[str, float]]] = []
        for number in range(plan.pairs):
            pair: dict[str, dict[str, float]] = {
                side: _run(
                    Task(
                        side,
                        cluster.bootstrap,
                        topic,
                        plan.partitions,
                        plan.records,
                        plan.ranges,
                    )
                )
                for side in sides_of(number)
            }
            pairs.append(pair)
            progress(f"pair {number + 1} of {plan.pairs}: {_ratio(pair):.2f}")
    rates = {side: statistics.median(pair[side]["rate"] for pair in pairs) for side in sides_of(0)}
    ratios = sorted(map(_ratio, pairs))
    return {
        "ratio": round(statistics.median(ratios), 3),
        "ratios": [round(each, 3) for each in ratios],
        "bare_per_s": round(rates["bare"]),
        "keyshared_per_s": round(rates["keyshared"]),
        "chosen": pairs[0]["keyshared"]["chosen"],
    }


def _ratio(pair: dict[str, dict[str, float]]) -> float:
    return pair["keyshared"]["rate"] / pair["bare"]["rate"]


def _run(task: Task) -> dict[str, float]:
    command = [sys.executable, "-m", "tests.benchmarks.reading", json.dumps(asdict(task))]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, timeout=TIMEOUT, check=False
    )
    if done.returncode != 0:
        raise KeySharedError(f"the {task.side} side ended with {done.returncode}: {done.stderr}")
    found: dict[str, float] = json.loads(done.stdout)
    if found["read"] != task.records:
        raise KeySharedError(f"the {task.side} side read {found['read']} of {task.records} records")
    return found


# --- the sides ---


def run_bare(task: Task) -> dict[str, float]:
    """Read everything with the client alone."""
    from kafka_keyshared.config import client_conf

    conf = client_conf({"bootstrap.servers": task.bootstrap, "group.id": "bench-reading"})
    consumer = Consumer({**conf, "auto.offset.reset": "earliest", "statistics.interval.ms": 0})
    consumer.assign(
        [ClientPartition(task.topic, each, OFFSET_BEGINNING) for each in range(task.partitions)]
    )
    read, started = 0, 0.0
    while read < task.records:
        batch = consumer.consume(10_000, 0.1)
        if batch and not started:
            started = time.perf_counter()
        for message in batch:
            if message.error() is None:
                read += 1
    seconds = time.perf_counter() - started
    consumer.close()
    return {"rate": read / seconds, "read": read, "chosen": read}


def run_reader(task: Task) -> dict[str, float]:
    """Read some slots of it with a reader."""
    from kafka_keyshared import Reader

    chosen, started = 0, 0.0
    conf = {"bootstrap.servers": task.bootstrap}
    with Reader(conf, [task.topic], task.ranges, until="latest") as reader:
        while reader.counts.read < task.records and not reader.done:
            found = reader.read()
            if reader.counts.read and not started:
                started = time.perf_counter()
            for _ in found:
                chosen += 1
        seconds = time.perf_counter() - started
        read = reader.counts.read
    return {"rate": read / seconds, "read": read, "chosen": chosen}


if __name__ == "__main__":
    asked = Task(**json.loads(sys.argv[1]))
    sys.stdout.write(json.dumps((run_bare if asked.side == "bare" else run_reader)(asked)))
