"""Who is held up by a record that runs for long, and what waits for it."""

from __future__ import annotations

import pytest

from kafka_keyshared.core.contract.slices import Epochs, SliceState
from kafka_keyshared.core.lanes.single_inflight import OneLease
from kafka_keyshared.core.limits.slow_records import SLOW_AFTER, LongRunning, Slow, slow_at
from kafka_keyshared.core.records.lane_identity import Lane, lane_of
from kafka_keyshared.core.workers.worker import Worker
from kafka_keyshared.model import Record
from tests.support.records import P0, P1, FakeRecord, record
from tests.support.slices import slice_of

THERE = Epochs()
NOW = 100.0
LONG = NOW - SLOW_AFTER


def worker_with(*slices: list[FakeRecord], individually: bool = False) -> tuple[Worker, list[int]]:
    """A worker with these leases, and the ids of their slices."""
    worker = Worker("worker-0", 0, 100, individually=individually)
    made = [slice_of(*records) for records in slices]
    for each in made:
        worker.lease(SliceState(each))
    return worker, [each.id for each in made]


def offsets(slow: Slow, leases: OneLease | None = None) -> list[int | None]:
    return [each.offset() for each in slow.waiting(leases, THERE)]


def runs(worker: Worker, slice_: int, index: int = 0, since: float = LONG) -> LongRunning:
    return LongRunning(slice_, index, worker.slices[slice_].slice.records[index], since, b"k")


def test_all_that_a_worker_has_waits_for_the_one_record_that_it_is_in() -> None:
    worker, (first, _) = worker_with([record(0), record(1), record(2)], [record(3)])
    worker.row.backlog.extend([record(5)])
    worker.row.front.append(record(4))
    slow = slow_at(worker, [runs(worker, first, 1)], NOW)
    assert slow is not None
    assert slow.whole
    assert offsets(slow) == [2, 3, 4, 5]
    assert slow.count(None, THERE) == 6, "and without a walk not fewer"


def test_what_was_given_back_waits_elsewhere() -> None:
    worker, (first, second) = worker_with([record(0), record(1)], [record(2)])
    worker.take_back(worker.slices[first], [1])
    worker.take_back(worker.slices[second], [0])
    slow = slow_at(worker, [runs(worker, first)], NOW)
    assert slow is not None
    assert offsets(slow) == []


def test_one_that_has_just_begun_holds_nobody_up() -> None:
    worker, (first,) = worker_with([record(0), record(1)])
    assert slow_at(worker, [runs(worker, first, since=LONG + 0.01)], NOW) is None
    assert slow_at(worker, [], NOW) is None


def test_a_member_that_gets_on_is_not_held_up_and_the_keys_of_its_slow_records_wait() -> None:
    slow_one, other = record(0, "slow"), record(1, "other")
    worker, (first, second) = worker_with([slow_one], [other], individually=True)
    worker.row.backlog.extend([record(9, "third")])
    leases = OneLease(lane_of)
    for each in (slow_one, record(2, "slow"), record(3, "slow"), other, record(4, "other")):
        leases.claim(each)
    running = [runs(worker, first), runs(worker, second, since=NOW)]
    slow = slow_at(worker, running, NOW)
    assert slow is not None
    assert not slow.whole
    assert offsets(slow, leases) == [2, 3]
    assert slow.count(leases, THERE) == 2
    assert offsets(slow) == [], "with many leases of a key its worker has them all"


def test_a_member_of_whose_records_each_is_slow_is_held_up() -> None:
    worker, (first, second, _) = worker_with(
        [record(0, "a")], [record(1, "b")], [record(2, "c")], individually=True
    )
    leases = OneLease(lane_of)
    for each in (record(0, "a"), record(1, "b"), record(2, "c"), record(3, "c"), record(4, "b")):
        leases.claim(each)
    running = [runs(worker, first, since=LONG - 1), runs(worker, second)]
    slow = slow_at(worker, running, NOW)
    assert slow is not None
    assert slow.whole
    assert slow.first is running[0], "named is the one that runs the longest"
    assert {*offsets(slow, leases)} == {2, 3, 4}


def test_who_goes_on_beside_a_stuck_record_is_not_held_up_by_it() -> None:
    worker, (first, second) = worker_with([record(0)], [record(1)])
    worker.set_apart(worker.slices[first], goes_on=True)
    running = [runs(worker, first), runs(worker, second, since=NOW)]
    assert slow_at(worker, running, NOW) is None


def test_who_waits_for_a_stuck_record_is_held_up_however_short_it_was_seen() -> None:
    worker, (first,) = worker_with([record(0)])
    worker.set_apart(worker.slices[first], goes_on=False)
    worker.row.backlog.extend([record(1)])
    slow = slow_at(worker, [runs(worker, first, since=NOW)], NOW)
    assert slow is not None
    assert offsets(slow) == [1]


def test_what_has_ended_since_the_last_look_holds_nobody_up() -> None:
    worker, (first, _) = worker_with([record(0)], [record(1)])
    slow = slow_at(worker, [runs(worker, first)], NOW)
    assert slow is not None
    assert not slow.over()
    worker.release(worker.slices[first], 1, 0.1)
    assert slow.over()


def test_what_has_started_since_the_last_look_may_be_written_into() -> None:
    worker, (first,) = worker_with([record(0), record(1)])
    slow = slow_at(worker, [runs(worker, first)], NOW)
    worker.slices[first].slice.records[1].set_topic({"not": "hashable"})  # type: ignore[attr-defined]
    assert slow is not None
    assert [each.topic() for each in slow.waiting(None, THERE)] == ["orders"]


def test_what_is_to_come_back_of_a_partition_that_has_gone_waits_for_nothing() -> None:
    """A recall may be answered late; until then the worker has it, and nobody holds back for it."""
    epochs = Epochs()
    epochs.come([P0, P1])
    worker = Worker("worker-0", 0, 100)
    slice_ = slice_of(record(0), record(7, at=P1), record(1), epoch=epochs.now)
    worker.lease(SliceState(slice_))
    slow = slow_at(worker, [runs(worker, slice_.id)], NOW)
    assert slow is not None
    assert [each.offset() for each in slow.waiting(None, epochs)] == [7, 1]
    epochs.go([P1])
    assert [each.offset() for each in slow.waiting(None, epochs)] == [1]
    epochs.come([P1])
    assert [each.offset() for each in slow.waiting(None, epochs)] == [1]


@pytest.mark.parametrize("how", ["failed", "the slice has ended", "its partition has gone"])
def test_of_what_runs_no_more_the_key_is_not_asked_for(how: str) -> None:
    """A key that was derived is forgotten with its record, and the look is of the last beat."""
    epochs = Epochs()
    epochs.come([P0])
    worker = Worker("worker-0", 0, 100, individually=True)
    slow_one = record(0, "slow")
    leased = SliceState(slice_of(slow_one, epoch=epochs.now))
    worker.lease(leased)
    forgotten: set[int] = set()

    def lane(each: Record) -> Lane:
        assert id(each) not in forgotten
        return lane_of(each)

    leases = OneLease(lane)
    for each in (slow_one, record(1, "slow")):
        leases.claim(each)
    slow = slow_at(worker, [runs(worker, leased.slice.id)], NOW)
    assert slow is not None
    assert ([each.offset() for each in slow.waiting(leases, epochs)], slow.whole) == ([1], True)
    if how == "failed":
        leased.came_back(0)
    elif how == "the slice has ended":
        worker.release(leased, 1, 0.1)
    else:
        epochs.go([P0])
    forgotten.add(id(slow_one))
    assert list(slow.waiting(leases, epochs)) == []
    assert slow.count(leases, epochs) <= 1, "only what the worker has"
