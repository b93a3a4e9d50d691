"""A reader of some slots on live clusters: exactly those records, and no trace of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from kafka_keyshared import ConfigError, KeySharedError, Reader
from kafka_keyshared.app import reader as app_reader
from kafka_keyshared.client import log_reader, silence_log
from kafka_keyshared.client.bounds import ask_logs
from kafka_keyshared.client.port import LogBounds
from kafka_keyshared.client.probe import require_broker
from kafka_keyshared.core.keys.selection import SelectionCounts
from kafka_keyshared.errors import BrokerUnavailableError, TopicMissingError
from kafka_keyshared.hashing import SLOT_FUNCTIONS, slot_of
from kafka_keyshared.model import TopicPartition
from kafka_keyshared.testing.clusters.cluster import Cluster
from kafka_keyshared.testing.clusters.embedded import EmbeddedCluster
from tests.support.live_cluster import Headers, numbered, read_all, write
from tests.support.slot_readers import ALL, after_asking, all_of, conf, places, read_until, reading

READING = {
    *("ApiVersions", "Metadata", "FindCoordinator", "ListOffsets", "Fetch", "OffsetForLeaderEpoch"),
    "71",  # whether the cluster wants to know how the client does (KIP-714); 72 would tell it
}
"""What a client asks that reads a log."""


@pytest.fixture
def own_cluster() -> Iterator[EmbeddedCluster]:
    """A cluster whose faults disturb no other test."""
    with EmbeddedCluster() as cluster:
        yield cluster


# --- which records ---


@pytest.mark.parametrize("name", ["mmh3", "pulsar"])
def test_the_records_of_some_slots_come_whole_and_in_order(
    any_cluster: Cluster, topic: str, name: Any
) -> None:
    topics = [topic, f"{topic}-b"]
    for each in topics:
        any_cluster.create_topic(each, 3)
        write(any_cluster, each, numbered(600, keys=97))
    slot = SLOT_FUNCTIONS[name]
    ranges = [(0, 10_000), (20_001, 30_000)]
    with reading(any_cluster, *topics, ranges=ranges, slot_function=name) as reader:
        found = [(each.topic(), each.partition(), each.offset()) for each in reader]
    everything = [each for topic in topics for each in read_all(any_cluster, topic, 600)]
    meant = {
        (each.topic(), each.partition(), each.offset())
        for each in everything
        if any(low <= slot(each.key() or b"") <= high for low, high in ranges)
    }
    assert set(found) == meant
    assert 0 < len(meant) < 1_200
    assert len(found) == len(meant)
    for place in {each[:2] for each in found}:
        offsets = [each[2] for each in found if each[:2] == place]
        assert offsets == sorted(offsets)
    assert reader.counts == SelectionCounts(read=1_200, chosen=len(meant))


def test_records_without_a_key_are_left_out_unless_they_are_asked_for(
    embedded_cluster: Cluster, topic: str
) -> None:
    embedded_cluster.create_topic(topic, 1)
    write(embedded_cluster, topic, [(None if at % 3 else b"k", b"") for at in range(30)])
    assert len(all_of(reading(embedded_cluster, topic))) == 10
    everything = reading(embedded_cluster, topic, keyless=True)
    assert all_of(everything) == [(0, offset) for offset in range(30)]
    assert everything.counts == SelectionCounts(read=30, chosen=30, keyless=20)


def test_the_key_may_be_a_header(embedded_cluster: Cluster, topic: str) -> None:
    embedded_cluster.create_topic(topic, 1)
    for customer in (b"a", b"b", None):
        headers: Headers = [] if customer is None else [("customer", customer)]
        write(embedded_cluster, topic, [(b"same", b"")] * 5, headers=headers)
    slot = slot_of(b"b")
    reader = reading(embedded_cluster, topic, ranges=[(slot, slot)], key="header:customer")
    assert all_of(reader) == [(0, offset) for offset in range(5, 10)]
    assert reader.counts.keyless == 5


def test_bounds_by_offset_and_from_the_end(any_cluster: Cluster, topic: str) -> None:
    any_cluster.create_topic(topic, 3)
    for number in range(2):
        write(any_cluster, topic, numbered(50), partition=number)
    last = reading(any_cluster, topic, start=-2)
    assert sorted(all_of(last)) == [(0, 48), (0, 49), (1, 48), (1, 49)]
    middle = reading(any_cluster, topic, start={0: 10}, until={0: 13})
    assert all_of(middle) == [(0, 10), (0, 11), (0, 12)]
    both = reading(any_cluster, topic, start={0: 48, 1: 48}, until={0: 49})
    assert sorted(all_of(both)) == [(0, 48), (1, 48), (1, 49)]
    with reading(any_cluster, topic, start={1: -3}, until={1: -1}) as reader:
        assert reader.open() == {TopicPartition(topic, 1): 47}
        assert places(list(reader)) == [(1, 47), (1, 48)]
    with pytest.raises(ConfigError, match=f"start {topic}-0@51: the log ends at 50"):
        all_of(reading(any_cluster, topic, start={0: 51}))
    with pytest.raises(ConfigError, match="there is no partition 3 of"):
        all_of(reading(any_cluster, topic, until={3: 1}))


# --- where it ends ---


def test_empty_partitions_end_at_once(any_cluster: Cluster, topic: str) -> None:
    any_cluster.create_topic(topic, 3)
    assert all_of(reading(any_cluster, topic)) == []
    write(any_cluster, topic, numbered(5), partition=1)
    assert all_of(reading(any_cluster, topic)) == [(1, offset) for offset in range(5)]


def test_what_is_written_meanwhile_is_not_read(any_cluster: Cluster, topic: str) -> None:
    any_cluster.create_topic(topic, 2)
    write(any_cluster, topic, numbered(20), partition=0)
    with reading(any_cluster, topic) as reader:
        for number in range(2):
            write(any_cluster, topic, numbered(500), partition=number)
        assert places(list(reader)) == [(0, offset) for offset in range(20)]
        assert reader.done
        assert reader.counts.read == 20


def test_it_can_be_stopped(embedded_cluster: Cluster, topic: str) -> None:
    embedded_cluster.create_topic(topic, 1)
    write(embedded_cluster, topic, numbered(5))
    with reading(embedded_cluster, topic, until=None) as reader:
        for record in reader:
            if record.offset() == 4:
                reader.stop()
        assert reader.done
        assert reader.counts.read == 5


# --- no trace ---


def test_it_only_asks(own_cluster: EmbeddedCluster, topic: str) -> None:
    own_cluster.create_topic(topic, 2)
    write(own_cluster, topic, numbered(100))
    own_cluster.watch_requests()
    assert len(all_of(reading(own_cluster, topic))) == 100
    asked = set(own_cluster.requests())
    assert {"Fetch", "ListOffsets"} <= asked <= READING


def test_a_topic_that_is_not_there_is_refused_and_not_made(
    embedded_cluster: Cluster, topic: str
) -> None:
    embedded_cluster.create_topic(topic, 1)
    with pytest.raises(TopicMissingError, match=f"did you mean '{topic}'"):
        all_of(reading(embedded_cluster, f"{topic}s"))
    with pytest.raises(TopicMissingError, match="no topic that this user may see fits"):
        all_of(reading(embedded_cluster, f"^{topic}s"))
    assert f"{topic}s" not in AdminClient(conf(embedded_cluster)).list_topics(timeout=30).topics


def test_nobody_there_is_told_with_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(require_broker, "__defaults__", (0.2,))
    reader = Reader({"bootstrap.servers": "127.0.0.1:1"}, ["t"], ALL)
    with pytest.raises(BrokerUnavailableError, match="no broker answered at 127"):
        reader.read()
    assert reader.done


# --- while it goes on ---


def test_an_outage_is_told_once_and_nothing_is_lost_or_repeated(
    own_cluster: EmbeddedCluster, topic: str
) -> None:
    own_cluster.create_topic(topic, 1)
    write(own_cluster, topic, numbered(5))
    said: list[str] = []
    with reading(own_cluster, topic, until=None, tell=said.append) as reader:
        read_until(reader, lambda found: len(found) == 5)
        own_cluster.broker_down()
        read_until(reader, lambda _: bool(said))
        assert said[0].startswith("no broker answers (")
        own_cluster.broker_up()
        write(own_cluster, topic, numbered(3))
        found = read_until(reader, lambda found: len(found) == 3 and len(said) == 2)
        assert places(found) == [(0, 5), (0, 6), (0, 7)]
        assert said[1].startswith("a broker answers again, after ")
        assert len(said) == 2


def test_a_silence_in_a_reading_that_has_an_end_is_told_and_waited_out(
    own_cluster: EmbeddedCluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_cluster.create_topic(topic, 1)
    write(own_cluster, topic, numbered(5))
    monkeypatch.setattr(silence_log, "SAY_AFTER", 0.5)
    after_asking(monkeypatch, own_cluster.broker_down)
    said: list[str] = []
    with reading(own_cluster, topic, tell=said.append) as reader:
        assert read_until(reader, lambda _: bool(said)) == []
        assert said[0].startswith(f"nothing has come from {own_cluster.bootstrap} for ")
        own_cluster.broker_up()
        assert places(list(reader)) == [(0, offset) for offset in range(5)]
        assert [each.split(",")[0] for each in said[1:]] == ["records come again"]


def test_a_topic_that_is_made_anew_under_it_is_said(
    own_cluster: EmbeddedCluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_cluster.create_topic(topic, 1)
    write(own_cluster, topic, numbered(10))
    asked: list[Any] = []

    def of_another_log(*given: Any) -> Any:
        found = ask_logs(*given)
        asked.append(given)
        if len(asked) > 1:
            return found
        return {each: log._replace(start=500, end=600) for each, log in found.items()}

    monkeypatch.setattr(log_reader, "ask_logs", of_another_log)
    with pytest.raises(KeySharedError, match=f"{topic}-0 ends at 10, before offset 500"):
        all_of(reading(own_cluster, topic))


def test_a_log_that_cannot_be_asked_for_just_then_is_asked_for_again(
    own_cluster: EmbeddedCluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_cluster.create_topic(topic, 1)
    write(own_cluster, topic, numbered(10))
    asked: list[Any] = []

    def as_it_shrinks(*given: Any) -> Any:
        (partition,) = given[1]
        asked.append(partition)
        if len(asked) in {2, 3}:
            raise BrokerUnavailableError("no answer")
        start = 500 if len(asked) == 1 else 580
        return {partition: LogBounds(start, 600)}

    monkeypatch.setattr(log_reader, "ask_logs", as_it_shrinks)
    said: list[str] = []
    with reading(own_cluster, topic, until={0: 560}, tell=said.append) as reader:
        assert list(reader) == []
    assert len(asked) == 4
    assert said == [f"{topic}-0: offsets 500 to 559 are no longer there; reading on behind them"]


# --- keys that cannot be read ---


def test_a_key_that_cannot_be_read_just_now_is_waited_for_in_order(
    embedded_cluster: Cluster, topic: str, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    monkeypatch.setattr(app_reader, "KEY_AGAIN_AFTER", 0.01)
    embedded_cluster.create_topic(topic, 1)
    write(embedded_cluster, topic, numbered(10))
    failing = [3, 3, 3, 7]

    def key(record: Any) -> bytes:
        if failing and record.offset() == failing[0]:
            failing.pop(0)
            raise OSError("the registry is away")
        return bytes(record.key())

    assert all_of(reading(embedded_cluster, topic, key=key)) == [(0, at) for at in range(10)]
    said = [each.getMessage() for each in caplog.records]
    assert said == [
        f"{topic}-0@3: its key cannot be read yet (the registry is away); the read is retried"
    ]


def test_a_stop_does_not_wait_for_a_key(embedded_cluster: Cluster, topic: str) -> None:
    embedded_cluster.create_topic(topic, 1)
    write(embedded_cluster, topic, numbered(10))

    def key(_record: Any) -> bytes:
        reader.stop()
        raise OSError("the registry is away")

    reader = reading(embedded_cluster, topic, key=key)
    assert all_of(reader) == []


def test_keys_that_never_can_be_read_are_left_out_and_told(
    embedded_cluster: Cluster, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    embedded_cluster.create_topic(topic, 1)
    write(embedded_cluster, topic, [(b"k", b"{" if at % 2 else b'{"a":1}') for at in range(10)])
    reader = reading(embedded_cluster, topic, key="json:/a", keyless=True)
    assert all_of(reader) == [(0, at) for at in range(0, 10, 2)]
    assert reader.counts == SelectionCounts(read=10, chosen=5, undecodable=5)
    (line,) = [each.getMessage() for each in caplog.records]
    assert line.startswith(
        f"{topic}-0@1 is left out: its key cannot be read: the value is not JSON"
    )


def test_an_error_callback_of_the_users_is_heard_and_cannot_end_it(
    own_cluster: EmbeddedCluster, topic: str
) -> None:
    own_cluster.create_topic(topic, 1)
    heard: list[Any] = []

    def error_cb(error: Any) -> None:
        heard.append(error)
        raise ValueError("a mistake of the user's")

    named = {**conf(own_cluster), "error_cb": error_cb}
    with Reader(named, [topic], ALL) as reader:
        own_cluster.broker_down()
        read_until(reader, lambda _: bool(heard))
        own_cluster.broker_up()
        write(own_cluster, topic, numbered(2))
        assert len(read_until(reader, lambda found: len(found) == 2)) == 2
