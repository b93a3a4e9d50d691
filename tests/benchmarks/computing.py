"""What processes make of two cores: handlers that compute, to a plain loop that calls them in turn.

Each record takes 200 us of processor time by its thread's own clock, so that nobody gains by what
another pays. Each side runs in a process of its own on the same topic, in turn, as in ``bench
compare``; time runs from the first record to the acknowledged last commit. The cluster is the
embedded one: a broker on the same two cores has a free one beside the plain loop, and none beside
two processes, so that its own work would count on one side alone.
"""

from __future__ import annotations

import statistics
from collections import Counter
from dataclasses import dataclass
from typing import Any

from kafka_keyshared.errors import KeySharedError
from kafka_keyshared.lab.bench.common import group_of, key_of, produce_rows
from kafka_keyshared.lab.bench.compare_run import RunningSystem
from kafka_keyshared.lab.bench.systems import system_of
from kafka_keyshared.lab.bench.workloads import BenchJob, keys_of, value_of
from kafka_keyshared.testing.clusters.embedded import EmbeddedCluster

TOPIC = "computing"
BARE, OURS = "bare", "keyshared:process:{}"
VALUE_BYTES = 100


@dataclass(frozen=True, slots=True)
class ComputePlan:
    """What each side does so often; ``limit`` is how many seconds it may take for that."""

    records: int = 40_000
    keys: int = 10_000
    partitions: int = 8
    processes: int = 2
    work: str = "cpu-200us"
    limit: float = 60.0
    pairs: int = 9


def measure(plan: ComputePlan = ComputePlan()) -> dict[str, Any]:
    """Return how many times as fast as the plain loop processes are, pair by pair.

    ``possible`` is what the keys allow: a key is with one process at a time.
    """
    with EmbeddedCluster() as cluster:
        cluster.create_topic(TOPIC, plan.partitions)
        keys = keys_of("uniform", plan.records, plan.keys)
        rows = (
            (value_of(number, key, VALUE_BYTES), key_of(key), key % plan.partitions, None)
            for number, key in enumerate(keys)
        )
        produce_rows(cluster.bootstrap, TOPIC, rows)
        sides = BARE, OURS.format(plan.processes)
        pairs = []
        for number in range(plan.pairs):
            order = sides if number % 2 == 0 else sides[::-1]
            pairs.append({name: _per_s(plan, name, cluster.bootstrap) for name in order})
    bare, ours = ([pair[name] for pair in pairs] for name in sides)
    ratios = [mine / plain for plain, mine in zip(bare, ours, strict=True)]
    return {
        "records": plan.records,
        "ratio": round(statistics.median(ratios), 3),
        "ratios": [round(each, 3) for each in ratios],
        "bare_per_s": round(statistics.median(bare)),
        "ours_per_s": round(statistics.median(ours)),
        "possible": round(1 / largest_part(plan), 3),
    }


def largest_part(plan: ComputePlan) -> float:
    """Return which part of the records one process has at least: its part, or that of one key."""
    counts = Counter(keys_of("uniform", plan.records, plan.keys))
    return max(max(counts.values()) / plan.records, 1 / plan.processes)


def _per_s(plan: ComputePlan, name: str, bootstrap: str) -> float:
    system = system_of(name)
    job = BenchJob(
        family=system.family.name,
        size=system.size,
        bootstrap=bootstrap,
        topic=TOPIC,
        group=group_of(system.family.name),
        records=plan.records,
        limit=plan.limit,
        work=plan.work,
    )
    with RunningSystem(system, job) as running:
        # Nobody looks at its memory meanwhile: that would take of the same two cores.
        ran = running.ran()
    if ran.records < plan.records:
        raise KeySharedError(f"{name} did {ran.records} of {plan.records} records")
    return ran.records / ran.seconds
