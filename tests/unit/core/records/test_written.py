"""Records that their handlers write into: order, retries and letters go by what was delivered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kafka_keyshared.core.contract.outcomes import Disposition, Failure
from kafka_keyshared.core.contract.slices import SliceState
from kafka_keyshared.core.keys.extraction import KeyOf
from kafka_keyshared.core.status.builder import take
from kafka_keyshared.core.status.environment import StatusInputs
from kafka_keyshared.core.subscription.settings import SubscriptionSettings
from kafka_keyshared.core.telemetry.meters import OutcomeCounts
from kafka_keyshared.model import TopicPartition
from kafka_keyshared.testing import record as message
from tests.support.core_harness import Harness
from tests.support.records import ERROR, P0, TOPIC, FakeRecord, record
from tests.support.slices import slice_of


def set_key(item: Any) -> None:
    item.set_key({"id": 1})


def set_value(item: Any) -> None:
    item.set_value(7)


def set_topic(item: Any) -> None:
    item.set_topic({"not": "hashable"})


def set_other_topic(item: Any) -> None:
    item.set_topic("elsewhere")


WRITES = [set_key, set_value, set_topic, set_other_topic]

Write = Callable[[Any], None]


@pytest.mark.parametrize("topic", [TOPIC, None], ids=["one topic", "several topics"])
@pytest.mark.parametrize("make", [message, record], ids=["the client's", "a fake"])
@pytest.mark.parametrize("write", WRITES)
def test_a_record_is_made_what_it_was(write: Write, make: Any, topic: str | None) -> None:
    first = FakeRecord(P0, 1, b"a") if make is record else message(b"a", b"1", topic=TOPIC)
    second = FakeRecord(P0, 2, b"b") if make is record else message(b"b", b"2", topic=TOPIC)
    before = (second.topic(), second.key(), second.value())
    slice_ = slice_of(first, second, topic=topic)
    write(second)
    as_it_came = slice_.came[1]
    assert (as_it_came.topic(), as_it_came.key(), as_it_came.value()) == before
    assert as_it_came.offset() == second.offset()
    assert slice_.came.partition_of(1) == TopicPartition(TOPIC, 0)
    assert (second.topic(), second.key(), second.value()) != before, "its handler has it in hand"
    slice_.came.restore(1)
    assert (second.topic(), second.key(), second.value()) == before


def test_records_of_several_classes_are_remembered_too() -> None:
    records: list[Any] = [record(1, "a"), message(b"b", b"2")]
    slice_ = slice_of(*records)
    for index, each in enumerate(records):
        each.set_key(None)
        slice_.came.restore(index)
    assert [each.key() for each in records] == [b"a", b"b"]


def test_the_topics_of_a_slice_are_those_that_its_records_came_from() -> None:
    """One that failed may run again, elsewhere, when the slice is counted."""
    records: list[Any] = [
        record(1, "a"),
        record(2, "b"),
        FakeRecord(P0._replace(topic="other"), 3, b"c"),
    ]
    leased = SliceState(slice_of(*records))
    records[0].set_topic({})
    records[2].set_topic("elsewhere")
    assert [leased.slice.came.topic_of(index) for index in (2, 0)] == ["other", TOPIC]
    counts = OutcomeCounts()
    counts.settled(leased, range(3), [0], [2], unrun=False)
    assert counts.processed.counts == {TOPIC: {"ok": 1}, "other": {"dropped": 1}}


def running(harness: Harness, *records: FakeRecord) -> FakeRecord:
    """Let the first of these run, and return it."""
    harness.assign()
    harness.fetch(*records)
    started = harness.owner_of(records[0]).start()
    assert started is records[0]
    return records[0]


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("one_lease", [False, True])
def test_a_written_record_that_fails_keeps_its_lane_and_its_place(
    write: Write, one_lease: bool
) -> None:
    harness = Harness(SubscriptionSettings(one_in_flight_per_key=one_lease))
    write(running(harness, record(1), record(2), record(3, "other")))
    worker = harness.worker()
    worker.finish(ERROR)
    harness.deliver()
    assert harness.work() == [3]
    harness.later(1.0)
    assert harness.work() == [1, 2], "the retry goes first, in its own lane"
    assert harness.committed() == (4, [])


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("one_lease", [False, True])
@pytest.mark.parametrize("key_of", [None, lambda item: item.headers() or item.key()])
def test_whoever_looks_while_it_is_written_sees_what_came(
    write: Write, one_lease: bool, key_of: KeyOf | None
) -> None:
    harness = Harness(
        SubscriptionSettings(one_in_flight_per_key=one_lease, key_of=key_of, warn_after=1)
    )
    first = running(harness, record(0), record(1), record(2, "other"))
    write(first)
    harness.beat(3)
    assert harness.said(f"{P0}@0 (key b'k') has been running")
    assert harness.committed() == (0, [])
    around = StatusInputs(
        wall=0.0,
        started_at=0.0,
        phase="running",
        joined=True,
        group="g",
        pool="thread",
        polled_at=None,
        poll_used=0.0,
        log_ends={},
    )
    status = take(harness.core, harness.pool.progress(), harness.now, around)
    (subscription,) = status.subscriptions
    assert subscription.workers[0].running is not None
    assert subscription.workers[0].running.topic == TOPIC
    assert harness.core.under_way([P0], harness.pool.progress())[0][0].topic() == TOPIC
    harness.worker().finish()
    assert sorted(harness.work()) == [1, 2]
    assert harness.committed() == (3, [])
    assert harness.sub().counts.processed.counts == {TOPIC: {"ok": 3}}


@pytest.mark.parametrize("write", WRITES)
def test_a_written_record_that_outlives_its_partition_settles_nothing(write: Write) -> None:
    harness = Harness()
    first = running(harness, record(0), record(1))
    write(first)
    harness.revoke(P0)
    harness.assign(position=0)
    harness.worker().finish()
    harness.work()
    assert (harness.sub().counts.stale_results, harness.sub().counts.ok) == (1, 0)


@pytest.mark.parametrize("write", WRITES)
def test_a_written_retry_is_forgotten_with_its_partition(write: Write) -> None:
    harness = Harness()
    running(harness, record(0))
    harness.worker().finish(ERROR)
    harness.work()
    harness.later(1.0)
    again = harness.worker().start()
    assert again is not None
    write(again)
    harness.revoke(P0)
    harness.worker().finish(ERROR)
    harness.work()
    assert not harness.sub().closed.lanes


@pytest.mark.parametrize("write", WRITES)
def test_a_letter_has_what_came(write: Write) -> None:
    harness = Harness(SubscriptionSettings(dlq=True, on_exhausted="dead_letter"))
    first = running(harness, record(0))
    before = (first.topic(), first.key(), first.value())
    write(first)
    harness.worker().finish(Failure(Disposition.DEAD_LETTER, "DeadLetter", "", "", 0))
    harness.deliver()
    letter = harness.dead_letter().record
    assert (letter.topic(), letter.key(), letter.value()) == before
