"""Taking records back from a worker that is busy: each is started or taken back, exactly once."""

from __future__ import annotations

import os
import random
import sys
import threading

import pytest

from kafka_keyshared.core.events import Slice
from kafka_keyshared.pools.port import STOP, Handover
from tests.support.records import FakeRecord, record

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
            take = handover.todo.popleft
            while (item := take()) is not STOP:
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
        handover = Handover(Slice("default", 0, list(records)))
        to_worker[:] = [(handover, chance.randrange(1, len(records) + 1))]
        started.clear()
        given.release()
        if chance.random() < 0.9:  # else: perhaps before the worker has taken anything
            assert reached.acquire(timeout=30)
        back: list[object] = list(handover.take_back())
        again = handover.take_back()
        assert finished.acquire(timeout=30), "the worker waits for a STOP that is not there"
        reached.acquire(blocking=False)
        assert again == []
        assert started + back == records
        assert handover.unstarted() == 0
        split += 0 < len(back) < len(records)
    thread.join(30)
    os.close(nowhere)
    assert split > 20, "the race was never run: the recall always came before or after the work"


def test_nothing_is_taken_back_twice_nor_after_the_end() -> None:
    records: list[FakeRecord] = [record(offset) for offset in range(3)]
    handover = Handover(Slice("default", 0, list(records)))
    assert handover.unstarted() == 3
    assert handover.todo.popleft() is records[0]
    assert handover.unstarted() == 2
    assert handover.take_back() == records[1:]
    assert handover.take_back() == []
    assert handover.unstarted() == 0
    assert handover.todo.popleft() is STOP
    assert handover.take_back() == []
