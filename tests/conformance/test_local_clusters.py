"""What both kinds of local cluster must do alike, and what only a real broker can do."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from kafka_keyshared.errors import ConfigError
from kafka_keyshared.testing.clusters.broker import RealCluster
from kafka_keyshared.testing.clusters.cluster import Cluster
from kafka_keyshared.testing.clusters.external import external_cluster
from kafka_keyshared.testing.clusters.node import free_ports
from tests.support.kafka_requests import NOT_YET, coordinator

Eventually = Callable[[Callable[[], bool], float], None]


@contextmanager
def consumer(cluster: Cluster, group: str) -> Iterator[Consumer]:
    member = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "heartbeat.interval.ms": 200,
            # An embedded cluster rebalances for this long; a default broker refuses less than 6 s.
            "session.timeout.ms": 1_500 if cluster.kind == "embedded" else 10_000,
        }
    )
    try:
        yield member
    finally:
        member.close()


def produce(cluster: Cluster, topic: str, count: int, partitions: int) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    failures: list[Any] = []
    for number in range(count):
        producer.produce(
            topic,
            b"value-%d" % number,
            b"key-%d" % number,
            number % partitions,
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )
    assert producer.flush(60) == 0
    assert failures == []


def consume(member: Consumer, count: int, eventually: Eventually) -> list[Any]:
    received: list[Any] = []

    def all_there() -> bool:
        for message in member.consume(count, 0.2):
            assert message.error() is None, message.error()
            received.append(message)
        return len(received) >= count

    eventually(all_there, 60)
    return received


def partition_count(cluster: Cluster, topic: str) -> int:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    return len(admin.list_topics(timeout=30).topics[topic].partitions)


def test_a_topic_has_the_partitions_asked_for(any_cluster: Cluster, topic: str) -> None:
    any_cluster.create_topic(topic, 16)
    assert partition_count(any_cluster, topic) == 16


def test_a_topic_that_is_there_is_left_or_refused(any_cluster: Cluster, topic: str) -> None:
    any_cluster.create_topic(topic, 3)
    any_cluster.create_topic(topic, 3)
    with pytest.raises(ConfigError, match="exists with 3 partitions, 5 were asked for"):
        any_cluster.create_topic(topic, 5)
    with pytest.raises(ConfigError, match="at least 1"):
        any_cluster.create_topic(f"{topic}-none", 0)
    assert partition_count(any_cluster, topic) == 3


def test_records_come_back_as_they_went(
    any_cluster: Cluster, topic: str, eventually: Eventually
) -> None:
    any_cluster.create_topic(topic, 4)
    produce(any_cluster, topic, 200, 4)
    with consumer(any_cluster, topic) as member:
        member.assign([TopicPartition(topic, number, 0) for number in range(4)])
        received = consume(member, 200, eventually)
    by_partition: dict[int, list[bytes]] = {number: [] for number in range(4)}
    for message in received:
        assert message.offset() == len(by_partition[message.partition()])
        assert message.key() == message.value().replace(b"value", b"key")
        by_partition[message.partition()].append(message.value())
    for number, values in by_partition.items():
        assert values == [b"value-%d" % index for index in range(number, 200, 4)]


def test_commit_metadata_is_read_back(any_cluster: Cluster, topic: str) -> None:
    any_cluster.create_topic(topic, 2)
    produce(any_cluster, topic, 20, 2)
    metadata = "keyshared " + "x" * 1000
    with consumer(any_cluster, topic) as member:
        stored = member.commit(offsets=[TopicPartition(topic, 1, 7, metadata)], asynchronous=False)
        assert stored is not None
        assert [part.error for part in stored] == [None]
    with consumer(any_cluster, topic) as another:
        untouched, read = another.committed(
            [TopicPartition(topic, 0), TopicPartition(topic, 1)], timeout=30
        )
    assert (read.offset, read.metadata) == (7, metadata)
    assert untouched.offset < 0


def test_two_members_share_a_group(
    any_cluster: Cluster, topic: str, eventually: Eventually
) -> None:
    any_cluster.create_topic(topic, 16)
    group = f"group-{uuid.uuid4().hex[:8]}"
    with consumer(any_cluster, group) as one, consumer(any_cluster, group) as two:
        one.subscribe([topic])
        two.subscribe([topic])

        def shared() -> bool:
            one.poll(0.05)
            two.poll(0.05)
            shares = [{part.partition for part in member.assignment()} for member in (one, two)]
            return all(shares) and shares[0] | shares[1] == set(range(16))

        eventually(shared, 60)
        first = {part.partition for part in one.assignment()}
        second = {part.partition for part in two.assignment()}
    assert first.isdisjoint(second)
    assert len(first) == len(second) == 8


def test_a_killed_broker_comes_back_with_its_data(
    broker_of_my_own: RealCluster, topic: str, eventually: Eventually
) -> None:
    cluster = broker_of_my_own
    cluster.create_topic(topic, 2)
    produce(cluster, topic, 100, 2)
    with consumer(cluster, topic) as member:

        def committed() -> bool:
            try:
                member.commit(offsets=[TopicPartition(topic, 0, 10, "kept")], asynchronous=False)
            except KafkaException as refused:
                assert refused.args[0].code() in NOT_YET, refused
                return False
            return True

        eventually(committed, 60)
    bootstrap, (killed,) = cluster.bootstrap, cluster.pids
    cluster.kill()
    assert cluster.pids == []
    cluster.restart()
    assert cluster.bootstrap == bootstrap
    assert cluster.pids != [killed]
    with consumer(cluster, topic) as member:
        read = TopicPartition(topic, 0)

        def answered() -> bool:
            # A coordinator that has just started may have to read its log first, and says so.
            nonlocal read
            try:
                (read,) = member.committed([TopicPartition(topic, 0)], timeout=60)
            except KafkaException as refused:
                assert refused.args[0].code() in NOT_YET, refused
                return False
            return True

        eventually(answered, 60)
        assert (read.offset, read.metadata) == (10, "kept")
        member.assign([TopicPartition(topic, number, 0) for number in range(2)])
        received = consume(member, 100, eventually)
    assert {message.value() for message in received} == {b"value-%d" % n for n in range(100)}
    directory = cluster.directory
    cluster.close()
    assert not directory.exists()


def test_three_brokers_keep_three_copies_of_topics_and_positions(
    three_brokers: RealCluster, topic: str, eventually: Eventually
) -> None:
    """So the death of one of them, the coordinator's too, takes nothing along."""
    three_brokers.create_topic(topic, 2)
    coordinator(three_brokers.bootstrap, "any")  # which makes the topic of the positions
    admin = AdminClient({"bootstrap.servers": three_brokers.bootstrap})
    copies: dict[str, set[int]] = {}

    def known_to_one() -> bool:
        """Brokers hear of a new topic one after the other, and any of them may answer."""
        there = admin.list_topics(timeout=30).topics
        for name in (topic, "__consumer_offsets"):
            if name in there and there[name].partitions:
                found = there[name].partitions.values()
                copies[name] = {len(partition.replicas) for partition in found}
        return len(copies) == 2

    eventually(known_to_one, 60)
    assert copies == {topic: {3}, "__consumer_offsets": {3}}


@pytest.mark.usefixtures("kafka_parts")
def test_a_broker_does_not_outlive_its_owner(tmp_path: Path, eventually: Eventually) -> None:
    with ExitStack() as stack:
        process, address = start_main(stack, tmp_path, "--address-only")
        external_cluster(address).create_topic("some-topic", 1)
        assert list(tmp_path.iterdir()) != []
        process.kill()
        process.wait(30)
    eventually(lambda: list(tmp_path.iterdir()) == [], 60)
    eventually(lambda: not answers(address), 60)


@pytest.mark.usefixtures("kafka_parts")
def test_the_command_says_where_and_stops_cleanly(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    with ExitStack() as stack:
        process, line = start_main(stack, tmp_path, "--port", str(port))
        assert line == f"Kafka at 127.0.0.1:{port} (Ctrl-C stops it)"
        assert answers(f"127.0.0.1:{port}")
        process.terminate()
        assert process.wait(60) == 0
    assert list(tmp_path.iterdir()) == []
    assert not answers(f"127.0.0.1:{port}")


def start_main(
    stack: ExitStack, scratch: Path, *arguments: str
) -> tuple[subprocess.Popen[str], str]:
    """Start the module as a command whose data goes to ``scratch``; return its first line too."""
    process = stack.enter_context(
        subprocess.Popen(
            [sys.executable, "-m", "kafka_keyshared.testing.clusters.broker", *arguments],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "TMPDIR": str(scratch)},
        )
    )
    stack.callback(process.kill)
    assert process.stdout is not None
    return process, process.stdout.readline().rstrip()


def answers(address: str) -> bool:
    host, port = address.split(":")
    with socket.socket() as probe:
        probe.settimeout(5)
        return probe.connect_ex((host, int(port))) == 0
