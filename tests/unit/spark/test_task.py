"""What one task does, fed with records and no Spark."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from kafka_keyshared.clock import Clock
from kafka_keyshared.core.contract import events as ev
from kafka_keyshared.core.contract.retry_policy import RetryPolicy
from kafka_keyshared.core.offsets.commit_metadata import encode
from kafka_keyshared.core.offsets.metadata_sections import LaneNotes, Tried
from kafka_keyshared.core.subscription.settings import SubscriptionSettings, worker_names
from kafka_keyshared.executors.handling.handlers import maker
from kafka_keyshared.executors.handling.outputs import OutputTarget
from kafka_keyshared.executors.thread_state import WorkerSpec
from kafka_keyshared.model import Output, Record, TopicPartition
from kafka_keyshared.spark.settled_offsets import common, to_position
from kafka_keyshared.spark.task import (
    BatchShare,
    Drive,
    NamedOutput,
    SparkJob,
    TaskLetter,
    TaskReport,
)
from kafka_keyshared.testing import record
from tests.support.commit_texts import here

P0 = TopicPartition("t", 0)


def a_job(
    handler: Callable[..., Any], shares: dict[TopicPartition, BatchShare], **given: Any
) -> SparkJob:
    workers = worker_names(given.pop("workers", 1))
    given.setdefault("retry", RetryPolicy(attempts=2, backoff=0.01, jitter=0.0))
    settings = SubscriptionSettings(workers=workers, **given)
    make = maker(handler)
    specs = [WorkerSpec("default", index, name, make) for index, name in enumerate(workers)]
    return SparkJob(settings, specs, shares, "g", {"t": "t.dlq"})


def share(begin: int, end: int, metadata: str | None = None) -> BatchShare:
    return BatchShare(ev.StartPoint(begin, metadata), begin, end)


def of(offset: int, key: str | None = "k", partition: int = 0) -> Record:
    return record(key, b"%d" % offset, topic="t", partition=partition, offset=offset)


def done(
    job: SparkJob, *batches: Sequence[Record], clock: Clock | None = None
) -> tuple[list[TaskLetter], TaskReport]:
    *letters, report = Drive(job, 0, clock).run_all(batches)
    assert isinstance(report, TaskReport)
    return [each for each in letters if isinstance(each, TaskLetter)], report


class Timeless:
    """A clock that passes by itself: each look at it is a millisecond later."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 0.001
        return self.now


def test_records_run_in_order_and_all_are_settled() -> None:
    seen: list[int] = []
    job = a_job(lambda each: seen.append(each.offset()), {P0: share(0, 100)})
    letters, report = done(job, [of(n) for n in range(50)], [of(n) for n in range(50, 100)])
    assert seen == list(range(100))
    assert (letters, report.handled) == ([], 100)
    assert to_position(0, report.settled[P0].runs) == (100, ())


def test_nothing_waits_for_room_in_a_commit_that_a_task_does_not_make() -> None:
    # Of many workers each has a record here and there: a pod would hold it back.
    apart, parked = 50_000, []
    job = a_job(lambda _: parked.append(drive.core.ceilings.parked()), {P0: share(0, 100 * apart)})
    drive = Drive(job, 0)
    *_, report = drive.run_all([[of(n * apart) for n in range(100)]])
    assert isinstance(report, TaskReport)
    assert report.handled == 100
    assert not any(parked)


def test_how_far_each_partition_has_come_is_told_with_each_chunk() -> None:
    seen: list[tuple[int, int]] = []
    shares = {TopicPartition("t", number): share(0, 10) for number in range(3)}
    job = a_job(lambda each: seen.append((each.partition(), each.offset())), shares)
    chunk = [of(at, partition=number) for number in range(3) for at in range(number + 1)]
    drive = Drive(job, 0)
    assert drive.ends_of(chunk) == {TopicPartition("t", number): number + 1 for number in range(3)}
    assert drive.ends_of([]) == {}
    _, report = done(job, chunk)
    assert report.handled == len(seen) == 6


def test_a_record_that_fails_runs_again_before_what_follows_in_its_key() -> None:
    calls: list[tuple[str, int]] = []

    def handle(each: Record) -> None:
        calls.append((each.key().decode(), each.offset()))
        if calls.count(("a", 0)) == 1 and each.offset() == 0:
            raise ValueError("once")

    job = a_job(handle, {P0: share(0, 4)})
    _, report = done(job, [of(0, "a"), of(1, "b"), of(2, "a"), of(3, "b")])
    assert [each for each in calls if each[0] == "a"] == [("a", 0), ("a", 0), ("a", 2)]
    assert (report.handled, report.retries) == (4, 1)


def test_a_poison_record_becomes_a_letter_with_a_pods_headers() -> None:
    def handle(each: Record) -> None:
        if each.offset() == 1:
            raise ValueError("no such customer")

    job = a_job(handle, {P0: share(0, 3)}, on_exhausted="dead_letter", dlq=True)
    [letter], report = done(job, [of(0), of(1), of(2)])
    told = dict(letter.headers)
    assert (letter.topic, letter.key, letter.value) == ("t.dlq", b"k", b"1")
    assert told["keyshared.error.message"] == b"no such customer"
    assert told["keyshared.source.offset"] == b"1"
    assert told["keyshared.attempts"] == b"2"
    assert told["keyshared.source.group"] == b"g"
    assert (report.handled, report.dead_lettered, report.letters) == (2, 1, 1)
    assert to_position(0, report.settled[P0].runs) == (3, ())


def test_a_blocked_key_stays_unsettled_with_what_follows_in_it() -> None:
    def handle(each: Record) -> None:
        if each.key() == b"bad":
            raise ValueError("always")

    job = a_job(handle, {P0: share(10, 16)}, on_exhausted="block")
    keys = {10: "good", 11: "bad", 12: "good", 13: "bad", 14: "good", 15: "good"}
    _, report = done(job, [of(offset, key) for offset, key in keys.items()])
    assert to_position(10, report.settled[P0].runs) == (11, ((12, 13), (14, 16)))
    assert report.settled[P0].notes.tried[11].attempts == 2


def test_what_the_group_has_settled_is_not_run_and_attempts_go_on() -> None:
    seen: list[int] = []

    def handle(each: Record) -> None:
        seen.append(each.offset())
        if each.offset() == 0:
            raise ValueError("always")

    text = encode(here(0, P0), {"default": ((1, 3),)}).text
    job = a_job(handle, {P0: share(0, 4, text)}, on_exhausted="block")
    _, report = done(job, [of(n, f"k{n}") for n in range(4)])
    assert seen in ([0, 3, 0], [0, 0, 3])
    assert report.skipped == 2
    # And from where that ended.
    position, runs = to_position(0, report.settled[P0].runs)
    notes = {"default": report.settled[P0].notes}
    text = encode(here(position, P0), {"default": runs}, notes=notes).text
    seen.clear()
    done(
        a_job(handle, {P0: share(0, 4, text)}, on_exhausted="block"),
        [of(n, f"k{n}") for n in range(4)],
    )
    assert seen == [0], "a record that had all its attempts gets one more, and its set is kept"


def test_a_partition_that_blocked_keys_hold_back_is_left_where_it_stands() -> None:
    """Others go on, and what was not run does not count as settled."""
    ran: list[tuple[int, int]] = []

    def handle(each: Record) -> None:
        if each.key() == b"bad":
            raise ValueError("always")
        ran.append((each.partition(), each.offset()))

    shares = {P0: share(0, 3_000), TopicPartition("t", 1): share(0, 2)}
    job = a_job(handle, shares, on_exhausted="block", window_records=100)
    source = [[of(n, "bad") for n in range(3_000)], [of(0, "x", 1), of(1, "y", 1)]]
    _, report = done(job, *source, clock=Clock(Timeless()))
    assert ran == [(1, 0), (1, 1)]
    assert to_position(0, report.settled[P0].runs) == (0, ())
    assert to_position(0, report.settled[TopicPartition("t", 1)].runs) == (2, ())


def test_what_was_settled_before_stays_so_in_a_partition_that_is_left_where_it_stands() -> None:
    """Else it would run a second time; and what is known of a record that was tried is kept."""

    def handle(each: Record) -> None:
        if each.key() == b"bad":
            raise ValueError("always")

    noted = {"default": LaneNotes(tried={95: Tried(3, archived=True)})}
    text = encode(here(0, P0), {"default": ((80, 90), (96, 98))}, notes=noted).text
    job = a_job(handle, {P0: share(0, 100, text)}, on_exhausted="block", window_records=20)
    source = [[of(n, "bad") for n in range(100)]]
    _, report = done(job, *source, clock=Clock(Timeless()))
    assert to_position(0, report.settled[P0].runs) == (0, ((80, 90), (96, 98)))
    assert report.settled[P0].notes.tried[95] == Tried(3, archived=True)


def test_records_are_taken_as_the_window_has_room() -> None:
    taken = settled = most = 0

    def source() -> Iterator[list[Record]]:
        nonlocal taken, most
        for start in range(0, 60_000, 500):
            taken += 500
            most = max(most, taken - settled)
            yield [of(start + n, f"k{n % 7}") for n in range(500)]

    def handle(each: Record) -> None:
        nonlocal settled
        settled += 1

    job = a_job(handle, {P0: share(0, 60_000)}, window_records=1_000)
    *_, report = Drive(job, 0).run_all(source())
    assert isinstance(report, TaskReport)
    assert report.handled == 60_000
    assert most < 5_000


def test_what_several_tasks_have_settled_is_what_all_of_them_have() -> None:
    one, other = ((0, 5), (6, 10)), ((0, 2), (3, 10))
    assert common(one, other) == ((0, 2), (3, 5), (6, 10))
    assert to_position(0, common(one, other)) == (2, ((3, 5), (6, 10)))
    assert to_position(0, common(one, ((1, 3),))) == (0, ((1, 3),))


@pytest.mark.parametrize("on_exhausted", ["drop", "dead_letter"])
def test_nothing_is_left_by_a_policy_that_gives_records_up(on_exhausted: str) -> None:
    def handle(each: Record) -> None:
        raise ValueError("always")

    job = a_job(handle, {P0: share(0, 5)}, on_exhausted=on_exhausted, dlq=True)
    letters, report = done(job, [of(n) for n in range(5)])
    assert to_position(0, report.settled[P0].runs) == (5, ())
    assert len(letters) == (5 if on_exhausted == "dead_letter" else 0)


@pytest.mark.parametrize("kind", ["parquet", "json"])
def test_outputs_are_handed_out_once_by_the_attempt_that_has_not_failed(kind: str) -> None:
    calls: list[int] = []

    def handle(each: Record) -> Any:
        calls.append(each.offset())
        if each.offset() == 1 and calls.count(1) == 1:
            raise ValueError("once")
        return [Output(f"{each.offset()}.{n}", each.key(), [("h", "x")]) for n in range(2)]

    job = replace(a_job(handle, {P0: share(0, 3)}), outputs=OutputTarget(kind, "there"))
    *told, report = Drive(job, 0).run_all([[of(0), of(1), of(2)]])
    outputs = [each for each in told if isinstance(each, NamedOutput)]
    assert calls == [0, 1, 1, 2]
    names = [f"t-0@{offset}/{n}" for offset in range(3) for n in range(2)]
    assert [each.identity for each in outputs] == names
    assert isinstance(report, TaskReport)
    assert (report.handled, report.outputs) == (3, 6)
    if kind == "json":
        assert [json.loads(each.value)["output"] for each in outputs] == names
    else:
        assert (outputs[0].key, outputs[0].value) == (b"k", b"0.0")
        assert outputs[0].headers == [("h", b"x"), ("keyshared.output", names[0])]
