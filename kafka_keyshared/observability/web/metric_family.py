"""The type of a metric, and readers of status values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from kafka_keyshared.status import (
    Distribution,
    PartitionStatus,
    ShownState,
    Status,
    SubscriptionStatus,
    WorkerStatus,
)

Kind: TypeAlias = Literal["counter", "gauge", "histogram"]
Sample: TypeAlias = tuple[tuple[str, ...], "float | Distribution"]
Reader: TypeAlias = Callable[[Status], Iterable[Sample]]

PARTITION = ("topic", "partition")


@dataclass(frozen=True, slots=True)
class MetricFamily:
    """One metric. ``read`` yields label values with a value, in the order of ``labels``."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...]
    read: Callable[[Status], Iterable[Sample]]

    @property
    def by_partition(self) -> bool:
        """Return whether there is one sample for each partition."""
        return "partition" in self.labels


def one(pick: Callable[[Status], float | None]) -> Reader:
    """Read one number; None leaves the metric out."""

    def read(status: Status) -> Iterator[Sample]:
        value = pick(status)
        if value is not None:
            yield (), value

    return read


def of_member(pick: Callable[[Status], Distribution]) -> Reader:
    """Read a distribution of the whole member."""

    def read(status: Status) -> Iterator[Sample]:
        yield (), pick(status)

    return read


def counts(pick: Callable[[Status], dict[str, int]]) -> Reader:
    """Read counts by one label."""

    def read(status: Status) -> Iterator[Sample]:
        for label, count in sorted(pick(status).items()):
            yield (label,), count

    return read


def by_topic(
    pick: Callable[[SubscriptionStatus], dict[str, dict[str, int]]],
) -> Reader:
    """Read counts by topic and one label, over all subscriptions."""

    def read(status: Status) -> Iterator[Sample]:
        sums: dict[tuple[str, ...], int] = {}
        for sub in status.subscriptions:
            for topic, labels in pick(sub).items():
                for label, count in labels.items():
                    sums[topic, label] = sums.get((topic, label), 0) + count
        yield from sorted(sums.items())

    return read


def summed_by_topic(pick: Callable[[SubscriptionStatus], dict[str, int]]) -> Reader:
    """Read counts by topic, over all subscriptions."""

    def read(status: Status) -> Iterator[Sample]:
        sums: Counter[str] = Counter()
        for sub in status.subscriptions:
            sums.update(pick(sub))
        for topic, count in sorted(sums.items()):
            yield (topic,), count

    return read


def summed(pick: Callable[[SubscriptionStatus], float]) -> Reader:
    """Read a number summed over the subscriptions."""
    return one(lambda status: sum(pick(sub) for sub in status.subscriptions))


def merged(
    pick: Callable[[SubscriptionStatus], Distribution],
) -> Reader:
    """Read a distribution over all subscriptions."""

    def read(status: Status) -> Iterator[Sample]:
        parts = [pick(sub) for sub in status.subscriptions]
        yield (
            (),
            Distribution(
                bounds=parts[0].bounds,
                counts=tuple(map(sum, zip(*(each.counts for each in parts), strict=True))),
                total=sum(each.total for each in parts),
            ),
        )

    return read


def by_worker(pick: Callable[[WorkerStatus], float]) -> Reader:
    """Read a number for each worker name, over all subscriptions."""

    def read(status: Status) -> Iterator[Sample]:
        sums: dict[str, float] = {}
        for sub in status.subscriptions:
            for worker in sub.workers:
                sums[worker.name] = sums.get(worker.name, 0.0) + pick(worker)
        for name, value in sums.items():
            yield (name,), value

    return read


def of_partitions(
    pick: Callable[[PartitionStatus], float | None],
) -> Reader:
    """Read a number for each partition; None leaves the partition out."""

    def read(status: Status) -> Iterator[Sample]:
        for each in status.partitions:
            value = pick(each)
            if value is not None:
                yield (each.topic, str(each.partition)), value

    return read


def worker_states(status: Status) -> Iterator[Sample]:
    """Read the number of workers in each state."""
    for sub in status.subscriptions:
        for state in get_args(ShownState):
            yield (sub.pool, state), sum(worker.state == state for worker in sub.workers)


def lane_states(status: Status) -> Iterator[Sample]:
    """Read the number of closed lanes in each state."""
    sums: Counter[str] = Counter()
    for sub in status.subscriptions:
        sums.update(sub.lanes)
    for state, count in sums.items():
        yield (state,), count


def round_trips(status: Status) -> Iterator[Sample]:
    """Read the round trip to each broker."""
    if status.client is not None:
        for broker, seconds in sorted(status.client.round_trip_seconds.items()):
            yield (broker,), seconds


def client_lag(status: Status) -> Iterator[Sample]:
    """Read the client's own lag."""
    if status.client is not None:
        for topic, partitions in sorted(status.client.lag.items()):
            for partition, lag in sorted(partitions.items()):
                yield (topic, str(partition)), lag


SHARD_STATES = ("idle", "ready", "held")


def shard_states(status: Status) -> Iterator[Sample]:
    """Read the number of shards in each state."""
    shared = [sub.shared for sub in status.subscriptions if sub.shared is not None]
    ready, held = sum(each.ready for each in shared), sum(each.held for each in shared)
    counts = (sum(each.shards for each in shared) - ready - held, ready, held)
    for state, count in zip(SHARD_STATES, counts, strict=True):
        yield (state,), count
