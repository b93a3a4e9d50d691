"""A reader of some slots on real Kafka: markers, times, retention, rights, and no trace of it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined] # not in its __all__
    AclOperation,
    AdminClient,
    NewPartitions,
    ResourceType,
)

from kafka_keyshared import ConfigError, Reader
from kafka_keyshared.client import log_reader
from kafka_keyshared.client.bounds import ask_logs
from kafka_keyshared.errors import BrokerUnavailableError, TopicMissingError
from kafka_keyshared.testing.clusters.cluster import Cluster
from tests.support.bare_client import write_transactions
from tests.support.live_cluster import numbered, write
from tests.support.secured_broker import Secured
from tests.support.slot_readers import ALL, after_asking, all_of, conf, places, read_until, reading


def groups(cluster: Cluster) -> set[str]:
    admin = AdminClient(conf(cluster))
    return {group.group_id for group in admin.list_consumer_groups().result(30).valid}


# --- which records ---


def test_bounds_by_time(real_cluster: Cluster, topic: str) -> None:
    real_cluster.create_topic(topic, 2)
    noon = datetime(2026, 1, 31, 12, tzinfo=UTC).timestamp()
    producer = Producer(conf(real_cluster))
    for minute in range(10):
        at = int((noon + 60 * minute) * 1_000)
        producer.produce(topic, b"", b"k", 0, timestamp=at)
    producer.produce(topic, b"", b"k", 1, timestamp=int(noon * 1_000))
    assert producer.flush(60) == 0

    def after(minutes: float) -> datetime:
        return datetime.fromtimestamp(noon + 60 * minutes, UTC)

    found = all_of(reading(real_cluster, topic, start=after(2.5), until=after(5)))
    assert found == [(0, 3), (0, 4)]
    assert all_of(reading(real_cluster, topic, start=after(9))) == [(0, 9)]
    # After the last record there is nothing.
    assert all_of(reading(real_cluster, topic, start=after(60))) == []


# --- where it ends ---


def test_transaction_markers_and_aborted_records_end_a_reading_like_records(
    real_cluster: Cluster, topic: str
) -> None:
    real_cluster.create_topic(topic, 2)
    # 0-2, a marker, 4-6 that are aborted, a marker; the log ends at 8.
    write_transactions(real_cluster, topic, 3, [True, False])
    assert all_of(reading(real_cluster, topic)) == [(0, 0), (0, 1), (0, 2)]
    assert all_of(reading(real_cluster, topic, until={0: 2})) == [(0, 0), (0, 1)]
    assert all_of(reading(real_cluster, topic, start={0: 3}, until={0: 8})) == []
    # More behind the markers: the bound lies before it.
    write(real_cluster, topic, numbered(3), partition=0)
    assert all_of(reading(real_cluster, topic, until={0: 8})) == [(0, 0), (0, 1), (0, 2)]


# --- no trace ---


def test_no_group_hears_of_it(real_cluster: Cluster, topic: str) -> None:
    real_cluster.create_topic(topic, 2)
    write(real_cluster, topic, numbered(100))
    known = groups(real_cluster)
    # Also not the group that settings of an instance name.
    named = {**conf(real_cluster), "group.id": topic}
    with Reader(named, [topic], ALL, until="latest") as reader:
        assert len(list(reader)) == 100
        assert groups(real_cluster) == known
    assert groups(real_cluster) == known


def test_a_user_who_may_not_read_is_told_what_to_allow(secured: Secured, topic: str) -> None:
    secured.cluster.create_topic(topic, 1)
    write(secured.cluster, topic, numbered(5))
    with pytest.raises(TopicMissingError, match=f"allow DESCRIBE and READ on topic {topic}"):
        all_of(Reader(secured.alice("none"), [topic], ALL, until="latest"))
    secured.allow(ResourceType.TOPIC, topic, AclOperation.DESCRIBE)
    with pytest.raises(ConfigError, match=f"may not read topic '{topic}'; allow READ"):
        all_of(Reader(secured.alice("none"), [topic], ALL, until="latest"))
    secured.allow(ResourceType.TOPIC, topic, AclOperation.READ)
    # No right on any group is needed.
    assert len(all_of(Reader(secured.alice("none"), [topic], ALL, until="latest"))) == 5


# --- while it goes on ---


def test_it_goes_on_and_reads_partitions_that_are_added_from_their_start(
    real_cluster: Cluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_reader, "LOOK_EVERY", 0.2)
    real_cluster.create_topic(topic, 1)
    write(real_cluster, topic, numbered(5))
    said: list[str] = []
    with reading(real_cluster, topic, start="latest", until=None, tell=said.append) as reader:
        write(real_cluster, topic, numbered(3), partition=0)
        assert places(read_until(reader, lambda found: len(found) == 3)) == [(0, 5), (0, 6), (0, 7)]
        failing = [BrokerUnavailableError("it has no leader yet")] * 2

        def asking(*given: Any) -> Any:
            if given[1] and failing:
                raise failing.pop()
            return ask_logs(*given)

        monkeypatch.setattr(log_reader, "ask_logs", asking)
        admin = AdminClient(conf(real_cluster))
        admin.create_partitions([NewPartitions(topic, 2)])[topic].result(60)
        write(real_cluster, topic, numbered(2), partition=1)
        assert places(read_until(reader, lambda found: len(found) == 2)) == [(1, 0), (1, 1)]
        assert said == [f"partitions were added: {topic}-1; they are read from their start"]
        assert not reader.done
        assert failing == []


def delete_records(cluster: Cluster, topic: str, before: int) -> None:
    start = ClientPartition(topic, 0, before)
    admin = AdminClient(conf(cluster))  # it has to outlive the question
    admin.delete_records([start])[start].result(60)


@pytest.mark.parametrize("until", ["latest", None])
def test_what_retention_took_meanwhile_is_told_and_reading_goes_on_behind_it(
    real_cluster: Cluster, topic: str, monkeypatch: pytest.MonkeyPatch, until: Any
) -> None:
    real_cluster.create_topic(topic, 1)
    write(real_cluster, topic, numbered(10))
    after_asking(monkeypatch, lambda: delete_records(real_cluster, topic, 6))
    said: list[str] = []
    with reading(real_cluster, topic, start={0: 2}, until=until, tell=said.append) as reader:
        found = read_until(reader, lambda found: len(found) == 4)
        assert places(found) == [(0, 6), (0, 7), (0, 8), (0, 9)]
        assert said == [f"{topic}-0: offsets 2 to 5 are no longer there; reading on behind them"]


def test_what_retention_had_taken_before_is_told_too(real_cluster: Cluster, topic: str) -> None:
    real_cluster.create_topic(topic, 1)
    write(real_cluster, topic, numbered(10))
    delete_records(real_cluster, topic, 6)
    said: list[str] = []
    found = all_of(reading(real_cluster, topic, start={0: 2}, until={0: 8}, tell=said.append))
    assert found == [(0, 6), (0, 7)]
    assert said == [f"{topic}-0: offsets 2 to 5 are no longer there; reading on behind them"]
    assert all_of(reading(real_cluster, topic)) == [(0, offset) for offset in range(6, 10)]


def test_all_of_it_deleted_meanwhile_is_an_end(
    real_cluster: Cluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_cluster.create_topic(topic, 1)
    write(real_cluster, topic, numbered(10))
    after_asking(monkeypatch, lambda: delete_records(real_cluster, topic, 10))
    said: list[str] = []
    assert all_of(reading(real_cluster, topic, until={0: 8}, tell=said.append)) == []
    assert said == [f"{topic}-0: offsets 0 to 7 are no longer there; reading on behind them"]


@pytest.mark.parametrize("until", [None, {0: 8}])
def test_a_topic_that_is_deleted_under_it_ends_it(
    real_cluster: Cluster, topic: str, monkeypatch: pytest.MonkeyPatch, until: Any
) -> None:
    def longer(*given: Any) -> Any:
        found = ask_logs(*given)
        return {each: log._replace(end=8) for each, log in found.items()}

    monkeypatch.setattr(log_reader, "LOOK_EVERY", 0.2)
    # So that the reading that has an end still waits for something when the topic goes.
    monkeypatch.setattr(log_reader, "ask_logs", longer)
    real_cluster.create_topic(topic, 1)
    write(real_cluster, topic, numbered(5))
    with reading(real_cluster, topic, until=until) as reader:
        read_until(reader, lambda found: len(found) == 5)
        admin = AdminClient(conf(real_cluster))
        admin.delete_topics([topic])[topic].result(60)
        with pytest.raises(TopicMissingError, match=topic):
            read_until(reader, lambda _: False)


def test_a_transaction_that_is_open_is_beyond_the_end(real_cluster: Cluster, topic: str) -> None:
    real_cluster.create_topic(topic, 1)
    write(real_cluster, topic, numbered(4))
    producer = Producer({**conf(real_cluster), "transactional.id": topic})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, b"", b"k", 0)
    assert producer.flush(60) == 0
    assert len(all_of(reading(real_cluster, topic))) == 4
    uncommitted = {**conf(real_cluster), "isolation.level": "read_uncommitted"}
    assert len(all_of(Reader(uncommitted, [topic], ALL, until="latest"))) == 5
    producer.abort_transaction(60)
