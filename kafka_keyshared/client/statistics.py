"""A reader for the Kafka client's statistics (librdkafka's ``STATISTICS.md``)."""

from __future__ import annotations

import msgspec

from kafka_keyshared.status import ClientStatus

MICROSECONDS = 1_000_000
MILLISECONDS = 1_000
UNASSIGNED = -1


class _Window(msgspec.Struct, frozen=True):
    avg: int = 0


class _Broker(msgspec.Struct, frozen=True):
    nodename: str = ""
    nodeid: int = UNASSIGNED
    rtt: _Window = _Window()


class _Partition(msgspec.Struct, frozen=True):
    partition: int = UNASSIGNED
    fetchq_cnt: int = 0
    consumer_lag: int = -1


class _TopicStatistics(msgspec.Struct, frozen=True):
    partitions: dict[str, _Partition] = {}


class _Group(msgspec.Struct, frozen=True):
    rebalance_cnt: int = 0
    state: str = ""
    stateage: int = 0


class _Statistics(msgspec.Struct, frozen=True):
    brokers: dict[str, _Broker] = {}
    topics: dict[str, _TopicStatistics] = {}
    cgrp: _Group = _Group()


def read_statistics(text: str | bytes) -> ClientStatus:
    """Decode the JSON text. Raise ``msgspec.DecodeError`` when it is something else."""
    found = msgspec.json.decode(text, type=_Statistics)
    partitions = [
        (topic, each)
        for topic, of_topic in found.topics.items()
        for each in of_topic.partitions.values()
        if each.partition != UNASSIGNED
    ]
    lag: dict[str, dict[int, int]] = {}
    for topic, each in partitions:
        if each.consumer_lag >= 0:
            lag.setdefault(topic, {})[each.partition] = each.consumer_lag
    return ClientStatus(
        lag=lag,
        fetch_queue=sum(each.fetchq_cnt for _, each in partitions),
        round_trip_seconds={
            broker.nodename: broker.rtt.avg / MICROSECONDS
            for broker in found.brokers.values()
            if broker.nodeid != UNASSIGNED and broker.rtt.avg
        },
        rebalances=found.cgrp.rebalance_cnt,
        coordinator=found.cgrp.state,
        coordinator_seconds=found.cgrp.stateage / MILLISECONDS,
    )
