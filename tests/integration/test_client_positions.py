"""What positions and commit metadata of the client are, and what the layer makes of them."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from confluent_kafka import OFFSET_INVALID, Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import AdminClient

from kafka_keyshared.client.kafka import KafkaClient
from kafka_keyshared.client.port import Committed, CommittedOffset
from kafka_keyshared.core.contract.commands import Commit, CommitEntry
from kafka_keyshared.core.contract.events import CommitAnswer, CommitResult
from kafka_keyshared.core.offsets import commit_metadata
from kafka_keyshared.lab.demo.ledgers import AuditedClient
from kafka_keyshared.model import TopicPartition
from kafka_keyshared.observability.audit.ledger import MemoryLedger, Started
from kafka_keyshared.runtime import rebalance, start_points
from kafka_keyshared.testing.clusters.broker import RealCluster
from kafka_keyshared.testing.clusters.cluster import Cluster
from kafka_keyshared.testing.clusters.embedded import EmbeddedCluster
from tests.conftest import Eventually
from tests.support.bare_client import bare, start_at, write_transactions
from tests.support.commit_texts import here
from tests.support.kafka_requests import commit_as_written
from tests.support.live_cluster import (
    Member,
    assert_clean,
    await_coordinator,
    client_conf,
    committed,
    group_name,
    settled_sets,
    starts,
    write,
)

SMALL = 80
"""Characters of metadata that the strict broker takes, the binding's NUL included.

A text names its log in some 55 of them, so a set of one run fits, and not one of many.
"""


@pytest.fixture(scope="module")
def strict_broker(kafka_parts: None) -> Iterator[RealCluster]:
    """A broker with Kafka's own limit for session time-outs, and little room for metadata."""
    settings = {"group.min.session.timeout.ms": None, "offset.metadata.max.bytes": SMALL}
    with RealCluster(settings=settings) as cluster:
        yield cluster


# --- position() as the received end ---


def test_position_is_the_received_end(real_cluster: Cluster, topic: str) -> None:
    """Behind the last record taken, not behind markers; unknown after a seek until one is taken."""
    real_cluster.create_topic(topic, 1)
    # 0 1 2 and a marker at 3; 4 5 6 aborted, marker at 7; 8 9 10, marker at 11.
    write_transactions(real_cluster, topic, 3, [True, False, True])
    seen: list[tuple[int, int]] = []
    with bare(real_cluster, group_name(), enable_partition_eof=True) as consumer:
        start_at(consumer, topic)
        while not seen or seen[-1][0] < 12:
            message = consumer.poll(60)
            assert message is not None
            offset = message.offset()
            assert offset is not None
            seen.append((offset, position(consumer, topic)))
            error = message.error()
            assert error is None or error.code() == KafkaError._PARTITION_EOF
        assert seen == [(0, 1), (1, 2), (2, 3), (8, 9), (9, 10), (10, 11), (12, 12)]
        consumer.seek(ClientPartition(topic, 0, 1))
        assert position(consumer, topic) in (OFFSET_INVALID, 1)
        message = consumer.poll(60)
        assert message is not None
        assert (message.offset(), position(consumer, topic)) == (1, 2)


def position(consumer: Consumer, topic: str) -> int:
    (found,) = consumer.position([ClientPartition(topic, 0)])
    return found.offset


def test_the_leader_epoch_is_committed_with_the_position(
    real_cluster: Cluster, topic: str, eventually: Eventually
) -> None:
    """KIP-320: with it, a broker can tell a position in a log that was truncated since."""
    real_cluster.create_topic(topic, 1)
    write(real_cluster, topic, [(b"k", b"v")] * 5)
    group = group_name()
    member = Member(client_conf(real_cluster, group), [topic], lambda record: None).start()
    eventually(lambda: member.position() == 5, 60.0)
    assert member.stop() == 0
    with bare(real_cluster, group) as consumer:
        (found,) = consumer.committed([ClientPartition(topic, 0)], timeout=30)
        assert (found.offset, found.leader_epoch) == (5, 0)


# --- how much metadata there may be ---


@pytest.mark.parametrize(("unit", "width"), [("x", 1), ("é", 1), ("\U0001f600", 2)])
def test_a_broker_takes_4095_utf_16_units_of_metadata_and_no_more(
    real_cluster: Cluster, topic: str, unit: str, width: int
) -> None:
    """It takes 4,096, and the binding adds a NUL."""
    real_cluster.create_topic(topic, 1)
    most = unit * (4_095 // width)
    with bare(real_cluster, group_name()) as consumer:
        at = ClientPartition(topic, 0, 3, most)
        eventually_commit(consumer, at)
        (found,) = consumer.committed([ClientPartition(topic, 0)], timeout=30)
        assert (found.offset, found.metadata) == (3, most)
        with pytest.raises(KafkaException) as refused:
            consumer.commit(offsets=[ClientPartition(topic, 0, 4, most + unit)], asynchronous=False)
        assert refused.value.args[0].code() == KafkaError.OFFSET_METADATA_TOO_LARGE


def eventually_commit(consumer: Consumer, at: ClientPartition) -> None:
    """Commit once the coordinator of a new cluster is ready."""
    await_coordinator(consumer, at.topic)
    consumer.commit(offsets=[at], asynchronous=False)


def test_the_longest_text_of_the_codec_lands_and_reads_back(
    real_cluster: Cluster, topic: str, eventually: Eventually
) -> None:
    runs = tuple((start, start + 1) for start in range(1, 4_001, 2))
    # Another subscription's block fills what its own sets leave.
    filler = bytes(range(256)) * 3
    encoded = commit_metadata.encode(here(0), {"default": runs}, {"other": filler})
    while len(encoded.text) < commit_metadata.TEXT_LIMIT:
        filler += bytes((len(filler) % 251,))
        longer = commit_metadata.encode(here(0), {"default": runs}, {"other": filler})
        if longer.dropped_unknown:
            break
        encoded = longer
    assert commit_metadata.TEXT_LIMIT - len(encoded.text) < 3

    real_cluster.create_topic(topic, 1)
    partition = TopicPartition(topic, 0)
    answers: list[CommitAnswer] = []
    client = KafkaClient(client_conf(real_cluster, group_name()), [topic], answers.append)
    try:
        await_coordinator(client.consumer, topic)
        client.commit(Commit({partition: CommitEntry(0, encoded.text)}))
        eventually(lambda: (client.poll(0.1), bool(answers))[1], 60.0)
        assert [each.result for each in answers] == [CommitResult.ACCEPTED]
        found = client.committed([partition], 30.0)[partition]
    finally:
        client.close()
    assert found == CommittedOffset(0, encoded.text)
    assert commit_metadata.decode(encoded.text, here(0), {"default"}).sections == {"default": runs}


def test_brokers_tell_how_much_metadata_they_take_and_an_embedded_cluster_keeps_nobody_waiting(
    any_cluster: Cluster, topic: str
) -> None:
    any_cluster.create_topic(topic, 1)
    client = KafkaClient(client_conf(any_cluster, group_name()), [topic], lambda answer: None)
    try:
        client.check_topics(30.0)
        asked = client.ask_metadata_limit()
        assert asked.answered(30.0)
        assert asked.limit == (4_096 if isinstance(any_cluster, RealCluster) else None)
        unasked = KafkaClient(client_conf(any_cluster, group_name()), [topic], lambda answer: None)
        assert unasked.ask_metadata_limit().answered(0.0), "no broker is known yet to ask"
        unasked.close()
    finally:
        client.close()


# --- metadata of other clients ---


FOREIGN = [b"KS1", "é".encode(), b"\xff\xfe\x00\x80"]
"""Without a NUL behind them, the first two are read as whatever lies there in memory."""


def test_the_client_reads_past_the_end_of_metadata_without_a_nul(
    real_cluster: Cluster, topic: str
) -> None:
    """The reason why the codec's text says how long it is; when this fails, it need not.

    What is read cannot always be decoded. The error comes with the attribute, so the offset can be
    had all the same.
    """
    real_cluster.create_topic(topic, 1)
    wrong = 0
    for content in [b"x" * length for length in range(1, 90, 2)]:
        group = group_name()
        commit_as_written(real_cluster.bootstrap, group, TopicPartition(topic, 0), 7, content)
        with bare(real_cluster, group) as consumer:
            (found,) = consumer.committed([ClientPartition(topic, 0)], timeout=60)
            assert found.offset == 7
            try:
                wrong += found.metadata != content.decode()
            except UnicodeDecodeError:
                wrong += 1
        if wrong:
            break
    assert wrong


@pytest.mark.parametrize("content", FOREIGN, ids=lambda content: repr(content)[:12])
def test_metadata_that_no_nul_ends_costs_one_warning_and_no_record(
    real_cluster: Cluster,
    topic: str,
    eventually: Eventually,
    caplog: pytest.LogCaptureFixture,
    content: bytes,
) -> None:
    real_cluster.create_topic(topic, 1)
    written = MemoryLedger("producer")
    write(real_cluster, topic, [(b"k", b"%d" % number) for number in range(6)], written)
    group = group_name()
    commit_as_written(real_cluster.bootstrap, group, TopicPartition(topic, 0), 2, content)
    member = Member(client_conf(real_cluster, group), [topic], lambda record: None).start()
    eventually(lambda: member.position() == 6, 60.0)
    assert member.stop() == 0
    assert starts(member.ledger) == [2, 3, 4, 5]
    about = [each for each in caplog.records if "metadata" in each.getMessage()]
    assert [each.levelname for each in about] == ["WARNING"], [each.getMessage() for each in about]


def test_a_position_whose_metadata_cannot_be_read_is_known_all_the_same(
    real_cluster: Cluster, topic: str, eventually: Eventually
) -> None:
    """Retention has passed it: reading goes on at the log's start, not where the policy says."""
    real_cluster.create_topic(topic, 1)
    write(real_cluster, topic, [(b"k", b"%d" % number) for number in range(10)])
    admin = AdminClient({"bootstrap.servers": real_cluster.bootstrap})
    start = ClientPartition(topic, 0, 5)
    admin.delete_records([start])[start].result(60)
    group = group_name()
    commit_as_written(real_cluster.bootstrap, group, TopicPartition(topic, 0), 2, b"KS1")
    conf = client_conf(real_cluster, group, auto_offset_reset="latest")
    member = Member(conf, [topic], lambda record: None).start()
    eventually(lambda: len(member.assigned) == 1, 60.0)
    eventually(lambda: member.position() == 10, 20.0)
    assert member.stop() == 0
    assert starts(member.ledger) == [5, 6, 7, 8, 9]


# --- one of several is refused ---


@pytest.mark.parametrize("asynchronous", [False, True])
def test_one_refused_partition_fails_a_commit_whose_others_were_stored(
    strict_broker: RealCluster, topic: str, eventually: Eventually, asynchronous: bool
) -> None:
    strict_broker.create_topic(topic, 2)
    offsets = [ClientPartition(topic, 0, 11, "short"), ClientPartition(topic, 1, 12, "x" * SMALL)]
    failed: list[KafkaError | None] = []
    group = group_name()
    with bare(
        strict_broker, group, on_commit=lambda error, partitions: failed.append(error)
    ) as consumer:
        await_coordinator(consumer, topic)
        if asynchronous:
            consumer.commit(offsets=offsets, asynchronous=True)
            eventually(lambda: (consumer.poll(0.1), bool(failed))[1], 60.0)
            assert failed[0] is not None
            assert failed[0].code() == KafkaError.OFFSET_METADATA_TOO_LARGE
        else:
            with pytest.raises(KafkaException, match="metadata"):
                consumer.commit(offsets=offsets, asynchronous=False)
    assert committed(strict_broker, group, topic, 0)[0] == 11
    assert committed(strict_broker, group, topic, 1)[0] == OFFSET_INVALID


def test_a_set_that_does_not_fit_costs_its_own_partition_its_upper_part_and_no_position(
    strict_broker: RealCluster, topic: str, eventually: Eventually
) -> None:
    """Partition 1 has many gaps; partition 0 has one, whose short set is committed as a whole."""
    strict_broker.create_topic(topic, 2)
    written = MemoryLedger("producer")
    short = [(b"bad" if at == 5 else b"good-%d" % (at % 7), b"") for at in range(40)]
    long = [(b"bad-%d" % at if at % 3 == 1 else b"good-%d" % at, b"") for at in range(400)]
    write(strict_broker, topic, short, written, partition=0)
    write(strict_broker, topic, long, written, partition=1)
    group = group_name()
    conf = client_conf(strict_broker, group)
    mended = threading.Event()

    def handler(record: Any) -> None:
        if record.key().startswith(b"bad") and not mended.is_set():
            raise ValueError("not yet")

    retry = {"attempts": 1}
    first = Member(conf, [topic], handler, retry=retry).start()
    both = {TopicPartition(topic, 0): 5, TopicPartition(topic, 1): 1}
    eventually(lambda: first.done() == 39 + 267 and first.committed == both, 60.0)
    assert first.stop() == 1, "what is in no commit runs again, so the stop is not clean"
    assert first.app.report is not None
    assert settled_sets(strict_broker, group, topic) == (5, {"default": ((6, 40),)})
    position, sets = settled_sets(strict_broker, group, topic, 1)
    kept = {at for start, end in sets["default"] for at in range(start, end)}
    assert position == 1
    assert 0 < len(kept) < 266
    assert first.app.report.left_out == 266 - len(kept)

    mended.set()
    second = Member(conf, [topic], handler, name="second").start()
    eventually(lambda: second.position() == 440, 60.0)
    assert second.stop() == 0
    again = {
        (event.partition, event.offset)
        for event in second.ledger.events
        if isinstance(event, Started)
    }
    assert again == {(0, 5)} | {(1, at) for at in range(1, 400) if at not in kept}


# --- where a start begins ---


def test_a_start_uses_the_offset_that_came_with_the_set(
    real_cluster: Cluster, topic: str, eventually: Eventually
) -> None:
    """Another commit between the question and the first fetch must not move the start."""

    class Overtaken(AuditedClient):
        def committed(self, partitions: Sequence[TopicPartition], timeout: float) -> Committed:
            found = super().committed(partitions, timeout)
            later = [ClientPartition(*partition, 8) for partition in partitions]
            self.consumer.commit(offsets=later, asynchronous=False)
            return found

    real_cluster.create_topic(topic, 1)
    write(real_cluster, topic, [(b"key-%d" % number, b"") for number in range(10)])
    group = group_name()
    with bare(real_cluster, group) as other:
        text = commit_metadata.encode(
            here(2, TopicPartition(topic, 0)), {"default": ((4, 6),)}
        ).text
        eventually_commit(other, ClientPartition(topic, 0, 2, text))
    conf = client_conf(real_cluster, group)
    member = Member(conf, [topic], lambda record: None, client=Overtaken).start()
    eventually(lambda: member.position() == 10, 60.0)
    assert member.stop() == 0
    assert sorted(starts(member.ledger)) == [2, 3, 6, 7, 8, 9]


def test_without_an_answer_a_partition_is_withheld_until_its_set_is_known(
    topic: str,
    eventually: Eventually,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(start_points, "COMMITTED_TIMEOUT", 0.5)
    monkeypatch.setattr(rebalance, "ASK_AGAIN_EVERY", 0.2)
    with EmbeddedCluster() as cluster:
        cluster.create_topic(topic, 1)
        written = MemoryLedger("producer")
        keys = [b"bad" if at == 1 else b"key-%d" % at for at in range(20)]
        write(cluster, topic, [(key, b"") for key in keys], written)
        conf = client_conf(cluster, group_name())
        mended = threading.Event()

        def handler(record: Any) -> None:
            if record.key() == b"bad" and not mended.is_set():
                raise ValueError("not yet")

        first = Member(conf, [topic], handler, retry={"attempts": 1}).start()
        eventually(lambda: first.done() == 19, 60.0)
        assert first.stop() == 0
        mended.set()
        cluster.delay_next("OffsetFetch", 0.9, times=2)
        second = Member(conf, [topic], handler, name="second").start()
        eventually(lambda: second.position() == 20, 60.0)
        assert second.stop() == 0
        assert starts(second.ledger) == [1], "everything else was in the set"
        assert "they stay paused and the query is retried" in caplog.text
        assert_clean(written, first.ledger, second.ledger)


# --- session time-outs ---


@pytest.mark.parametrize(("milliseconds", "taken"), [(6_000, True), (5_999, False)])
def test_a_broker_with_defaults_takes_session_timeouts_from_6_s(
    strict_broker: RealCluster,
    topic: str,
    eventually: Eventually,
    milliseconds: int,
    taken: bool,
) -> None:
    strict_broker.create_topic(topic, 1)
    refused: list[KafkaError] = []
    with bare(
        strict_broker, group_name(), session_timeout_ms=milliseconds, error_cb=refused.append
    ) as consumer:
        consumer.subscribe([topic])

        def known() -> bool:
            message = consumer.poll(0.1)
            if message is not None and (error := message.error()) is not None:
                refused.append(error)
            return bool(refused or consumer.assignment())

        eventually(known, 60.0)
        assert bool(consumer.assignment()) is taken
        codes = {error.code() for error in refused}
        assert codes == (set() if taken else {KafkaError.INVALID_SESSION_TIMEOUT})
