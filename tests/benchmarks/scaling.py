"""What is lost with more partitions, keys and workers, and the memory of a held record.

Both ends of partitions and keys are measured in turn, as ratios to the bare loop: bare loop and
package at one end, then at the other. Workers are the part ``threads`` of ``bench scale``, because
the bare loop is the same at both ends.
"""

from __future__ import annotations

import statistics
import tracemalloc
from dataclasses import dataclass
from typing import Any

import msgspec
from confluent_kafka import Message

from kafka_keyshared.config.keys.sources import from_header
from kafka_keyshared.config.worker_options import slice_records
from kafka_keyshared.core.contract import events as ev
from kafka_keyshared.core.contract.commands import LeaseSlice
from kafka_keyshared.core.dispatch.dispatcher import Dispatcher
from kafka_keyshared.core.subscription.settings import SubscriptionSettings, worker_names
from kafka_keyshared.errors import KeySharedError
from kafka_keyshared.executors.port import Handover
from kafka_keyshared.lab.bench.common import Progress, topic_of_our_own
from kafka_keyshared.lab.bench.noop import NoopPlan, fill, run_pair
from kafka_keyshared.lab.bench.scale import ScalePlan, measure_threads
from kafka_keyshared.model import Record, TopicPartition
from kafka_keyshared.testing.clusters.cluster import Cluster

CHUNK = 2_000
COROUTINES = "asyncio:1000"
SPREAD = 100
"""Partitions that what is held is of; of few, most would be parked beyond their ceilings."""


@dataclass(frozen=True, slots=True)
class ScalingPlan:
    """The two ends of each axis, and what both are measured with otherwise."""

    records: int = 1_000_000
    repeat: int = 5
    partitions: tuple[int, int] = (1, 400)
    keys: tuple[int, int] = (10, 1_000_000)
    workers: tuple[int, int] = (2, 64)
    held: int = 100_000

    def ends(self, axis: str) -> tuple[NoopPlan, NoopPlan]:
        """Return what is measured at both ends of an axis."""
        low, high = getattr(self, axis)
        plan = NoopPlan(records=self.records, repeat=self.repeat)
        return (
            msgspec.structs.replace(plan, **{axis: low}),
            msgspec.structs.replace(plan, **{axis: high}),
        )


AXES = ("partitions", "keys")


def measure(plan: ScalingPlan, cluster: Cluster, progress: Progress) -> dict[str, Any]:
    """Return the median of what is lost from one end to the other, and the bytes of a record."""
    found: dict[str, Any] = {"records": plan.records}
    for axis in AXES:
        low, high = (end.that_fits(cluster) for end in plan.ends(axis))
        pairs = _in_turn(low, high, cluster, progress)
        found[f"{axis}_lost"] = round(statistics.median(1 - of / to for to, of in pairs), 3)
        found[f"{axis}_ratios"] = [[round(to, 3), round(of, 3)] for to, of in pairs]
    ends = ScalePlan(records=plan.records, repeat=plan.repeat, threads=plan.workers)
    workers = measure_threads(ends, cluster, progress)
    found |= {
        "workers_lost": workers["workers_lost"],
        "workers_per_s": workers["per_s"],
        "workers_losts": workers["losts"],
        "suspect": workers["suspect"],
    }
    found["held_bytes"] = held_bytes(plan.held)
    found["held_bytes_header"] = held_bytes(plan.held, header="key")
    return found


def _in_turn(
    low: NoopPlan, high: NoopPlan, cluster: Cluster, progress: Progress
) -> list[tuple[float, float]]:
    """Return the ratios at both ends, as many times as the plan says."""
    with (
        topic_of_our_own(cluster, low.partitions, progress) as first,
        topic_of_our_own(cluster, high.partitions, progress) as second,
    ):
        fill(cluster.bootstrap, first, low)
        fill(cluster.bootstrap, second, high)
        found = []
        for number in range(low.repeat):
            ratios = []
            for plan, topic in ((low, first), (high, second)):
                pair = run_pair(plan, cluster, topic, number, progress)
                ratios.append(pair["bare"].seconds / pair["keyshared"].seconds)
            found.append((ratios[0], ratios[1]))
        return found


def held_bytes(count: int, header: str | None = None, *, coroutines: bool = False) -> float:
    """Return what one record takes that is held, beside its message, in a window full of them.

    Eight threads share the shards, or one worker with a thousand ``coroutines`` has them. Half of
    what may be leased is in the hands of workers, none of which begins. With ``header`` its list of
    headers counts, which the client makes when it is asked for the key.
    """
    places = [TopicPartition("t", number) for number in range(SPREAD)]
    settings = SubscriptionSettings(
        workers=worker_names(1 if coroutines else 8),
        pooled=True,
        individually=coroutines,
        slice_records=slice_records(COROUTINES, None) if coroutines else 1,
        window_records=count,
        window_bytes=1 << 40,
        key_of=None if header is None else from_header(header),
    )
    core = Dispatcher([settings])
    core.handle(ev.Assigned(dict.fromkeys(places, ev.StartPoint(0, None, None, None))), 0.0)
    chunks = [
        [_message(number, header) for number in range(at, min(at + CHUNK, count))]
        for at in range(0, count, CHUNK)
    ]
    given: list[Handover] = []
    tracemalloc.start()
    try:
        while chunks:
            # Not the list that a chunk comes in: the client makes one, in the bare loop as well.
            chunk = chunks.pop(0)
            ends = {place: chunk[-1].offset() + 1 for place in places}
            commands = core.handle(ev.Fetched(chunk, ends), 1.0)
            given += [Handover(each.slice) for each in commands if isinstance(each, LeaseSlice)]
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    if core.unsettled_count() != count or not given:
        raise KeySharedError(f"{core.unsettled_count()} of {count} records are held")
    return round(taken / count, 1)


def _message(number: int, header: str | None) -> Record:
    key = b"key-%d" % (number % 10_000)
    made: Any = Message(
        topic="t",
        partition=number % SPREAD,
        offset=number // SPREAD,
        key=None if header else key,
        value=b"x" * 100,
        headers=[(header, key)] if header else None,
    )
    record: Record = made
    return record
