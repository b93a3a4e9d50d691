"""What a reader is given: bounds and settings, and what of them is refused by name."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import kafka_keyshared
from kafka_keyshared.app.reader import Reader
from kafka_keyshared.app.reader_bounds import bound_of
from kafka_keyshared.client.bounds import (
    LogsBounds,
    Moment,
    Positions,
    ReadingBound,
    check_pair,
    meant,
    positions,
)
from kafka_keyshared.client.port import LogBounds
from kafka_keyshared.errors import ConfigError
from kafka_keyshared.hashing import SLOT_FUNCTIONS
from kafka_keyshared.model import TopicPartition
from tests.support.records import FakeRecord

NOW = 1_800_000_000.0
CONF = {"bootstrap.servers": "127.0.0.1:1"}
ORDERS = [TopicPartition("orders", number) for number in range(3)]
P0, P1, P2 = ORDERS


@pytest.mark.parametrize(
    ("given", "bound"),
    [
        ("earliest", ReadingBound("start", "earliest")),
        ("latest", ReadingBound("start", "latest")),
        (-10, ReadingBound("start", -10)),
        (datetime(2026, 1, 31, 12, tzinfo=UTC), ReadingBound("start", Moment(1_769_860_800_000))),
        ({0: 120, 2: -5}, ReadingBound("start", None, {P0: 120, P2: -5})),
        ({("orders", 1): 7}, ReadingBound("start", None, {P1: 7})),
    ],
)
def test_a_bound_is_a_word_a_number_a_time_or_offsets(given: Any, bound: ReadingBound) -> None:
    assert bound_of("start", given, ["orders"], NOW) == bound


@pytest.mark.parametrize(
    ("given", "topics", "said"),
    [
        ("erliest", ["orders"], "start='erliest': give 'earliest', 'latest'"),
        (5, ["orders"], "start=5: give"),
        (True, ["orders"], "start=True: give"),
        ({}, ["orders"], "start={}: give"),
        (datetime(2026, 1, 31), ["orders"], "has no time zone"),
        (datetime.fromtimestamp(NOW, UTC) + timedelta(hours=1), ["orders"], "in the future"),
        ({0: 1}, ["orders", "bills"], "partition 0 may be of any of the topics (orders, bills)"),
        ({0: 1}, ["^orders.*"], "name the topic, too"),
        ({0: "12"}, ["orders"], "'12' is no offset of partition 0"),
        ({-1: 12}, ["orders"], "-1 is no partition"),
    ],
)
def test_what_is_no_bound_is_refused(given: Any, topics: list[str], said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        bound_of("start", given, topics, NOW)
    assert said in str(refused.value)


START = ReadingBound("start", "earliest")


@pytest.mark.parametrize(
    ("start", "until", "said"),
    [
        (
            START,
            ReadingBound("until", "earliest"),
            "until is earliest, before which there is nothing",
        ),
        (ReadingBound("start", "latest"), ReadingBound("until", "latest"), "nothing lies between"),
        (
            ReadingBound("start", Moment(5)),
            ReadingBound("until", Moment(5)),
            "until is not after start",
        ),
        (
            ReadingBound("start", None, {P0: 9}),
            ReadingBound("until", None, {P0: 9}),
            "until orders-0@9 is not after start orders-0@9",
        ),
    ],
)
def test_bounds_between_which_nothing_lies_are_refused(
    start: ReadingBound, until: ReadingBound, said: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        check_pair(start, until)
    assert said in str(refused.value)


def test_bounds_between_which_something_may_lie_are_taken() -> None:
    some = ReadingBound("start", None, {P0: 9})
    for start, until in [
        (START, None),
        (START, ReadingBound("until", "latest")),
        (ReadingBound("start", "latest", {P0: 9}), ReadingBound("until", "latest")),
        (some, ReadingBound("until", None, {P0: 10})),
        (some, ReadingBound("until", None, {P0: -1})),
        (ReadingBound("start", Moment(5)), ReadingBound("until", Moment(6))),
    ]:
        assert check_pair(start, until) is None  # type: ignore[func-returns-value]


def test_offsets_alone_name_the_partitions_that_are_read() -> None:
    only = ReadingBound("start", None, {P1: 5})
    assert meant(ORDERS, START, None) == ORDERS
    assert meant(ORDERS, only, None) == [P1]
    assert meant(ORDERS, START, ReadingBound("until", None, {P0: 9})) == [P0]
    assert (
        meant(ORDERS, ReadingBound("start", "latest", {P1: 5}), ReadingBound("until", "latest"))
        == ORDERS
    )
    # What the end does not name ends where its log does.
    both = ReadingBound("start", None, {P0: 2, P1: 5})
    assert meant(ORDERS, both, ReadingBound("until", None, {P0: 9})) == [P0, P1]


@pytest.mark.parametrize(
    ("start", "until", "said"),
    [
        (
            ReadingBound("--from", None, {TopicPartition("orders", 7): 1}),
            None,
            "--from: there is no part",
        ),
        (
            ReadingBound("--from", None, {TopicPartition("bills", 0): 1}),
            None,
            "that topic is not read",
        ),
        (
            ReadingBound("--from", None, {P0: 1}),
            ReadingBound("--until", None, {P1: 9}),
            "--until names orders-1, which --from leaves out: name it there too",
        ),
        (
            ReadingBound("--from", "earliest", {P1: 1}),
            ReadingBound("--until", None, {P0: 9}),
            "--from names orders-1, which --until leaves out",
        ),
    ],
)
def test_a_partition_that_is_not_there_or_not_read_is_refused(
    start: ReadingBound, until: ReadingBound | None, said: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        meant(ORDERS, start, until)
    assert said in str(refused.value)


LOGS: LogsBounds = {P0: LogBounds(100, 200), P1: LogBounds(0, 0), P2: LogBounds(5, 8)}


def at(moment: Moment, partitions: Any) -> Positions:
    return dict.fromkeys(partitions, 150 + moment.milliseconds)


@pytest.mark.parametrize(
    ("bound", "found"),
    [
        (ReadingBound("b", "earliest"), {P0: 100, P1: 0, P2: 5}),
        (ReadingBound("b", "latest"), {P0: 200, P1: 0, P2: 8}),
        (ReadingBound("b", -10), {P0: 190, P1: 0, P2: 5}),
        (ReadingBound("b", Moment(1)), {P0: 151, P1: 151, P2: 151}),
        (ReadingBound("b", None, {P0: 120}), {P0: 120}),
        (ReadingBound("b", None, {P0: -1, P2: 8}), {P0: 199, P2: 8}),
        (ReadingBound("b", "latest", {P0: 120}), {P0: 120, P1: 0, P2: 8}),
        (ReadingBound("b", Moment(1), {P0: 120}), {P0: 120, P1: 151, P2: 151}),
        # What retention has deleted is for the caller to say.
        (ReadingBound("b", None, {P0: 3}), {P0: 3}),
    ],
)
def test_a_bound_becomes_a_position_in_each_log(bound: ReadingBound, found: Positions) -> None:
    logs = LOGS if bound.everywhere is not None else {each: LOGS[each] for each in bound.single}
    assert positions(bound, logs, at) == found


def test_an_offset_beyond_the_end_is_refused_with_the_end() -> None:
    with pytest.raises(ConfigError, match="--until orders-2@9: the log ends at 8; give at most"):
        positions(ReadingBound("--until", "latest", {P2: 9}), LOGS, at)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"topics": "orders"}, "topics='orders': give a list"),
        ({"topics": []}, "topics=[]: give a list"),
        ({"ranges": "0-5,5-9"}, "the ranges 0-5 and 5-9 overlap"),
        ({"ranges": [(9, 5)]}, "the range 9-5 is inverted"),
        ({"slot_function": "murmur"}, "slot_function"),
        ({"key": "heder:customer"}, "key='heder:customer'"),
        ({"key": "avro:customer"}, "key_schema"),
        ({"start": "latest", "until": "latest"}, "nothing lies between"),
        ({"conf": {}}, "'bootstrap.servers' is missing"),
        ({"conf": {**CONF, "fetch.wait.max.mz": 1}}, "fetch.wait.max.mz"),
        ({"conf": {**CONF, "enable.auto.commit": True}}, "enable.auto.commit"),
    ],
)
def test_what_a_reader_cannot_work_with_is_refused_when_it_is_made(
    changed: dict[str, Any], said: str
) -> None:
    given: dict[str, Any] = {"conf": CONF, "topics": ["orders"], "ranges": [(0, 9)], **changed}
    with pytest.raises(ConfigError) as refused:
        Reader(**given)
    assert said in str(refused.value)


def test_it_is_part_of_the_package_and_tells_the_slot_of_a_record() -> None:
    reader = kafka_keyshared.Reader(CONF, ["orders"], "0-9", slot_function="pulsar")
    assert reader.slot(FakeRecord(P0, 0, b"customer-7")) == SLOT_FUNCTIONS["pulsar"](b"customer-7")
    assert reader.slot(FakeRecord(P0, 1, None)) is None
    assert not reader.done
    reader.close()
    assert reader.done
    assert list(reader) == []
