"""What one thread asks of another that goes on meanwhile: each answer is of one moment."""

from __future__ import annotations

from queue import SimpleQueue

import pytest

from kafka_keyshared.clock import Clock
from kafka_keyshared.executors.coroutines.asyncio_pool import TaskPool
from kafka_keyshared.executors.coroutines.asyncio_record_worker import Runner
from kafka_keyshared.executors.coroutines.task_frames import unmade
from kafka_keyshared.executors.handling.handlers import Made
from kafka_keyshared.executors.key_chains import Handed
from kafka_keyshared.executors.port import Handover
from kafka_keyshared.executors.thread_state import WorkerCell, WorkerSpec
from tests.support.records import record
from tests.support.slices import slice_of

SPEC = WorkerSpec("default", 0, "worker-0", lambda: Made(unmade))


class LeavingCell(WorkerCell):
    """A worker that is in its slice at the first look, and in none from the second on."""

    looks: list[Handover]

    @property
    def current(self) -> Handover | None:
        return self.looks.pop() if self.looks else None

    @current.setter
    def current(self, current: Handover | None) -> None:
        self.looks = [] if current is None else [current]


class LeavingRunner(Runner):
    """The same of a task."""

    __slots__ = ("looks",)
    looks: list[Handed]

    @property
    def current(self) -> Handed | None:
        return self.looks.pop() if self.looks else None

    @current.setter
    def current(self, current: Handed | None) -> None:
        self.looks = [] if current is None else [current]


def test_a_thread_that_leaves_its_slice_while_it_is_asked_answers_of_one_moment() -> None:
    handover = Handover(slice_of(record(1, "a")))
    id_ = handover.slice.id
    next(handover.todo)
    cell = LeavingCell(SPEC, given={id_: handover})
    cell.current = handover
    assert cell.is_in(id_)
    assert not cell.is_in(id_)
    cell.current = handover
    assert cell.runs(id_, 0)
    assert not cell.runs(id_, 0)


def test_a_task_that_leaves_its_record_while_it_is_asked_answers_of_one_moment() -> None:
    handed = Handed(slice_of(record(1, "a")))
    runner = LeavingRunner("worker-0")
    runner.current = handed
    assert runner.has(handed.slice.id, 0)
    assert not runner.has(handed.slice.id, 0)


def test_a_worker_that_comes_while_the_loop_wakes_the_others_stops_it_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pool = TaskPool([SPEC], SimpleQueue(), Clock(), limit=1)
    worker = pool.workers["default", 0]
    woken: list[int] = []

    def wake() -> None:
        woken.append(len(pool.workers))
        pool.workers["default", len(pool.workers)] = worker

    monkeypatch.setattr(worker, "wake", wake)
    pool.resize(2)  # told at once, as its loop does not run
    assert woken == [1]
