"""The header form of a dead letter."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Message

from kafka_keyshared.dlq.envelope import headers_of, source_of
from tests.support.letters import a_publish
from tests.support.records import record


def test_the_records_own_headers_stay_as_they_are_and_in_order() -> None:
    own: list[tuple[str, Any]] = [("h", b"1"), ("h", b"2"), ("none", None), ("raw", b"\xff\x00")]
    made = headers_of(a_publish(own), "billing")
    assert made[:4] == own
    assert dict(made[4:]) == {
        "keyshared.source.topic": b"orders",
        "keyshared.source.partition": b"3",
        "keyshared.source.offset": b"17",
        "keyshared.source.timestamp": b"1700000000123",
        "keyshared.source.group": b"billing",
        "keyshared.attempts": b"5",
        "keyshared.error.type": b"ValueError",
        "keyshared.error.message": b"no such flight",
        "keyshared.error.stack": b"  File ...\n",
        "keyshared.first.failure": b"1000",
        "keyshared.last.failure": b"2000",
        "keyshared.replays": b"0",
    }


@pytest.mark.parametrize("headers", [None, []])
def test_a_record_without_headers(headers: list[tuple[str, Any]] | None) -> None:
    assert all(name.startswith("keyshared.") for name, _ in headers_of(a_publish(headers), "g"))


def test_a_replayed_letter_keeps_its_replay_count_and_none_of_its_earlier_life() -> None:
    before = headers_of(a_publish([("own", b"x")]), "g")
    replayed = [(name, b"3" if name == "keyshared.replays" else value) for name, value in before]
    made = headers_of(a_publish(replayed, "again"), "other")
    names = [name for name, _ in made]
    assert len(names) == len(set(names))
    assert made[0] == ("own", b"x")
    assert dict(made)["keyshared.replays"] == b"3"
    assert dict(made)["keyshared.error.message"] == b"again"
    assert dict(made)["keyshared.source.group"] == b"other"


def test_texts_that_are_not_unicode_do_not_stop_a_letter() -> None:
    made = dict(headers_of(a_publish([], "half a pair: \ud800"), "g"))
    assert made["keyshared.error.message"] == b"half a pair: ?"


def test_the_source_of_a_letter_can_be_read_back() -> None:
    assert source_of(list(headers_of(a_publish([("h", b"1")]), "g"))) == ("orders", 3, 17)


def test_a_producers_look_alike_changes_nothing() -> None:
    fake: list[tuple[str, Any]] = [("keyshared.source.offset", b"99")]
    assert source_of([*fake, *headers_of(a_publish([]), "g")]) == ("orders", 3, 17)
    assert source_of(list(headers_of(a_publish(fake), "g"))) == ("orders", 3, 17)


@pytest.mark.parametrize(
    "headers",
    [
        None,
        [],
        [("keyshared.source.topic", b"t"), ("keyshared.source.partition", b"0")],
        [
            ("keyshared.source.topic", b"t"),
            ("keyshared.source.partition", b"x"),
            ("keyshared.source.offset", b"1"),
        ],
        [
            ("keyshared.source.topic", b"\xff"),
            ("keyshared.source.partition", b"0"),
            ("keyshared.source.offset", b"1"),
        ],
        [
            ("keyshared.source.topic", None),
            ("keyshared.source.partition", b"0"),
            ("keyshared.source.offset", None),
        ],
    ],
)
def test_what_is_no_letter_has_no_source(headers: list[tuple[str, Any]] | None) -> None:
    assert source_of(headers) is None


def test_the_fakes_of_these_tests_are_like_the_clients_messages() -> None:
    assert {name for name in dir(record(1)) if name[0] != "_"} - {"came_as", "epoch"} <= set(
        dir(Message)
    )
