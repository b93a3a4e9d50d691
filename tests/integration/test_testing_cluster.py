"""The embedded Kafka of the public testing module, seen by clients that know nothing of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import get_args

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka import TopicPartition as ClientPartition

from kafka_keyshared.errors import ConfigError, KeySharedError, TopicMissingError
from kafka_keyshared.testing import EmbeddedKafka, Request
from kafka_keyshared.testing.cluster import REQUESTS
from kafka_keyshared.testing.clusters.faults import API_KEYS
from tests.conftest import Eventually


@pytest.fixture
def kafka() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(brokers=3) as cluster:
        cluster.create_topic("orders", 3)
        yield cluster


def a_consumer(kafka: EmbeddedKafka, **more: object) -> Consumer:
    return Consumer({**kafka.conf("mine"), "enable.auto.commit": False, **more})


def take(consumer: Consumer, count: int, eventually: Eventually) -> list[Message]:
    found: list[Message] = []

    def enough() -> bool:
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            found.append(message)
        return len(found) >= count

    eventually(enough, 60)
    return found


def test_what_is_produced_can_be_read_back(kafka: EmbeddedKafka) -> None:
    places = kafka.produce("orders", [("a", "1"), (b"b", b"2"), (None, "3"), ("a", None)])
    assert kafka.produce(
        "orders", [("c", "4")], headers={"h": "x"}, partition=2, timestamp=1_700_000_000_000
    ) == [(2, max([o for p, o in places if p == 2], default=-1) + 1)]
    found = kafka.records("orders")
    by_place = {(each.partition(), each.offset()): each for each in found}
    assert [by_place[place].value() for place in places] == [b"1", b"2", b"3", None]
    assert list(by_place) == sorted(by_place)
    (marked,) = [each for each in found if each.key() == b"c"]
    assert marked.headers() == [("h", b"x")]
    assert marked.timestamp()[1] == 1_700_000_000_000
    assert len(found) == 5


def test_the_default_partition_is_that_of_any_other_producer(kafka: EmbeddedKafka) -> None:
    ours = kafka.produce("orders", [(f"key-{number}", "") for number in range(50)])
    theirs: list[int | None] = []
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for number in range(50):
        producer.produce(
            "orders",
            b"",
            b"key-%d" % number,
            on_delivery=lambda _, message: theirs.append(message.partition()),
        )
        producer.flush(30)
    assert [partition for partition, _ in ours] == theirs


def test_records_are_waited_for_and_named_when_they_do_not_come(kafka: EmbeddedKafka) -> None:
    kafka.produce("orders", [("a", "1")])
    with pytest.raises(AssertionError, match=r"has 1 records after 0\.3 s, 2 were waited for"):
        kafka.records("orders", at_least=2, timeout=0.3)
    kafka.produce("orders", [("a", "2")])
    assert len(kafka.records("orders", at_least=2)) == 2


def test_positions_and_lag_are_the_groups(kafka: EmbeddedKafka, eventually: Eventually) -> None:
    kafka.produce("orders", [("a", str(number)) for number in range(5)], partition=1)
    assert kafka.committed("mine", "orders") == {}
    assert kafka.lag("mine", "orders") == 5
    consumer = a_consumer(kafka)
    try:
        consumer.commit(offsets=[ClientPartition("orders", 1, 3)], asynchronous=False)
    finally:
        consumer.close()
    assert kafka.committed("mine", "orders") == {1: 3}
    assert kafka.committed("somebody else", "orders") == {}
    assert kafka.lag("mine", "orders") == 2


def test_a_topic_that_is_not_there_is_named_and_not_made(kafka: EmbeddedKafka) -> None:
    calls: list[Callable[[], object]] = [
        lambda: kafka.produce("ordres", [("a", "")]),
        lambda: kafka.records("ordres"),
        lambda: kafka.committed("mine", "ordres"),
        lambda: kafka.lag("mine", "ordres"),
    ]
    for call in calls:
        with pytest.raises(TopicMissingError, match="'ordres' does not exist; create it"):
            call()


def test_records_that_the_cluster_has_forgotten_are_not_hidden(kafka: EmbeddedKafka) -> None:
    with pytest.raises(KeySharedError, match="has deleted the oldest records of partitions"):
        kafka.produce("orders", [("a", "x" * 500_000)] * 15)


def test_a_failed_write_says_why_and_harms_no_later_one(kafka: EmbeddedKafka) -> None:
    with pytest.raises(KeySharedError, match=r"1 of 2 records were not written: .*TOO_LARGE"):
        kafka.produce("orders", [("a", "fine"), ("a", "x" * 2_000_000)])
    kafka.fail_next("produce", "TOPIC_AUTHORIZATION_FAILED")
    with pytest.raises(KeySharedError, match="TOPIC_AUTHORIZATION_FAILED"):
        kafka.produce("orders", [("b", "refused")])
    kafka.produce("orders", [("c", "taken")])
    assert {each.value() for each in kafka.records("orders")} == {b"fine", b"taken"}


# --- faults, as the user's own clients meet them ---


def test_every_request_that_can_fail_has_a_name() -> None:
    assert set(REQUESTS.values()) == set(API_KEYS)
    assert set(REQUESTS) == set(get_args(Request))


@pytest.mark.parametrize("error", ["MSG_SIZE_TOO_LARGE", KafkaError.MSG_SIZE_TOO_LARGE])
def test_the_users_own_producer_meets_the_error(kafka: EmbeddedKafka, error: str | int) -> None:
    answers: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    kafka.fail_next("produce", error, times=2)
    for _ in range(3):
        producer.produce("orders", b"value", on_delivery=lambda error, _: answers.append(error))
        assert producer.flush(30) == 0
    assert [each and each.code() for each in answers] == [
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.MSG_SIZE_TOO_LARGE,
        None,
    ]


def test_the_users_own_commit_meets_the_error_until_it_is_healed(kafka: EmbeddedKafka) -> None:
    consumer = a_consumer(kafka)
    where = [ClientPartition("orders", 0, 1)]
    try:
        kafka.fail_next("commit", "GROUP_AUTHORIZATION_FAILED", times=1_000)
        with pytest.raises(KafkaException, match="GROUP_AUTHORIZATION_FAILED"):
            consumer.commit(offsets=where, asynchronous=False)
        kafka.heal("commit")
        consumer.commit(offsets=where, asynchronous=False)
        kafka.fail_next("commit", "GROUP_AUTHORIZATION_FAILED", times=1_000)
        kafka.heal()
        consumer.commit(offsets=where, asynchronous=False)
    finally:
        consumer.close()
    assert kafka.committed("mine", "orders") == {0: 1}


@pytest.mark.parametrize("broker", [1, 3])
def test_a_delay_is_waited_for_at_every_broker(kafka: EmbeddedKafka, broker: int) -> None:
    address = kafka.bootstrap.split(",")[broker - 1]
    consumer = a_consumer(kafka, **{"bootstrap.servers": address})
    try:
        kafka.delay_next("metadata", 60.0, times=20)
        with pytest.raises(KafkaException, match=r"_TRANSPORT|_TIMED_OUT"):
            consumer.list_topics(timeout=0.5)
    finally:
        consumer.close()


def test_brokers_go_and_come_back_and_coordinators_and_leaders_move(
    kafka: EmbeddedKafka, eventually: Eventually
) -> None:
    quick = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 100, "log_level": 0}
    consumer = a_consumer(kafka, error_cb=lambda _: None, **quick)
    try:
        consumer.subscribe(["orders"])
        kafka.produce("orders", [("a", "1")])
        take(consumer, 1, eventually)
        kafka.broker_down()
        kafka.broker_up()
        for broker in (3, 2):
            kafka.move_coordinator("mine", broker)
            kafka.move_leader("orders", 0, broker)
        kafka.produce("orders", [("a", "2")], partition=0)
        assert take(consumer, 1, eventually)[0].value() == b"2"
    finally:
        consumer.close()


def test_requests_are_counted_by_what_they_are_for(
    kafka: EmbeddedKafka, eventually: Eventually
) -> None:
    kafka.watch_requests()
    kafka.produce("orders", [("a", "1")])
    consumer = a_consumer(kafka)
    try:
        consumer.subscribe(["orders"])
        take(consumer, 1, eventually)
    finally:
        consumer.close()
    seen = kafka.requests()
    assert seen["produce"] >= 1
    assert seen["join_group"] >= 1
    assert seen["fetch"] >= 1
    assert seen["commit"] == 0


def test_a_topic_can_be_shown_as_broken(kafka: EmbeddedKafka) -> None:
    consumer = a_consumer(kafka)
    try:
        kafka.fail_topic("orders", KafkaError.TOPIC_AUTHORIZATION_FAILED)
        shown = consumer.list_topics(timeout=30).topics["orders"].error
        assert shown is not None
        assert shown.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
        kafka.fail_topic("orders", None)
        assert consumer.list_topics(timeout=30).topics["orders"].error is None
    finally:
        consumer.close()


def test_what_is_not_known_is_refused_by_name(kafka: EmbeddedKafka) -> None:
    with pytest.raises(ConfigError, match="request 'comit' is not known"):
        kafka.fail_next("comit", "NOT_COORDINATOR")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="error 'NOT_A_COORDINATOR' is not one of Kafka's"):
        kafka.fail_next("commit", "NOT_A_COORDINATOR")
    with pytest.raises(ConfigError, match="has no broker 4"):
        kafka.broker_down(4)


def test_a_closed_cluster_says_so() -> None:
    kafka = EmbeddedKafka()
    kafka.close()
    kafka.close()
    with pytest.raises(KeySharedError, match="is closed"):
        kafka.create_topic("orders", 1)
