"""How far a process is in its batch, on a board that both sides see; here it is a thread."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable
from contextvars import copy_context
from typing import Any

import pytest

from kafka_keyshared.core.contract.slices import SerialProgress
from kafka_keyshared.executors.handling.call_record import DROPPED, FAILED, OK
from kafka_keyshared.executors.handling.failure import NO_RULES
from kafka_keyshared.executors.handling.handlers import Made
from kafka_keyshared.executors.processes.remote_batch import SentSlice
from kafka_keyshared.executors.processes.shm_progress import (
    ENDED,
    MOST,
    STARTED,
    ProgressBoard,
    new_mark,
    numbers_of,
    times_of,
)
from kafka_keyshared.executors.processes.wire_records import columns_of
from kafka_keyshared.executors.processes.worker_main import (
    LAST,
    BatchResult,
    ChildMain,
    ProcessBatch,
    Recipe,
    SlicePart,
)
from tests.support.records import record
from tests.support.slices import slice_of


class Pipe:
    """What the process is sent, one after the other, and what it has answered."""

    def __init__(self, *sent: object) -> None:
        self._sent = deque(sent)
        self.answers: list[Any] = []

    def recv(self) -> object:
        return self._sent.popleft() if self._sent else LAST

    def send(self, answer: object) -> None:
        self.answers.append(answer)


def test_what_is_known_to_have_ended_was_told_before() -> None:
    """Whoever knows it may commit it; and each call is told of once, with its times."""
    board = ProgressBoard(4)
    told: list[Any] = []
    records = [record(offset) for offset in range(6)]
    sent = SentSlice(slice_of(*records), board, lambda *call: told.append(call))
    sent.send(4)
    places, times = numbers_of(board.shared.places), times_of(board.shared.times)
    places[STARTED], places[ENDED] = 3, 2
    times[:6] = memoryview(array("d", [10, 11, 20, 21, 30, 0]))
    assert sent.progress() == SerialProgress(3)
    assert told == [(records[0], 10, 11, OK), (records[1], 20, 21, OK)]
    sent.progress()
    times[5] = 31
    sent.tell(2, DROPPED)
    sent.progress()
    assert told[2:] == [(records[2], 30, 31, DROPPED)]
    sent.passed(3)
    sent.send(4)
    places[STARTED] = 1
    assert sent.broken_off(99) == 3
    assert told[3:] == [(records[3], 10, 99, FAILED)]


def ran(board: ProgressBoard, handle: Callable[[Any], object], count: int) -> BatchResult:
    """Return what became of a batch of so many records."""
    records = [record(offset, f"k{offset}") for offset in range(count)]
    pipe: Any = Pipe(ProcessBatch(columns_of(records, board.shared.values), SlicePart(1, 0)))
    board.begin()
    child = ChildMain(pipe, board.shared, Made(handle), Recipe("worker-0", b"", (), NO_RULES))
    copy_context().run(child.live)  # a process is one worker as long as it lives; this one is none
    found: BatchResult = pipe.answers[0]
    return found


def test_a_record_runs_from_its_start_to_its_end() -> None:
    board = ProgressBoard()
    seen: list[tuple[int, bool]] = []
    assert ran(board, lambda _: seen.append((board.started(), board.running())), 3) == BatchResult(
        3
    )
    assert seen == [(1, True), (2, True), (3, True)]
    assert (board.started(), board.running()) == (3, False)


@pytest.mark.parametrize("at", [0, 2, 4])
def test_nothing_starts_behind_the_record_that_runs_when_it_is_forbidden(at: int) -> None:
    board = ProgressBoard()
    frozen: list[int] = []

    def handle(item: Any) -> None:
        if item.offset() == at:
            frozen.append(board.freeze())

    assert ran(board, handle, 5) == BatchResult(at + 1)
    assert frozen == [at + 1]
    assert (board.started(), board.running()) == (at + 1, False)


def test_what_is_forbidden_before_the_first_one_starts_none() -> None:
    board = ProgressBoard()
    begin = board.begin
    board.begin = lambda: (begin(), board.freeze())  # type: ignore[assignment]
    assert ran(board, lambda _: None, 3) == BatchResult(0)
    assert (board.started(), board.running()) == (0, False)


def test_a_slice_is_divided_between_who_has_it_and_who_took_it_back() -> None:
    board = ProgressBoard()
    sent = SentSlice(slice_of(*(record(offset) for offset in range(10))), board)
    assert sent.send(4) == range(4)
    assert sent.progress().started == 0
    assert sent.take_back() == range(10)
    assert sent.next() is None
    sent = SentSlice(slice_of(*(record(offset) for offset in range(10))), board)
    sent.send(4)
    sent.passed(4)
    assert sent.progress().started == 4
    assert sent.send(4) == range(4, 8)
    assert sent.take_back() == range(4, 10)
    sent.passed(0)
    assert (sent.next(), sent.take_back()) == (None, range(4, 4))


def test_a_record_that_is_to_be_set_aside_and_was_taken_back_is_told_of_once() -> None:
    """The owner takes it back after the worker has seen that its lane has failed."""
    sent = SentSlice(slice_of(*(record(offset) for offset in range(2))), ProgressBoard())
    assert sent.sets_aside(0)
    assert sent.next() == 1
    assert sent.take_back() == range(1, 2)
    assert not sent.sets_aside(1)
    assert (sent.next(), sent.progress()) == (None, SerialProgress(1))


def test_numbers_that_the_process_has_not_written_count_for_nothing() -> None:
    """What was known before holds; whoever has sent the batch hears of it once."""
    board = ProgressBoard(mark=new_mark())
    heard: list[bool] = []
    board.on_garbled = lambda: heard.append(board.garbled)
    sent = SentSlice(slice_of(*(record(offset) for offset in range(6))), board)
    sent.send(6)
    places, mark = numbers_of(board.shared.places), board.shared.mark
    places[STARTED], places[ENDED] = mark ^ 2, mark ^ 1
    assert (board.started(), board.ended(), board.running()) == (2, 1, True)
    for garbage in (0, -1, 5, int.from_bytes(b"garbage.", "little"), (1 << 62) + 3):
        places[STARTED] = places[ENDED] = garbage
        assert sent.progress() == SerialProgress(2)
        assert list(sent.take_back()) == ([2, 3, 4, 5] if garbage == 0 else [])
    assert heard == [True]
    assert sent.broken_off(0.0, counts=False) is None
    sent.send(1)
    assert not board.garbled


def test_a_process_whose_limit_is_overwritten_starts_nothing_more() -> None:
    board = ProgressBoard(mark=new_mark())
    places = numbers_of(board.shared.places)

    def handle(given: Any) -> None:
        if given.offset() == 1:
            places[MOST] = int.from_bytes(b"garbage.", "little")

    assert ran(board, handle, 4) == BatchResult(2)
    assert (board.started(), board.ended()) == (2, 2)
