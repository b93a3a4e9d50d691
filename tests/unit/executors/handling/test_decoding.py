"""Serdes as callables: what the handler reads, and what becomes of bytes that cannot be read."""

from __future__ import annotations

import json
from typing import Any

import pytest
from confluent_kafka.serialization import MessageField, SerializationContext, SerializationError

from kafka_keyshared import DeadLetter, KeyShared, Retry
from kafka_keyshared.executors.handling.decoding import Deserializer, decoding
from kafka_keyshared.executors.handling.handlers import maker
from kafka_keyshared.executors.handling.registry_faults import AGAIN_AFTER
from kafka_keyshared.testing.clusters.cluster import Cluster
from tests.support.live_cluster import Member, client_conf, group_name, read_all, write
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


class RegistryError(Exception):
    """An error as Confluent's client raises it."""

    def __init__(self, http_status_code: int) -> None:
        super().__init__(f"HTTP {http_status_code}")
        self.http_status_code = http_status_code


def raised_from(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    "error",
    [
        ConnectionError("no route"),
        TimeoutError("timed out"),
        RegistryError(401),
        RegistryError(503),
        raised_from(SerializationError("while reading"), RegistryError(500)),
    ],
)
def test_a_registry_at_fault_puts_the_record_off_and_counts_no_attempt(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any) -> None:
        raise error

    for _ in range(3):
        with pytest.raises(Retry, match="the schema registry is at fault") as caught:
            decoded(record(1), value=fail)
        assert (caught.value.attempt, caught.value.delay()) == (False, AGAIN_AFTER)
    assert "orders-0@1 cannot be decoded: the schema registry is at fault" in caplog.text


def test_an_answer_of_the_registry_that_is_no_json_is_no_fault_of_the_record() -> None:
    """It is a ValueError, as of a value that is no JSON; it comes out of the registry's client."""
    client: dict[str, Any] = {"__name__": "some_schema_registry_client", "json": json}
    exec("def get_schema(number): return json.loads('<html>')", client)
    with pytest.raises(Retry):
        decoded(record(1), value=lambda *_: client["get_schema"](1))
    with pytest.raises(DeadLetter):
        decoded(record(1), value=lambda *_: json.loads("<html>"))


def test_a_schema_that_the_registry_denies_is_its_fault_unless_a_single_record_has_it() -> None:
    known = {b"\0\0\0\0\1"}

    def deserialize(data: bytes, _: Any) -> bytes:
        if data[:5] not in known:
            raise RegistryError(404)
        return data[5:]

    def framed(offset: int, schema: int) -> FakeRecord:
        made = record(offset)
        made.set_value(b"\0\0\0\0" + bytes([schema]) + b"x")
        return made

    got: list[Any] = []
    handle = decoding(maker(got.append), None, deserialize)().handle
    with pytest.raises(Retry):
        handle(framed(0, 7))  # nothing has been decoded yet
    handle(framed(1, 1))
    for _ in range(2):
        with pytest.raises(RegistryError):
            handle(framed(2, 8))  # the only one: a failed attempt, and the policy's in the end
    for offset in (3, 4, 3):
        with pytest.raises(Retry if offset == 4 else (RegistryError, Retry)):
            handle(framed(offset, 9))
    known.add(b"\0\0\0\0\x09")
    handle(framed(3, 9))
    assert [each.value() for each in got] == [b"x", b"x"]


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
