"""Slices as values: what the core notes of them, what it believes of reports, how far they got."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Message

from kafka_keyshared.core.contract import commands as cmd
from kafka_keyshared.core.contract import events as ev
from kafka_keyshared.core.contract.slices import (
    Epochs,
    Scattered,
    SerialProgress,
    Slice,
    SliceState,
)
from kafka_keyshared.core.dispatch.tick import NAMED_AT_ONCE
from kafka_keyshared.core.records.pristine import Chunk, Originals
from kafka_keyshared.core.subscription.settings import SubscriptionSettings
from kafka_keyshared.errors import InvariantError
from kafka_keyshared.executors.notice_text import line_of
from kafka_keyshared.model import TopicPartition
from tests.support.core_harness import Harness
from tests.support.records import ERROR, P0, P1, record
from tests.support.slices import scattered, slice_of


def with_one_slice(count: int, settings: SubscriptionSettings | None = None) -> tuple[Harness, int]:
    """A member whose worker has one slice, each record of a key of its own; return its id too."""
    harness = Harness(settings or SubscriptionSettings())
    harness.assign(P0, P1)
    harness.fetch(*[record(offset, f"key-{offset}") for offset in range(count)])
    (slice_,) = harness.worker().slices()
    assert len(slice_.records) == count
    return harness, slice_.id


# --- the value and the note ---


def test_a_slice_is_known_by_its_id_whatever_else_two_of_them_have_in_common() -> None:
    one = slice_of(record(1))
    assert one == Slice(*one)
    assert len({one, Slice(*one)}) == 1
    assert one != slice_of(record(1))
    assert one != one.id


def test_no_two_slices_of_a_process_have_the_same_id_whatever_their_subscription() -> None:
    """A report names nothing else."""
    harness = Harness(SubscriptionSettings("default"), SubscriptionSettings("audit"))
    harness.assign()
    seen = []
    for offset in range(4):
        harness.fetch(record(offset))
        seen += [
            slice_.id for worker in harness.pool.workers.values() for slice_ in worker.slices()
        ]
        harness.work()
    assert len(seen) == len(set(seen)) == 8


def test_what_was_taken_back_is_leased_no_more_and_counts_no_more() -> None:
    leased = SliceState(slice_of(*[record(offset) for offset in range(5)]))
    assert (len(leased), list(leased.indices())) == (5, [0, 1, 2, 3, 4])
    leased.back = frozenset({2, 4})
    assert (len(leased), list(leased.indices())) == (3, [0, 1, 3])
    assert [each.offset() for each in leased.records()] == [0, 1, 3]
    assert list(leased.outstanding({})) == [0, 1, 3]
    assert list(leased.outstanding({leased.slice.id: SerialProgress(2)})) == [1, 3]
    assert list(leased.outstanding({leased.slice.id: scattered(5, runs=(3,), ended={0})})) == [1, 3]


def test_a_record_that_has_come_back_is_not_there_to_come_back_again() -> None:
    leased = SliceState(slice_of(*[record(offset) for offset in range(4)]))
    leased.back = frozenset({3})
    leased.came_back(1)
    assert [index for index in range(-1, 5) if leased.has(index)] == [0, 2]


@pytest.mark.parametrize(
    ("progress", "outstanding", "running"),
    [
        (SerialProgress(0), [0, 1, 2, 3], []),
        (SerialProgress(1), [0, 1, 2, 3], [0]),
        (SerialProgress(3), [2, 3], [2]),
        (SerialProgress(4), [3], [3]),
        (scattered(4), [0, 1, 2, 3], []),
        (scattered(4, runs=(0, 2), ended={1}), [0, 2, 3], [0, 2]),
        (scattered(4, ended={0, 1, 2, 3}), [], []),
    ],
)
def test_of_what_has_started_a_serial_worker_may_still_run_the_last_and_no_other(
    progress: SerialProgress | Scattered, outstanding: list[int], running: list[int]
) -> None:
    assert list(progress.outstanding(4)) == outstanding
    assert list(progress.running()) == running


def test_a_lease_is_over_when_its_partition_has_come_or_gone_since_and_no_other_is() -> None:
    epochs = Epochs()
    epochs.come([P0])
    first = epochs.now
    assert not epochs.over(first, P0)
    epochs.come([P1])
    second = epochs.now
    assert (epochs.over(first, P0), epochs.over(second, P0), epochs.over(second, P1)) == (
        False,
        False,
        False,
    )
    epochs.go([P0])
    assert (epochs.over(second, P0), epochs.over(second, P1)) == (True, False)
    epochs.come([P0])
    third = epochs.now
    assert (epochs.over(second, P0), epochs.over(third, P0)) == (True, False)


# --- reports that cannot be true are refused, and change nothing ---


def ended_twice(harness: Harness, id_: int) -> list[ev.Report]:
    harness.work()
    return [ev.SliceEnded(id_, 0.1)]


def failed_twice(harness: Harness, id_: int) -> list[ev.Report]:
    harness.worker().start()
    harness.worker().finish(ERROR)
    harness.deliver()
    return [ev.Failed(id_, 0, ERROR)]


def of_one_taken_back(harness: Harness, id_: int) -> list[ev.Report]:
    harness.worker().start()
    harness.recall()
    return [ev.Failed(id_, 2, ERROR)]


def aside_after_it_was_taken_back(harness: Harness, id_: int) -> list[ev.Report]:
    harness.worker().start()
    harness.recall()
    return [ev.SetAside(id_, 1)]


UNTRUE: dict[str, tuple[Callable[[Harness, int], list[ev.Report]], str]] = {
    "unknown slice": (
        lambda harness, id_: [ev.SliceEnded(id_ + 77, 0.1)],
        "is not leased or has ended",
    ),
    "failure in an unknown slice": (
        lambda harness, id_: [ev.Failed(id_ + 77, 0, ERROR)],
        "is not leased or has ended",
    ),
    "ended twice": (ended_twice, "is not leased or has ended"),
    "failed twice": (failed_twice, "record 0 is reported on, and has come back already"),
    "failed after it was taken back": (of_one_taken_back, "record 2 .* has come back already"),
    "aside after it was taken back": (
        aside_after_it_was_taken_back,
        "record 1 .* has come back already",
    ),
    "behind the last record": (lambda harness, id_: [ev.Failed(id_, 3, ERROR)], "record 3 "),
    "before the first record": (lambda harness, id_: [ev.Failed(id_, -1, ERROR)], "record -1 "),
}


@pytest.mark.parametrize("report", UNTRUE)
def test_a_report_that_cannot_be_true_is_refused_and_changes_nothing(report: str) -> None:
    harness, id_ = with_one_slice(3)
    make, words = UNTRUE[report]
    reports = make(harness, id_)
    held, counts = harness.core.unsettled_count(), repr(harness.sub().counts)
    closed = len(harness.sub().closed)
    with pytest.raises(InvariantError, match=words):
        harness.core.handle(ev.Reported(reports), harness.now)
    harness.core.check()
    assert (harness.core.unsettled_count(), repr(harness.sub().counts)) == (held, counts)
    assert len(harness.sub().closed) == closed


def test_what_a_worker_gives_back_that_it_does_not_have_is_refused() -> None:
    harness, id_ = with_one_slice(3)
    harness.core.handle(ev.Revoking([P0]), harness.now)
    with pytest.raises(InvariantError, match=f"gives back of slice {id_ + 1}, which has ended"):
        harness.core.handle(ev.Recalled("default", 0, [(id_ + 1, [0])]), harness.now)


# --- a pool that settles in any order, or runs many at once ---


def test_records_that_ended_out_of_order_are_settled_and_the_position_waits_for_the_rest() -> None:
    harness, id_ = with_one_slice(6)
    progress = {id_: scattered(6, runs=(1, 3), ended={0, 2, 5})}
    snapshot = harness.core.snapshots.take(progress, harness.now)[P0]
    assert (snapshot.position, snapshot.runs) == (1, {"default": ((2, 3), (5, 6))})
    (commit,) = [
        each
        for each in harness.core.handle(ev.CommitDue(progress), harness.now)
        if isinstance(each, cmd.Commit)
    ]
    assert commit.entries[P0].position == 1


def test_all_that_runs_at_once_is_waited_for_and_what_has_not_started_is_not() -> None:
    harness, id_ = with_one_slice(6)
    progress = {id_: scattered(6, runs=(1, 3), ended={0, 2, 5})}
    assert offsets(harness, [P0], progress) == [1, 3]
    assert offsets(harness, [P1], progress) == []
    harness.core.handle(ev.Revoking([P0]), harness.now)
    assert offsets(harness, [P0], progress) == [1, 3, 4], "until the recall is answered 4 may start"
    harness.core.handle(ev.Recalled("default", 0, [(id_, [4])]), harness.now)
    assert offsets(harness, [P0], progress) == [1, 3]


def offsets(
    harness: Harness, partitions: list[object], progress: dict[int, Scattered]
) -> list[int]:
    running, letters = harness.core.under_way(partitions, progress)  # type: ignore[arg-type]
    assert letters == 0
    return [each.offset() for each in running]


def test_of_what_ended_before_its_partition_went_each_counts_and_the_rest_is_stale() -> None:
    harness, id_ = with_one_slice(6)
    progress = {id_: scattered(6, runs=(1, 3), ended={0, 2, 5})}
    harness.core.handle(ev.Revoking([P0]), harness.now)
    harness.core.handle(ev.Recalled("default", 0, [(id_, [4])]), harness.now)
    (lapse,) = harness.core.handle(ev.Forget([P0], progress=progress), harness.now)
    assert lapse == cmd.Lapse("default", 0, (id_,), frozenset({P0}))
    harness.core.handle(ev.Reported([ev.SliceEnded(id_, 0.1)]), harness.now)
    harness.core.check()
    counts = harness.sub().counts
    assert (counts.ok, counts.stale_results) == (3, 2)
    assert harness.core.unsettled_count() == 0


def test_a_failure_among_those_that_run_at_once_closes_its_own_lane_and_stays_unsettled() -> None:
    harness, id_ = with_one_slice(4)
    harness.core.handle(ev.Reported([ev.Failed(id_, 2, ERROR)]), harness.now)
    progress = {id_: scattered(4, runs=(0,), ended={1, 2, 3})}
    snapshot = harness.core.snapshots.take(progress, harness.now)[P0]
    assert (snapshot.position, snapshot.runs) == (0, {"default": ((1, 2), (3, 4))})
    harness.core.handle(ev.Reported([ev.SliceEnded(id_, 0.1)]), harness.now)
    harness.core.check()
    snapshot = harness.core.snapshots.take({}, harness.now)[P0]
    assert (snapshot.position, snapshot.runs) == (2, {"default": ((3, 4),)})


def test_what_is_taken_back_from_the_middle_runs_again_and_the_rest_settles() -> None:
    harness, id_ = with_one_slice(5)
    harness.core.handle(ev.Revoking([P1]), harness.now)  # nothing of it is leased: no recall
    harness.core.handle(ev.Stopping(), harness.now)
    harness.core.handle(ev.Recalled("default", 0, [(id_, [1, 3])]), harness.now)
    harness.core.check()
    assert [each.offset() for each in harness.sub().unsettled.waiting()] == [1, 3]
    harness.core.handle(ev.Reported([ev.SliceEnded(id_, 0.1)]), harness.now)
    snapshot = harness.core.snapshots.take({}, harness.now)[P0]
    assert (snapshot.position, snapshot.runs) == (1, {"default": ((2, 3), (4, 5))})
    assert harness.sub().counts.ok == 3


def test_of_many_that_one_worker_runs_for_long_a_few_are_named_at_a_time_and_each_once() -> None:
    harness, id_ = with_one_slice(8, SubscriptionSettings(warn_after=5.0))
    progress = {id_: scattered(8, runs=range(8))}
    said: list[int] = []
    for _ in range(30):
        harness.now += 0.5
        notices = [
            line_of(each)
            for each in harness.core.handle(ev.Tick(progress), harness.now)
            if isinstance(each, cmd.Notice)
        ]
        assert len(notices) <= NAMED_AT_ONCE
        said += [each.about.offset for each in notices if each.about is not None]
    assert said == list(range(8))


def test_of_those_that_run_at_once_each_one_is_told_of_when_it_ends() -> None:
    harness, id_ = with_one_slice(3, SubscriptionSettings(warn_after=5.0))
    for runs in [(0, 2)] * 12 + [(0,)]:
        harness.now += 0.5
        commands = harness.core.handle(ev.Tick({id_: scattered(3, runs=runs)}), harness.now)
    (notice,) = [each for each in commands if isinstance(each, cmd.Notice)]
    assert line_of(notice).text == "orders-0@2 (key b'key-2') ended after 6 s"


def test_a_slice_crosses_a_pipe_with_its_own_records_and_what_they_were() -> None:
    came: list[Any] = [
        Message(topic="orders", partition=0, offset=offset, key=b"key", value=b"v" * 1_000)
        for offset in range(2_000)
    ]
    chunk = Chunk(came)
    records = came[5:8]
    slice_ = Slice(7, "default", 2, 3, records, Originals(records, "orders", [chunk]))
    records[1].set_value("decoded")
    sent = pickle.dumps(slice_)
    assert len(sent) < 10_000
    there: Slice = pickle.loads(sent)
    assert there == slice_
    assert (there.subscription, there.worker, there.epoch) == ("default", 2, 3)
    assert [each.offset() for each in there.records] == [5, 6, 7]
    assert there.came.coordinates_of(2) == (TopicPartition("orders", 0), 7)
    assert there.came[1].value() == b"v" * 1_000
    there.came.restore(1)
    assert there.records[1].value() == b"v" * 1_000
