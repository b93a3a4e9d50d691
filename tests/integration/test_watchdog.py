"""The watchdog on live clusters, and what tells a stall from what only looks like one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as ClientPartition

from kafka_keyshared.client.kafka import KafkaClient
from kafka_keyshared.model import TopicPartition
from kafka_keyshared.observability.audit.ledger import MemoryLedger
from kafka_keyshared.runtime import watchdog
from kafka_keyshared.testing.clusters.cluster import Cluster
from tests.conftest import Eventually
from tests.support.bare_client import write_transactions
from tests.support.live_cluster import (
    Member,
    assert_clean,
    client_conf,
    group_name,
    numbered,
    write,
)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a second without a record is a stall: there are some, and nothing else is going on."""
    monkeypatch.setattr(watchdog, "STALLED_AFTER", 0.5)
    monkeypatch.setattr(watchdog, "LOOK_EVERY", 0.0)


def test_a_pause_that_nobody_knows_of_is_found_and_ended(
    impatient: None, embedded_cluster: Cluster, topic: str, eventually: Eventually
) -> None:
    """As it was when the client kept a pause over a rebalance: silent, and for ever."""
    embedded_cluster.create_topic(topic, 2)
    written = MemoryLedger("producer")
    write(embedded_cluster, topic, numbered(100), written)
    paused: list[int] = []

    class Paused(Member):
        def _stepped(self, loop: object) -> None:
            super()._stepped(loop)  # type: ignore[arg-type]
            if self.done() >= 100 and not paused:
                # By the client's own method: what the loop knows says that nothing is paused.
                client = self.app.instance.ports.client  # type: ignore[union-attr]
                assert isinstance(client, KafkaClient)
                client.consumer.pause([ClientPartition(topic, 0), ClientPartition(topic, 1)])
                paused.append(self.done())

    member = Paused(client_conf(embedded_cluster, group_name()), [topic], lambda _: None).start()
    eventually(lambda: bool(paused), 60.0)
    write(embedded_cluster, topic, numbered(100), written)
    # Of what is paused the client hears no new end, so somebody has to have heard of it.
    instance = member.app.instance
    assert instance is not None
    ends = {TopicPartition(topic, number): 1_000 for number in (0, 1)}
    instance.ports.client.log_ends = lambda: ends  # type: ignore[method-assign]
    eventually(lambda: member.done() == 200, 60.0)
    assert instance.loop.watchdog.stalls[topic] >= 2
    assert member.stop() == 0
    assert_clean(written, member.ledger)


@pytest.fixture
def reader(real_cluster: Cluster, topic: str) -> Iterator[KafkaClient]:
    """A client that reads partition 0 from its beginning, without events of its end."""
    real_cluster.create_topic(topic, 1)
    client = KafkaClient(client_conf(real_cluster, group_name()), [topic], lambda answered: None)
    client.assign({TopicPartition(topic, 0): 0})
    yield client
    client.close()


def test_the_position_passes_markers_and_aborted_records_without_an_event(
    reader: KafkaClient, real_cluster: Cluster, topic: str, eventually: Eventually
) -> None:
    """So a log that ends in them is told from a partition that is not read."""
    write_transactions(real_cluster, topic, 3, [True, False])  # 0 1 2, marker; 4 5 6, marker
    found: list[int | None] = []

    def at_the_end() -> bool:
        found.extend(each.offset() for each in reader.consume(100))
        return reader.positions() == {TopicPartition(topic, 0): 8}

    eventually(at_the_end, 60.0)
    assert found == [0, 1, 2]
    assert reader.log_ends() == {TopicPartition(topic, 0): 8}


def test_an_open_transaction_is_beyond_the_end_of_which_the_broker_tells(
    reader: KafkaClient, real_cluster: Cluster, topic: str, eventually: Eventually
) -> None:
    """The cached end is behind what is not committed, the asked one before it."""
    partition = TopicPartition(topic, 0)
    producer = Producer({"bootstrap.servers": real_cluster.bootstrap, "transactional.id": topic})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, b"value", b"key", 0)
    assert producer.flush(60) == 0
    eventually(lambda: (reader.poll(0.1), reader.log_ends() == {partition: 1})[1], 60.0)
    assert reader.log_bounds([partition], 60.0)[partition][:2] == (0, 0)
    assert reader.positions() == {}
    producer.abort_transaction(60)
    eventually(lambda: (reader.poll(0.1), reader.positions() == {partition: 2})[1], 60.0)
    assert reader.log_bounds([partition], 60.0)[partition][:2] == (0, 2)
