"""Clients with a world behind them, for what is asked of all of them alike.

The world of each can be written to, and as far as it allows be made to fail.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from confluent_kafka import KafkaException, Producer
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined] # not in its __all__
    AclOperation,
    AdminClient,
    ResourceType,
)
from confluent_kafka.cimpl import NewTopic

from kafka_keyshared.client.kafka import KafkaClient
from kafka_keyshared.client.port import Client
from kafka_keyshared.core.contract.events import CommitAnswer
from kafka_keyshared.lab.simulator.client import SimClient
from kafka_keyshared.lab.simulator.cluster import SimulatedCluster as SimCluster
from kafka_keyshared.lab.simulator.fault_rates import GroupSettings
from kafka_keyshared.lab.simulator.history import History
from kafka_keyshared.lab.simulator.rng import Chance
from kafka_keyshared.lab.simulator.timeline import SimulatedProcess, Timeline
from kafka_keyshared.model import Record, TopicPartition
from kafka_keyshared.testing.clusters.cluster import Cluster
from kafka_keyshared.testing.clusters.embedded import EmbeddedCluster
from tests.support.bare_client import PROTOCOLS, bare
from tests.support.live_cluster import await_coordinator, client_conf, group_name
from tests.support.loop_ports import FakeClient
from tests.support.records import FakeRecord
from tests.support.secured_broker import Secured

PATIENCE = 60.0


class Side(Protocol):
    """A client with two partitions of its own, and the world behind it."""

    client: Client
    first: TopicPartition
    second: TopicPartition

    def write(self, partition: TopicPartition, count: int) -> None:
        """Write records into the log."""

    def take_away(self, *partitions: TopicPartition) -> None:
        """Do what a revoke does: the loop is told, then the client unassigns."""

    def now(self) -> float:
        """Return the seconds of the world's clock."""

    def meanwhile(self) -> None:
        """Let a moment pass, where time does not pass by itself."""


class World(Side, Protocol):
    """A side whose cluster can be made to do more: see to it that it is one that can."""

    answers: list[CommitAnswer]

    def transaction(self, partition: TopicPartition, count: int, *, commit: bool | None) -> None:
        """Write a transaction, and commit or abort it, or leave it open (None)."""

    def abort(self, partition: TopicPartition) -> None:
        """Abort the transaction that was left open."""

    def store(self, partition: TopicPartition, position: int) -> None:
        """Commit for the group as another client."""

    def retain_from(self, partition: TopicPartition, start: int) -> None:
        """Remove what is before that offset."""

    def remake(self) -> None:
        """Delete the topic and make it again."""

    def away(self) -> None:
        """Take the brokers away."""

    def back(self) -> None:
        """Let them be there again."""

    def away_for(self, seconds: float) -> None:
        """Take the brokers away for so long, also while the caller waits for something."""

    def leader_away(self, partition: TopicPartition) -> None:
        """Take the broker of this partition away."""

    def deny_commits(self) -> None:
        """Refuse everything of the group, or the next commit."""

    def refuse_topic(self) -> None:
        """Take the right to read the topic away."""

    def allow_topic(self) -> None:
        """Give it back."""

    def refuse_group(self) -> None:
        """Take the right to read the group away."""

    def close(self) -> None:
        """Close the client."""


class Fake:
    """The double."""

    def __init__(self, *, cooperative: bool) -> None:
        self.double = FakeClient(time.monotonic, cooperative=cooperative)
        self.double.ids = {"orders": "one"}
        self.client: Client = self.double
        self.first, self.second = (TopicPartition("orders", number) for number in (0, 1))

    def write(self, partition: TopicPartition, count: int) -> None:
        log = self.double.logs.setdefault(partition, [])
        begin = len(log)
        log += [FakeRecord(partition, begin + number, b"key") for number in range(count)]

    def take_away(self, *partitions: TopicPartition) -> None:
        self.client.released(partitions)

    def now(self) -> float:
        return time.monotonic()

    def meanwhile(self) -> None:
        """Nothing is on its way."""


class Simulated:
    """The simulation's client, over its cluster, in made-up time."""

    def __init__(self, *, protocol: str, reset: str = "earliest", eof: bool = False) -> None:
        self.timeline = Timeline()
        history = History(self.timeline)
        settings = GroupSettings(protocol=protocol)
        self.cluster = SimCluster(self.timeline, Chance(1), history, {"orders": 2}, settings)
        self.process = SimulatedProcess(self.timeline)
        self.answers: list[CommitAnswer] = []
        self.client: Client = SimClient(
            self.cluster,
            self.process,
            ["orders"],
            self.answers.append,
            1,
            reset=reset,
            eof=eof,
        )
        self.first, self.second = (TopicPartition("orders", number) for number in (0, 1))

    def write(self, partition: TopicPartition, count: int) -> None:
        self.cluster.append(partition, [b"key"] * count)

    def take_away(self, *partitions: TopicPartition) -> None:
        self.client.released(partitions)

    def now(self) -> float:
        return self.timeline.now

    def meanwhile(self) -> None:
        self.process.wait(0.001)

    def transaction(self, partition: TopicPartition, count: int, *, commit: bool | None) -> None:
        self.cluster.append(partition, [b"key"] * count, in_transaction=True)
        if commit is not None:
            self.cluster.end_transaction(partition, commit=commit)

    def abort(self, partition: TopicPartition) -> None:
        self.cluster.end_transaction(partition, commit=False)

    def store(self, partition: TopicPartition, position: int) -> None:
        self.cluster.commits.store(partition, position, "")

    def retain_from(self, partition: TopicPartition, start: int) -> None:
        self.cluster.retain_from(partition, start)

    def remake(self) -> None:
        self.cluster.remake("orders")

    def away(self) -> None:
        self.cluster.outage(3_600)

    def back(self) -> None:
        self.cluster.heal()

    def away_for(self, seconds: float) -> None:
        self.cluster.outage(seconds)

    def leader_away(self, partition: TopicPartition) -> None:
        self.cluster.leader_away(partition, 3_600)

    def deny_commits(self) -> None:
        self.cluster.rights.group = True

    def refuse_topic(self) -> None:
        self.cluster.rights.refuse("orders", fetches=True, commits=True)

    def allow_topic(self) -> None:
        self.cluster.rights.grant(["orders"])

    def refuse_group(self) -> None:
        self.cluster.rights.refuse_group()

    def close(self) -> None:
        self.client.close()


class Real:
    """The real client over a cluster. No group is joined: the callbacks are not what is tested."""

    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        *,
        protocol: str,
        reset: str = "earliest",
        eof: bool = False,
        secured: Secured | None = None,
    ) -> None:
        self._secured = secured
        cluster.create_topic(topic, 2)
        self.cluster = cluster
        self.answers: list[CommitAnswer] = []
        self._group = group_name()
        conf = client_conf(cluster, self._group, fetch_wait_max_ms=50) | PROTOCOLS[protocol]
        conf |= {"auto.offset.reset": reset, "enable.partition.eof": eof}
        conf |= {"enable.auto.commit": False}
        if secured is not None:
            conf |= secured.alice(self._group)
            for operation in (AclOperation.READ, AclOperation.DESCRIBE):
                secured.allow(ResourceType.TOPIC, topic, operation)
            secured.allow(ResourceType.GROUP, self._group, AclOperation.READ)
        # A broker that goes away on purpose is not worth a line, and is to be found again soon.
        conf |= {"log_level": 2, "reconnect.backoff.max.ms": 200}
        self._cooperative = protocol == "cooperative"
        self._producer = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 0})
        self._open: Producer | None = None
        self._closed = False
        self._kafka = KafkaClient(conf, [topic], self.answers.append)
        self.client: Client = self._kafka
        self.first, self.second = (TopicPartition(topic, number) for number in (0, 1))

    def write(self, partition: TopicPartition, count: int) -> None:
        for _ in range(count):
            self._producer.produce(partition.topic, b"value", b"key", partition.partition)
        assert self._producer.flush(60) == 0

    def take_away(self, *partitions: TopicPartition) -> None:
        self.client.released(partitions)
        gone = [ClientPartition(*each) for each in partitions]
        if self._cooperative:
            self._kafka.consumer.incremental_unassign(gone)
        else:
            self._kafka.consumer.unassign()

    def now(self) -> float:
        return time.monotonic()

    def meanwhile(self) -> None:
        """The client's own threads go on."""

    def transaction(self, partition: TopicPartition, count: int, *, commit: bool | None) -> None:
        producer = self._open
        if producer is None:
            conf = {"bootstrap.servers": self.cluster.bootstrap}
            self._open = producer = Producer(conf | {"transactional.id": partition.topic})
            producer.init_transactions(60)
        producer.begin_transaction()
        for _ in range(count):
            producer.produce(partition.topic, b"value", b"key", partition.partition)
        assert producer.flush(60) == 0
        if commit is not None:
            (producer.commit_transaction if commit else producer.abort_transaction)(60)

    def abort(self, partition: TopicPartition) -> None:
        assert self._open is not None
        self._open.abort_transaction(60)

    def store(self, partition: TopicPartition, position: int) -> None:
        with bare(self.cluster, self._group) as other:
            await_coordinator(other, partition.topic)
            other.commit(offsets=[ClientPartition(*partition, position)], asynchronous=False)

    def retain_from(self, partition: TopicPartition, start: int) -> None:
        admin = AdminClient({"bootstrap.servers": self.cluster.bootstrap})
        at = ClientPartition(*partition, start)
        admin.delete_records([at])[at].result(60)

    def remake(self) -> None:
        topic = self.first.topic
        admin = AdminClient({"bootstrap.servers": self.cluster.bootstrap, "log_level": 0})
        admin.delete_topics([topic])[topic].result(60)
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                admin.create_topics([NewTopic(topic, 2, 1)])[topic].result(60)
            except KafkaException:  # the old one has not quite gone
                assert time.monotonic() < deadline, "the topic does not go"
            else:
                return

    def away(self) -> None:
        assert isinstance(self.cluster, EmbeddedCluster)
        self.cluster.broker_down()

    def back(self) -> None:
        assert isinstance(self.cluster, EmbeddedCluster)
        self.cluster.broker_up()

    def away_for(self, seconds: float) -> None:
        self.away()
        threading.Timer(seconds, self.back).start()

    def leader_away(self, partition: TopicPartition) -> None:
        """Take the second broker away, which the client knows as the leader of both partitions.

        Its group and the other partition have moved to the first broker.
        """
        assert isinstance(self.cluster, EmbeddedCluster)
        self.cluster.move_coordinator(self._group, 1)
        both = (self.first, self.second)
        for each in both:
            self.cluster.move_leader(each.topic, each.partition, 2)
        self._kafka.consumer.list_topics(timeout=PATIENCE)
        self.client.log_bounds(both, PATIENCE)
        for each in both:
            self.cluster.move_leader(each.topic, each.partition, 2 if each == partition else 1)
        self.cluster.broker_down(2)

    def deny_commits(self) -> None:
        assert isinstance(self.cluster, EmbeddedCluster)
        self.cluster.fail_next("OffsetCommit", "GROUP_AUTHORIZATION_FAILED")

    def refuse_topic(self) -> None:
        assert self._secured is not None
        self._secured.refuse(ResourceType.TOPIC, self.first.topic, AclOperation.READ)

    def allow_topic(self) -> None:
        assert self._secured is not None
        self._secured.allow(ResourceType.TOPIC, self.first.topic, AclOperation.READ)

    def refuse_group(self) -> None:
        assert self._secured is not None
        self._secured.refuse(ResourceType.GROUP, self._group, AclOperation.READ)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self.client.close()


def offsets(records: Sequence[Record], partition: TopicPartition) -> list[int]:
    """The offsets of the partition's records; no other kind of message may be among them."""
    errors = [each.error() for each in records if each.error() is not None]
    assert not errors, errors
    return [each.offset() for each in records if each.partition() == partition.partition]


def take(side: Side, until: Callable[[list[Record]], bool]) -> list[Record]:
    """Consume until that is so of everything taken."""
    found: list[Record] = []
    deadline = side.now() + PATIENCE
    while not until(found):
        assert side.now() < deadline, f"taken so far: {[each.offset() for each in found]}"
        record = side.client.poll(0.05)
        if record is not None:
            found.append(record)
        found += side.client.consume(500)
    return found


def read(side: Side, partition: TopicPartition, last: int) -> list[Record]:
    """Take until this offset of the partition has come."""
    return take(side, lambda found: last in offsets(found, partition))
