"""A consumer that is to be wrapped: what it remembers, what is checked, whom it answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import DeserializingConsumer
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.serialization import StringDeserializer

from kafka_keyshared import ConfigError, Consumer, KeyShared, KeySharedError, split
from kafka_keyshared.client.callback_calls import CallbackCalls
from kafka_keyshared.client.consumer import OWNERS_ANSWERS, OWNERS_CALLS
from kafka_keyshared.client.kept_admin import KeptAdmin
from kafka_keyshared.testing.clusters.cluster import Cluster
from tests.conftest import Eventually
from tests.support.background_apps import Running, running_apps
from tests.support.live_cluster import client_conf, group_name, write

CONF = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "log_level": 0}


@pytest.fixture
def consumer() -> Iterator[Consumer]:
    made = Consumer(dict(CONF))
    yield made
    made.release()
    made.close()


# --- what it remembers ---


def test_it_remembers_its_settings_topics_and_callbacks(consumer: Consumer) -> None:
    def on_assign(*_: Any) -> None: ...

    consumer.subscribe(["orders"], on_assign=on_assign)
    assert consumer.settings["group.id"] == "g"
    assert consumer.settings["enable.auto.commit"] is False
    assert list(consumer.subscribed.topics) == ["orders"]
    assert consumer.subscribed.on_assign is on_assign


def test_topics_may_come_from_anything_that_can_be_gone_through(consumer: Consumer) -> None:
    topics: Any = (name for name in ["orders", "payments"])
    consumer.subscribe(topics)
    assert list(consumer.subscribed.topics) == ["orders", "payments"]


def test_the_last_subscribe_counts_and_unsubscribe_forgets(consumer: Consumer) -> None:
    consumer.subscribe(["orders"], on_lost=print)
    consumer.subscribe(["payments"])
    assert (list(consumer.subscribed.topics), consumer.subscribed.on_lost) == (["payments"], None)
    consumer.unsubscribe()
    with pytest.raises(ConfigError, match="topics"):
        KeyShared.wrap(consumer)


@pytest.mark.parametrize("name", ["enable.auto.commit", "enable.auto.offset.store"])
def test_settings_that_would_commit_what_is_not_done_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        Consumer({**CONF, name: True})


@pytest.mark.parametrize("topics", ["orders", [1]])
def test_topics_are_a_list_of_names(consumer: Consumer, topics: Any) -> None:
    with pytest.raises(TypeError, match="list of topic names"):
        consumer.subscribe(topics)


def test_unwrapped_it_consumes_and_commits_like_its_parent(
    embedded_cluster: Cluster, topic: str
) -> None:
    embedded_cluster.create_topic(topic, 1)
    write(embedded_cluster, topic, [(b"k", b"%d" % number) for number in range(20)])
    heard: list[list[ClientPartition]] = []
    consumer = Consumer(client_conf(embedded_cluster, group_name()))
    try:
        consumer.subscribe([topic], on_assign=lambda _, partitions: heard.append(partitions))
        found = consumer.consume(20, 30)
        assert [each.value() for each in found] == [b"%d" % number for number in range(20)]
        assert [each.topic for each in heard[0]] == [topic]
        assert [each.partition for each in consumer.assignment()] == [0]
        consumer.commit(message=found[9], asynchronous=False)
        (stored,) = consumer.committed([ClientPartition(topic, 0)], 10)
        assert stored.offset == 10
    finally:
        consumer.close()


# --- what is checked ---


def test_a_deserializing_consumer_is_refused_with_what_to_do() -> None:
    made = DeserializingConsumer({**CONF, "key.deserializer": StringDeserializer()})
    try:
        with pytest.raises(ConfigError, match="value_deserializer="):
            KeyShared.wrap(made, conf=CONF, topics=["orders"])
    finally:
        made.close()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({}, "give conf="),
        ({"conf": CONF}, "list of topic names"),
        ({"conf": CONF, "topics": "orders"}, "list of topic names"),
        ({"conf": CONF, "topics": ["orders"], "on_revoke": 3}, "on_revoke is not callable"),
        ({"conf": {"group.id": "g"}, "topics": ["orders"]}, "bootstrap.servers"),
        (
            {"conf": {**CONF, "enable.auto.commit": True}, "topics": ["orders"]},
            "enable.auto.commit",
        ),
    ],
)
def test_of_a_plain_consumer_everything_has_to_be_given(more: dict[str, Any], said: str) -> None:
    plain = confluent_kafka.Consumer({**CONF, "enable.auto.commit": False})
    try:
        with pytest.raises(ConfigError, match=said):
            KeyShared.wrap(plain, **more)
    finally:
        plain.close()


def test_what_is_no_consumer_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"wrap\(dict\)"):
        KeyShared.wrap(dict(CONF))  # type: ignore[arg-type]


def test_one_owner_at_a_time(consumer: Consumer) -> None:
    consumer.subscribe(["orders"])
    KeyShared.wrap(consumer)
    with pytest.raises(ConfigError, match="wrapped or split already"):
        split(consumer, 4)


def test_other_settings_than_its_own_are_refused(consumer: Consumer) -> None:
    with pytest.raises(ConfigError, match="knows its own"):
        KeyShared.wrap(consumer, conf={**CONF, "group.id": "other"}, topics=["orders"])


def test_a_refused_option_leaves_the_consumer_its_own(consumer: Consumer) -> None:
    consumer.subscribe(["orders"])
    with pytest.raises(ConfigError, match="workers"):
        KeyShared.wrap(consumer, workers="fibre:3")
    assert not consumer.has_owner


@pytest.mark.parametrize("kind", [Consumer, confluent_kafka.Consumer])
def test_a_consumer_that_has_joined_is_refused(
    embedded_cluster: Cluster, topic: str, kind: type[confluent_kafka.Consumer]
) -> None:
    embedded_cluster.create_topic(topic, 1)
    write(embedded_cluster, topic, [(b"k", b"v")])
    conf = client_conf(embedded_cluster, group_name()) | {"enable.auto.commit": False}
    made = kind(conf)
    try:
        made.subscribe([topic])
        assert made.poll(30) is not None
        with pytest.raises(ConfigError, match="before the first poll"):
            KeyShared.wrap(made, conf=conf, topics=[topic])
    finally:
        made.close()


def test_a_closed_consumer_is_refused() -> None:
    plain = confluent_kafka.Consumer(dict(CONF))
    plain.close()
    with pytest.raises(ConfigError, match="closed"):
        KeyShared.wrap(plain, conf=CONF, topics=["orders"])


# --- once it has an owner ---


@pytest.mark.parametrize("name", OWNERS_CALLS)
def test_calls_that_would_disturb_the_owner_are_refused(consumer: Consumer, name: str) -> None:
    consumer.subscribe(["orders"])
    KeyShared.wrap(consumer)
    with pytest.raises(KeySharedError, match=rf"{name}\(\) on a consumer that is wrapped"):
        getattr(consumer, name)(*[["orders"]] * (name == "subscribe"))


running = pytest.fixture(running_apps)


def test_callbacks_get_the_users_consumer_which_answers_there_and_only_there(
    embedded_cluster: Cluster,
    topic: str,
    eventually: Eventually,
    running: Callable[[KeyShared], Running],
) -> None:
    embedded_cluster.create_topic(topic, 2)
    told: list[Any] = []

    def on_assign(given: Any, partitions: list[ClientPartition]) -> None:
        told.extend([given, len(given.assignment()), len(partitions)])
        given.poll(0)  # refused: it would run inside the owner's own poll

    consumer = Consumer(client_conf(embedded_cluster, group_name()))
    consumer.subscribe([topic], on_assign=on_assign)
    app = KeyShared.wrap(consumer, workers=2)
    app.handler(lambda record: None)
    instance = running(app)
    eventually(lambda: len(told) == 3, 30.0)
    assert told == [consumer, 2, 2]
    for name in OWNERS_ANSWERS:
        with pytest.raises(KeySharedError, match="status"):
            getattr(consumer, name)()
    # Where each partition begins is committed, and anybody may ask.
    eventually(lambda: consumer.committed([ClientPartition(topic, 0)], 10)[0].offset == 0, 30.0)
    assert instance.stop() == 0
    assert not consumer.has_owner
    assert consumer.assignment() == []
    consumer.close()


def test_without_a_consumer_of_their_own_callbacks_get_a_view_and_may_raise(
    embedded_cluster: Cluster,
    topic: str,
    eventually: Eventually,
    running: Callable[[KeyShared], Running],
) -> None:
    """An exception out of a callback would take along what the client has fetched already.

    And ``list_topics`` of the client itself would end the process at the next callback, here one
    with statistics.
    """
    embedded_cluster.create_topic(topic, 1)
    write(embedded_cluster, topic, [(b"k%d" % (number % 5), b"") for number in range(100)])
    refused: list[str] = []
    heard: list[str] = []

    def on_assign(given: Any, partitions: list[ClientPartition]) -> None:
        heard.append(f"assigned {len(given.assignment())} of {len(partitions)}")
        heard.append(f"a topic of {len(given.list_topics(timeout=30).topics[topic].partitions)}")
        assert given.cluster_id(timeout=30)
        try:
            given.pause([])
        except KeySharedError as error:
            refused.append(str(error))
        raise ValueError("of the user's own")

    def on_revoke(given: Any, partitions: list[ClientPartition]) -> None:
        heard.append("revoked")
        raise ValueError("of the user's own, too")

    conf = client_conf(embedded_cluster, group_name(), statistics_interval_ms=1)
    plain = confluent_kafka.Consumer({**conf, "enable.auto.commit": False})
    app = KeyShared.wrap(
        plain, conf=conf, topics=[topic], on_assign=on_assign, on_revoke=on_revoke, workers=2
    )
    handled: list[int] = []
    app.handler(lambda record: handled.append(record.offset()))
    instance = running(app)
    eventually(lambda: len(handled) == 100, 30.0)
    assert instance.stop() == 0
    assert heard == ["assigned 1 of 1", "a topic of 1", "revoked"]
    assert "pause() on a consumer that is wrapped" in refused[0]
    plain.close()


def test_lost_partitions_are_told_to_on_revoke_when_there_is_no_on_lost() -> None:
    heard: list[str] = []
    conf = {**CONF}
    app = KeyShared(conf, ["orders"], on_revoke=lambda *_: heard.append("revoked"))
    found = app._wrapped.callbacks(
        confluent_kafka.Consumer(dict(CONF)), CallbackCalls(dict), KeptAdmin(CONF)
    )
    found["on_lost"]([])
    assert heard == ["revoked"]
    assert "on_assign" not in found


def test_the_constructors_own_callbacks_go_on_being_called(
    embedded_cluster: Cluster,
    topic: str,
    eventually: Eventually,
    running: Callable[[KeyShared], Running],
) -> None:
    embedded_cluster.create_topic(topic, 1)
    write(embedded_cluster, topic, [(b"k", b"v")])
    committed: list[int] = []
    statistics: list[str] = []
    conf = client_conf(embedded_cluster, group_name()) | {
        "on_commit": lambda error, partitions: committed.append(partitions[0].offset),
        "stats_cb": statistics.append,
        "statistics.interval.ms": 200,
    }
    consumer = Consumer(conf)
    consumer.subscribe([topic])
    app = KeyShared.wrap(consumer, workers=1, commit_interval=0.2)
    app.handler(lambda record: None)
    instance = running(app)
    eventually(lambda: 1 in committed and bool(statistics), 30.0)
    assert instance.stop() == 0
    consumer.close()


class Noted(confluent_kafka.Consumer):
    """A plain consumer that notes what it is subscribed to."""

    subscribed_to: Sequence[str] = ()

    def subscribe(self, topics: list[str], *callbacks: Any, **named: Any) -> None:
        self.subscribed_to = tuple(topics)
        super().subscribe(topics, *callbacks, **named)

    def unsubscribe(self) -> None:
        self.subscribed_to = ()
        super().unsubscribe()


def test_a_plain_consumer_that_is_wrapped_is_subscribed_no_longer() -> None:
    """Its next poll would make it a second member, with partitions that nobody reads."""
    consumer = Noted(dict(CONF))
    try:
        consumer.subscribe(["orders"])
        with pytest.raises(ConfigError, match="conf="):
            KeyShared.wrap(consumer)
        assert list(consumer.subscribed_to) == ["orders"], "it was refused, so it stays as it was"
        KeyShared.wrap(consumer, conf=CONF, topics=["orders"])
        assert list(consumer.subscribed_to) == []
    finally:
        consumer.close()
