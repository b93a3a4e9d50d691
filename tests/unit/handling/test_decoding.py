"""Serdes as callables: what the handler reads, and what becomes of bytes that cannot be read."""

from __future__ import annotations

import json
from typing import Any

import pytest
from confluent_kafka.serialization import MessageField, SerializationContext, SerializationError

from kafka_keyshared import DeadLetter, KeyShared
from kafka_keyshared.handling.decoding import Deserializer, decoding
from kafka_keyshared.handling.handlers import maker
from kafka_keyshared.local.cluster import Cluster
from tests.support.live import Member, client_conf, group_name, read_all, write
from tests.support.records import P0, FakeRecord, record


def decoded(
    message: FakeRecord, key: Deserializer | None = None, value: Deserializer | None = None
) -> Any:
    """What a handler gets for this record."""
    got: list[Any] = []
    decoding(maker(got.append), key, value)().handle(message)
    return got[0]


def test_without_serdes_the_handler_gets_the_clients_own_message() -> None:
    message = record(1)
    assert decoded(message) is message


def test_keys_and_values_are_decoded_and_the_rest_is_the_messages() -> None:
    message = record(7, "k")
    got = decoded(message, lambda data, _: data.decode(), lambda data, _: len(data))
    assert (got.key(), got.value()) == ("k", 10)
    assert (got.topic(), got.partition(), got.offset()) == ("orders", 0, 7)
    assert got.raw is message
    assert len(got) == len(message)


def test_only_what_has_a_deserializer_is_decoded() -> None:
    got = decoded(record(1, "k"), value=lambda data, _: "decoded")
    assert (got.key(), got.value()) == (b"k", "decoded")


def test_a_deserializer_hears_which_topic_and_field_it_is_and_the_headers() -> None:
    heard: list[SerializationContext] = []
    message = FakeRecord(P0, 1, b"k", headers=[("v", b"2")])
    decoded(message, *[lambda _, context: heard.append(context)] * 2)
    assert [(each.topic, each.field) for each in heard] == [
        ("orders", MessageField.KEY),
        ("orders", MessageField.VALUE),
    ]
    assert heard[0].headers == [("v", b"2")]


@pytest.mark.parametrize("error", [SerializationError("magic byte"), ValueError("magic byte")])
def test_bytes_that_nobody_can_read_are_a_dead_letter_with_the_reason(error: Exception) -> None:
    def fail(*_: Any) -> None:
        raise error

    with pytest.raises(DeadLetter, match="the value cannot be decoded: magic byte"):
        decoded(record(1), value=fail)
    with pytest.raises(DeadLetter, match="the key cannot be decoded"):
        decoded(record(1), key=fail)


def test_a_registry_that_does_not_answer_is_a_failed_attempt_and_no_dead_letter() -> None:
    def fail(*_: Any) -> None:
        raise ConnectionError("no registry")

    with pytest.raises(ConnectionError):
        decoded(record(1), value=fail)


def test_a_handler_class_keeps_its_close() -> None:
    class Handler:
        def handle(self, record: Any) -> None: ...

        def close(self) -> None: ...

    assert decoding(maker(Handler), None, lambda data, _: data)().close is not None


def test_the_dead_letter_has_the_bytes_that_could_not_be_read(
    embedded_cluster: Cluster, topic: str
) -> None:
    embedded_cluster.create_topic(topic, 1)
    embedded_cluster.create_topic(f"{topic}.dlq", 1)
    write(embedded_cluster, topic, [(b"k", b'{"n": 1}'), (b"k", b"{no json"), (b"k", b'{"n": 3}')])
    got: list[int] = []
    conf = client_conf(embedded_cluster, group_name())
    member = Member(
        conf,
        [topic],
        lambda record: got.append(record.value()["n"]),
        value_deserializer=lambda data, _: json.loads(data),
        dlq=True,
    ).start()
    (letter,) = read_all(embedded_cluster, f"{topic}.dlq", 1)
    assert member.stop() == 0
    assert got == [1, 3]
    assert letter.value() == b"{no json"
    headers = dict(letter.headers() or [])
    assert b"the value cannot be decoded" in headers["keyshared.error.message"]  # type: ignore[operator]
    assert headers["keyshared.attempts"] == b"1"


def test_serdes_are_given_by_name_beside_the_options() -> None:
    app = KeyShared(
        {"bootstrap.servers": "x:1", "group.id": "g"},
        ["orders"],
        key_deserializer=lambda data, _: data,
        workers=2,
    )
    assert app.options.workers == 2
