"""What it costs that slots drain: hardly anything, however many do, and nothing when none does."""

from __future__ import annotations

import gc
import tracemalloc

import pytest

from kafka_keyshared.core.contract import events as ev
from kafka_keyshared.core.contract.commands import Recall
from kafka_keyshared.core.worker_changes import slot_draining
from kafka_keyshared.model import TopicPartition
from tests.support.leased_slots import held_by_a, keys_by_slot, ranges
from tests.support.records import FakeRecord

MOST = 400_000
"""Bytes."""


@pytest.mark.parametrize("slots", [1_000, 10_000, 65_536])
def test_however_many_slots_drain_it_takes_no_more_than_this(slots: int) -> None:
    core, leases = held_by_a(slots)
    sub = core.subscriptions["default"]
    assert len(leases) == slots
    keys_by_slot()
    tracemalloc.start()
    try:
        sub.table.project(sub.workers.values())  # its lists are traced on both sides
        before = _traced()
        commands = slot_draining.change(sub, ranges(slots, of="B"))
        recalls = [each.worker for each in commands if isinstance(each, Recall)]
        del commands
        held = _traced() - before
    finally:
        tracemalloc.stop()
    assert sub.draining.count == slots
    assert sub.draining.pending(slots - 1) == 1
    assert held <= MOST
    core.handle(ev.Recalled("default", recalls[0]), 0.0)  # all of it has started
    # The slots on which somebody waits cost what has to be held in any case: the records.
    first, end = TopicPartition("orders", 0), slots // 64 + 1
    waiting = [FakeRecord(first, end + at, key) for at, key in enumerate(keys_by_slot()[:100])]
    core.handle(ev.Fetched(waiting, {first: end + 100}), 0.0)
    assert sum(1 for _ in sub.draining.waiting()) == 100
    ended = [ev.SliceEnded(each.slice.id, 0.001) for each in leases]
    del leases, waiting
    core.handle(ev.Reported(ended), 0.0)
    assert (sub.draining.count, sub.draining.cleared_total) == (0, slots)
    assert sub.draining.empty()
    assert not sub.draining.counting
    assert sub.workers[1].leased == 100


def _traced() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]
