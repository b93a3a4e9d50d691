"""The client itself, with nothing of ours around it, for what we rely on it to do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as ClientPartition

from kafka_keyshared.client.port import Rebalance
from kafka_keyshared.lab.demo.ledgers import AuditedClient
from kafka_keyshared.model import TopicPartition
from kafka_keyshared.testing.clusters.cluster import Cluster
from tests.support.live_cluster import client_conf

PROTOCOLS = {
    "eager": {"partition.assignment.strategy": "range"},
    "cooperative": {"partition.assignment.strategy": "cooperative-sticky"},
    "kip-848": {"group.protocol": "consumer"},
}
every_protocol = pytest.mark.parametrize("protocol", list(PROTOCOLS))


def group_conf(cluster: Cluster, group: str, protocol: str, **more: Any) -> dict[str, Any]:
    """Return a member's settings for one of the three protocols."""
    conf = client_conf(cluster, group, **more) | PROTOCOLS[protocol]
    if protocol == "kip-848":  # there these are the broker's to say
        del conf["session.timeout.ms"], conf["heartbeat.interval.ms"]
    return conf


@contextmanager
def bare(cluster: Cluster, group: str, **more: Any) -> Iterator[Consumer]:
    """A consumer that commits nothing by itself; callbacks are given by their own names."""
    callbacks = {name: more.pop(name) for name in list(more) if callable(more[name])}
    conf = client_conf(cluster, group, enable_auto_commit=False, **more) | callbacks
    conf["log_level"] = 2  # a broker that goes away on purpose is not worth a line
    with closing(Consumer(conf)) as consumer:
        yield consumer


@contextmanager
def closing(consumer: Consumer) -> Iterator[Consumer]:
    """Close the consumer at the end, whatever its callbacks raise then."""
    try:
        yield consumer
    finally:
        consumer.close()


def start_at(consumer: Consumer, topic: str, position: int = 0) -> None:
    """Read partition 0 from there, without a group."""
    consumer.assign([ClientPartition(topic, 0, position)])


def offsets_of(messages: list[Any]) -> list[int]:
    """Return the offsets of the records among the messages."""
    return [each.offset() for each in messages if each.error() is None]


def write_transactions(cluster: Cluster, topic: str, size: int, endings: list[bool]) -> None:
    """Write a transaction of ``size`` records for each ending: True commits, False aborts."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": topic})
    producer.init_transactions(60)
    for commit in endings:
        producer.begin_transaction()
        for number in range(size):
            producer.produce(topic, b"%d" % number, b"key-%d" % number, 0)
        producer.flush(60)
        (producer.commit_transaction if commit else producer.abort_transaction)(60)


def around_revoke(
    before: Callable[[AuditedClient, list[TopicPartition]], None],
    after: Callable[[AuditedClient, list[TopicPartition]], None] = lambda client, revoked: None,
) -> type[AuditedClient]:
    """Return a client that does something at the beginning and the end of its revoke callbacks."""

    class Around(AuditedClient):
        def subscribe(self, on_assign: Rebalance, on_revoke: Rebalance, on_lost: Rebalance) -> None:
            def revoke(partitions: list[TopicPartition]) -> None:
                before(self, partitions)
                on_revoke(partitions)
                after(self, partitions)

            super().subscribe(on_assign, revoke, on_lost)

    return Around
