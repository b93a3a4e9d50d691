"""What is found in a dead-letter topic, whatever it is."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import (
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    TIMESTAMP_NOT_AVAILABLE,
    Message,
)
from hypothesis import example, given
from hypothesis import strategies as st

from kafka_keyshared.dlq import avro, envelope
from kafka_keyshared.dlq.letter import Letter, LetterForm, LetterPlace, LetterSource, read_letter
from tests.support.letters import V1_LETTER, a_publish

FORMS = {"headers": envelope.pack, "avro": avro.pack}


def found(
    value: bytes | None, headers: Any, key: bytes | None = b"k", written: tuple[int, int] = (1, 9)
) -> Letter:
    message = Message(
        topic="orders.dlq",
        partition=1,
        offset=4,
        key=key,
        value=value,
        headers=headers,
        timestamp=written,
    )
    return read_letter(message)


@pytest.mark.parametrize("form", FORMS)
def test_both_forms_say_the_same(form: str) -> None:
    own: list[tuple[str, Any]] = [("h", b"1"), ("h", None), ("keyshared.replays", b"2")]
    value, headers = FORMS[form](a_publish(own), "billing")
    read = found(value, headers)
    assert (read.kind.value, str(read.at), read.written) == (form, "1:4", 9)
    assert (read.key, read.value, read.headers) == (b"k", b"v", [("h", b"1"), ("h", None)])
    told = read.told
    assert told is not None
    assert told.source == LetterSource("orders", 3, 17)
    assert (told.timestamp, told.group, told.attempts) == (1_700_000_000_123, "billing", 5)
    assert told.error == "ValueError: no such flight"
    assert told.error_stack == "  File ...\n"
    assert (told.first_failure, told.last_failure, told.replays) == (1_000, 2_000, 2)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("timestamp", "written"),
    [
        ((TIMESTAMP_CREATE_TIME, 9), 9),
        ((TIMESTAMP_LOG_APPEND_TIME, 9), 9),
        ((TIMESTAMP_CREATE_TIME, 0), 0),
        ((TIMESTAMP_NOT_AVAILABLE, 0), None),
        ((TIMESTAMP_NOT_AVAILABLE, 9), None),
        ((TIMESTAMP_CREATE_TIME, -1), None),
    ],
)
def test_when_a_letter_was_written_is_its_own_time_and_not_its_records(
    form: str, timestamp: tuple[int, int], written: int | None
) -> None:
    value, headers = FORMS[form](a_publish([]), "billing")
    read = found(value, headers, written=timestamp)
    assert read.written == written
    assert read.told is not None
    assert read.told.timestamp == 1_700_000_000_123


def test_avro_is_known_by_its_fingerprint_where_the_header_was_lost() -> None:
    assert found(V1_LETTER, []).kind is LetterForm.AVRO


def test_a_header_letter_of_an_avro_letter_is_a_header_letter() -> None:
    """The dead-letter topic was consumed too, by something that failed on the letter."""
    headers = envelope.headers_of(a_publish([("keyshared.content", b"avro")]), "g")
    read = found(V1_LETTER, headers)
    assert (read.kind, read.value) == (LetterForm.HEADERS, V1_LETTER)


def test_the_last_header_of_a_name_counts() -> None:
    fake: list[tuple[str, Any]] = [
        ("keyshared.source.offset", b"99"),
        ("keyshared.replays", b"0"),
        ("keyshared.error.type", b"Fake"),
    ]
    true = envelope.headers_of(a_publish([("keyshared.replays", b"7")]), "g")
    told = found(b"v", [*fake, *true]).told
    assert told is not None
    assert (told.source.offset, told.replays, told.error_type) == (17, 7, "ValueError")


@pytest.mark.parametrize("headers", [None, [], [("keyshared.source.topic", b"t")], [("x", None)]])
def test_what_is_no_letter_is_foreign(headers: Any) -> None:
    read = found(b"v", headers)
    assert (read.kind, read.told, read.value) == (LetterForm.FOREIGN, None, b"v")
    assert read.headers == (headers or [])
    assert read.problem


@pytest.mark.parametrize("value", [None, b"", b"plain", b"\xc3\x01" + bytes(8) + b"x"])
def test_a_letter_that_claims_to_be_avro_and_is_not_is_shown_as_it_is(value: Any) -> None:
    read = found(value, [("keyshared.content", b"avro")])
    assert (read.kind, read.told, read.value) == (LetterForm.UNREADABLE, None, value)
    assert read.problem


@pytest.mark.parametrize("place", [("", 0, 0), ("t", -1, 0), ("t", 0, -1)])
def test_a_source_where_no_record_can_be_is_none(place: tuple[str, int, int]) -> None:
    whole = avro.decode(V1_LETTER)
    names = ("source_topic", "source_partition", "source_offset")
    data = avro.encode({**whole, **dict(zip(names, place, strict=True))})
    assert found(data, []).kind is LetterForm.UNREADABLE
    topic, partition, offset = place
    headers = [
        ("keyshared.source.topic", topic.encode()),
        ("keyshared.source.partition", b"%d" % partition),
        ("keyshared.source.offset", b"%d" % offset),
    ]
    assert found(b"v", headers).kind is LetterForm.FOREIGN


def test_what_a_letter_does_not_say_is_not_known() -> None:
    headers = [
        ("keyshared.source.topic", b"t"),
        ("keyshared.source.partition", b"0"),
        ("keyshared.source.offset", b"1"),
        ("keyshared.attempts", b"many"),
        ("keyshared.error.type", None),
        ("keyshared.error.message", b"\xff"),
        ("keyshared.source.timestamp", b"-1"),
        ("keyshared.replays", b"x"),
    ]
    read = found(b"v", headers, written=(0, -1))
    told = read.told
    assert told is not None
    assert (told.attempts, told.timestamp, told.group, told.last_failure) == (None,) * 4
    assert (told.error, told.replays, read.written) == ("\ufffd", 0, None)


class Unreadable:
    """A message with a header whose name is not UTF-8, as the client hands it over."""

    def __init__(self) -> None:
        self.asked = 0

    def headers(self) -> Any:
        self.asked += 1
        raise SystemError("returned a result with an exception set")

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return 1

    def timestamp(self) -> tuple[int, int]:
        return (1, 2)

    def key(self) -> bytes:
        return b"k"

    def value(self) -> bytes:
        return b"v"


def test_headers_that_the_client_cannot_read_are_asked_for_once() -> None:
    """What it returns the second time would end the process."""
    message: Any = Unreadable()
    read = read_letter(message)
    assert (read.kind, read.at, read.value) == (LetterForm.UNREADABLE, LetterPlace(0, 1), b"v")
    assert "not UTF-8" in read.problem
    assert message.asked == 1


names = st.sampled_from(
    [value for name, value in vars(envelope).items() if name.isupper() and isinstance(value, str)]
)


@given(
    st.none() | st.binary(max_size=40) | st.just(V1_LETTER[:60]),
    st.lists(st.tuples(names | st.text(max_size=5), st.none() | st.binary(max_size=12))),
)
@example(b"v", [("keyshared.source.topic", b"t"), ("keyshared.replays", b"9" * 5_000)])
def test_nothing_in_the_topic_raises(value: bytes | None, headers: Any) -> None:
    read = found(value, headers)
    assert (read.told is None) == (read.kind in (LetterForm.FOREIGN, LetterForm.UNREADABLE))
    assert (read.told is None) == bool(read.problem)
