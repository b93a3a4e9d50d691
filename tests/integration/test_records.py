"""Records of every shape are processed, and dead-lettered as they are."""

from __future__ import annotations

import threading
from random import Random
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from kafka_keyshared.app.keyshared import KeyShared
from kafka_keyshared.dlq import topics
from kafka_keyshared.errors import ConfigError, TopicMissingError
from kafka_keyshared.model import DeadLetter
from kafka_keyshared.observability.audit.ledger import MemoryLedger
from kafka_keyshared.testing.clusters.cluster import Cluster
from tests.conftest import Eventually
from tests.support.live_cluster import (
    Headers,
    Member,
    assert_clean,
    client_conf,
    committed,
    group_name,
    letters,
    read_all,
    write,
)

HEADERS: Headers = [("h", b"1"), ("h", b"2"), ("none", None), ("raw", b"\xff\x00\xfe"), ("", b"")]
ODD = [
    (None, b"no key"),
    (b"", b"empty key"),
    (b"\xff\xfe\x00", b"not text"),
    (b"K" * (1 << 20), b"1 MiB key"),
    (b"tombstone", None),
    (b"empty", b""),
    (None, None),
]


def roomy_topic(cluster: Cluster, name: str) -> None:
    """Make a topic that takes records above the default limit of 1 MiB."""
    if cluster.kind == "real":
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        wanted = NewTopic(name, 1, 1, config={"max.message.bytes": str(8 << 20)})
        admin.create_topics([wanted])[name].result(30)
    cluster.create_topic(name, 1)


def test_odd_records_are_processed(
    any_cluster: Cluster, topic: str, eventually: Eventually
) -> None:
    roomy_topic(any_cluster, topic)
    written = MemoryLedger("producer")
    write(any_cluster, topic, ODD, written, headers=HEADERS)
    seen: list[tuple[Any, Any, Any]] = []

    def handler(record: Any) -> None:
        seen.append((record.key(), record.value(), record.headers()))

    member = Member(client_conf(any_cluster, group_name()), [topic], handler).start()
    eventually(lambda: member.position() == len(ODD), 30.0)
    assert member.stop() == 0
    assert sorted(map(repr, seen)) == sorted(repr((key, value, HEADERS)) for key, value in ODD)
    assert_clean(written, member.ledger)


def test_odd_records_are_dead_lettered_unchanged(
    any_cluster: Cluster, topic: str, eventually: Eventually
) -> None:
    dlq = f"{topic}.dlq"
    roomy_topic(any_cluster, topic)
    roomy_topic(any_cluster, dlq)
    written = MemoryLedger("producer")
    write(any_cluster, topic, ODD, written, headers=HEADERS)

    def handler(_record: Any) -> None:
        raise DeadLetter("not for me")

    conf = client_conf(any_cluster, group_name())
    member = Member(conf, [topic], handler, dlq=True).start()
    eventually(lambda: member.position() == len(ODD), 30.0)
    assert member.stop() == 0
    found = read_all(any_cluster, dlq, len(ODD))
    copies = []
    for message in found:
        headers: Any = message.headers()
        assert headers[: len(HEADERS)] == HEADERS
        added = dict(headers[len(HEADERS) :])
        assert added["keyshared.source.topic"] == topic.encode()
        assert added["keyshared.error.type"] == b"DeadLetter"
        assert added["keyshared.attempts"] == b"1"
        copies.append((message.key(), message.value()))
    assert sorted(map(repr, copies)) == sorted(map(repr, ODD))
    assert_clean(written, member.ledger, letters(any_cluster, dlq, len(ODD)))


def test_a_dead_letter_that_the_broker_refuses_is_not_settled(
    real_cluster: Cluster, topic: str, eventually: Eventually, caplog: pytest.LogCaptureFixture
) -> None:
    """It fitted as a record; with the headers it is above the topic's max.message.bytes.

    Letters are compressed, so the record is of bytes that do not compress.
    """
    dlq = f"{topic}.dlq"
    real_cluster.create_topic(topic, 1)
    real_cluster.create_topic(dlq, 1)
    written = MemoryLedger("producer")
    big = Random(1).randbytes(1_048_576 - 200)
    write(real_cluster, topic, [(b"big", big), (b"other", b"x")], written)
    mended = threading.Event()

    def handler(record: Any) -> None:
        if record.key() == b"big" and not mended.is_set():
            raise DeadLetter("too big for me")

    group = group_name()
    conf = client_conf(real_cluster, group)
    first = Member(conf, [topic], handler, dlq=True, stop_timeout=10.0).start()
    eventually(lambda: "was not written" in caplog.text, 30.0)
    eventually(lambda: first.done() == 1, 30.0)
    assert first.stop() == 0, "a dead letter that waits for its next try holds up no stop"
    assert committed(real_cluster, group, topic)[0] == 0
    mended.set()
    second = Member(conf, [topic], handler, name="second", dlq=True).start()
    eventually(lambda: second.position() == 2, 30.0)
    assert second.stop() == 0
    assert_clean(written, first.ledger, second.ledger)


def test_a_dead_letter_topic_that_goes_away_settles_nothing(
    real_cluster: Cluster, topic: str, eventually: Eventually
) -> None:
    dlq = f"{topic}.dlq"
    real_cluster.create_topic(topic, 1)
    real_cluster.create_topic(dlq, 1)
    written = MemoryLedger("producer")
    write(real_cluster, topic, [(b"good", b"")], written)
    group = group_name()
    conf = client_conf(real_cluster, group)
    fail = threading.Event()
    fail.set()

    def handler(record: Any) -> None:
        if record.key() == b"bad" and fail.is_set():
            raise DeadLetter("bad")

    first = Member(conf, [topic], handler, dlq=True, stop_timeout=2.0).start()
    eventually(lambda: first.position() == 1, 30.0)
    admin = AdminClient({"bootstrap.servers": real_cluster.bootstrap})
    admin.delete_topics([dlq])[dlq].result(30)
    write(real_cluster, topic, [(b"bad", b""), (b"good", b"")], written)
    eventually(lambda: first.done() == 2 and len(first.sub.closed) == 1, 30.0)
    status = first.stop()
    assert status == 1, "the dead letter was still on its way when the stop timeout passed"
    assert committed(real_cluster, group, topic)[0] == 1
    assert first.app.report is not None
    assert "1 dead letter without an answer" in first.app.report.line()

    fail.clear()
    real_cluster.create_topic(dlq, 1)
    second = Member(conf, [topic], handler, name="second", dlq=True).start()
    eventually(lambda: second.position() == 3, 30.0)
    assert second.stop() == 0
    assert_clean(written, first.ledger, second.ledger)


def test_a_missing_dead_letter_topic_is_refused_at_start(any_cluster: Cluster, topic: str) -> None:
    any_cluster.create_topic(topic, 1)
    app = KeyShared(client_conf(any_cluster, group_name()), [topic], dlq=True)
    app.handler(lambda record: None)
    with pytest.raises(TopicMissingError, match=rf"'{topic}\.dlq' does not exist.*dlq_create"):
        app.run()


def test_a_missing_topic_is_refused_at_start(real_cluster: Cluster, topic: str) -> None:
    app = KeyShared(client_conf(real_cluster, group_name()), [topic])
    app.handler(lambda record: None)
    with pytest.raises(TopicMissingError, match=f"'{topic}' does not exist"):
        app.run()


def test_two_instances_may_make_the_dead_letter_topic_at_once(
    real_cluster: Cluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both see that it is missing; the slower one finds that it exists already."""

    class Slower(AdminClient):
        def list_topics(self, *arguments: Any, **more: Any) -> Any:
            seen = super().list_topics(*arguments, **more)
            del seen.topics[f"{topic}.dlq"]
            return seen

    real_cluster.create_topic(f"{topic}.dlq", 1)
    monkeypatch.setattr(topics, "AdminClient", Slower)
    conf = {"bootstrap.servers": real_cluster.bootstrap}
    topics.require_topics(conf, [f"{topic}.dlq"], create=True, timeout=30.0)
    assert read_all(real_cluster, f"{topic}.dlq", 1, seconds=0.0) == []


def test_dlq_create_makes_the_topic(
    real_cluster: Cluster, topic: str, eventually: Eventually
) -> None:
    real_cluster.create_topic(topic, 1)
    written = MemoryLedger("producer")
    write(real_cluster, topic, [(b"k", b"%d" % number) for number in range(5)], written)

    def handler(record: Any) -> None:
        if int(record.value()) % 2:
            raise ValueError("odd")

    conf = client_conf(real_cluster, group_name())
    retry = {"attempts": 2, "backoff": 0.01}
    member = Member(conf, [topic], handler, dlq=True, dlq_create=True, retry=retry).start()
    eventually(lambda: member.position() == 5, 30.0)
    assert member.stop() == 0
    assert_clean(written, member.ledger, letters(real_cluster, f"{topic}.dlq", 2))


def test_client_settings_that_do_not_fit_together_are_refused_by_name(
    embedded_cluster: Cluster, topic: str
) -> None:
    embedded_cluster.create_topic(topic, 1)
    conf = client_conf(embedded_cluster, group_name(), fetch_max_bytes=1_000)
    with pytest.raises(ConfigError, match=r"fetch\.max\.bytes") as caught:
        KeyShared(conf, [topic])
    assert caught.value.exit_code == 2
