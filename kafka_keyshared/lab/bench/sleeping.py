"""Helpers for benches whose handlers sleep: sleep cost, backlog, one run."""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Iterable, Sequence

from kafka_keyshared.config.worker_options import counted_workers
from kafka_keyshared.errors import ConfigError, KeySharedError
from kafka_keyshared.lab.bench.common import group_of, key_of, produce_rows, run_child
from kafka_keyshared.lab.bench.sleeping_side import Kind, Makespan, SleepTask
from kafka_keyshared.testing.clusters.cluster import Cluster

CALIBRATION = 0.3
"""Seconds of sleep to time, in as many calls as fit, but at least :data:`CALLS_LEAST`."""

CALLS_LEAST = 20


def sleep_cost(seconds: float) -> float:
    """Return how many seconds one call of ``time.sleep`` takes on this machine, as a median.

    A call takes longer than its argument, by the kernel's timer slack and the wake-up. So 1 ms
    takes about 1.06 ms on an idle machine. A lower bound for handlers that sleep must include this.
    Otherwise the delay of the machine would count against the package.
    """
    took = []
    for _ in range(max(CALLS_LEAST, int(CALIBRATION / seconds))):
        began = time.monotonic()
        time.sleep(seconds)
        took.append(time.monotonic() - began)
    return statistics.median(took)


def threads_of(workers: str, bench: str) -> int:
    """Return the number of threads.

    Raises :class:`ConfigError` for other pools: the bare side of the bench has threads.
    """
    pool, count = counted_workers(workers)
    if pool != "thread":
        raise ConfigError(f"--workers {workers}: {bench} measures threads; give thread:{count}")
    return count


def fitting(numbers: Iterable[int], partitions: int, most: int) -> list[int]:
    """Return the keys of as many first records as fit, ``most`` of them in a partition.

    Key n is in partition n modulo ``partitions``, as :func:`fill_backlog` produces it.
    """
    held: Counter[int] = Counter()
    kept: list[int] = []
    for number in numbers:
        partition = number % partitions
        if held[partition] >= most:
            break
        held[partition] += 1
        kept.append(number)
    return kept


def fill_backlog(
    bootstrap: str, topic: str, numbers: Sequence[int], partitions: int, value_bytes: int
) -> None:
    """Produce one record for each key. A key is always in one partition, as with any producer.

    Raises :class:`KeySharedError` when the broker did not acknowledge every one.
    """
    value = b"x" * value_bytes
    produce_rows(
        bootstrap,
        topic,
        ((value, key_of(number), number % partitions, None) for number in numbers),
    )


def run_sleeping(
    kind: Kind, cluster: Cluster, topic: str, *, records: int, workers: str, sleep_ms: float
) -> Makespan:
    """Run one side in a fresh process. Raises :class:`KeySharedError` when records are missing."""
    task = SleepTask(
        side="keyshared" if kind == "keyshared" else "bare",
        kind=kind,
        bootstrap=cluster.bootstrap,
        topic=topic,
        group=group_of(kind),
        workers=workers,
        records=records,
        threads=counted_workers(workers)[1],
        sleep_ms=sleep_ms,
    )
    span = run_child("sleeping_side", task, Makespan, f"{kind} side")
    if span.records != records:
        raise KeySharedError(f"{kind} side: {span.records} of {records} records were handled")
    return span
