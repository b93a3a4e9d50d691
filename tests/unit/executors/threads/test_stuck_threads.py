"""A thread that does not come out of a record: another goes on, and what becomes of it counts."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Any

import pytest

from kafka_keyshared.clock import Clock
from kafka_keyshared.core.contract.commands import Fence, Recall, TimeOut
from kafka_keyshared.core.contract.events import Failed, FencePassed, Recalled, SliceEnded
from kafka_keyshared.core.contract.slices import SerialProgress, Slice
from kafka_keyshared.core.records.lane_identity import lane_of
from kafka_keyshared.executors.handling.handlers import Made
from kafka_keyshared.executors.thread_state import WorkerSpec
from kafka_keyshared.executors.threads.pool import ThreadPool
from kafka_keyshared.model import Drop
from tests.conformance.pool_sides import Members
from tests.conftest import Eventually
from tests.support.records import FakeRecord, record
from tests.support.slices import slice_of

WAIT = 30.0
WORKER = ("default", 0)


class HandlerError(Exception):
    """What a handler raises."""


class Hung:
    """A pool of which each record waits in its handler until it is let go."""

    def __init__(
        self,
        *,
        workers: int = 1,
        one_thread: bool = False,
        mailbox: SimpleQueue[Any] | None = None,
    ) -> None:
        self.mailbox: SimpleQueue[Any] = SimpleQueue() if mailbox is None else mailbox
        self.began: SimpleQueue[int] = SimpleQueue()
        self.gates: dict[int, threading.Event] = {}
        self.fail: dict[int, BaseException] = {}
        self.threads_before = threading.active_count()
        specs = [
            WorkerSpec(
                "default",
                index,
                f"worker-{index}",
                lambda: Made(self.handle),
                one_thread=one_thread,
            )
            for index in range(workers)
        ]
        self.pool = ThreadPool(specs, self.mailbox, Clock())
        self.pool.start()

    def handle(self, item: Any) -> None:
        offset = item.offset()
        self.began.put(offset)
        assert self.gates.setdefault(offset, threading.Event()).wait(WAIT)
        if offset in self.fail:
            raise self.fail[offset]

    def submit(self, *records: FakeRecord, worker: int = 0) -> Slice:
        """Give a slice; every record but the first may end at once."""
        slice_ = slice_of(*records, worker=worker)
        for each in records:
            self.gates[each.offset()] = threading.Event()
        self.pool.submit(slice_)
        return slice_

    def let_go(self, *offsets: int) -> None:
        """Let these come out of their handler, as soon as they are in it."""
        for offset in offsets:
            self.gates.setdefault(offset, threading.Event()).set()

    def begins(self) -> int:
        """Wait for the next record that begins."""
        return self.began.get(timeout=WAIT)

    def mail(self, count: int = 1) -> list[Any]:
        """Wait for the next posts."""
        return [self.mailbox.get(timeout=WAIT) for _ in range(count)]

    def time_out(self, slice_: Slice, index: int = 0, worker: int = 0) -> Recalled:
        """Ask for the end of a record; return the answer."""
        self.pool.time_out(TimeOut("default", worker, ((slice_.id, index),)))
        (answer,) = self.mail()
        assert isinstance(answer, Recalled)
        return answer

    def close(self) -> None:
        """Let everything end; as many threads are there as before."""
        for gate in self.gates.values():
            gate.set()
        assert self.pool.stop(WAIT) == []
        assert threading.active_count() <= self.threads_before


Make = Callable[..., Hung]


@pytest.fixture
def hung() -> Iterator[Make]:
    made: list[Hung] = []

    def make(**given: Any) -> Hung:
        made.append(Hung(**given))
        return made[-1]

    yield make
    for each in made:
        each.close()


def given_back(answer: Recalled) -> dict[int, list[int]]:
    return {id_: list(back) for id_, back in answer.slices if len(back)}


def test_what_has_not_started_comes_back_and_another_thread_takes_what_follows(hung: Make) -> None:
    made = hung()
    first = made.submit(record(1, "slow"), record(2, "a"))
    second = made.submit(record(3, "b"))
    assert made.begins() == 1
    answer = made.time_out(first)
    assert given_back(answer) == {first.id: [1], second.id: [0]}
    (stuck,) = answer.stuck
    assert (stuck.slice, stuck.index, stuck.goes_on) == (first.id, 0, True)
    third = made.submit(record(4, "b"))
    made.let_go(4)
    assert made.begins() == 4
    assert [each.slice for each in made.mail(2)] == [second.id, third.id]
    assert made.pool.progress() == {first.id: SerialProgress(1)}


def test_its_end_is_reported_as_ever_and_its_thread_ends_with_it(
    hung: Make, eventually: Eventually
) -> None:
    made = hung()
    slice_ = made.submit(record(1), record(2))
    made.begins()
    before = threading.active_count()
    made.time_out(slice_)
    made.let_go(1)
    (ended,) = made.mail()
    assert isinstance(ended, SliceEnded)
    assert ended.slice == slice_.id
    assert made.pool.progress() == {}
    eventually(lambda: threading.active_count() == before, WAIT)
    made.pool.beat()
    assert made.pool.beside == []


@pytest.mark.parametrize(
    ("error", "kinds"), [(HandlerError(), [Failed, SliceEnded]), (Drop(), [SliceEnded])]
)
def test_its_late_failure_and_its_late_drop_are_reported_as_ever(
    hung: Make, error: BaseException, kinds: list[type]
) -> None:
    made = hung()
    slice_ = made.submit(record(1), record(2))
    made.begins()
    made.time_out(slice_)
    made.fail[1] = error
    made.let_go(1)
    reports = made.mail(len(kinds))
    assert [type(each) for each in reports] == kinds
    assert list(reports[-1].dropped) == ([0] if isinstance(error, Drop) else [])


def test_lanes_that_have_failed_run_again_on_the_other_thread_behind_their_fence(
    hung: Make,
) -> None:
    made = hung()
    failing = record(1, "a")
    made.fail[1] = HandlerError()
    slice_ = made.submit(failing, record(2, "slow"), record(3, "a"))
    made.let_go(1)
    assert [made.begins(), made.begins()] == [1, 2]
    assert isinstance(made.mail()[0], Failed)
    made.pool.fence(Fence("default", 0, (lane_of(failing),)))
    assert given_back(made.time_out(slice_, 1)) == {slice_.id: [2]}
    assert isinstance(made.mail()[0], FencePassed)
    made.submit(record(4, "a"))
    made.let_go(4)
    assert made.begins() == 4
    assert isinstance(made.mail()[0], SliceEnded)


def test_one_that_has_ended_meanwhile_is_not_stuck(hung: Make) -> None:
    made = hung()
    slice_ = made.submit(record(1), record(2, "a"))
    made.begins()
    made.let_go(1)
    assert made.begins() == 2
    assert not made.time_out(slice_, 0).stuck
    made.let_go(2)
    (ended,) = made.mail()
    assert isinstance(ended, SliceEnded)
    assert not made.time_out(slice_, 1).stuck


def test_with_an_instance_nobody_else_goes_on_until_it_ends(hung: Make) -> None:
    made = hung(one_thread=True)
    slice_ = made.submit(record(1), record(2, "a"))
    made.begins()
    (stuck,) = made.time_out(slice_).stuck
    assert not stuck.goes_on
    made.let_go(1)
    assert isinstance(made.mail()[0], SliceEnded)
    made.submit(record(3, "a"))
    made.let_go(3)
    assert made.begins() == 3
    assert isinstance(made.mail()[0], SliceEnded)


def test_no_more_threads_are_beside_stuck_records_than_there_are_workers(hung: Make) -> None:
    made = hung(workers=2)
    for at in range(2):
        slice_ = made.submit(record(10 + at))
        made.begins()
        assert made.time_out(slice_).stuck[0].goes_on
    last = made.submit(record(12))
    made.begins()
    assert not made.time_out(last).stuck[0].goes_on
    running = threading.active_count()
    assert not made.time_out(last).stuck[0].goes_on, "asked again it is the same"
    assert threading.active_count() == running
    made.let_go(10)
    assert isinstance(made.mail()[0], SliceEnded)
    for each in made.pool.beside[:1]:
        assert each.thread is not None
        each.thread.join(WAIT)
    assert made.time_out(last).stuck[0].goes_on, "one of them has ended"
    after = made.submit(record(20))
    made.let_go(20)
    assert made.begins() == 20
    assert made.mail()[0].slice == after.id


class Deadly(SimpleQueue):  # type: ignore[type-arg]
    """A mailbox that ends the thread which reports a failure, once."""

    deaths = 1

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        by_worker = threading.current_thread().name.startswith("keyshared-")
        if by_worker and self.deaths and isinstance(item, Failed):
            self.deaths -= 1
            raise SystemExit
        super().put(item, block, timeout)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_ends_in_its_stuck_record_has_it_reported_as_failed(hung: Make) -> None:
    made = hung(mailbox=Deadly())
    slice_ = made.submit(record(1, "slow"))
    made.begins()
    made.time_out(slice_)
    (cell,) = made.pool.beside
    made.fail[1] = HandlerError()
    made.let_go(1)
    assert cell.thread is not None
    cell.thread.join(WAIT)
    assert made.pool.dead() == [], "the worker itself goes on"
    made.pool.beat()
    failed, ended = made.mail(2)
    assert isinstance(failed, Failed)
    assert isinstance(ended, SliceEnded)
    assert "thread ended" in failed.failure.message
    assert made.pool.progress() == {}
    made.pool.beat()
    assert made.mailbox.empty()


def test_a_thread_that_cannot_be_started_is_tried_again_as_for_a_dead_worker(
    hung: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = hung()
    slice_ = made.submit(record(1, "slow"))
    made.begins()

    def cannot(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", cannot)
        made.time_out(slice_)
    assert made.pool.dead() == [WORKER]
    made.pool.replace(*WORKER)
    assert made.pool.dead() == []
    made.submit(record(2, "a"))
    made.let_go(2)
    assert made.begins() == 2


def test_a_worker_that_is_given_up_leaves_its_stuck_record_to_its_thread(hung: Make) -> None:
    made = hung()
    slice_ = made.submit(record(1, "slow"))
    made.begins()
    made.time_out(slice_)
    other = made.submit(record(2, "a"))
    assert made.begins() == 2
    made.let_go(2)
    assert made.mail()[0].slice == other.id
    cell = made.pool.cells[WORKER]
    cell.inbox.put(None)
    assert cell.thread is not None
    cell.thread.join(WAIT)
    made.pool.abandon(*WORKER)
    assert made.mailbox.empty()
    assert made.pool.progress() == {slice_.id: SerialProgress(1)}
    made.let_go(1)
    assert made.mail()[0].slice == slice_.id


def test_it_is_said_of_each_where_it_stands(hung: Make, eventually: Eventually) -> None:
    made = hung()
    slice_ = made.submit(record(1, "slow"))
    made.begins()
    made.time_out(slice_)
    assert "in wait" in made.pool.where(*WORKER, slice_.id, 0)
    names = [each.name for each in threading.enumerate() if each.name.startswith("keyshared-")]
    assert "keyshared-default-worker-0 (stuck)" in names
    assert "keyshared-default-worker-0" in names


def test_a_stop_names_the_one_that_still_runs(hung: Make) -> None:
    made = hung()
    slice_ = made.submit(record(1, "slow"))
    made.begins()
    made.time_out(slice_)
    assert made.pool.stop(0.01) == ["worker-0 (stuck)"]


def test_a_member_of_a_pull_pool_loses_the_lease_and_its_late_word_is_refused() -> None:
    side = Members()
    (slice_,) = side.submit(record(1, "slow"))
    side.start()
    side.rules.ended(slice_.records[0], failed=True)
    side.rules.recalling(Recall("default", 0, {}))
    side.pool.time_out(TimeOut("default", 0, ((slice_.id, 0),)))
    side.hear()
    assert side.rules.said == ["start 1", "Failed 1", "SliceEnded 1"]
    assert side.cell.settle([slice_]) == [slice_]
