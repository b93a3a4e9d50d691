"""Where partitions start and read on: each by itself, and in the log that there is."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest
from confluent_kafka import KafkaError
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions

from kafka_keyshared.lab.demo.ledgers import AuditedClient
from kafka_keyshared.model import Record, TopicPartition
from kafka_keyshared.observability.audit.ledger import MemoryLedger
from kafka_keyshared.testing.clusters.cluster import Cluster
from kafka_keyshared.testing.clusters.embedded import EmbeddedCluster
from tests.conftest import Eventually
from tests.support.live_cluster import (
    Member,
    assert_clean,
    client_conf,
    committed,
    group_name,
    made_anew,
    numbered,
    starts,
    write,
)
from tests.support.records import FakeRecord

PROTOCOLS: dict[str, dict[str, Any]] = {
    "eager": {"partition.assignment.strategy": "range"},
    "cooperative": {"partition.assignment.strategy": "cooperative-sticky"},
    "kip-848": {"group.protocol": "consumer"},
}


def done(_record: object) -> None:
    """A handler."""


# --- each partition by itself ---


@pytest.fixture
def two_brokers() -> Iterator[EmbeddedCluster]:
    """Two of which one may be taken down."""
    with EmbeddedCluster(brokers=2) as cluster:
        yield cluster


def test_a_leader_that_is_down_holds_up_its_own_partition_alone(
    two_brokers: EmbeddedCluster, topic: str, eventually: Eventually
) -> None:
    """Every partition has a settled set, so the ends of all logs are asked for."""
    cluster, group, away = two_brokers, group_name(), 3
    cluster.create_topic(topic, 4)
    cluster.move_coordinator(group, 1)
    written = MemoryLedger("producer")
    for number in range(4):
        cluster.move_leader(topic, number, 2 if number == away else 1)
        records = [(b"bad" if at == 1 else b"key-%d" % at, b"") for at in range(20)]
        write(cluster, topic, records, written, partition=number)
    mended = threading.Event()

    def handler(record: Any) -> None:
        if record.key() == b"bad" and not mended.is_set():
            raise ValueError("not yet")

    conf = client_conf(cluster, group, session_timeout_ms=10_000, reconnect_backoff_max_ms=200)
    conf |= {"log_level": 2}
    options: dict[str, Any] = {"retry": {"attempts": 1}, "order_scope": "partition"}
    first = Member(conf, [topic], handler, **options).start()
    eventually(lambda: first.done() == 4 * 19 and first.position() == 4, 60.0)
    assert first.stop() == 0
    mended.set()
    cluster.broker_down(2)
    second = Member(conf, [topic], handler, name="second", **options).start()
    reachable = [TopicPartition(topic, number) for number in range(away)]
    eventually(lambda: all(second.committed.get(each) == 20 for each in reachable), 60.0)
    assert TopicPartition(topic, away) not in second.committed
    cluster.broker_up(2)
    eventually(lambda: second.position() == 80, 60.0)
    assert second.stop() == 0
    assert starts(second.ledger) == [1, 1, 1, 1], "everything else was in the sets"
    assert_clean(written, first.ledger, second.ledger)


def test_with_latest_an_added_partition_is_read_from_its_start_and_the_others_are_not(
    real_cluster: Cluster, topic: str, eventually: Eventually
) -> None:
    real_cluster.create_topic(topic, 1)
    write(real_cluster, topic, [(b"old", b"")] * 5)
    conf = client_conf(real_cluster, group_name(), auto_offset_reset="latest")
    conf |= {"topic.metadata.refresh.interval.ms": 500}
    member = Member(conf, [topic], done).start()
    eventually(lambda: member.committed == {TopicPartition(topic, 0): 5}, 60.0)
    admin = AdminClient({"bootstrap.servers": real_cluster.bootstrap, "log_level": 0})
    admin.create_partitions([NewPartitions(topic, 2)])[topic].result(60)
    write(real_cluster, topic, [(b"new", b"")] * 7, partition=1)
    eventually(lambda: member.position() == 12, 60.0)
    assert member.stop() == 0
    assert starts(member.ledger) == list(range(7))


# --- what is not out of range stays where it is ---


class Misplaced(AuditedClient):
    """Its broker once calls the place in partition 0 out of range, when ``say`` is set."""

    say = threading.Event()

    def poll(self, timeout: float) -> Record | None:
        found = super().poll(timeout)
        if found is None and self.say.is_set():
            self.say.clear()
            error = KafkaError(KafkaError._AUTO_OFFSET_RESET, "Broker: Offset out of range")
            (partition,) = (each for each in self._assigned if each.partition == 0)
            return FakeRecord(partition, -1, None, error=error)
        return found


@pytest.mark.parametrize("case", list(product(PROTOCOLS, ["earliest", "latest"])), ids="-".join)
def test_a_partition_that_has_delivered_nothing_keeps_its_place_when_another_loses_its_own(
    real_cluster: Cluster,
    topic: str,
    eventually: Eventually,
    caplog: pytest.LogCaptureFixture,
    case: tuple[str, str],
) -> None:
    caplog.set_level(logging.INFO)
    real_cluster.create_topic(topic, 2)
    protocol, reset = case
    conf = client_conf(real_cluster, group_name()) | PROTOCOLS[protocol]
    if protocol == "kip-848":  # the broker's to say
        del conf["session.timeout.ms"], conf["heartbeat.interval.ms"]
    written = MemoryLedger("producer")
    write(real_cluster, topic, numbered(100), written)
    first = Member(conf, [topic], done).start()
    eventually(lambda: first.position() == 100, 60.0)
    assert first.stop() == 0
    conf |= {"auto.offset.reset": reset}
    second = Member(conf, [topic], done, name="second", client=Misplaced).start()
    eventually(lambda: len(second.assigned) == 2, 60.0)
    Misplaced.say.set()
    eventually(lambda: "which the log has; reading on there" in caplog.text, 60.0)
    write(real_cluster, topic, numbered(100), written)
    eventually(lambda: second.position() == 200, 60.0)
    assert second.stop() == 0
    assert_clean(written, first.ledger, second.ledger)


# --- another log under the same name ---


def test_a_topic_that_is_made_anew_while_it_is_read_is_read_from_its_start(
    real_cluster: Cluster, topic: str, eventually: Eventually, caplog: pytest.LogCaptureFixture
) -> None:
    real_cluster.create_topic(topic, 2)
    group = group_name()
    conf = client_conf(real_cluster, group)
    ran: list[tuple[int, bytes]] = []

    def handler(record: Any) -> None:
        ran.append((record.partition(), record.value()))

    def new(number: int) -> list[bytes]:
        return [value for at, value in ran if at == number and value.startswith(b"new")]

    for number in range(2):
        old = [(b"key", b"old-%d" % at) for at in range(200)]
        write(real_cluster, topic, old, partition=number)
    member = Member(conf, [topic], handler).start()
    eventually(lambda: member.position() == 400, 60.0)
    made_anew(real_cluster, topic, 2, eventually)
    expected = [b"new-%d" % at for at in range(60)]
    for number in range(2):
        write(real_cluster, topic, [(b"key", value) for value in expected[:30]], partition=number)
    eventually(lambda: [len(new(number)) for number in range(2)] == [30, 30], 60.0)
    for number in range(2):
        write(real_cluster, topic, [(b"key", value) for value in expected[30:]], partition=number)
    eventually(lambda: member.position() == 120, 60.0)
    assert [new(number) for number in range(2)] == [expected, expected], "all, once, in order"
    assert [committed(real_cluster, group, topic, number)[0] for number in range(2)] == [60, 60]
    assert "the topic was deleted and recreated" in caplog.text
    assert member.stop() == 0
    before = len(ran)
    after = Member(conf, [topic], handler, name="after").start()
    eventually(lambda: len(after.assigned) == 2, 60.0)
    write(real_cluster, topic, [(b"key", b"last")], partition=0)
    eventually(lambda: after.position() == 61, 60.0)
    assert after.stop() == 0
    assert ran[before:] == [(0, b"last")], "nothing runs twice"
