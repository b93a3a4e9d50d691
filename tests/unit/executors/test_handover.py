"""Taking records back from a worker that is busy: each is started or taken back, exactly once."""

from __future__ import annotations

import os
import random
import sys
import threading

import pytest

from kafka_keyshared.core.contract.slices import SerialProgress
from kafka_keyshared.executors.port import Handover
from tests.support.records import FakeRecord, record
from tests.support.slices import slice_of

ROUNDS = 500
RECORDS = 2_000


@pytest.fixture
def eager_switching() -> object:
    """Make the interpreter change threads as often as it can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("eager_switching")
def test_each_record_is_started_or_taken_back_once_and_in_order() -> None:
    chance = random.Random(379)
    pool = [record(offset) for offset in range(RECORDS)]
    to_worker: list[tuple[Handover, int]] = []
    given, reached, finished = (threading.Semaphore(0) for _ in range(3))
    started: list[object] = []

    def worker() -> None:
        for _ in range(ROUNDS):
            given.acquire()
            handover, call_at = to_worker[0]
            for item in handover.todo:
                started.append(item)
                if len(started) == call_at:
                    reached.release()  # and go on: the owner recalls in the midst of it
                if len(started) >= call_at:
                    os.write(nowhere, b".")  # which lets the owner run, however few cores there are
            finished.release()

    nowhere = os.open(os.devnull, os.O_WRONLY)
    thread = threading.Thread(target=worker, daemon=True)
    thread.start()
    split = 0
    for _ in range(ROUNDS):
        records = pool[: chance.randrange(1, RECORDS)]
        handover = Handover(slice_of(*records))
        to_worker[:] = [(handover, chance.randrange(1, len(records) + 1))]
        started.clear()
        given.release()
        if chance.random() < 0.9:  # else: perhaps before the worker has taken anything
            assert reached.acquire(timeout=30)
        back = handover.take_back()
        again = handover.take_back()
        assert finished.acquire(timeout=30), "the worker goes on for ever"
        reached.acquire(blocking=False)
        assert not again
        assert started == records[: back.start]
        assert back.stop == len(records)
        assert handover.progress() == SerialProgress(len(started))
        split += 0 < len(back) < len(records)
    thread.join(30)
    os.close(nowhere)
    assert split > 20, "the race was never run: the recall always came before or after the work"


def test_nothing_is_taken_back_twice_nor_after_the_end() -> None:
    records: list[FakeRecord] = [record(offset) for offset in range(3)]
    handover = Handover(slice_of(*records))
    assert handover.progress() == SerialProgress(0)
    assert next(handover.todo) is records[0]
    assert handover.progress() == SerialProgress(1)
    assert handover.unstarted() == records[1:]
    assert handover.take_back() == range(1, 3)
    assert not handover.unstarted()
    assert not handover.take_back()
    assert handover.progress() == SerialProgress(1), "what was taken back has not started"
    assert next(handover.todo, None) is None
    assert not handover.take_back()
    assert handover.progress() == SerialProgress(1)


def test_a_record_is_found_by_itself_and_not_by_what_it_equals() -> None:
    """A report that named another one would settle what has failed."""
    same = record(7)
    records = [record(1), same, record(2), same]
    handover = Handover(slice_of(*records))
    assert [handover.index_of(each) for each in (records[0], same, records[2])] == [0, 1, 2]
    assert handover.index_of(same) == 3
    with pytest.raises(ValueError, match="started before another one"):
        handover.index_of(records[0])
