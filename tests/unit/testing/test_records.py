"""`record(...)` makes the client's own message, as a topic gives it back."""

from __future__ import annotations

import time

from confluent_kafka import TIMESTAMP_CREATE_TIME, Message

from kafka_keyshared.testing import ReceivedRecord, record


def test_it_is_the_clients_own_message_with_all_that_was_asked_for() -> None:
    made = record(
        "customer",
        b"paid",
        headers={"trace": "7", "none": None},
        topic="payments",
        partition=3,
        offset=41,
        timestamp=1_700_000_000_000,
        leader_epoch=9,
    )
    assert type(made) is Message is ReceivedRecord
    assert (made.topic(), made.partition(), made.offset()) == ("payments", 3, 41)
    assert (made.key(), made.value(), len(made)) == (b"customer", b"paid", 4)
    assert made.headers() == [("trace", b"7"), ("none", None)]
    assert made.timestamp() == (TIMESTAMP_CREATE_TIME, 1_700_000_000_000)
    assert made.leader_epoch() == 9
    assert made.error() is None


def test_what_is_not_said_is_as_usual() -> None:
    before = time.time_ns() // 1_000_000
    made = record()
    assert (made.topic(), made.partition(), made.offset()) == ("test", 0, 0)
    assert (made.key(), made.value(), made.headers()) == (None, None, None)
    assert before <= made.timestamp()[1] <= time.time_ns() // 1_000_000


def test_headers_keep_their_order_and_their_doubles() -> None:
    pairs: list[tuple[str, str | bytes | None]] = [("b", "1"), ("a", b"2"), ("b", "3")]
    assert record(headers=pairs).headers() == [("b", b"1"), ("a", b"2"), ("b", b"3")]
    assert record(headers={}).headers() is None
