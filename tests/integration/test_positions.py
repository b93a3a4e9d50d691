"""What is committed, and what the next start makes of it."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as ClientPartition

from kafka_keyshared.lab.demo.ledgers import AuditedClient
from kafka_keyshared.model import TopicPartition
from kafka_keyshared.observability.audit.ledger import MemoryLedger
from kafka_keyshared.testing.clusters.cluster import Cluster
from tests.conftest import Eventually
from tests.support.live_cluster import (
    Member,
    assert_clean,
    client_conf,
    committed,
    group_name,
    settled_sets,
    starts,
    write,
)


class FailsFor:
    """A handler that fails for one key until it is mended."""

    def __init__(self, key: bytes) -> None:
        self.key = key
        self.mended = threading.Event()

    def __call__(self, record: Any) -> None:
        if record.key() == self.key and not self.mended.is_set():
            raise ValueError("cannot do this one")


ONE_ATTEMPT = {"attempts": 2, "backoff": 0.01}


@pytest.mark.parametrize("end", ["stop", "abandon"])
def test_a_blocked_key_keeps_nobody_and_a_restart_runs_just_its_lane(
    any_cluster: Cluster, topic: str, eventually: Eventually, end: str
) -> None:
    any_cluster.create_topic(topic, 1)
    written = MemoryLedger("producer")
    keys = [b"a", b"bad", b"b", b"bad", b"c", b"a", b"bad", b"b", b"c", b"a"]
    write(any_cluster, topic, [(key, b"%d" % at) for at, key in enumerate(keys)], written)
    group = group_name()
    conf = client_conf(any_cluster, group)
    handler = FailsFor(b"bad")

    first = Member(conf, [topic], handler, retry=ONE_ATTEMPT).start()
    eventually(lambda: first.done() == 7 and committed(any_cluster, group, topic)[1] != "", 30.0)
    eventually(lambda: set_of(any_cluster, group, topic) == ((2, 3), (4, 6), (7, 10)), 30.0)
    if end == "stop":
        assert first.stop() == 0
    else:
        first.abandon()

    assert committed(any_cluster, group, topic)[0] == 1
    assert set_of(any_cluster, group, topic) == ((2, 3), (4, 6), (7, 10))
    handler.mended.set()
    second = Member(conf, [topic], handler, name="second").start()
    eventually(lambda: second.position() == 10, 30.0)
    assert second.stop() == 0
    assert starts(second.ledger) == [1, 3, 6]
    assert committed(any_cluster, group, topic)[0] == 10
    assert_clean(written, first.ledger, second.ledger)


def set_of(cluster: Cluster, group: str, topic: str) -> tuple[tuple[int, int], ...]:
    """Return the settled set that is committed for partition 0."""
    found: tuple[tuple[int, int], ...] = settled_sets(cluster, group, topic)[1].get("default", ())
    return found


def test_metadata_of_another_client_degrades_to_the_plain_offset(
    any_cluster: Cluster, topic: str, eventually: Eventually, caplog: pytest.LogCaptureFixture
) -> None:
    any_cluster.create_topic(topic, 1)
    written = MemoryLedger("producer")
    write(any_cluster, topic, [(b"k", b"%d" % number) for number in range(5)], written)
    group = group_name()
    other = Consumer(client_conf(any_cluster, group))
    other.commit(offsets=[ClientPartition(topic, 0, 2, "node-17")], asynchronous=False)
    other.close()

    member = Member(client_conf(any_cluster, group), [topic], lambda record: None).start()
    eventually(lambda: member.position() == 5, 30.0)
    assert member.stop() == 0
    assert starts(member.ledger) == [2, 3, 4]
    assert any(record.levelname == "WARNING" for record in caplog.records)


def test_transaction_markers_and_aborted_records_stall_nothing(
    real_cluster: Cluster, topic: str, eventually: Eventually
) -> None:
    """Committed, aborted, committed; the position goes past every marker that a record follows."""
    real_cluster.create_topic(topic, 1)
    producer = Producer({"bootstrap.servers": real_cluster.bootstrap, "transactional.id": topic})
    producer.init_transactions(30)
    kept = 0
    for round_ in range(6):
        producer.begin_transaction()
        for number in range(20):
            producer.produce(topic, b"%d" % number, b"key-%d" % (number % 7))
        producer.flush(30)
        if round_ % 2:
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
            kept += 20
    group = group_name()
    conf = client_conf(real_cluster, group)
    member = Member(conf, [topic], lambda record: None).start()
    eventually(lambda: member.done() == kept, 30.0)
    # Six transactions of 20 records and a marker each; the fifth's last record is at 103.
    eventually(lambda: member.position() >= 104, 30.0)
    assert member.stop() == 0
    first_end = committed(real_cluster, group, topic)[0]
    assert 104 <= first_end <= 126

    write(real_cluster, topic, [(b"last", b"")])
    second = Member(conf, [topic], lambda record: None, name="second").start()
    eventually(lambda: second.position() == 127, 30.0)
    assert second.stop() == 0
    assert starts(second.ledger) == [126]


def test_end_of_partition_events_move_the_position_behind_the_last_marker(
    real_cluster: Cluster, topic: str, eventually: Eventually
) -> None:
    real_cluster.create_topic(topic, 1)
    producer = Producer({"bootstrap.servers": real_cluster.bootstrap, "transactional.id": topic})
    producer.init_transactions(30)
    for ending in (producer.commit_transaction, producer.abort_transaction):
        producer.begin_transaction()
        producer.produce(topic, b"v", b"k")
        producer.flush(30)
        ending(30)
    conf = client_conf(real_cluster, group_name(), enable_partition_eof=True)
    member = Member(conf, [topic], lambda record: None).start()
    eventually(lambda: member.position() == 4, 30.0)
    assert member.done() == 1
    assert member.stop() == 0


def test_nothing_is_lost_when_the_client_raises_out_of_a_fetch(
    any_cluster: Cluster, topic: str, eventually: Eventually
) -> None:
    """The chunk that was taken off the queue is gone, from the first fetch on; it is read again."""
    fetched: list[int] = []

    class Leaky(AuditedClient):
        def consume(self, count: int) -> list[Any]:
            chunk = super().consume(count)
            if chunk:
                fetched.append(len(chunk))
                if len(fetched) in (1, 3, 4):
                    raise ValueError("planted: these records are gone")
            return chunk

        def seek(self, partition: TopicPartition, position: int | None) -> None:
            if len(fetched) == 3 and not refused:
                refused.append(partition)
                raise KafkaException(KafkaError(KafkaError._STATE))
            super().seek(partition, position)

    refused: list[TopicPartition] = []
    any_cluster.create_topic(topic, 2)
    written = MemoryLedger("producer")
    records = [(b"key-%d" % (number % 31), b"%d" % number) for number in range(3_000)]
    write(any_cluster, topic, records, written)
    conf = client_conf(any_cluster, group_name())
    member = Member(conf, [topic], lambda record: None, client=Leaky).start()
    eventually(lambda: member.position() == 3_000, 30.0)
    assert member.stop() == 0
    assert len(fetched) > 4
    assert len(refused) == 1
    assert_clean(written, member.ledger)
