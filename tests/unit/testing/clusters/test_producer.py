"""The metered producer: how far ahead it runs, where records go, and what ends a wait."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from kafka_keyshared.errors import (
    BrokerUnavailableError,
    ConfigError,
    KeySharedError,
    TopicMissingError,
)
from kafka_keyshared.testing.clusters.cluster import Cluster
from kafka_keyshared.testing.clusters.embedded import EmbeddedCluster
from kafka_keyshared.testing.clusters.producer import RECORD_OVERHEAD, MeteredProducer

Eventually = Callable[[Callable[[], bool], float], None]

RECORD = 100
VALUE = b"v" * (RECORD - RECORD_OVERHEAD)


@pytest.fixture
def make(embedded_cluster: Cluster) -> Iterator[Callable[..., MeteredProducer]]:
    """Make producers on the embedded cluster, closed at the end."""
    made: list[MeteredProducer] = []

    def one(limit_bytes: int = 10 * RECORD, **conf: Any) -> MeteredProducer:
        settings = {"bootstrap.servers": embedded_cluster.bootstrap, **conf}
        made.append(MeteredProducer(settings, limit_bytes=limit_bytes))
        return made[-1]

    yield one
    for producer in made:
        producer.close()


class Background:
    """Produces ``count`` records in a thread, and keeps what came of it.

    ``most_bytes`` is how far ahead the producer was at most.
    """

    def __init__(self, producer: MeteredProducer, topic: str, count: int) -> None:
        self.produced = 0
        self.most_bytes = 0
        self.error: BaseException | None = None
        self.ended = threading.Event()
        self._work = (producer, topic, count)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        producer, topic, count = self._work
        try:
            for _ in range(count):
                producer.produce(topic, None, VALUE, partition=0)
                # Before it is told that there is one more: whoever waits for that settles it.
                self.most_bytes = max(self.most_bytes, producer.ahead_bytes(topic, 0))
                self.produced += 1
        except KeySharedError as error:
            self.error = error
        self.ended.set()


def watermarks(cluster: Cluster, topic: str, partition: int = 0) -> tuple[int, int]:
    reader = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": topic})
    try:
        low, high = reader.get_watermark_offsets(TopicPartition(topic, partition), timeout=30)
        return low, high
    finally:
        reader.close()


def test_it_waits_at_the_limit_and_goes_on_as_positions_move(
    embedded_cluster: Cluster,
    topic: str,
    make: Callable[..., MeteredProducer],
    eventually: Eventually,
) -> None:
    embedded_cluster.create_topic(topic, 1)
    producer = make()
    work = Background(producer, topic, 25)
    for settled, expected in ((0, 10), (4, 14), (3, 14), (14, 24)):
        producer.settled(topic, 0, settled)
        eventually(lambda expected=expected: work.produced == expected, 30)  # type: ignore[misc]
        assert producer.ahead_bytes(topic, 0) == 10 * RECORD
    producer.settled(topic, 0, 24)
    assert work.ended.wait(30)
    producer.flush()
    assert work.error is None
    assert work.most_bytes == 10 * RECORD, "it has waited each time"
    assert producer.ahead_bytes(topic, 0) == RECORD
    assert watermarks(embedded_cluster, topic) == (0, 25)


def test_each_partition_has_its_own_limit(
    embedded_cluster: Cluster, topic: str, make: Callable[..., MeteredProducer]
) -> None:
    embedded_cluster.create_topic(topic, 2)
    producer = make()
    for _ in range(10):
        producer.produce(topic, None, VALUE, partition=0)
        producer.produce(topic, None, VALUE, partition=1)
    assert [producer.ahead_bytes(topic, part) for part in (0, 1)] == [10 * RECORD] * 2


def test_a_position_told_before_the_first_record_counts(
    embedded_cluster: Cluster, topic: str, make: Callable[..., MeteredProducer]
) -> None:
    embedded_cluster.create_topic(topic, 1)
    first = make()
    for _ in range(10):
        first.produce(topic, None, VALUE, partition=0)
    first.flush()
    second = make()
    second.settled(topic, 0, 15)
    second.settled(topic, 7, 15)
    for _ in range(15):
        second.produce(topic, None, VALUE, partition=0)
    second.flush()
    assert second.ahead_bytes(topic, 0) == 10 * RECORD
    assert second.ahead_bytes(topic, 7) == 0


def test_keys_values_and_headers_are_counted(
    embedded_cluster: Cluster, topic: str, make: Callable[..., MeteredProducer]
) -> None:
    embedded_cluster.create_topic(topic, 1)
    producer = make()
    headers = [("name", b"content"), ("none", None)]
    producer.produce(topic, b"key", b"value", partition=0, headers=headers)
    producer.produce(topic, None, None, partition=0)
    assert producer.ahead_bytes(topic, 0) == 2 * RECORD_OVERHEAD + 3 + 5 + 4 + 7 + 4


def test_a_record_larger_than_the_limit_goes_out_alone(
    embedded_cluster: Cluster,
    topic: str,
    make: Callable[..., MeteredProducer],
    eventually: Eventually,
) -> None:
    embedded_cluster.create_topic(topic, 1)
    producer = make(limit_bytes=RECORD // 2)
    work = Background(producer, topic, 2)
    eventually(lambda: work.produced == 1, 30)
    producer.settled(topic, 0, 1)
    assert work.ended.wait(30)
    assert (work.produced, work.error) == (2, None)
    assert work.most_bytes == RECORD, "the second has waited for the first"


def test_closing_ends_a_wait(
    embedded_cluster: Cluster,
    topic: str,
    make: Callable[..., MeteredProducer],
    eventually: Eventually,
) -> None:
    embedded_cluster.create_topic(topic, 1)
    producer = make()
    work = Background(producer, topic, 11)
    eventually(lambda: work.produced == 10, 30)
    producer.close()
    producer.close()
    assert work.ended.wait(30)
    assert isinstance(work.error, KeySharedError)
    assert "closed" in str(work.error)
    with pytest.raises(KeySharedError, match="closed"):
        producer.produce(topic, None, VALUE, partition=0)
    assert watermarks(embedded_cluster, topic) == (0, 10)


def test_a_key_goes_where_the_default_partitioner_sends_it(
    embedded_cluster: Cluster, topic: str, make: Callable[..., MeteredProducer]
) -> None:
    embedded_cluster.create_topic(topic, 16)
    keys = [b"key-%d" % number for number in range(200)]
    producer = make(limit_bytes=1_000_000)
    chosen = {key: producer.produce(topic, key, VALUE) for key in keys}
    theirs: dict[bytes | None, int | None] = {}
    plain = Producer({"bootstrap.servers": embedded_cluster.bootstrap})
    for key in keys:
        plain.produce(
            topic,
            key=key,
            on_delivery=lambda _, message: theirs.update({message.key(): message.partition()}),
        )
    assert plain.flush(30) == 0
    assert chosen == theirs
    assert len(set(chosen.values())) == 16


def test_null_keys_take_turns(
    embedded_cluster: Cluster, topic: str, make: Callable[..., MeteredProducer]
) -> None:
    embedded_cluster.create_topic(topic, 3)
    producer = make()
    assert [producer.produce(topic, None, VALUE) for _ in range(7)] == [0, 1, 2, 0, 1, 2, 0]


def test_what_is_not_there_is_named(
    embedded_cluster: Cluster, topic: str, make: Callable[..., MeteredProducer]
) -> None:
    producer = make()
    with pytest.raises(TopicMissingError, match=f"'{topic}' does not exist"):
        producer.produce(topic, b"key", VALUE)
    embedded_cluster.create_topic(topic, 2)
    for partition in (-1, 2):
        with pytest.raises(ConfigError, match=f"2 partitions.*no partition {partition}"):
            producer.produce(topic, b"key", VALUE, partition=partition)
    with pytest.raises(ConfigError, match="idempotent"):
        make(**{"enable.idempotence": False})
    with pytest.raises(ConfigError, match="limit_bytes=0"):
        make(limit_bytes=0)


def test_a_refused_record_is_not_counted_and_the_next_one_goes_through(
    embedded_cluster: Cluster, topic: str, make: Callable[..., MeteredProducer]
) -> None:
    embedded_cluster.create_topic(topic, 1)
    producer = make(limit_bytes=1 << 20, **{"message.max.bytes": 2000})
    with pytest.raises(KeySharedError, match=f"{topic}-0 was refused"):
        producer.produce(topic, None, b"x" * 5000, partition=0)
    with pytest.raises(TypeError):
        producer.produce(topic, None, ["no bytes"], partition=0)  # type: ignore[arg-type]
    producer.produce(topic, None, VALUE, partition=0)
    producer.flush()
    assert producer.ahead_bytes(topic, 0) == RECORD


def test_a_full_client_queue_slows_down_and_loses_nothing(
    embedded_cluster: Cluster, topic: str, make: Callable[..., MeteredProducer]
) -> None:
    embedded_cluster.create_topic(topic, 1)
    producer = make(limit_bytes=1 << 20, **{"queue.buffering.max.messages": 50})
    for _ in range(1000):
        producer.produce(topic, None, VALUE, partition=0)
    producer.flush()
    assert watermarks(embedded_cluster, topic) == (0, 1000)
    producer.settled(topic, 0, 1000)
    assert producer.ahead_bytes(topic, 0) == 0


def test_a_failed_delivery_is_raised_by_every_later_call(topic: str) -> None:
    cluster = EmbeddedCluster()
    # The first record waits half a second and more for the id of an idempotent producer.
    producer = MeteredProducer(
        {"bootstrap.servers": cluster.bootstrap, "message.timeout.ms": 2_000, "log_level": 0}
    )
    cluster.create_topic(topic, 1)
    producer.produce(topic, None, VALUE, partition=0)
    producer.flush()
    cluster.close()
    producer.produce(topic, None, VALUE, partition=0)
    for call in (
        producer.flush,
        lambda: producer.produce(topic, None, VALUE, partition=0),
        producer.close,
    ):
        with pytest.raises(BrokerUnavailableError, match=f"{topic}-0 was not delivered"):
            call()
    assert producer.ahead_bytes(topic, 0) == 2 * RECORD


def test_a_flush_that_takes_too_long_says_how_many_are_left(topic: str) -> None:
    cluster = EmbeddedCluster()
    producer = MeteredProducer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    cluster.create_topic(topic, 1)
    producer.produce(topic, None, VALUE, partition=0)
    producer.flush()
    cluster.close()
    producer.produce(topic, None, VALUE, partition=0)
    with pytest.raises(BrokerUnavailableError, match="1 records were not acknowledged"):
        producer.flush(0.1)
    with pytest.raises(BrokerUnavailableError, match="closed with 1 records"):
        producer.close(0.1)


def test_the_default_limit_holds_even_for_empty_records_in_batches_of_one(
    embedded_cluster: Cluster, topic: str
) -> None:
    """The dearest way to write, up to the limit, and the embedded cluster has deleted nothing."""
    embedded_cluster.create_topic(topic, 1)
    settings = {"bootstrap.servers": embedded_cluster.bootstrap, "batch.num.messages": 1}
    count = 2 * 1024 * 1024 // RECORD_OVERHEAD
    with MeteredProducer(settings) as producer:
        for _ in range(count):
            producer.produce(topic, None, None, partition=0)
        producer.flush()
        assert producer.ahead_bytes(topic, 0) == 2 * 1024 * 1024
    assert watermarks(embedded_cluster, topic) == (0, count)


def test_far_more_than_five_megabytes_pass_through_without_a_loss(
    embedded_cluster: Cluster, topic: str
) -> None:
    embedded_cluster.create_topic(topic, 1)
    count, value = 12_000, b"x" * 1000
    failures: list[BaseException] = []
    with MeteredProducer({"bootstrap.servers": embedded_cluster.bootstrap}) as producer:

        def write() -> None:
            try:
                for number in range(count):
                    producer.produce(topic, b"%d" % number, value, partition=0)
                producer.flush()
            except KeySharedError as error:
                failures.append(error)

        writer = threading.Thread(target=write, daemon=True)
        writer.start()
        reader = Consumer(
            {
                "bootstrap.servers": embedded_cluster.bootstrap,
                "group.id": topic,
                "auto.offset.reset": "error",
            }
        )
        try:
            reader.assign([TopicPartition(topic, 0, 0)])
            expected = 0
            while expected < count:
                for message in reader.consume(500, 1.0):
                    assert message.error() is None, message.error()
                    assert (message.offset(), message.key()) == (expected, b"%d" % expected)
                    expected += 1
                assert producer.ahead_bytes(topic, 0) <= 2 * 1024 * 1024
                producer.settled(topic, 0, expected)
        finally:
            reader.close()
        writer.join(30)
    assert failures == []
    low, high = watermarks(embedded_cluster, topic)
    assert low > 0, "the cluster deleted nothing, so this test showed nothing"
    assert high == count
