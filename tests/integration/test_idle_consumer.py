"""The consumer that was wrapped or split: nobody polls it meanwhile, and nobody hears it either."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import TopicPartition as ClientPartition

from kafka_keyshared import Consumer, KeyShared, split
from kafka_keyshared.testing.clusters.embedded import EmbeddedCluster
from tests.conftest import Eventually
from tests.support.live_cluster import client_conf, group_name, write

PLAIN_LOOP = 8
"""What a loop with a consumer of its own wrote in an outage of 40 s."""

MANY = 2 * PLAIN_LOOP
"""Lines that a client which nobody polls has written by the time that we look."""

PATIENCE = 10.0
"""Seconds after which a client that writes little is taken for one that goes on so."""


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    """A cluster whose outage disturbs no other test."""
    with EmbeddedCluster(brokers=1) as cluster:
        yield cluster


@contextmanager
def wrapped(consumer: Consumer) -> Iterator[None]:
    app = KeyShared.wrap(consumer, workers=4, stop_timeout=5)
    app.handler(lambda _record: None)
    thread = threading.Thread(target=app.run)
    thread.start()
    try:
        yield
    finally:
        app.stop()
        thread.join(60)
    assert not thread.is_alive()


@contextmanager
def divided(consumer: Consumer) -> Iterator[None]:
    members = split(consumer, 2, stop_timeout=5)
    try:
        yield
    finally:
        members.close(60)


class Errors:
    """What the process has written to standard error, the client's own lines with it."""

    def __init__(self, capfd: pytest.CaptureFixture[str]) -> None:
        self._capfd = capfd
        self._lines: list[str] = []

    def of(self, client: str) -> list[str]:
        """Return the lines of the clients of that name."""
        self._lines += self._capfd.readouterr().err.splitlines()
        return [line for line in self._lines if f"|{client}#" in line]


@pytest.fixture
def errors(capfd: pytest.CaptureFixture[str]) -> Errors:
    return Errors(capfd)


class Idle:
    """Clients that nobody polls, to see that an outage is one in which such clients are noisy.

    As a rule one writes 20 lines a second: the library makes its broker anew for each attempt, and
    a new one has not told of anything. Now and then it keeps one, in any second of an outage, and
    that tells the same only each half minute. So another client is tried then.
    """

    def __init__(self, errors: Errors, conf: dict[str, Any], patience: float = PATIENCE) -> None:
        self._errors = errors
        self._conf = conf
        self._patience = patience
        self._clients: list[confluent_kafka.Consumer] = []
        self._next_at = 0.0

    def add(self, **more: Any) -> confluent_kafka.Consumer:
        """Make one more."""
        name = {"client.id": f"idle-{len(self._clients)}"}
        client = confluent_kafka.Consumer(self._conf | {"enable.auto.commit": False} | name | more)
        self._clients.append(client)
        self._next_at = time.monotonic() + self._patience
        return client

    def noisy(self) -> bool:
        """Say whether one has written many lines; while none has, try another now and then."""
        if any(len(self._errors.of(f"idle-{at}")) >= MANY for at in range(len(self._clients))):
            return True
        if time.monotonic() >= self._next_at:
            self.add()
        return False

    def close(self) -> None:
        for client in self._clients:
            client.close()


def test_a_client_that_happens_to_be_quiet_does_not_stand_for_all(
    eventually: Eventually, errors: Errors
) -> None:
    idle = Idle(errors, {"bootstrap.servers": "127.0.0.1:1", "group.id": "g"}, patience=1.0)
    idle.add(log_level=0)
    try:
        eventually(idle.noisy, 150.0)
    finally:
        idle.close()
    assert not errors.of("idle-0")


@pytest.mark.parametrize("owned", [wrapped, divided])
def test_an_outage_is_as_quiet_as_with_the_plain_loop(
    cluster: EmbeddedCluster,
    topic: str,
    eventually: Eventually,
    errors: Errors,
    owned: Callable[..., Any],
) -> None:
    cluster.create_topic(topic, 2)
    write(cluster, topic, [(b"k", b"v")])
    conf = client_conf(cluster, group_name())
    heard = threading.Event()
    consumer = Consumer(conf | {"client.id": "theirs"})
    consumer.list_topics(timeout=30)  # as programs do that look whether a topic is there
    consumer.subscribe([topic], on_assign=lambda *_: heard.set())
    idle = Idle(errors, conf)
    idle.add().list_topics(timeout=30)
    try:
        with owned(consumer):
            assert heard.wait(60)
            assert consumer.committed([ClientPartition(topic, 0)], 30)
            cluster.broker_down()
            eventually(idle.noisy, 150.0)
            cluster.broker_up()
    finally:
        idle.close()
        consumer.close()
    assert len(errors.of("theirs")) <= PLAIN_LOOP


def test_a_logger_of_the_users_gets_no_pile_of_lines_at_the_end(
    eventually: Eventually, errors: Errors, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    conf = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g"}
    consumer = Consumer(conf, logger=logging.getLogger("theirs"))
    consumer.subscribe(["orders"])
    app = KeyShared.wrap(consumer)
    idle = Idle(errors, conf)
    idle.add()
    try:
        eventually(idle.noisy, 150.0)
    finally:
        idle.close()
        app._wrapped.give_back()
        consumer.close()
    assert len([each for each in caplog.records if each.name == "theirs"]) <= PLAIN_LOOP


# --- what it can do all the same ---


def test_it_answers_while_it_is_owned_and_consumes_when_it_is_free_again(
    cluster: EmbeddedCluster, topic: str
) -> None:
    cluster.create_topic(topic, 1)
    write(cluster, topic, [(b"k", b"v")] * 3)
    consumer = Consumer(client_conf(cluster, group_name()))
    consumer.subscribe([topic])
    app = KeyShared.wrap(consumer)
    assert topic in consumer.list_topics(timeout=30).topics
    assert consumer.get_watermark_offsets(ClientPartition(topic, 0), timeout=30) == (0, 3)
    app._wrapped.give_back()
    assert consumer.poll(30) is not None
    consumer.close()
    with pytest.raises(RuntimeError, match="closed"):
        consumer.poll(0)


@pytest.mark.parametrize("by", ["close", "with"])
def test_one_that_was_never_used_after_its_owner_can_be_closed(by: str) -> None:
    consumer = Consumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "log_level": 0})
    consumer.subscribe(["orders"])
    KeyShared.wrap(consumer)._wrapped.give_back()
    if by == "with":
        with consumer:
            pass
    else:
        consumer.close()
    with pytest.raises(RuntimeError, match="closed"):
        consumer.memberid()


def test_it_is_not_taken_away_under_a_thread_that_asks_it() -> None:
    consumer = Consumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "log_level": 0})
    consumer.subscribe(["orders"])
    begun, ended = threading.Event(), threading.Event()

    def ask() -> None:
        begun.set()
        with pytest.raises(confluent_kafka.KafkaException):
            consumer.list_topics(timeout=3)
        ended.set()

    thread = threading.Thread(target=ask)
    thread.start()
    assert begun.wait(60)
    app = KeyShared.wrap(consumer)
    thread.join(60)
    assert ended.is_set()
    app._wrapped.give_back()
    consumer.close()
